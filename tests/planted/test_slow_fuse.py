"""When a slow device answers: by the bytes, the requests or the latency of what came before."""

from __future__ import annotations

from tests.planted.slow_fuse import Schedule


def test_a_single_server_loses_idle_time() -> None:
    """A read waits for those before it and takes its size over the rate, however long nothing was asked before."""
    schedule = Schedule(bytes_per_s=100.0)
    assert [schedule.answer_s(*read) for read in [(10.0, 50), (10.1, 50), (20.0, 50)]] == [10.5, 11.0, 20.5]


def test_a_token_bucket_keeps_idle_time_up_to_its_credit() -> None:
    """What was idle is answered at once, but no more than the credit."""
    schedule = Schedule(bytes_per_s=100.0, credit_s=1.0)
    assert [schedule.answer_s(*read) for read in [(10.0, 100), (10.0, 50), (11.0, 20), (50.0, 150)]] == [
        10.0, 10.5, 11.0, 50.5,
    ]  # fmt: skip


def test_a_schedule_of_latency_serves_any_number_at_once() -> None:
    """Each read takes its latency from when it came, whatever its size."""
    schedule = Schedule(latency_s=0.25)
    assert [schedule.answer_s(1.0, size) for size in (1, 10**9, 1)] == [1.25, 1.25, 1.25]


def test_a_schedule_of_requests_counts_them_and_not_their_bytes() -> None:
    """Each waits for those before it, whatever its size."""
    schedule = Schedule(requests_per_s=4.0)
    assert [schedule.answer_s(1.0, size) for size in (1, 10**9, 1)] == [1.25, 1.5, 1.75]
