"""What waiting for the slowest rank costs: bounds, hand-made cases, and when nothing is said."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.plan.plan import expected_most, stragglers
from loaderprobe.analyze.plan.workload import Stalls
from loaderprobe.records.plan import Stragglers
from loaderprobe.records.remark import Remark


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.integers(1, 500))
def test_the_largest_of_n_lies_between_the_mean_and_the_longest(waits: list[float], ranks: int) -> None:
    """It is the mean for one rank, and rises with ranks."""
    mean = sum(waits) / len(waits)
    found = expected_most(waits, ranks)
    assert expected_most(waits, 1) == pytest.approx(mean, abs=1e-9)
    assert mean - 1e-9 <= found <= max(waits) + 1e-9
    assert expected_most(waits, ranks + 1) >= found - 1e-9


def test_the_largest_of_n_is_that_of_hand_made_cases() -> None:
    """One wait in four, of 1 s: two ranks meet it in 7 of 16 steps. 0 to 1 evenly: N / (N + 1)."""
    assert expected_most([0, 0, 0, 1], 2) == pytest.approx(7 / 16)
    even = [number / 10_000 for number in range(10_001)]
    assert expected_most(even, 9) == pytest.approx(0.9, abs=1e-3)


def test_the_largest_of_n_is_that_of_a_simulation() -> None:
    """Ranks that wait independently; and when they wait together, it is the mean."""
    chance = random.Random(1)
    waits = [chance.expovariate(10) for _ in range(200)]
    drawn = [max(chance.choices(waits, k=16)) for _ in range(20_000)]
    assert expected_most(waits, 16) == pytest.approx(sum(drawn) / len(drawn), rel=0.02)


def test_the_range_is_given_with_the_steps_it_comes_from() -> None:
    """100 steps of 0.2 s, two of them 0.1 s late: alone 1 %, 64 independent ranks up to a quarter."""
    found = stragglers(Stalls(step_s=0.2, late_s=(0.0,) * 98 + (0.1,) * 2), 64, 0.9)
    assert isinstance(found, Stragglers)
    assert (found.steps, found.longest_s) == (100, 0.1)
    assert found.alone == pytest.approx(0.002 / 0.202)
    most = 0.1 * (1 - 0.98**64)
    assert found.independent == pytest.approx(most / (0.2 + most))


@pytest.mark.parametrize(
    ("late", "ranks", "why"),
    [
        ((0.0,) * 29, 2, Remark(code="too_few_steps", facts={"steps": 29, "least": 30})),
        ((0.0,) * 40, 41, Remark(code="fewer_steps_than_ranks", facts={"steps": 40, "ranks": 41})),
        ((0.2,) * 40, 8, Remark(code="accelerator_waited", facts={"share": 0.5})),
    ],
)
def test_nothing_is_said_from_steps_that_cannot_show_it(late: tuple[float, ...], ranks: int, why: Remark) -> None:
    """Too few steps, more ranks than steps, or a loader that starved the accelerator."""
    assert stragglers(Stalls(step_s=0.2, late_s=late), ranks, 0.9) == why
