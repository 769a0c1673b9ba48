"""The replay of ranks in lock-step: hand-made cases, its laws, and the serial loader's closed form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loaderprobe.analyze.lock_step import Loading, Seconds, blocks_of, drawn, mean_steps, resampled
from loaderprobe.analyze.plan.plan import expected_most


def repeated(*rows: list[float]) -> Iterator[Seconds]:
    """Batches of one replay, a row of ranks each, round and round."""
    while True:
        for row in rows:
            yield np.array(row)


def one(batches: Iterator[Seconds], loading: Loading, steps: int = 120) -> float:
    """The mean step of a single replay."""
    return float(mean_steps(batches, loading, steps))


def lognormal(count: int, seed: int = 0) -> list[float]:
    """Batch times of mean 1 and a coefficient of variation of 0.5."""
    times: list[float] = np.random.default_rng(seed).lognormal(-0.1116, 0.4724, count).tolist()
    return times


def replayed(times: list[float], ranks: int, loading: Loading) -> float:
    """The mean step of so many ranks that draw from these times one by one."""
    rng = np.random.default_rng(1)
    return float(mean_steps(drawn(np.array([times] * 4), ranks, rng), loading, 1500).mean())


def test_even_batches_cost_what_the_slower_of_loader_and_compute_takes() -> None:
    """Whatever the number of ranks."""
    for workers, compute_s, step_s in ((1, 0.0, 0.3), (2, 0.0, 0.15), (1, 0.5, 0.5), (0, 0.5, 0.8)):
        loading = Loading(workers=workers, prefetch_factor=2 if workers else 0, compute_s=compute_s)
        assert one(repeated([0.3, 0.3, 0.3]), loading) == pytest.approx(step_s)


def test_late_batches_in_turn_cost_the_serial_loader_all_and_a_worker_with_a_buffer_nothing() -> None:
    """Two ranks whose long batches take turns: each is 2 s on average, the later of the two always 3 s."""
    turns = [1.0, 3.0], [3.0, 1.0]
    assert one(repeated(*turns), Loading(workers=0, prefetch_factor=0)) == pytest.approx(3.0)
    assert one(repeated(*turns), Loading(workers=1, prefetch_factor=4)) == pytest.approx(2.0, rel=0.02)


def test_a_rank_that_has_its_batch_waits_while_its_worker_goes_on() -> None:
    """One batch ahead, in turns of 1 and 3 s, absorbs a part: begun only at the meeting, it would absorb none."""
    turns = [1.0, 3.0], [3.0, 1.0]
    assert 2.0 <= one(repeated(*turns), Loading(workers=1, prefetch_factor=1)) < 2.6


def test_without_workers_it_is_the_mean_of_the_largest() -> None:
    """E[max] of the very times: the law of stragglers, exactly."""
    times = lognormal(200)
    for ranks in (1, 4, 64):
        found = replayed(times, ranks, Loading(workers=0, prefetch_factor=0))
        assert found == pytest.approx(expected_most(times, ranks), rel=0.03)


@pytest.mark.parametrize(("prefetch", "ranks", "published"), [(1, 8, 1.29), (2, 8, 1.17), (2, 64, 1.35), (8, 64, 1.08)])
def test_workers_pay_a_part_of_it(prefetch: int, ranks: int, published: float) -> None:
    """As computed from the true distribution beforehand: one worker, batches of cv 0.5."""
    found = replayed(lognormal(20_000), ranks, Loading(workers=1, prefetch_factor=prefetch))
    assert found == pytest.approx(published, abs=0.05)


def test_blocks_keep_neighbours_together_and_span_no_two_ranks() -> None:
    """All stretches of eight, or of as many as the shortest series has."""
    blocks = blocks_of([[0, 1, 2, 3, 4, 5, 6, 7, 8], [20, 21, 22, 23, 24, 25, 26, 27], []])
    assert blocks.tolist() == [[*range(8)], [*range(1, 9)], [*range(20, 28)]]
    assert blocks_of([[1, 2, 3], [4, 5]]).tolist() == [[1, 2], [2, 3], [4, 5]]


def test_draws_come_in_blocks_from_the_series_of_their_own_replicate() -> None:
    """A rank reads on, and goes elsewhere after eight batches; ranks do not all go at once."""
    series = np.array([np.arange(1000.0), np.arange(5000.0, 6000.0)])
    batches = drawn(series, 16, np.random.default_rng(0))
    steps = np.array([next(batches) for _ in range(40)])
    assert (steps[:, 0] < 1000).all() and (steps[:, 1] >= 5000).all()
    jumps = (np.diff(steps, axis=0) % 1000 != 1).sum(axis=(1, 2))
    assert set(jumps.tolist()) <= {3, 4} and 4 in jumps


def test_a_bootstrap_has_as_many_batches_as_were_measured() -> None:
    """In whole blocks, the last of which may be cut."""
    blocks = np.arange(80.0).reshape(10, 8)
    again = resampled(blocks, 100, 5, np.random.default_rng(0))
    assert again.shape == (5, 100) and (again[:, 1:8] - again[:, :7] == 1).all()
