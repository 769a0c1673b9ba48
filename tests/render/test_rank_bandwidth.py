"""The bandwidth of ranks as people read it: the sum, the slowest, what training in step gets, and the limit."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from loaderprobe.records.rank_bandwidth import RankBandwidthReport, RanksLimit, RanksLimitCode
from loaderprobe.render.document import document_markdown, document_text
from loaderprobe.render.json import result_json
from loaderprobe.render.rank_bandwidth import rank_bandwidth_columns, rank_bandwidth_document
from loaderprobe.render.rank_bandwidth_words import headline, ranks_limit_words
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks

ALIKE = example_rank_bandwidth(example_ranks(20e6), example_ranks(10.2e6, 10e6), example_ranks(*[5.1e6] * 4))
SLOW = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))


def test_equal_ranks_are_said_to_get_alike() -> None:
    """One figure is enough."""
    assert headline(ALIKE) == (
        "4 ranks together get 20.4 MB/s and 194 images/s with 8 readers. All get alike: 4 x the slowest is 20.4 MB/s."
    )
    assert "from 2 to 8 readers it gives no more" in ranks_limit_words(ALIKE.limit)


def test_a_slow_rank_stands_in_the_answer_with_both_figures() -> None:
    """The sum rises, and training in step gets less: rank and host are named."""
    said = headline(SLOW)
    assert "together get 24.5 MB/s" in said and "4 x the slowest is 16.0 MB/s" in said
    assert "rank 3 on node0, gets 58 % of the fastest" in said
    assert "Rank 3 on node0 gets 4.00 MB/s" in ranks_limit_words(SLOW.limit)


@pytest.mark.parametrize("found", [ALIKE, SLOW, example_rank_bandwidth(), example_rank_bandwidth(example_ranks(5e6))])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_page_fits_and_has_its_parts(found: RankBandwidthReport, width: int) -> None:
    """Whatever was measured; in Markdown as well."""
    page = rank_bandwidth_document(found)
    text = document_text(page, width=width)
    assert max(map(len, text.splitlines())) <= width and "What was read" in document_markdown(page)
    assert ("R x" in text) == bool(found.phases)


def test_of_many_ranks_three_are_shown() -> None:
    """The slowest, the middle and the fastest of 1,024."""
    many = example_rank_bandwidth(example_ranks(*[1e6 + rank for rank in range(1024)], nodes=128))
    text = document_text(rank_bandwidth_document(many), width=100)
    assert "Slowest, middle and fastest of 1,024 ranks" in text and text.count("node") < 20 + 128


def test_every_limit_has_words() -> None:
    """A sentence, with its figures."""
    facts: dict[str, float | str] = {
        "rank": 3.0, "host": "node0", "bytes_per_s": 4e6, "fairness": 0.58, "clients": 8.0, "most": 32.0, "ranks": 4.0,
        "nodes": 1.0, "fewer_nodes": 1.0, "fewer_ranks": 1.0, "fewer_bytes_per_s": 2e6, "next": 64.0,
        "slow_ranks": 4.0, "host_ranks": 4.0, "elsewhere_bytes_per_s": 6e6,
    }  # fmt: skip
    for code in get_args(RanksLimitCode):
        said = ranks_limit_words(RanksLimit(code=code, facts=facts))
        assert said.endswith(".") and "{" not in said


def test_a_slow_host_stands_in_the_answer_with_its_ranks() -> None:
    """The limit names the host, and a table has the ranks of each."""
    found = example_rank_bandwidth(example_ranks(20e6), example_ranks(7e6, 6.8e6, 4e6, 4.2e6, nodes=2))
    assert headline(found).endswith("The slowest rank gets 57 % of the fastest.")
    said = ranks_limit_words(found.limit)
    assert said.startswith("All 2 ranks on host node1 get 4.10 MB/s each, the slowest rank elsewhere 6.80")
    assert ["node1", "2", "8.20", "4.00", "4.20"] in [
        line.split() for line in document_text(rank_bandwidth_document(found)).splitlines()
    ]


def test_programs_get_rows_and_the_sentence() -> None:
    """A row a step, and JSON with the limit in words."""
    rows = rank_bandwidth_columns(SLOW)
    assert rows["ranks"] == [1, 4] and rows["in_step_bw_bytes"][1] == pytest.approx(16e6)
    found = json.loads(result_json(SLOW))
    assert found["schema"] == "loaderprobe/rank-bandwidth" and "Rank 3" in found["limit"]["sentence"]
