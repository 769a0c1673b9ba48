"""Sets of time: every operation against the same one on sets of single nanoseconds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import Ranges, clip, intersect, merge, subtract, total

raw = st.lists(st.tuples(st.integers(-20, 60), st.integers(-20, 60)), max_size=12)


def points(ranges: Ranges | list[tuple[int, int]]) -> set[int]:
    return {point for low, high in ranges for point in range(low, high)}


def is_merged(ranges: Ranges) -> bool:
    """Sorted, nothing empty, and no two that overlap or touch."""
    ends = [end for each in ranges for end in each]
    return all(one < other for one, other in pairwise(ends))


@given(raw)
def test_merging_keeps_every_nanosecond_once(ranges: list[tuple[int, int]]) -> None:
    """The union holds the same time, in the fewest ranges, whatever the order."""
    found = merge(ranges)
    assert points(found) == points(ranges)
    assert is_merged(found)
    assert merge(reversed(ranges)) == found
    assert total(found) == len(points(ranges))


@given(raw, raw)
def test_operations_are_those_of_sets(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    """Intersection and difference are those of the nanoseconds, and come out merged."""
    one, other = merge(some), merge(others)
    both, rest = intersect(one, other), subtract(one, other)
    assert points(both) == points(one) & points(other)
    assert points(rest) == points(one) - points(other)
    assert is_merged(both)
    assert is_merged(rest)


@given(raw, st.integers(-20, 60), st.integers(0, 40))
def test_clipping_keeps_what_is_inside(ranges: list[tuple[int, int]], begin: int, length: int) -> None:
    """Clipping is intersecting with one range."""
    found = clip(merge(ranges), begin, begin + length)
    assert points(found) == points(ranges) & set(range(begin, begin + length))
    assert is_merged(found)
