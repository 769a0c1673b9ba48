"""Sets of time as half-open ranges (begin, end) of whole nanoseconds.

A *merged* tuple is sorted, and its ranges are not empty and neither overlap nor touch. Every function but `merge`
takes merged ranges and gives merged ranges, in time linear in their number.
"""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The union of any ranges, in any order; empty and reversed ones hold no time."""
    out: list[tuple[int, int]] = []
    begin = end = None
    for low, high in sorted(each for each in ranges if each[0] < each[1]):
        if end is None or begin is None or low > end:
            if end is not None and begin is not None:
                out.append((begin, end))
            begin, end = low, high
        elif high > end:
            end = high
    if end is not None and begin is not None:
        out.append((begin, end))
    return tuple(out)


def clip(ranges: Ranges, begin: int, end: int) -> Ranges:
    """What lies in the range from `begin` to `end`."""
    if begin >= end:
        return ()
    return tuple((max(low, begin), min(high, end)) for low, high in ranges if low < end and high > begin)


def intersect(some: Ranges, others: Ranges) -> Ranges:
    """What lies in both."""
    out: list[tuple[int, int]] = []
    one = other = 0
    ones, all_others = len(some), len(others)
    while one < ones and other < all_others:
        (begin, end), (low, high) = some[one], others[other]
        low = low if low > begin else begin
        if end <= high:
            high = end
            one += 1
        else:
            other += 1
        if low < high:
            out.append((low, high))
    return tuple(out)


def subtract(some: Ranges, taken: Ranges) -> Ranges:
    """What lies in `some` and not in `taken`."""
    out: list[tuple[int, int]] = []
    first = 0
    for low, high in some:
        while first < len(taken) and taken[first][1] <= low:
            first += 1
        # A range of `taken` that reaches beyond this one counts again for the next.
        at, number = low, first
        while number < len(taken) and taken[number][0] < high:
            if taken[number][0] > at:
                out.append((at, taken[number][0]))
            at = taken[number][1]
            number += 1
        if at < high:
            out.append((at, high))
    return tuple(out)


def total(ranges: Ranges) -> int:
    """Nanoseconds in all."""
    return sum(high - low for low, high in ranges)
