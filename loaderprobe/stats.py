"""Small-sample statistics, pure: intervals come from spread, and from what is known beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

Name = TypeVar("Name", bound=str)
mean, median = statistics.fmean, statistics.median
"""Both raise ValueError (`StatisticsError`) when there is nothing to average."""


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    variance = math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean (Student's t); 0 for a single value."""
    if len(values) < 2:
        return 0.0
    return student_quantile(0.05, len(values) - 1) * standard_error(values)


def half_width_in_time(values: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of readings that follow each other, and so depend on each other.

    Batch means (Conway 1963): neighbours are averaged until six to eleven batches are left, whose spread
    shows the correlation in either direction.
    """
    return half_width(_batch_means(values))


def _batch_means(values: Sequence[float]) -> list[float]:
    size = max(1, len(values) // 6)
    whole = len(values) - len(values) % size
    return [mean(values[first : first + size]) for first in range(0, whole, size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A variance, and how well it is known."""

    variance: float
    freedom: float
    """Degrees of freedom: those of an estimate from one value more."""

    def __add__(self, other: Noise) -> Noise:
        """Of a sum of two that are independent (Satterthwaite 1946)."""
        variance = self.variance + other.variance
        parts = self.variance**2 / self.freedom + other.variance**2 / other.freedom
        return Noise(variance=variance, freedom=variance**2 / parts if parts else max(self.freedom, other.freedom))


def pooled(noises: Sequence[Noise]) -> Noise | None:
    """Several estimates of one variance as one; None of none."""
    freedom = math.fsum(noise.freedom for noise in noises)
    if not freedom:
        return None
    return Noise(variance=math.fsum(noise.variance * noise.freedom for noise in noises) / freedom, freedom=freedom)


def half_width_beside(values: Sequence[float], known: Noise) -> float:
    """Half the 95 % interval of the mean, where the variance of one value is known beside what they vary by.

    The moderated t of Smyth (2004): both variances are pooled by their degrees of freedom. A single value has the
    interval of what is known; many values have Student's.
    """
    middle = mean(values)
    squares = math.fsum((value - middle) ** 2 for value in values)
    freedom = len(values) - 1 + known.freedom
    variance = (squares + known.freedom * known.variance) / freedom
    return student_quantile(0.05, freedom) * math.sqrt(variance / len(values))


def noise_in_time(values: Sequence[float]) -> Noise | None:
    """The variance of the mean of readings that follow each other, by batch means; None of fewer than three of them."""
    blocks = _batch_means(values)
    if len(blocks) < 3:
        return None
    return Noise(variance=standard_error(blocks) ** 2, freedom=len(blocks) - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, by linear interpolation."""
    if not values:
        raise ValueError("quantile of nothing")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def lowest(values: Mapping[Name, float]) -> Name:
    """The name of the lowest value; the first of those within a billionth of it, in which versions of Python differ."""
    return min(values, key=lambda name: float(f"{values[name]:.9g}"))


def student_tails(t: float, freedom: float) -> float:
    """The probability that Student's t lies at least as far from 0 as `t`, on either side.

    `freedom` may be any number above 0; with infinite freedom it is the normal distribution's.
    """
    from scipy.special import stdtr  # a fifth of a second, which `--help` need not wait for

    return 2 * float(stdtr(freedom, -abs(t)))


@lru_cache(maxsize=4096)
def student_quantile(tails: float, freedom: float) -> float:
    """The t at which `student_tails` is `tails`: 0.05 gives half the width of a 95 % interval, in standard errors."""
    from scipy.special import stdtrit

    # Versions of the library differ in the last digits.
    return float(f"{stdtrit(freedom, 1 - tails / 2):.12g}")
