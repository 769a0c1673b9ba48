"""The charts of ranks that read at once."""

from __future__ import annotations

import re

import pytest

from loaderprobe.records.bandwidth import RankBandwidthReport
from loaderprobe.render.bandwidth import rank_bandwidth_exhibits, spread_chart
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks

SLOW = example_rank_bandwidth(
    example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6), example_ranks(21e6, readers=8)
)


def words(svg: str) -> str:
    """Its texts."""
    return " ".join(re.findall(r">([^<>]+)<", svg))


def test_both_lines_are_named_and_explained() -> None:
    """All together, and as many times the slowest; the step of one process stands beside them."""
    ladder, spread = (each for found in rank_bandwidth_exhibits(SLOW).values() for each in found)
    assert ladder.title == "4 ranks together get 24.5 MB/s; in step they may get as little as 16.0"
    assert "Training in step lies between" in ladder.text and "as many readers in fewer ranks" in ladder.text
    (_, rates), (_, images) = ladder.figures
    assert "together 24.5" in words(rates) and "4 x slowest 16.0" in words(rates) and "1 rank" in words(rates)
    assert "together 233" in words(images) and "Images/s" in words(images)
    assert "rank 3 on node0 with 4.00 MB/s, the median 6.80" in spread.text


def test_lines_that_end_alike_share_one_name() -> None:
    """Two would lie over each other, and over the name of the step of one process below."""
    found = example_rank_bandwidth(example_ranks(20e6), example_ranks(30e6, 30e6), example_ranks(50e6, readers=8))
    rates = words(rank_bandwidth_exhibits(found)["ladder"][0].figures[0][1])
    assert rates.count("slowest") == rates.count("together, and 2 x slowest")
    assert "together, and 2 x slowest" in rates


def test_layouts_of_as_many_ranks_are_named() -> None:
    """Eight on one node beside one on each of eight."""
    found = example_rank_bandwidth(example_ranks(*[50e6] * 8), example_ranks(*[100e6] * 8, nodes=8))
    (ladder,) = rank_bandwidth_exhibits(found)["ladder"]
    assert {"8", "8x1"} <= set(words(ladder.figures[0][1]).split()) and "all alike" in ladder.title


def test_the_slowest_of_many_ranks_stands_out() -> None:
    """One path for all, and one for the slowest; the median is a line with its figure."""
    rates = [100e6] * 63
    drawn = spread_chart(example_ranks(*rates, 40e6))
    bars = [each.count("z") for each in re.findall(r'<path d="([^"]*)" fill', drawn)]
    assert bars == [63, 1] and "median 100" in drawn and "rank 63" in drawn


def test_all_ranks_of_a_slow_host_stand_out() -> None:
    """Where the limit is that host."""
    found = example_rank_bandwidth(example_ranks(20e6), example_ranks(*[100e6] * 6, *[40e6] * 2, nodes=4))
    (spread,) = rank_bandwidth_exhibits(found)["ranks"]
    bars = [each.count("z") for each in re.findall(r'<path d="([^"]*)" fill', spread.figures[0][1])]
    assert bars == [6, 2]


@pytest.mark.parametrize("found", [example_rank_bandwidth(), example_rank_bandwidth(example_ranks(5e6))])
def test_nothing_is_drawn_of_one_rank(found: RankBandwidthReport) -> None:
    """Nor of none."""
    assert not any(rank_bandwidth_exhibits(found).values())
