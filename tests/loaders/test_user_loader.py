"""The pool that a user's sampler is asked for, files that are learned, and whose an error is."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from loaderprobe.errors import BadValue
from loaderprobe.loaders.data_files import OpenedFiles
from loaderprobe.loaders.user_loader import BatchPool, UserLoader
from tests.api.samples import Moving, Numbers


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 60))
def test_a_pool_gives_every_worker_the_same_batches_each_time(count: int, workers: int, taken: int) -> None:
    """It is a whole multiple of the workers, and after the first time batch k is batch k modulo its size, for ever."""
    pool = BatchPool([[number] for number in range(count)], workers)
    batches = iter(pool)
    first = [next(batches) for _ in range(taken)]
    pool.close()
    rest = [next(batches) for _ in range(3 * (count + taken) + 5)]
    if pool.size:
        assert pool.size % max(workers, 1) == 0
        whole = first + rest
        assert all(whole[number] == whole[number % pool.size] for number in range(max(count, taken), len(whole)))


def test_a_pool_keeps_batches_of_one_length() -> None:
    """The others are counted; one of nothing ends."""
    pool = BatchPool([[1, 2], [3], [4, 5], [6, 7, 8]], 1)
    assert list(islice(iter(pool), 4)) == [[1, 2], [4, 5], [1, 2], [4, 5]]
    assert pool.odd == 2
    assert list(iter(BatchPool([], 2))) == []


def settled(count: int, workers: int, taken: int) -> tuple[BatchPool, list[list[int]], Any]:
    """A pool of which so many batches were taken; and those."""
    pool = BatchPool([[number] for number in range(count)], workers)
    batches = iter(pool)
    first = list(islice(batches, taken))
    pool.close()
    return pool, first, batches


def test_new_batches_were_not_taken_before() -> None:
    """Not those of the pool, though it has gone round since; a sampler without new ones says so."""
    pool, first, batches = settled(40, 2, 8)
    assert list(islice(batches, 8)) == first
    pool.take_new()
    assert list(islice(batches, 10)) == [[number] for number in range(8, 18)]
    assert (pool.left(), pool.passes) == (22, 0)
    pool, _, batches = settled(12, 2, 8)
    pool.take_new()
    list(islice(batches, 6))
    assert pool.passes >= 1 and pool.left() < pool.passes


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_repeated_batches_go_to_the_worker_that_had_them(workers: int) -> None:
    """What a data set keeps, it keeps in the worker that made it."""
    pool, first, batches = settled(60, workers, 6)
    pool.take_new()
    new = list(islice(batches, 12))
    had = {batch[0]: number % workers for number, batch in enumerate([*first, *new])}
    pool.repeat(9)
    for number, batch in enumerate(islice(batches, 30), start=len(had)):
        assert had[batch[0]] == number % workers
        assert batch[0] >= 18 - 9 - workers


def test_files_that_are_opened_are_heard(tmp_path: Path) -> None:
    """Data that is read, once each, by absolute path; not what is written, code, devices, or what has gone."""
    data, code, package, gone = (tmp_path / name for name in ("a.raw", "b.py", "site-packages/c.json", "gone"))
    package.parent.mkdir()
    for path in (data, code, package, gone):
        path.write_bytes(b"12345")
    listener = OpenedFiles()
    listener.listen()
    for path in (data, data, code, package, gone):
        path.read_bytes()
    os.close(os.open(bytes(data), os.O_RDONLY))
    Path("/dev/null").read_bytes()
    (tmp_path / "written").write_bytes(b"1")
    gone.unlink()
    assert listener.heard() == [(str(data), 5)]
    data.read_bytes()
    assert listener.heard() == []


SERIAL = {"baseline", "warm", "cached_samples"}


def test_a_twin_shares_nothing_that_it_changes(tmp_path: Path) -> None:
    """The loader keeps its own settings, and what may be done with a sub-class is less."""
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    before = dict(vars(loader))
    assert UserLoader(loader, tmp_path).modes() == {*SERIAL, "no_transport"}
    assert vars(loader) == before
    assert UserLoader(Moving(Numbers(), batch_size=4, num_workers=2), tmp_path).modes() == SERIAL
    assert UserLoader(DataLoader(Numbers(), batch_size=4), tmp_path).modes() == {*SERIAL, "one_thread"}


def test_a_loader_that_goes_past_torch_is_refused(tmp_path: Path) -> None:
    """Its batches cannot be separated, so nothing is measured."""

    class Foreign(DataLoader[Any]):
        def __iter__(self) -> Any:
            yield from ([1], [2])

    with UserLoader(Foreign(Numbers(), batch_size=4), tmp_path) as own:
        next(own.batches())
        with pytest.raises(BadValue, match="does not iterate as torch's DataLoader does"):
            own.check()
