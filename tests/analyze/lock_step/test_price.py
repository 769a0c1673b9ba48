"""What lock-step costs more ranks: never beyond the batches, a slow rank apart, nothing where storage is saturated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loaderprobe.analyze.lock_step import Batches, correlation, lock_step
from loaderprobe.records.plan import LockStep
from loaderprobe.records.remark import Remark
from tests.analyze.lock_step.test_replay import lognormal


def batches(*series: list[float], **changes: Any) -> Batches:
    """Of one worker with prefetch factor 2."""
    found = Batches(
        series=tuple(map(tuple, series)), by_rank=len(series) > 1, images=8, workers=1, prefetch_factor=2,
        ranks=len(series),
    )  # fmt: skip
    return replace(found, **changes)


def priced(found: Batches, ranks: int, compute_s: float = 0.0) -> LockStep:
    """The price, which is not refused."""
    made = lock_step(found, compute_s, ranks)
    assert isinstance(made, LockStep)
    return made


def cost(found: LockStep, prefetch_factor: int) -> float:
    """At this factor."""
    each = found.at(prefetch_factor)
    assert each is not None
    return each.cost.value


def test_more_ranks_cost_more_and_more_prefetch_costs_less() -> None:
    """Uneven batches: prefetch is the advice, and ranges hold their figure."""
    times = lognormal(400)
    few, many = priced(batches(times), 2), priced(batches(times), 64)
    assert 1.0 < cost(few, 2) < cost(many, 2)
    assert cost(many, 2) > cost(many, 4) > cost(many, 8)
    assert many.advised == 8
    for each in (*few.costs, *many.costs):
        assert 1.0 <= each.cost.low <= each.cost.value <= each.cost.high


def test_even_batches_cost_nothing_and_no_prefetch_is_advised() -> None:
    """Nor where the accelerator takes longer than the loader by far."""
    for found in (priced(batches([0.1] * 100), 64), priced(batches(lognormal(200)), 64, compute_s=20.0)):
        assert found.advised is None
        assert all(each.cost.value == pytest.approx(1.0) for each in found.costs)


def test_the_serial_loader_has_no_prefetch_to_change() -> None:
    """It pays the whole of the largest of all ranks."""
    found = priced(batches(lognormal(400), workers=0), 8)
    assert [each.prefetch_factor for each in found.costs] == [0] and found.advised is None
    assert cost(found, 0) == pytest.approx(1.83, abs=0.15)


def test_no_more_ranks_are_replayed_than_batches_were_measured() -> None:
    """Of more the cost is at least that: 40 batches cannot show what 1,024 ranks meet."""
    found = priced(batches(lognormal(40)), 1024)
    assert found.at_least and (found.asked, found.ranks) == (1024, 40)
    assert not priced(batches(lognormal(40)), 40).at_least


def test_few_batches_are_refused() -> None:
    """30 are the least."""
    assert lock_step(batches([0.1] * 29), 0.0, 8) == Remark(code="too_few_batches", facts={"batches": 29, "least": 30})


def test_a_named_slow_rank_is_no_part_of_the_pool() -> None:
    """Three times as slow: the step is its, at any number of ranks; pooled, it would look like uneven batches."""
    usual, slow = lognormal(60), [3 * each for each in lognormal(60, seed=1)]
    apart = priced(batches(usual, slow, slow_ranks=frozenset({1})), 2)
    assert apart.slow_rank == 1
    assert cost(apart, 8) == pytest.approx(3 * np.mean(lognormal(60, seed=1)) / np.mean(usual), rel=0.1)
    assert cost(priced(batches(usual, slow), 2), 8) < 0.75 * cost(apart, 8)


def test_the_ranks_of_a_named_slow_host_are_no_part_of_the_pool() -> None:
    """Both are replayed, each once, at any number of ranks; of as few ranks as the host has, they are all."""
    usual, slow = lognormal(60), [3 * each for each in lognormal(60, seed=1)]
    host = batches(usual, usual, slow, slow, slow_ranks=frozenset({2, 3}), slow_host="b")
    found = priced(host, 8)
    assert (found.slow_host, found.slow_rank) == ("b", None)
    one = priced(batches(usual, slow, slow_ranks=frozenset({1})), 8)
    assert cost(found, 2) >= cost(one, 2) > 2.5
    assert cost(priced(host, 2), 2) > 2.5


def test_where_a_shared_storage_is_saturated_nothing_is_replayed() -> None:
    """It is never idle: its limit is the whole answer."""
    found = priced(batches(lognormal(60), lognormal(60), saturated=True), 64)
    assert found.saturated and found.costs == () and found.advised is None


def test_correlation_is_that_between_ranks_at_the_same_place() -> None:
    """The mean over all pairs; of one rank, or of even ones, there is none."""
    times = lognormal(100)
    assert correlation([times, times]) == pytest.approx(1.0)
    assert abs(correlation([times, lognormal(100, seed=1)]) or 0.0) < 0.3
    assert correlation([times]) is None and correlation([[1.0] * 50, [1.0] * 50]) is None


def test_what_the_ranks_measured_stands_beside_its_replay() -> None:
    """The loader alone, at their own prefetch factor."""
    found = priced(batches(lognormal(80), lognormal(80, seed=1), measured_cost=1.06), 8)
    assert found.measured_cost == 1.06 and found.replayed_cost == pytest.approx(1.06, abs=0.06)


def test_ranges_hold_the_truth() -> None:
    """Samples of 200 batches of a known distribution, for 8 ranks: at least 8 of 10 ranges (90 % are promised)."""
    truth = cost(priced(batches(lognormal(20_000, seed=99)), 8), 2)
    held = 0
    for seed in range(10):
        each = priced(batches(lognormal(200, seed=seed)), 8).at(2)
        assert each is not None
        held += each.cost.low <= truth <= each.cost.high
    assert held >= 8
