"""The bandwidth of ranks as people read it: the sum, the slowest, what training in step gets, and the limit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import loaderprobe
from loaderprobe.analyze.bandwidth import feeds
from loaderprobe.records.bandwidth import RankBandwidthReport
from loaderprobe.render.bandwidth import (
    bandwidth_document,
    bandwidth_headline,
    in_step,
    limit_words,
    rank_bandwidth_columns,
)
from loaderprobe.render.json import result_json
from loaderprobe.render.writers import document_markdown, document_text
from loaderprobe.units import significant
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks

ALIKE = example_rank_bandwidth(example_ranks(20e6), example_ranks(10.2e6, 10e6), example_ranks(*[5.1e6] * 4))
SLOW = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))


def test_equal_ranks_are_said_to_get_alike() -> None:
    """One figure is enough."""
    assert "20.4 ±0.4 MB/s and 194 images/s of this size with 8 readers in 4 ranks." in bandwidth_headline(ALIKE)
    assert in_step(ALIKE) == "All ranks get alike: 4 x the slowest is 20.4 MB/s."
    assert "from 2 to 8 readers it gives no more" in limit_words(ALIKE.limit)


def test_a_slow_rank_stands_in_the_answer_with_both_figures() -> None:
    """The sum rises, and training in step gets less: rank and host are named."""
    said = in_step(SLOW)
    assert "24.5 ±0.5 MB/s" in bandwidth_headline(SLOW) and "4 x the slowest is 16.0 MB/s" in said
    assert "rank 3 on node0, gets 58 % of the fastest" in said
    assert "Rank 3 on node0 gets 4.00 MB/s" in limit_words(SLOW.limit)


def test_what_to_look_at_depends_on_the_nodes() -> None:
    """The path of a node only where there are several."""
    several = example_rank_bandwidth(example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6, nodes=4))
    assert "its process, its cores and its files" in limit_words(SLOW.limit)
    assert "the path of its node" in limit_words(several.limit)


def test_no_rank_is_named_after_a_moment() -> None:
    """In 0.1 s ranks differ by chance."""
    most = example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    short = replace(most, by_rank=tuple(replace(each, seconds=0.1) for each in most.by_rank))
    found = example_rank_bandwidth(example_ranks(20e6), short)
    assert "rank 3" not in f"{bandwidth_headline(found)} {in_step(found)} {limit_words(found.limit)}".lower()
    assert "but in 100 ms of reading" in limit_words(found.limit)


def test_rates_that_are_far_apart_stand_side_by_side() -> None:
    """What all get while all read is the claim; what they get until the last is done is said with it."""
    found = example_rank_bandwidth(example_ranks(*[5e6] * 4, last_done_bw_bytes=4e6))
    assert "Until the last was done, all got 4.00 MB/s." in in_step(found) and "last was done" not in in_step(ALIKE)


def test_accelerators_are_counted_together_and_in_step() -> None:
    """By the code of a plan: as many of what all get, and of four times the slowest."""
    rates = {"mlperf-h100": 400 / 0.224}
    found = replace(SLOW, feeds=feeds(SLOW, rates), feeds_in_step=feeds(SLOW, rates, in_step=True))
    (all_of_them,), (in_step,) = found.feeds, found.feeds_in_step
    (planned,) = loaderprobe.plan(found, kind="mlperf-h100").supplies
    assert all_of_them.count == pytest.approx(planned.feeds) and all_of_them.at_least == planned.at_least
    assert in_step.count / all_of_them.count == pytest.approx(16 / 24.5)
    page = " ".join(document_text(bandwidth_document(found)).split())
    assert f"it feeds at least {significant(all_of_them.count)} MLPerf H100s" in page
    assert f"at the rate of the slowest rank, it feeds at least {significant(in_step.count)} MLPerf H100s." in page
    blocks = replace(SLOW, phases=tuple(replace(phase, block_bytes=131_072) for phase in SLOW.phases))
    assert feeds(replace(SLOW, images=False), rates) == feeds(blocks, rates) == ()


@pytest.mark.parametrize("found", [ALIKE, SLOW, example_rank_bandwidth(), example_rank_bandwidth(example_ranks(5e6))])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_page_fits_and_has_its_parts(found: RankBandwidthReport, width: int) -> None:
    """Whatever was measured; in Markdown as well."""
    page = bandwidth_document(found)
    text = document_text(page, width=width)
    assert max(map(len, text.splitlines())) <= width and "reads a share of its own" in document_markdown(page)
    assert ("R x" in text) == bool(found.phases)


def test_of_many_ranks_three_are_shown() -> None:
    """The slowest, the middle and the fastest of 1,024."""
    many = example_rank_bandwidth(example_ranks(*[1e6 + rank for rank in range(1024)], nodes=128))
    text = document_text(bandwidth_document(many), width=100)
    assert "Slowest, middle and fastest of 1,024 ranks" in text and text.count("node") < 20 + 128


def test_a_slow_host_stands_in_the_answer_with_its_ranks() -> None:
    """The limit names the host, and a table has the ranks of each."""
    found = example_rank_bandwidth(example_ranks(20e6), example_ranks(7e6, 6.8e6, 4e6, 4.2e6, nodes=2))
    assert in_step(found).endswith("The slowest rank gets 57 % of the fastest.")
    said = limit_words(found.limit)
    assert said.startswith("All 2 ranks on host node1 get 4.10 MB/s each, the slowest rank elsewhere 6.80 MB/s")
    assert ["node1", "2", "8.20", "4.00", "4.20"] in [
        line.split() for line in document_text(bandwidth_document(found)).splitlines()
    ]


def test_programs_get_rows_and_the_sentence() -> None:
    """A row a step, and JSON with the limit in words."""
    rows = rank_bandwidth_columns(SLOW)
    assert rows["ranks"] == [1, 4] and rows["in_step_bw_bytes"][1] == pytest.approx(16e6)
    found = json.loads(result_json(SLOW))
    assert found["schema"] == "loaderprobe/rank-bandwidth" and "Rank 3" in found["limit"]["sentence"]
