"""A user's own DataLoader, driven through a copy of it, so that the loader itself stays as it was found."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from loaderprobe.errors import BadValue
from loaderprobe.loaders.fetch_log import FetchLog
from loaderprobe.loaders.switched import SwitchedLoader
from loaderprobe.loaders.watch import learned_path
from loaderprobe.records.config import BatchFiles
from loaderprobe.records.measurement import Mode

# Files are read whole when read calls return about as many bytes as the opened files hold.
READ_WHOLE = (0.8, 1.25)
NO_FILES = "the data set opens no file that Python can see"
NOT_WHOLE = "the data set reads parts of its files, or keeps them open"


class Pool:
    """The first batches of a sampler, and then those again and again.

    Every worker must get the same batches each time round, so the pool is a whole multiple of their number.
    """

    def __init__(self, source: Any, workers: int) -> None:
        self._source = source
        self._multiple = max(1, workers)
        self._kept: list[Any] = []
        self.size = 0
        """Batches of the pool; 0 while more may be added."""

    def close(self) -> None:
        """Add no more batches than are asked for by now, as soon as each worker has one."""
        if not self.size and len(self._kept) >= self._multiple:
            self.size = len(self._kept) // self._multiple * self._multiple

    def __iter__(self) -> Iterator[Any]:
        for batch in self._source:
            if self.size:
                break
            if self._kept and _length(batch) < _length(self._kept[0]):
                continue  # the last batch of an epoch is a short one
            self._kept.append(batch)
            yield batch
        if not self._kept:
            return
        if not self.size:
            whole = len(self._kept) // self._multiple * self._multiple
            self.size = whole or lcm(len(self._kept), self._multiple)
        number = len(self._kept)
        while True:
            yield self._kept[number % self.size % len(self._kept)]
            number += 1


def _length(batch: Any) -> int:
    return len(batch) if isinstance(batch, Sequence) else 1


class OwnLoader(SwitchedLoader):
    """Drives a copy of a user's loader: map-style or iterable, of any batch, with any workers.

    Raises BadValue for what is no DataLoader, and for one that yields nothing.
    """

    def __init__(self, loader: DataLoader[Any], scratch: Path) -> None:
        if not isinstance(loader, DataLoader):
            raise BadValue(
                f"this is a {type(loader).__name__}, not a torch.utils.data.DataLoader",
                hint="give the DataLoader itself, not an iterator of it or a wrapper around it",
            )
        self._own = loader
        self._iterable = isinstance(loader.dataset, IterableDataset)
        self._pool = None if self._iterable else Pool(_own_copy(loader), loader.num_workers)
        super().__init__(_endless(loader, self._pool), scratch, files_of=None, tied=False)
        self._lanes = FetchLog(scratch / "fetch.log", max(loader.num_workers, 1))
        self._settled = 0

    def modes(self) -> frozenset[Mode]:
        """Sub-classes that work on what they yield are not given anything but batches."""
        plain = type(self._own).__iter__ is DataLoader.__iter__
        return super().modes() - (frozenset() if plain else {"T"})

    @property
    def exhausted(self) -> bool:
        """True when the sampler had no more batches, and the pool is what it gave."""
        return self._pool is not None and self._pool.size > 0

    def settle(self, taken: int) -> int:
        """Make the batches asked for by now the pool; returns how many must have been taken until it is learned.

        `taken` batches have been taken by now.
        """
        ahead = self._loader.num_workers * (self._loader.prefetch_factor or 0)
        if self._pool is not None:
            self._pool.close()
            size = self._pool.size
        else:
            lanes = max(self._loader.num_workers, 1)
            size = -(-(taken + ahead) // lanes) * lanes
        self._settled = self._log.pool = size
        return size

    def files(self, batch_size: int) -> BatchFiles | str:
        """The files of the settled pool; or why they are not known."""
        batches: list[list[tuple[str, int]]] = [[] for _ in range(self._settled)]
        read = 0
        lanes = self._lanes.lanes
        for lane in range(lanes):
            path = learned_path(self._lanes, lane)
            lines = path.read_text().splitlines() if path.is_file() else []
            for made, line in enumerate(lines[: self._settled // lanes]):
                learned = json.loads(line)
                batches[lane + made * lanes] = [(name, size) for name, size in learned["files"]]
                read += learned["read"]
        sizes = tuple(sum(size for _, size in batch) for batch in batches)
        if not sum(sizes):
            return NO_FILES
        if read and not READ_WHOLE[0] <= read / sum(sizes) <= READ_WHOLE[1]:
            return NOT_WHOLE
        return BatchFiles(
            batch_size=batch_size,
            paths=tuple(tuple(name for name, _ in batch) for batch in batches),
            size_bytes=sizes,
        )


def _own_copy(loader: DataLoader[Any]) -> Any:
    """The loader's index sampler, copied so that its own state stays; the data set is not copied."""
    sampler = loader._index_sampler
    if isinstance(sampler, Iterator):
        raise BadValue(
            "the loader's sampler can be iterated only once, so looking at it would use it up",
            hint="give a sampler whose __iter__ starts anew",
        )
    # Generators are shared too: whoever calls puts their states back.
    shared = {id(each): each for each in (loader.dataset, *_generators(loader))}
    try:
        return copy.deepcopy(sampler, shared)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise BadValue(
            f"the loader's sampler cannot be copied ({error}), so looking at it could change it",
            hint="give a sampler that copy.deepcopy can copy",
        ) from error


def _endless(loader: DataLoader[Any], pool: Pool | None) -> DataLoader[Any]:
    """A copy of the loader, of its own class, with workers of its own and batches without end."""
    twin = copy.copy(loader)
    settings = twin.__dict__
    settings["_iterator"] = None
    settings["persistent_workers"] = False
    settings["in_order"] = True
    if pool is not None:
        settings["batch_sampler" if loader._auto_collation else "sampler"] = pool
    return twin


def _generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    places = (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    return [each for each in found if isinstance(each, torch.Generator)]


@contextmanager
def random_state_kept(loader: DataLoader[Any]) -> Iterator[None]:
    """Leave all random generators that a loader draws from as they were."""
    generators = _generators(loader)
    states = [each.get_state() for each in generators]
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)
