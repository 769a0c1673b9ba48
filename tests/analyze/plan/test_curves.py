"""Curves of caches beside a plan."""

from __future__ import annotations

from itertools import pairwise

import pytest

from loaderprobe.analyze.plan.plan import cache_curves


@pytest.mark.parametrize(("nodes", "shown"), [(1, [1, 8]), (4, [1, 4])])
def test_curves_are_those_of_the_formulas(nodes: int, shown: list[int]) -> None:
    """One node beside several; hits rise with the size of the cache, the page cache between LRU and pinned."""
    curves = cache_curves(nodes)
    assert [curve.nodes for curve in curves.epochs] == shown
    for curve in curves.epochs:
        assert curve.cold[0] == 1.0
        assert curve.cold[4] == pytest.approx((1 - 1 / curve.nodes) ** 4)
    assert all(before.lru <= after.lru for before, after in pairwise(curves.sizes))
    assert all(size.lru <= size.page.value <= size.pinned == size.share for size in curves.sizes)
    assert (curves.sizes[0].lru, curves.sizes[-1].lru) == (0.0, 1.0)
