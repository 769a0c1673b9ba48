"""The loaders and steps of `waits`, fresh for each run."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from scripts.benches.waits_locks import lock_of
from scripts.benches.waits_readers import READERS
from scripts.benches.waits_rows import LARGE_SAMPLES, Row
from scripts.benches.waits_samples import BATCH_SIZE, Work
from scripts.benches.waits_texts import MEAN_LENGTH, LengthGrouped, pad

STEP_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row finds its data."""

    folder: Path
    """Holds the row's format."""
    large: Path | None = None
    """Holds it once more, with many more samples."""
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
def place_of(row: Row, disk: Path, url: str) -> Iterator[Place]:
    """On this disk, with the lock held by someone, while it is used."""
    folder, large = disk / row.folder, disk / row.large_folder if row.large_folder else None
    if row.lock == "shared":
        yield Place(folder=folder, large=large, lock=multiprocessing.get_context("fork").Lock())
        return
    with lock_of(row.lock, folder) as lock:
        yield Place(folder=folder, large=large, url=url, lock=lock)


def make_loader(row: Row, place: Place, without: str = "", apart: int = 0) -> Any:
    """As anyone would write it; for the truth without one resource, or with samples of the large copy so far apart."""
    folder = place.large if apart and place.large else place.folder
    work = Work(
        count=LARGE_SAMPLES if apart else row.samples,
        burn_s=row.burn_ms / 1e3,
        wait_s=row.wait_ms / 1e3,
        lock=place.lock,
        without=without,
    )
    if row.lock == "shared":
        work = replace(
            work, lock=_SharedSleep(work, place.lock), wait_s=0.0, without="" if without == "lock" else without
        )
    common: dict[str, Any] = {
        "num_workers": row.workers,
        "multiprocessing_context": row.start if row.workers else None,
    }
    reader = READERS[row.reader]
    dataset = reader.make(folder, work, *([place.url] if reader.remote else []))
    if row.reader == "text":
        return DataLoader(dataset, batch_sampler=LengthGrouped(), collate_fn=pad, **common)
    if apart:
        common["sampler"] = far_apart(LARGE_SAMPLES, apart)
    elif row.order == "replacement":
        common["sampler"] = RandomSampler(dataset, replacement=True, num_samples=row.samples)
    elif not reader.iterable:
        common["shuffle"] = True
    return reader.loader(dataset, batch_size=BATCH_SIZE, **common)


def far_apart(count: int, apart: int) -> list[int]:
    """All indices, first those that are at least so far apart, then those halfway between, and so on; each in turn.

    A loader that reads ahead is too slow to get past the first in a timed part; one that does not needs more of them.
    """
    apart = 1 << (apart - 1).bit_length()
    begin, order = int(torch.randint(apart, ())), dict[int, None]()
    while apart:
        found = torch.arange(begin % apart, count, apart)
        order |= dict.fromkeys(index for index in found[torch.randperm(len(found))].tolist() if index not in order)
        apart //= 2
    return list(order)


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
        torch.nn.functional.cross_entropy(model(images), numbers % 10).backward()  # type: ignore[no-untyped-call]  # torch does not type it
        optimizer.step()

    return step
