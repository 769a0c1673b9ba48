"""What a worker does in each mode, in this process and without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from loaderprobe.loaders.data_files import OPENED
from loaderprobe.loaders.switched import SwitchedLoader
from loaderprobe.records.measurement import WorkerBatches


class Counting(Dataset[torch.Tensor]):
    """Samples that know how often they were made."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made += 1
        return torch.full((2,), float(index))


def doubled(samples: list[torch.Tensor]) -> torch.Tensor:
    """A function of the user's that puts batches together, and more."""
    return torch.stack(samples) * 2


def modes(data: Counting, place: Path, **options: Any) -> tuple[list[Any], WorkerBatches]:
    """A batch in each of the modes C, Q, T, C; and the records."""
    loader = DataLoader(data, batch_size=4, **options)
    with SwitchedLoader(loader, place, files_of=lambda _: (), tied=False) as switched:
        batches, found = switched.batches(), []
        for mode in ("baseline", "cached_samples", "no_transport", "baseline"):
            switched.switch(mode)
            found.append(next(batches))
        return found, switched.records()


def test_preprocessing_and_handing_over_can_be_left_out(tmp_path: Path) -> None:
    """Cached samples are returned without making any; without transport they are made and only counted."""
    data = Counting()
    (first, again, count, last), records = modes(data, tmp_path)
    assert torch.equal(first, again)
    assert count == 4
    assert last[:, 0].tolist() == [12, 13, 14, 15]
    assert data.made == 12
    assert [bool(each) for each in records.collate_ns] == [True, True, False, True]


def test_what_a_function_of_the_users_does_to_a_batch_is_preprocessing(tmp_path: Path) -> None:
    """Its own collate_fn runs without transport, and does not run with cached samples."""
    calls: list[int] = []

    def counted(samples: list[torch.Tensor]) -> torch.Tensor:
        calls.append(len(samples))
        return doubled(samples)

    (first, again, count, _), records = modes(Counting(), tmp_path, collate_fn=counted)
    assert torch.equal(first, again)
    assert first.data_ptr() != again.data_ptr()
    assert count == 4
    assert len(calls) == 3
    assert set(records.collate_ns) == {0}


class Threads(Counting):
    """Samples that hold the number of torch's threads."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([torch.get_num_threads()])


def test_on_one_thread_batches_are_made_with_one_and_the_step_keeps_its_own(tmp_path: Path) -> None:
    """What was set before holds again once the batch is there, and in the next mode."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        loader = DataLoader(Threads(), batch_size=2)
        with SwitchedLoader(loader, tmp_path, files_of=lambda _: (), tied=False) as switched:
            batches, seen = switched.batches(), []
            for mode in ("baseline", "one_thread", "one_thread", "baseline"):
                switched.switch(mode)
                seen.append((next(batches).max().item(), torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert seen == [(3, 3), (1, 3), (1, 3), (3, 3)]


def test_an_error_on_one_thread_leaves_the_threads(tmp_path: Path) -> None:
    """The user's process goes on with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        loader = DataLoader(Broken(), batch_size=4)
        with (
            pytest.raises(ValueError, match="broken"),
            SwitchedLoader(loader, tmp_path, files_of=lambda _: (), tied=False) as switched,
        ):
            switched.switch("one_thread")
            next(switched.batches())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def meters() -> int:
    """Meters of threads that this process has open."""
    opened = [os.readlink(link.path) for link in os.scandir("/proc/self/fd") if os.path.lexists(link.path)]
    return sum(path.endswith("schedstat") for path in opened)


class Broken(Counting):
    """Opens a file and fails."""

    def __getitem__(self, index: int) -> torch.Tensor:
        Path(__file__).read_bytes()
        raise ValueError("broken")


def test_nothing_is_listened_to_and_nothing_is_kept_after_an_error(tmp_path: Path) -> None:
    """Later files do not count, and the process has as many open as before."""
    before = meters()
    loader = DataLoader(Broken(), batch_size=4)
    with (
        pytest.raises(ValueError, match="broken"),
        SwitchedLoader(loader, tmp_path, files_of=None, tied=False) as switched,
    ):
        next(switched.batches())
    Path(sys.executable).stat()
    (tmp_path / "later.bin").write_bytes(b"1")
    (tmp_path / "later.bin").read_bytes()
    assert OPENED.heard() == []
    assert meters() == before
