"""New batches for cold segments, and the same ones again for warm ones."""

from __future__ import annotations

from itertools import islice

import pytest

from loaderprobe.loaders.user_loader import BatchPool


def _settled(count: int, workers: int, taken: int) -> tuple[BatchPool, list[list[int]], object]:
    pool = BatchPool([[number] for number in range(count)], workers)
    batches = iter(pool)
    first = list(islice(batches, taken))
    pool.close()
    return pool, first, batches


def test_new_batches_were_not_taken_before() -> None:
    """Not those of the pool, though it has gone round since."""
    pool, first, batches = _settled(40, 2, 8)
    assert list(islice(batches, 8)) == first  # type: ignore[call-overload]  # a generator
    pool.take_new()
    new = list(islice(batches, 10))  # type: ignore[call-overload]
    assert new == [[number] for number in range(8, 18)]
    assert pool.left() == 22
    assert pool.passes == 0


def test_a_sampler_without_new_batches_says_so() -> None:
    """They may be warm by then."""
    pool, _, batches = _settled(12, 2, 8)
    pool.take_new()
    list(islice(batches, 6))  # type: ignore[call-overload]
    assert pool.passes >= 1
    assert pool.left() - pool.passes < 0


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_repeated_batches_go_to_the_worker_that_had_them(workers: int) -> None:
    """What a data set keeps, it keeps in the worker that made it."""
    pool, first, batches = _settled(60, workers, 6)
    pool.take_new()
    new = list(islice(batches, 12))  # type: ignore[call-overload]
    had = {batch[0]: number % workers for number, batch in enumerate([*first, *new])}
    pool.repeat(9)
    begin = len(first) + len(new)
    for number, batch in enumerate(islice(batches, 30), start=begin):  # type: ignore[call-overload]
        assert had[batch[0]] == number % workers
        assert batch[0] >= 18 - 9 - workers
