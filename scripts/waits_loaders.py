"""The loaders and steps of `bench_waits`, fresh for each run."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from scripts.waits_formats import (
    LONGEST,
    SHORTEST,
    TEXTS,
    Arrow,
    BigMap,
    Hdf5,
    Hdf5Each,
    Lmdb,
    Sqlite,
    TarShards,
    Zarr,
    text_lengths,
    webdataset_of,
)
from scripts.waits_locks import lock_of
from scripts.waits_remote import S3, HttpRequests, S3Narrow
from scripts.waits_rows import Row
from scripts.waits_samples import (
    AheadFiles,
    CachedFiles,
    CvFiles,
    LazyFiles,
    LockedFiles,
    MappedFiles,
    NativeFiles,
    PooledFiles,
    PythonFiles,
    Work,
)

PHOTOGRAPHS = 1500
BATCH_SIZE = 8
STEP_THREADS = 2
MEAN_LENGTH = (SHORTEST + LONGEST) / 2
# The order of its multiples, modulo 1: any few batches in a row cover all lengths evenly.
GOLDEN = 0.618034
READERS: dict[str, Callable[[Path, Work], Any]] = {
    "python": PythonFiles,
    "native": NativeFiles,
    "cv2": CvFiles,
    "lazy": LazyFiles,
    "mmap": MappedFiles,
    "pool": PooledFiles,
    "ahead": AheadFiles,
    "cached": CachedFiles,
    "locked": LockedFiles,
    "memmap": BigMap,
    "lmdb": Lmdb,
    "hdf5": Hdf5,
    "hdf5each": Hdf5Each,
    "arrow": Arrow,
    "tar": TarShards,
    "webdataset": webdataset_of,
    "sqlite": Sqlite,
    "zarr": Zarr,
}
REMOTES = {"http": HttpRequests, "s3": S3, "s3narrow": S3Narrow}
ITERABLE = ("ahead", "tar", "webdataset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row finds its data."""

    folder: Path
    """Holds the row's format."""
    url: str = ""
    lock: Any = None


class _SharedSleep:
    """A lock that the workers share, and a call under it that takes its time."""

    def __init__(self, work: Work, lock: Any) -> None:
        self._sleeps = 0.0 if work.without == "wait" else work.wait_s
        self._lock = None if work.without == "lock" else lock

    def __enter__(self) -> None:
        if self._lock:
            self._lock.acquire()
        time.sleep(self._sleeps)

    def __exit__(self, *_: object) -> None:
        if self._lock:
            self._lock.release()


@contextmanager
def place_of(row: Row, folder: Path, url: str) -> Iterator[Place]:
    """With the lock held by someone, while it is used."""
    if row.lock == "shared":
        yield Place(folder=folder, lock=multiprocessing.get_context("fork").Lock())
        return
    with lock_of(row.lock, folder) as lock:
        yield Place(folder=folder, url=url, lock=lock)


def make_loader(row: Row, place: Place, without: str = "") -> DataLoader[Any]:
    """As anyone would write it; without one resource for the truth."""
    count = TEXTS if row.reader == "text" else PHOTOGRAPHS
    work = Work(count=count, burn_s=row.burn_ms / 1e3, wait_s=row.wait_ms / 1e3, lock=place.lock, without=without)
    if row.lock == "shared":
        work = replace(
            work, lock=_SharedSleep(work, place.lock), wait_s=0.0, without="" if without == "lock" else without
        )
    common: dict[str, Any] = {
        "num_workers": row.workers,
        "multiprocessing_context": row.start if row.workers else None,
    }
    if row.reader == "text":
        texts = Texts(place.folder, work)
        return DataLoader(texts, batch_sampler=LengthGrouped(), collate_fn=pad, **common)
    dataset = (
        REMOTES[row.reader](place.folder, work, place.url) if row.remote else READERS[row.reader](place.folder, work)
    )
    if row.order == "replacement":
        common["sampler"] = RandomSampler(dataset, replacement=True, num_samples=PHOTOGRAPHS)
    elif row.reader not in ITERABLE:
        common["shuffle"] = True
    return DataLoader(dataset, batch_size=BATCH_SIZE, **common)


class Texts(Dataset[torch.Tensor]):
    """Tokens of texts, one after another in one file; what a text costs goes with its length."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.file = folder / "tokens.bin"
        self.work = work
        self.ends = np.cumsum(text_lengths())

    def __len__(self) -> int:
        return self.work.count

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = int(self.ends[index - 1]) if index else 0
        length = int(self.ends[index]) - begin
        tokens = np.fromfile(self.file, dtype=np.uint16, count=length, offset=2 * begin)
        if self.work.without != "preprocessing":
            self.work.burn(length / MEAN_LENGTH)
        return torch.from_numpy(tokens.astype(np.int64))


def pad(texts: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(texts, batch_first=True)


class LengthGrouped(Sampler[list[int]]):
    """Texts of about the same length together; short and long batches mixed, beginning anywhere."""

    def __len__(self) -> int:
        return TEXTS // BATCH_SIZE

    def __iter__(self) -> Iterator[list[int]]:
        groups = np.argsort(text_lengths(), kind="stable")[: len(self) * BATCH_SIZE].reshape(-1, BATCH_SIZE)
        mixed = np.argsort(np.arange(len(self)) * GOLDEN % 1)
        for number in np.roll(mixed, int(torch.randint(len(self), ()))):
            yield groups[number].tolist()


def make_step(row: Row) -> Callable[[Any], Any] | None:
    """An accelerator that is waited for, or a real step that shares the cores; None for the loader alone."""
    if row.step == "none":
        return None
    if row.step == "conv":
        return _conv_step(int(row.step_ms))
    seconds = row.step_ms / 1e3
    if row.step == "tokens":
        return lambda batch: time.sleep(seconds * batch.numel() / (MEAN_LENGTH * BATCH_SIZE))
    return lambda batch: time.sleep(seconds)


def _conv_step(width: int) -> Callable[[Any], Any]:
    torch.set_num_threads(STEP_THREADS)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(width, 2 * width, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * width, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        images, numbers = batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), numbers % 10).backward()
        optimizer.step()

    return step
