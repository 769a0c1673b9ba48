"""The knee: the fewest workers that train within 2 % of the best."""

from __future__ import annotations

from collections.abc import Mapping

from loaderprobe.records.thresholds import ALIKE
from loaderprobe.records.verdict import Interval


def fewest(rates: Mapping[int, float]) -> int | None:
    """The smallest number whose rate is within 2 % of the best; None where there is none."""
    best = max(rates.values(), default=0.0)
    return next((number for number in sorted(rates) if rates[number] >= (1 - ALIKE) * best), None)


def ranked(rates: Mapping[int, Interval]) -> dict[int, float]:
    """Those known well enough to rank by, where there are any; else all."""
    known = {number: rate.value for number, rate in rates.items() if not rate.too_wide}
    return known or {number: rate.value for number, rate in rates.items()}


def ladder() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    return [1, *sorted(size for power in range(1, 12) for size in (2**power, 3 * 2 ** (power - 1)))]
