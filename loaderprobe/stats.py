"""Small-sample statistics, pure and without numpy: intervals come from spread, and from what is known beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

# Student's t, 97.5 % quantile, by degrees of freedom 1 to 10; then close to the normal's 1.96.
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises ValueError when there is nothing to average."""
    if not values:
        raise ValueError("mean of nothing")
    return math.fsum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """The middle value. Raises ValueError when there is none."""
    return quantile(values, 0.5)


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
    freedom = len(values) - 1
    quantile = _T_975[freedom - 1] if freedom <= len(_T_975) else 1.96 + 2.5 / freedom
    return quantile * standard_error(values)


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


def pooled(found: Sequence[Noise]) -> Noise | None:
    """Several estimates of one variance as one; None of none."""
    freedom = math.fsum(each.freedom for each in found)
    if not freedom:
        return None
    return Noise(variance=math.fsum(each.variance * each.freedom for each in found) / freedom, freedom=freedom)


def half_width_beside(values: Sequence[float], known: Noise) -> float:
    """Half the 95 % interval of the mean, where the variance of one value is known beside what they vary by.

    The moderated t of Smyth (2004): both variances are pooled by their degrees of freedom. A single value has the
    interval of what is known; many values have Student's.
    """
    middle = mean(values)
    found = math.fsum((value - middle) ** 2 for value in values)
    freedom = len(values) - 1 + known.freedom
    variance = (found + known.freedom * known.variance) / freedom
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


def student_tails(t: float, freedom: float) -> float:
    """The probability that Student's t lies at least as far from 0 as `t`, on either side.

    Abramowitz and Stegun, 26.5.27: an incomplete beta function. With infinite freedom, the normal distribution's.
    """
    if freedom > _NORMAL_FROM:
        return math.erfc(abs(t) / math.sqrt(2))
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


@lru_cache(maxsize=4096)
def student_quantile(tails: float, freedom: float) -> float:
    """The t at which `student_tails` is `tails`: 0.05 gives half the width of a 95 % interval, in standard errors."""
    if freedom >= _EXPANDED_FROM:
        return _expanded_quantile(NormalDist().inv_cdf(1 - tails / 2), freedom)
    high = 1.0
    while student_tails(high, freedom) > tails:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > tails else (low, middle)
    return high


def _expanded_quantile(x: float, freedom: float) -> float:
    """Student's quantile from the normal one, `x`, for many degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


_EXPANDED_FROM = 30.0
"""Degrees of freedom from which on the expansion is right to five figures, for tails of 0.0001 and more."""
_NORMAL_FROM = 1e5
"""Degrees of freedom from which on Student's t is the normal distribution to five figures."""
_SMALLEST = 1e-300
_TERMS = 1000


def _beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Press et al., Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _SMALLEST)
    found = d
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or _SMALLEST)
            c = 1 + term / c or _SMALLEST
            found *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return scale * found / a
