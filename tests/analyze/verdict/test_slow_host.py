"""A host of which all ranks are slow: named by what each rank loads by itself, and never where hosts are alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.lock_step import Batches, batches_of
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Bound
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import Round, alike

FAST, SLOW = 114.0, 37.0
# In step all four take as long as the slow ones; without either of two ranks the others still wait for a slow one.
IN_STEP: dict[str, Any] = {
    "training": 4 * SLOW, "baseline": 4 * SLOW, "warm": 150.0, "cached_samples": 1700.0, "no_transport": 149.0,
}  # fmt: skip
TWO_HOSTS: dict[str, Any] = {
    "alone": (FAST, FAST, SLOW, SLOW + 1), "without": {2: 149.0, 0: 148.0}, "ranks": 4, "nodes": 2,
}  # fmt: skip


def slow(rounds: list[Round] | None = None, **changes: Any) -> Measurement:
    """Four ranks on two hosts, the second of which is slow."""
    return rank_run(rounds or alike(**IN_STEP), **{**TWO_HOSTS, **changes})


def bound(measurement: Measurement) -> Bound:
    """Its verdict."""
    return verdict(measurement).bound


def test_a_slow_host_is_named() -> None:
    """With the resource, what its ranks load by themselves, and what a host like the other gains at most."""
    found = verdict(slow())
    assert (found.bound.cause, found.bound.rank, found.bound.host) == ("imbalance", None, "node1")
    facts = found.bound.reason.facts
    assert (facts["slow_ranks"], facts["host_ranks"], facts["resource"]) == ("2", "2", "preprocessing")
    assert (facts["slow_images_per_s"], facts["other_images_per_s"]) == pytest.approx((SLOW + 0.5, FAST))
    made = found.speedups.imbalance
    assert made and made.how == "estimated" and made.value == pytest.approx(FAST / SLOW)
    assert made.low == pytest.approx((2 * FAST + 2 * SLOW + 1) / (4 * SLOW))
    assert "speedups.imbalance" not in found.unavailable


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 1},
        {"alone": (FAST, FAST, SLOW, FAST)},
        {"alone": (SLOW * 1.2, SLOW * 1.2, SLOW, SLOW * 1.1)},
        {"alone": (SLOW * 1.1, SLOW * 1.1, SLOW, SLOW)},
        {"alone": (FAST, SLOW, SLOW, SLOW)},
    ],
    ids=["one host", "half of a host", "little", "noise", "a slow rank elsewhere"],
)
def test_less_names_no_host(changes: dict[str, Any]) -> None:
    """The cause stays that of all ranks."""
    found = bound(slow(**changes))
    assert (found.cause, found.host) == ("preprocessing", "")


def test_hosts_that_share_a_saturated_storage_unevenly_are_not_slow() -> None:
    """By themselves one gets twice as much; in step the storage gives as much in all, so nothing is lost."""
    together = {**IN_STEP, "training": 148.0, "baseline": 148.0}
    found = bound(slow(alike(**together), alone=(50.0, 50.0, 25.0, 25.0)))
    assert (found.cause, found.host) == ("preprocessing", "")


@pytest.mark.parametrize(
    ("rounds", "elsewhere", "host"), [(2, 1.6, "node1"), (2, 1.4, ""), (1, 2.2, "node1"), (1, 1.9, "")]
)
def test_few_rounds_need_a_wider_lead(rounds: int, elsewhere: float, host: str) -> None:
    """As for one rank."""
    fast = SLOW * elsewhere
    assert bound(slow(alike(**IN_STEP)[:rounds], alone=(fast, fast, SLOW, SLOW))).host == host


def test_compute_bound_ranks_wait_for_no_host() -> None:
    """Only where an input is the limit."""
    found = bound(slow(alike(**{**IN_STEP, "training": 60.0}), compute=60.0))
    assert (found.cause, found.host) == ("compute", "")


def test_batches_of_a_slow_host_are_kept_apart() -> None:
    """For a forecast to more ranks."""
    measured = slow()
    found = batches_of(measured, verdict(measured))
    assert isinstance(found, Batches)
    assert found.slow_ranks == {2, 3} and found.slow_host == "node1" and len(found.usual) == 2


noise = st.lists(st.floats(0.94, 1.06), min_size=8, max_size=8)


@settings(max_examples=10)
@given(noise)
def test_equal_hosts_never_are_slow(each: list[float]) -> None:
    """Two of four ranks each, whose rates differ by 6 % from what all have."""
    rates = tuple(FAST * one for one in each)
    in_step = {**IN_STEP, "training": 8 * min(rates), "baseline": 8 * min(rates), "cached_samples": 5000.0}
    without = {4: 8 * FAST, 0: 8 * FAST}
    assert bound(rank_run(alike(**in_step), alone=rates, without=without, ranks=8, nodes=2)).host == ""
