"""The schedule of a DataLoader, batch by batch."""

from __future__ import annotations

import pytest

from loaderprobe.analyze.forecast.fit import scheduled_rate


def scheduled(batch_s: list[float], workers: int, prefetch_factor: int, step_s: float = 0.0) -> float:
    return scheduled_rate(
        batch_s, workers=workers, prefetch_factor=prefetch_factor, step_s=step_s, receive_s=0.0, synchronous=False
    )


@pytest.mark.parametrize(("workers", "prefetch_factor"), [(1, 1), (1, 4), (3, 2), (4, 4)])
def test_equal_batches_leave_at_the_rate_of_the_workers_or_the_device(workers: int, prefetch_factor: int) -> None:
    """N workers of 0.1 s a batch make 10 N a second, whatever is fetched ahead; a slower device its own rate."""
    assert scheduled([0.1], workers, prefetch_factor) == pytest.approx(10 * workers, rel=0.02)
    assert scheduled([0.1], workers, prefetch_factor, step_s=0.2) == pytest.approx(5, rel=0.02)


def test_fetching_ahead_helps_when_batch_times_vary() -> None:
    """One batch in nine takes ten times as long: a longer queue hides it behind the step; equal ones hide nothing."""
    varying = [0.01] * 8 + [0.1]
    step_s = sum(varying) / len(varying) / 2 * 1.1
    assert scheduled(varying, 2, 8, step_s) > 1.1 * scheduled(varying, 2, 1, step_s)
    assert scheduled([0.01], 2, 8, 0.006) == pytest.approx(scheduled([0.01], 2, 2, 0.006), rel=0.01)


def test_a_synchronised_loop_waits_for_every_step() -> None:
    """Receiving and computing follow each other: 0.01 s and 0.04 s make 20 batches a second."""
    made = scheduled_rate([0.001], workers=2, prefetch_factor=2, step_s=0.04, receive_s=0.01, synchronous=True)
    assert made == pytest.approx(20)
