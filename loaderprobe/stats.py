"""Small-sample statistics, pure and without numpy: intervals come from the spread between rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    size = max(1, len(values) // 6)
    whole = len(values) - len(values) % size
    return half_width([mean(values[first : first + size]) for first in range(0, whole, size)])


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, by linear interpolation."""
    if not values:
        raise ValueError("quantile of nothing")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
