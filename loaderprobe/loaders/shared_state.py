"""State that a loader shares with its workers, and its samplers' own: put back when the loader was driven.

Copies of a loader run in workers of their own, but memory that is shared is the same in all of them: an epoch
counter in `multiprocessing.Value`, in a shared tensor or in a `SharedMemory` block moves on for the user as well.
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
from loaderprobe.units import format_bytes

MOST_BYTES = 64 * 2**20
"""So much shared memory is put back; of more, the smallest pieces, since counters are small."""
# How /proc names shared memory that is no file of the user's: blocks by name, and anonymous ones.
NO_FILE = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")
MANAGER = "state of the loader lives in a multiprocessing.Manager: what is written there meanwhile stays"
CDATA = ctypes.Structure.__mro__[1]


@dataclass(frozen=True, slots=True)
class SharedState:
    """What will be put back."""

    notes: tuple[str, ...]
    """What will not, known before anything is touched."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Bytes of this process's memory."""

    start: int
    size: int


@contextmanager
def shared_state_kept(loader: DataLoader[Any]) -> Iterator[SharedState]:
    """Leave shared memory that a loader's parts hold, and its samplers' attributes, as they were.

    To be left after the workers have ended. Nothing of the user's is called: what is held is found by looking.
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
        notes.append(
            f"{format_bytes(left_out)} of the memory that the loader shares with its workers is too much to be put "
            "back: what is written there meanwhile stays"
        )
    if any(issubclass(type(value), BaseProxy) for value in values):
        notes.append(MANAGER)
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
    """Where a value's bytes are; None for what has none in this process."""
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
    """In order of their start; those that overlap are one."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.start <= found[-1].start + found[-1].size:
            end = max(found[-1].start + found[-1].size, piece.start + piece.size)
            found[-1] = Piece(found[-1].start, end - found[-1].start)
        else:
            found.append(piece)
    return found


def _within(pieces: Iterable[Piece]) -> tuple[list[Piece], int]:
    """The smallest that are not too much together, and the bytes of the others."""
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
    """Only what has changed is written, and only where the same memory is still mapped."""
    mappings = Mappings.now()
    for piece, mapped, before in copies:
        if mappings.of(piece) == mapped and ctypes.string_at(piece.start, piece.size) != before:
            ctypes.memmove(piece.start, before, piece.size)


def _owners(loader: DataLoader[Any]) -> list[Any]:
    """Objects whose attributes are put back.

    Wrappers call `set_epoch` on samplers and data sets of this process. A data set that works in this process
    keeps what it has opened and cached.
    """
    batch_sampler = loader.batch_sampler
    found = [loader.sampler, batch_sampler, getattr(batch_sampler, "__dict__", {}).get("sampler")]
    if loader.num_workers:
        found.append(loader.dataset)
    return list({id(each): each for each in found if type(getattr(each, "__dict__", None)) is dict}.values())


def _resumes_here(loader: DataLoader[Any]) -> bool:
    """True for a data set that works in this process and keeps its place, so that it can go on from there."""
    own = getattr(loader.dataset, "__dict__", None)
    return not loader.num_workers and type(own) is dict and hasattr(type(loader.dataset), "load_state_dict")


def _numbers(dataset: Any) -> dict[str, Any]:
    """Attributes that can be a place; threads and files that were opened since then stay."""
    plain = (int, float, bool, str, type(None))
    return {name: value for name, value in vars(dataset).items() if type(value) in plain}


class Mappings:
    """What is mapped into this process, as /proc/self/maps tells; nothing where it does not."""

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
        """As it is now."""
        try:
            return cls(Path("/proc/self/maps").read_text().splitlines())
        except OSError:
            return cls([])

    def of(self, piece: Piece) -> str:
        """What is mapped there, by device, inode and name; empty when that is not one whole mapping."""
        number = bisect_right(self._starts, piece.start) - 1
        if number < 0 or piece.start + piece.size > self._rest[number][0]:
            return ""
        return self._rest[number][2]

    def shared(self, piece: Piece) -> bool:
        """True for memory that is shared with other processes, may be written, and is no file of the user's."""
        what = self.of(piece)
        if not what or self._rest[bisect_right(self._starts, piece.start) - 1][1] != "rw-s":
            return False
        path = what.split(maxsplit=2)[2] if what.count(" ") >= 2 else ""
        return path.startswith(NO_FILE) or path.endswith("(deleted)")
