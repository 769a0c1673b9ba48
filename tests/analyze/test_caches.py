"""What caches answer: the formulas against a simulation of nodes that read a shuffled set epoch by epoch."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.plan.cache import cache_curves, lru_hits, lru_share_for, pinned_hits

IMAGES = 3000
CASES = [(0.3, 1), (0.5, 1), (0.9, 1), (0.5, 2), (0.5, 4), (0.5, 8), (0.9, 4), (1.0, 4), (1.0, 16)]


def _simulated(share: float, nodes: int, epochs: int) -> list[float]:
    """Hits in each epoch of caches that drop the least recently used image."""
    chance, room = random.Random(f"{share} {nodes}"), round(share * IMAGES)
    caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(nodes)]
    found = []
    for _ in range(epochs):
        order = chance.sample(range(IMAGES), IMAGES)
        hits = 0
        for node, cache in enumerate(caches):
            for image in order[node::nodes]:
                hits += image in cache
                cache[image] = None
                cache.move_to_end(image)
                if len(cache) > room:
                    cache.popitem(last=False)
        found.append(hits / IMAGES)
    return found


@pytest.mark.parametrize(("share", "nodes"), CASES)
def test_hits_are_those_of_a_simulation(share: float, nodes: int) -> None:
    """In the first epochs, and once they no longer change."""
    simulated = _simulated(share, nodes, 40)
    for epoch in (1, 2, 3, 6):
        assert lru_hits(share, nodes, epoch) == pytest.approx(simulated[epoch - 1], abs=0.03)
    settled = sum(simulated[30:]) / 10
    assert lru_hits(share, nodes, 36) == pytest.approx(settled, abs=0.015)


def test_half_the_set_in_one_cache_is_no_half_of_the_hits() -> None:
    """15 % at a half, 34 % at 70 %, 67 % at 90 %: c + (1-c) ln(1-c); pinned files give their share."""
    assert [lru_hits(share, 1) for share in (0.5, 0.7, 0.9)] == pytest.approx([0.153, 0.339, 0.670], abs=1e-3)
    assert pinned_hits(0.5) == 0.5 and pinned_hits(3.0) == 1.0


def test_the_second_epoch_of_several_nodes_is_cold_though_all_fits() -> None:
    """Four nodes: 25, 44 and 58 % hits in epochs 2, 3 and 4."""
    assert [lru_hits(1.0, 4, epoch) for epoch in (1, 2, 3, 4)] == pytest.approx([0, 0.25, 0.4375, 0.578], abs=1e-3)


@given(st.floats(0, 1.2), st.integers(1, 10**6), st.one_of(st.none(), st.integers(1, 10**5)))
def test_hits_are_a_share_no_larger_than_the_cache(share: float, nodes: int, epoch: int | None) -> None:
    """Whatever the number of nodes, quickly and finitely."""
    hits = lru_hits(share, nodes, epoch)
    assert math.isfinite(hits) and -1e-9 <= hits <= min(1.0, share) + 1e-9


@given(st.floats(0.01, 0.99), st.integers(1, 1000))
def test_a_larger_cache_and_a_later_epoch_hit_no_less(share: float, nodes: int) -> None:
    """Up to rounding."""
    assert lru_hits(min(1.0, share * 1.1), nodes) >= lru_hits(share, nodes) - 1e-9
    rising = [lru_hits(share, nodes, epoch) for epoch in (1, 2, 3, 10, 100)]
    assert all(after >= before - 1e-9 for before, after in pairwise(rising))


@given(st.floats(0.001, 0.999), st.integers(1, 100))
def test_the_cache_for_some_hits_gives_them(hits: float, nodes: int) -> None:
    """Inverse of each other; half of the hits on one node take 81 % of the set."""
    assert lru_hits(lru_share_for(hits, nodes), nodes) == pytest.approx(hits, abs=1e-6)
    assert lru_share_for(0.5, 1) == pytest.approx(0.813, abs=1e-3)


@pytest.mark.parametrize(("nodes", "shown"), [(1, [1, 8]), (4, [1, 4])])
def test_curves_are_those_of_the_formulas(nodes: int, shown: list[int]) -> None:
    """One node beside several; hits rise with the size of the cache, LRU never above pinned."""
    curves = cache_curves(nodes)
    assert [curve.nodes for curve in curves.epochs] == shown
    for curve in curves.epochs:
        assert curve.cold[0] == 1.0
        assert curve.cold[4] == pytest.approx((1 - 1 / curve.nodes) ** 4)
    assert all(before.lru <= after.lru for before, after in pairwise(curves.sizes))
    assert all(size.lru <= size.pinned == size.share for size in curves.sizes)
    assert (curves.sizes[0].lru, curves.sizes[-1].lru) == (0.0, 1.0)
