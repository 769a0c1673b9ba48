"""Pages of what storage delivers: they fit. What they say is kept in fixtures/shown."""

from __future__ import annotations

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

WIDEST = replace(
    example_bandwidth(),
    phases=tuple(
        example_phase(
            1 << step, rate, at_least=True, settled=False, bw_high=1.4 * rate, cache="mixed", cold_fraction=0.5
        )
        for step, rate in enumerate((0.0512e6, 61.3e6, 12_345e6))
    ),
    metadata=(
        *example_operations({1: 1e6, 64: 1.23e6}, at_least=True),
        *example_operations({1: 330.0, 4: 1250.0, 16: 3300.0}, "stat"),
    ),
)
"""Rates from kB/s to GB/s in one table, all marked, and a million opens/s: gaps and shares give way, then tables stand
below each other."""
RANKS = example_rank_bandwidth(example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6))


@pytest.mark.parametrize(
    ("report", "whole"),
    [
        (example_bandwidth(), {"61.3", "118", ">=301"}),
        (WIDEST, {">=12300", "opens/s", "stats,", ">=1,000,000", "4.36,"}),
        (RANKS, {"20.0", "24.5", "fair"}),
        (example_rank_bandwidth(), set[str]()),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_page_fits(report: BandwidthReport, whole: set[str], width: int) -> None:
    """No line is longer than the width that was asked for, and no figure is cut."""
    text = bandwidth_text(report, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert whole <= set(text.split()) and "…" not in text
