"""Memory that a loader shares with its workers is restored."""

from __future__ import annotations

import mmap
import multiprocessing
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from loaderprobe.loaders import state as shared_state
from loaderprobe.loaders.state import shared_state_kept
from loaderprobe.records.remark import Remark
from tests.api.samples import Backwards, Numbers
from tests.said import all_said


@pytest.fixture
def block() -> Iterator[Any]:
    """64 bytes of named shared memory."""
    made = SharedMemory(create=True, size=64)
    yield made
    made.close()
    made.unlink()


def _shared(count: int) -> torch.Tensor:
    tensor = torch.zeros(count)
    tensor.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return tensor


def _loader(workers: int = 1, **held: Any) -> DataLoader[Any]:
    data = Numbers()
    vars(data).update(held)
    return DataLoader(data, batch_size=4, num_workers=workers)


def test_shared_memory_of_any_kind_is_put_back(block: Any) -> None:
    """Values, arrays, tensors, blocks, anonymous maps, and numpy arrays over them, however deep."""
    value, raw = multiprocessing.Value("i", 1), multiprocessing.RawArray("d", 3)
    array = multiprocessing.Array("b", 4)
    held_array: Any = array.get_obj()
    tensor, anonymous = _shared(5), mmap.mmap(-1, 16)
    over, reverse = np.frombuffer(held_array, np.int8), np.frombuffer(anonymous, np.uint8)[::-2]
    loader = _loader(kept={"value": [value], "raw": (raw,)}, tensor=tensor, over=over, block=block, reverse=reverse)
    with shared_state_kept(loader) as state:
        value.value, raw[1], over[2], tensor[3], reverse[4] = 2, 2.0, 2, 2.0, 2
        block.buf[5] = 2
    assert state.notes == ()
    assert (value.value, raw[1], array[2], tensor[3].item(), reverse[4], block.buf[5]) == (1, 0.0, 0, 0.0, 0, 0)


def test_other_memory_is_left_alone(tmp_path: Path) -> None:
    """What is this process's own, and files: those are the user's to write."""
    own = np.zeros(4)
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    file = np.memmap(path, np.uint8, mode="r+")
    with shared_state_kept(_loader(own=own, file=file)):
        own[1] = file[1] = 2
    assert (own[1], file[1]) == (2, 2)


def test_it_is_put_back_after_an_error_too() -> None:
    """And what the collate_fn holds is part of the loader."""
    value = multiprocessing.Value("i", 1)

    def collate(samples: Any) -> Any:
        value.value += len(samples)

    loader = DataLoader(Numbers(), collate_fn=collate)
    with pytest.raises(ValueError, match="within"), shared_state_kept(loader):
        collate([1, 2])
        raise ValueError("within")
    assert value.value == 1


def test_memory_that_has_gone_meanwhile_is_not_written() -> None:
    """A block that was closed is no longer mapped."""
    block: Any = SharedMemory(create=True, size=64)
    with shared_state_kept(_loader(block=block)):
        block.buf[0] = 1
        block.close()
    block.unlink()


def test_what_is_too_large_is_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small pieces are restored in any case."""
    monkeypatch.setattr(shared_state, "MOST_BYTES", 1000)
    counter, cache = _shared(1), _shared(4000)
    with shared_state_kept(_loader(cache=cache, counter=counter)) as state:
        assert state.notes == (Remark(code="shared_memory_stays", facts={"size_bytes": 16_000}),)
        counter[0] = cache[0] = 1.0
    assert (counter[0].item(), cache[0].item()) == (0.0, 1.0)


def test_a_manager_is_reported() -> None:
    """Its state is in a process of its own."""
    with multiprocessing.Manager() as manager, shared_state_kept(_loader(seen=manager.list())) as state:
        assert any("Manager" in note for note in all_said(state.notes))


class _Resumable(Numbers):
    """Counts what it has given, and can go on from there."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def load_state_dict(self, state: Any) -> None:
        self.given = state


@pytest.mark.parametrize("workers", [0, 1])
def test_attributes_of_samplers_are_put_back(workers: int) -> None:
    """And those of a data set, unless it works in this process, where it keeps what it has cached."""
    sampler, data = Backwards(8), Numbers()
    loader = DataLoader(data, sampler=sampler, num_workers=workers)
    with shared_state_kept(loader):
        sampler.begun = data.count = 3
        vars(sampler)["epoch"] = 3
    assert vars(sampler) == {"count": 8, "begun": 0}
    assert data.count == (64 if workers else 3)


def test_a_data_set_that_can_be_resumed_keeps_its_place() -> None:
    """Also where it works in this process."""
    data = _Resumable()
    with shared_state_kept(DataLoader(data)):
        data.load_state_dict(3)
    assert data.given == 0
