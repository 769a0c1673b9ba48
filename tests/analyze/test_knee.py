"""The search for the fewest workers that are enough, on loaders whose truth is known, seen through noise."""

from __future__ import annotations

import pytest

from loaderprobe.analyze.next_configs import next_factor, next_workers
from loaderprobe.records.verdict import Interval


def exact(**rates: float) -> dict[int, Interval]:
    """`w2=100` is 100 images/s with two workers, or prefetch factor 2."""
    return {int(name[1:]): Interval(value=rate, low=rate, high=rate) for name, rate in rates.items()}


WIDE = {1: Interval(value=100.0, low=100.0, high=100.0), 2: Interval(value=100.0, low=90.0, high=130.0)}
NEXT: dict[str, tuple[dict[int, Interval], dict[str, float | None], int | None]] = {
    "a forecast knee is measured first": (exact(w0=50, w1=50), {"knee": 6}, 6),
    "as far as so many may be tried": (exact(w0=50, w1=50), {"knee": 6, "most": 5}, 2),
    "where all have failed": ({}, {"knee": 6}, None),
    # It also sends what it loads; two may be faster than both.
    "one worker that is slower than none": (exact(w0=100, w1=60), {"knee": 0}, 2),
    "compute is reached": (exact(w0=100, w1=60), {"knee": 0, "compute": 101}, None),
    "two gain nothing": (exact(w1=100) | {2: Interval(value=100.0, low=90.0, high=102.0)}, {"knee": 1}, None),
    "and may, by the end of the interval": (WIDE, {"knee": 1}, 4),
    "but no more may be tried": (WIDE, {"knee": 1, "most": 2}, None),
    "fewer than the first number": (exact(w0=100, w8=400, w16=400), {"knee": 8, "most": 16}, 3),
    "but none that is no fewer than a number that failed": (exact(w0=100, w8=400, w16=400), {"knee": 8, "most": 3}, 2),
    "none is enough": (exact(w0=400, w8=400, w16=400), {"knee": 0, "most": 16}, None),
}


@pytest.mark.parametrize("name", NEXT)
def test_more_workers_are_tried_while_they_may_gain(name: str) -> None:
    """The report then names what was measured."""
    rates, options, number = NEXT[name]
    assert next_workers(rates, **{"most": 8, **options}) == number  # type: ignore[arg-type]  # numbers of workers


def test_prefetch_factors_are_tried_while_they_gain() -> None:
    """2, 4, 8; of those within 2 % the smallest is enough."""
    assert next_factor(exact(f2=100)) == 4
    assert next_factor(exact(f2=100, f4=101)) is None
    assert next_factor(exact(f2=100, f4=110)) == 8
    assert next_factor(exact(f2=100, f4=110, f8=120)) is None
