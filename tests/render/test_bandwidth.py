"""Pages of what storage delivers: they fit. What they say is kept in fixtures/shown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from loaderprobe.records.bandwidth import BandwidthReport
from tests.examples.bandwidth import (
    example_bandwidth,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)
from tests.pages import bandwidth_text

ALIKE = example_rank_bandwidth(example_ranks(20e6), example_ranks(10.2e6, 10e6), example_ranks(*[5.1e6] * 4))
SLOW = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_page_fits_and_columns_stand_below_each_other(width: int) -> None:
    """No line is longer than the width that was asked for, no figure is cut, and the intervals are in one column."""
    text = bandwidth_text(example_bandwidth(), width)
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    assert "…" not in text
    rows = [next(line for line in lines if re.match(rf" +{n} +(>=)?\d", line)) for n in (1, 2, 4, 8, 16, 32)]
    assert len({row.index("±") for row in rows}) == 1


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_widest_figures_fit(width: int) -> None:
    """Rates from kB/s to GB/s in one table, all marked, and a million opens/s: gaps and shares give way, then tables
    stand below each other."""
    phases = tuple(
        example_phase(
            1 << step, rate, at_least=True, settled=False, bw_high=1.4 * rate, cache="mixed", cold_fraction=0.5
        )
        for step, rate in enumerate((0.0512e6, 61.3e6, 12_345e6))
    )
    opens = example_operations({1: 1e6, 64: 1.23e6}, at_least=True)
    stats = example_operations({1: 330.0, 4: 1250.0, 16: 3300.0}, "stat")
    text = bandwidth_text(replace(example_bandwidth(), phases=phases, metadata=(*opens, *stats)), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert {">=12300", "opens/s", "stats/s", "metadata", ">=1,000,000", "4.4"} <= set(text.split())
    assert "…" not in text


def test_plain_unless_color() -> None:
    """Escape sequences appear with `color` and only then, none from a path's name; the words are the same."""
    report = replace(example_bandwidth(), path="/data/\x1b[2J")
    plain, colored = (bandwidth_text(report, 80, color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert flat(re.sub(r"\x1b\[[0-9;]*m", "", colored)) == flat(plain)


@pytest.mark.parametrize("found", [ALIKE, SLOW, example_rank_bandwidth(), example_rank_bandwidth(example_ranks(5e6))])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_page_of_ranks_fits(found: BandwidthReport, width: int) -> None:
    """Whatever was measured."""
    assert max(map(len, bandwidth_text(found, width).splitlines())) <= width
