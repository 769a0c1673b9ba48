"""How long segments last."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.measure.segments import LONGEST, MAX_SECONDS, MIN_SECONDS, Pace, pace_for


def test_long_and_many_enough_ends_on_a_multiple_of_the_workers() -> None:
    """With N workers step times have a period of N, so a segment holds whole periods."""
    pace = Pace(multiple=5)
    assert not pace.enough(12, 10.0)
    assert pace.enough(15, 0.7)


def test_a_slow_device_ends_by_time() -> None:
    """Twelve steps of a second each are not waited for; three are."""
    pace = Pace()
    assert not pace.enough(2, 3.0)
    assert pace.enough(3, 3.0)


def test_a_slow_loader_ends_on_a_multiple_of_the_workers_too() -> None:
    """Two workers that take 2.8 s a batch: four batches come within 5.7 s, not three. There is an end to waiting."""
    pace, seconds = Pace(multiple=2, max_s=1.4), LONGEST * 1.4
    assert not pace.enough(3, seconds + 0.1)
    assert pace.enough(4, seconds + 0.1)
    assert pace.enough(3, 2 * seconds)
    assert not pace.enough(0, 2 * seconds), "but one batch"
    assert pace.expected(3, seconds) == 4, "as ranks agree ahead"
    assert replace(pace, multiple=64).expected(3, seconds) == 6


def test_a_cold_segment_ends_when_its_files_are_used_up() -> None:
    """Reading a file twice would read it warm."""
    assert Pace(max_batches=4).enough(4, 0.01)


@given(workers=st.integers(0, 64), rounds=st.integers(1, 9), budget=st.none() | st.floats(0.0, 1e4))
def test_any_budget_leaves_a_pace_that_ends(workers: int, rounds: int, budget: float | None) -> None:
    """However small the budget, a segment has a length between the least and the most."""
    pace = pace_for(workers=workers, rounds=rounds, budget_s=budget)
    assert MIN_SECONDS <= pace.max_s <= MAX_SECONDS
    assert pace.enough(max(workers, 1) * 12, MAX_SECONDS)


def test_blocked_workers_are_watched_for_longer() -> None:
    """Token buckets grant in slices, which shorter segments would miss."""
    assert Pace().for_blocked_workers().min_s == pytest.approx(2.0)
    assert Pace(max_s=1.0).for_blocked_workers().min_s == pytest.approx(1.0)
