"""The pool that a user's sampler is asked for, files that are learned, and whose an error is."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from loaderprobe.batches import holds_images, samples_in, samples_without_collation
from loaderprobe.errors import BadValue
from loaderprobe.loaders.data_files import OpenedFiles
from loaderprobe.loaders.state import random_state_kept
from loaderprobe.loaders.user_loader import BatchPool, UserLoader, origin_of
from tests.api.samples import Dreaming, Moving, Numbers


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


def test_a_pool_of_nothing_ends() -> None:
    """There is nothing to repeat."""
    assert list(iter(BatchPool([], 2))) == []


def test_a_pool_keeps_batches_of_one_length() -> None:
    """The others are counted."""
    pool = BatchPool([[1, 2], [3], [4, 5], [6, 7, 8]], 1)
    batches = iter(pool)
    assert [next(batches) for _ in range(4)] == [[1, 2], [4, 5], [1, 2], [4, 5]]
    assert pool.odd == 2


def test_files_that_are_opened_are_heard(tmp_path: Path) -> None:
    """Data that is read, once each, by absolute path; not what is written, code, devices, or what has gone."""
    data, code, package = tmp_path / "a.raw", tmp_path / "b.py", tmp_path / "site-packages" / "c.json"
    package.parent.mkdir()
    for path in (data, code, package):
        path.write_bytes(b"12345")
    gone = tmp_path / "gone"
    gone.write_bytes(b"")
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


def test_batches_and_samples_are_separate() -> None:
    """Without a collate_fn a data set yields one sample, or batches of its own."""
    image, images, labels = torch.zeros(3, 8, 8), torch.zeros(6, 3, 8, 8), torch.zeros(6)
    assert [samples_without_collation(item) for item in ((image, 1), image, images, (images, labels))] == [1, 1, 6, 6]
    assert samples_without_collation({"x": np.zeros((7, 5)), "y": np.zeros(7)}) == 7
    assert samples_without_collation("text") == samples_without_collation(torch.tensor(1.0)) == 1
    assert samples_in({"x": np.zeros((7, 5))}) == 7
    assert [holds_images(batch) for batch in (images, [{"x": (labels, images)}], (labels, image))] == [
        True,
        True,
        False,
    ]


def test_errors_name_their_origin() -> None:
    """By what a worker's traceback holds; the last line that names the error begins its message."""
    text = (
        "Caught KeyError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        "  File \"watch.py\", line 1, in fetch\n    batch = self._make(fetcher)\nKeyError: 'label'\n"
    )
    assert origin_of(KeyError(text)).message.startswith("the data set raised KeyError")
    assert origin_of(RuntimeError(text)).message == "the data set raised KeyError: 'label', in a worker"
    assert (
        origin_of(RuntimeError("DataLoader timed out")).message
        == "the loader raised RuntimeError: DataLoader timed out"
    )
    assert origin_of(ValueError()).message == "the loader raised ValueError"


def test_generators_go_back_to_where_they_were() -> None:
    """Those of torch, Python and numpy, and those that the data set keeps, also after an error."""
    data = Dreaming()
    loader = DataLoader(data, batch_size=2)

    def draw() -> list[Any]:
        return [torch.rand(1).item(), random.random(), np.random.random(), data[0][0][0].item()]

    with pytest.raises(ValueError, match="within"), random_state_kept(loader):
        within = draw()
        raise ValueError("within")
    assert draw() == within


def test_a_twin_shares_nothing_that_it_changes(tmp_path: Path) -> None:
    """The loader keeps its own settings, and what may be done with a sub-class is less."""
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    before = dict(vars(loader))
    assert UserLoader(loader, tmp_path).modes() == {"baseline", "warm", "cached_samples", "no_transport"}
    assert vars(loader) == before
    assert UserLoader(Moving(Numbers(), batch_size=4, num_workers=2), tmp_path).modes() == {
        "baseline",
        "warm",
        "cached_samples",
    }
    serial = {"baseline", "warm", "cached_samples", "one_thread"}
    assert UserLoader(DataLoader(Numbers(), batch_size=4), tmp_path).modes() == serial


def test_a_loader_that_goes_past_torch_is_refused(tmp_path: Path) -> None:
    """Its batches cannot be separated, so nothing is measured."""

    class Foreign(DataLoader[Any]):
        def __iter__(self) -> Any:
            yield from ([1], [2])

    with UserLoader(Foreign(Numbers(), batch_size=4), tmp_path) as own:
        next(own.batches())
        with pytest.raises(BadValue, match="does not iterate as torch's DataLoader does"):
            own.check()
