"""State that a loader shares with its workers, and the state of its samplers: restored after a measurement.

A copy of a loader has its own workers, but shared memory is the same in all of them: an epoch counter in
`multiprocessing.Value`, in a shared tensor or in a `SharedMemory` block advances for the user as well.
"""

from __future__ import annotations

import ctypes
import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.managers import BaseProxy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderprobe.loaders.held import held
from loaderprobe.records.note import Note

MOST_BYTES = 64 * 2**20
"""Most shared memory that is restored; of more, the smallest pieces, because counters are small."""
# How /proc names shared memory that is no file of the user's: blocks by name, and anonymous ones.
NO_FILE = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")
CDATA = ctypes.Structure.__mro__[1]


@dataclass(frozen=True, slots=True)
class SharedState:
    """What will be restored."""

    notes: tuple[Note, ...]
    """What will not be restored, known before anything is touched."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Bytes of this process's memory."""

    start: int
    size: int


@contextmanager
def shared_state_kept(loader: DataLoader[Any]) -> Iterator[SharedState]:
    """Restore, at the end, the shared memory of a loader's parts and the attributes of its samplers.

    Leave it after the workers have ended. No user code is called: values are found by inspection.
    """
    places = [value for value in vars(loader).values() if not isinstance(value, _BaseDataLoaderIter)]
    # The values that were found keep their memory mapped, unless they are closed.
    values = [value for value in held(places, closed=(_BaseDataLoaderIter,)) if _may_be_shared(type(value))]
    mappings = Mappings.now()
    pieces = sorted({piece for value in values if (piece := _memory(value)) and mappings.shared(piece)})
    saved, left_out = _within(_merged(pieces))
    attributes = [(vars(owner), dict(vars(owner))) for owner in _owners(loader)]
    places_in_epoch = [(vars(loader.dataset), _numbers(loader.dataset))] if _resumes_here(loader) else []
    notes = []
    if left_out:
        notes.append(Note(code="shared_memory_stays", facts={"size_bytes": left_out}))
    if any(issubclass(type(value), BaseProxy) for value in values):
        notes.append(Note(code="manager_stays"))
    copies = [(piece, mappings.of(piece), ctypes.string_at(piece.start, piece.size)) for piece in saved]
    try:
        yield SharedState(tuple(notes))
    finally:
        _put_back(copies)
        for own, before in attributes:
            own.clear()
            own.update(before)
        for own, before in places_in_epoch:
            own.update(before)


def _may_be_shared(kind: type) -> bool:
    return kind is torch.Tensor or issubclass(kind, np.ndarray | memoryview | mmap.mmap | CDATA | BaseProxy)


def _memory(value: Any) -> Piece | None:
    """The memory of a value's bytes; None for a value without memory in this process."""
    kind = type(value)
    with suppress(ValueError, TypeError, RuntimeError, NotImplementedError):  # closed, released, empty, not dense
        if kind is torch.Tensor:
            if value.device.type != "cpu" or not value.is_shared():
                return None
            storage = value.untyped_storage()
            return Piece(storage.data_ptr(), storage.nbytes())
        if issubclass(kind, CDATA):
            return Piece(ctypes.addressof(value), ctypes.sizeof(value))
        if issubclass(kind, memoryview | mmap.mmap):
            value = np.frombuffer(value, np.uint8)
        if isinstance(value, np.ndarray):
            return _bounds(value)
    return None


def _bounds(array: np.ndarray[Any, Any]) -> Piece | None:
    if not array.size:
        return None
    ends = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    below = sum(end for end in ends if end < 0)
    above = sum(end for end in ends if end > 0)
    return Piece(array.ctypes.data + below, above - below + array.itemsize)


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Sorted by start; overlapping ones are merged."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.start <= found[-1].start + found[-1].size:
            end = max(found[-1].start + found[-1].size, piece.start + piece.size)
            found[-1] = Piece(found[-1].start, end - found[-1].start)
        else:
            found.append(piece)
    return found


def _within(pieces: Iterable[Piece]) -> tuple[list[Piece], int]:
    """(the smallest ones within the limit, the bytes of the others)."""
    kept: list[Piece] = []
    used = left_out = 0
    for piece in sorted(pieces, key=lambda piece: piece.size):
        if used + piece.size <= MOST_BYTES:
            kept.append(piece)
            used += piece.size
        else:
            left_out += piece.size
    return kept, left_out


def _put_back(copies: Iterable[tuple[Piece, str, bytes]]) -> None:
    """Write back only changed bytes, and only where the same memory is still mapped."""
    mappings = Mappings.now()
    for piece, mapped, before in copies:
        if mappings.of(piece) == mapped and ctypes.string_at(piece.start, piece.size) != before:
            ctypes.memmove(piece.start, before, piece.size)


def _owners(loader: DataLoader[Any]) -> list[Any]:
    """Objects whose attributes are restored.

    Wrappers call `set_epoch` on samplers and data sets of this process. A data set that works in this process
    keeps what it has opened and cached.
    """
    batch_sampler = loader.batch_sampler
    found = [loader.sampler, batch_sampler, getattr(batch_sampler, "__dict__", {}).get("sampler")]
    if loader.num_workers:
        found.append(loader.dataset)
    return list({id(each): each for each in found if type(getattr(each, "__dict__", None)) is dict}.values())


def _resumes_here(loader: DataLoader[Any]) -> bool:
    """True for a data set that works in this process and keeps its position, so that it can continue from there."""
    own = getattr(loader.dataset, "__dict__", None)
    return not loader.num_workers and type(own) is dict and hasattr(type(loader.dataset), "load_state_dict")


def _numbers(dataset: Any) -> dict[str, Any]:
    """Attributes that can be a position; threads and files opened since then stay."""
    plain = (int, float, bool, str, type(None))
    return {name: value for name, value in vars(dataset).items() if type(value) in plain}


class Mappings:
    """The mappings of this process from /proc/self/maps; none where it is not readable."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._starts: list[int] = []
        self._rest: list[tuple[int, str, str]] = []
        for line in lines:
            span, access, _, device, inode, *path = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in span.split("-"))
            self._starts.append(start)
            self._rest.append((end, access, f"{device} {inode} {path[0] if path else ''}"))

    @classmethod
    def now(cls) -> Mappings:
        """The current state."""
        try:
            return cls(Path("/proc/self/maps").read_text().splitlines())
        except OSError:
            return cls([])

    def of(self, piece: Piece) -> str:
        """Device, inode and name of the mapping there; empty when it is not one whole mapping."""
        number = bisect_right(self._starts, piece.start) - 1
        if number < 0 or piece.start + piece.size > self._rest[number][0]:
            return ""
        return self._rest[number][2]

    def shared(self, piece: Piece) -> bool:
        """True for writable memory that is shared with other processes and is not a file of the user."""
        what = self.of(piece)
        if not what or self._rest[bisect_right(self._starts, piece.start) - 1][1] != "rw-s":
            return False
        path = what.split(maxsplit=2)[2] if what.count(" ") >= 2 else ""
        return path.startswith(NO_FILE) or path.endswith("(deleted)")
