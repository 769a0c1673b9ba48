"""Inside a worker: make each batch as the switch says, and record what it cost, without touching the data set.

`worker_init_fn` runs in the worker before torch makes its fetcher, so wrapping the fetcher's `fetch` there
sees whole batches: wall, thread CPU, run-queue delay, bytes read. Blocked time is what remains of the wall:
timers around `decode` would not tell, since Pillow reads lazily.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import fetch as torch_fetch

from loaderprobe.batches import samples_without_collation
from loaderprobe.loaders.dice import global_dice
from loaderprobe.loaders.fetch_log import ROWS, FetchLog
from loaderprobe.loaders.opened import OPENED
from loaderprobe.system.process import die_with_parent
from loaderprobe.system.thread import ThreadMeter

FilesOf = Callable[[Sequence[Any]], Iterable[Path]]
"""From the indices of a batch to the files that hold it."""


class Watch:
    """Stands around the fetcher of one lane. `files_of` names a batch's files; without it they are learned."""

    def __init__(self, log: FetchLog, lane: int, files_of: FilesOf | None) -> None:
        self._log = log.open("r+")
        self._rows = self._log.rows[lane]
        self._lane, self._lanes = lane, log.lanes
        self._files_of = files_of
        self._learned: list[list[str]] = []
        self._learned_path = learned_path(log, lane)
        self._meter = ThreadMeter()
        self._made = 0
        self._full = 0
        self._samples: Any = None
        self._images = self._collate_ns = 0
        self._collate: Any = None
        self._batch: Any = None
        self._dice = global_dice()
        self._again = False
        self._since = 0

    def close(self) -> None:
        """Give back what the kernel lends, when the loader outlives the watch."""
        self._meter.close()

    def fetch(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """One batch, made as the switch says, and its row."""
        entered = time.thread_time_ns()
        if self._collate is None:
            self._collate, fetcher.collate_fn = fetcher.collate_fn, lambda data: self._hand_over(fetcher, data)
        number = self._lane + self._made * self._lanes
        row = self._rows[self._made % ROWS]
        cpu, delay, read = self._meter.read()
        start = time.perf_counter_ns()
        row[1] = start
        row[0] = -(number + 1)
        self._collate_ns = 0
        raw = self._log.mode == "Q" and self._samples is not None
        batch = self._read_only(index) if raw else self._make(fetcher, original, index)
        wall = time.perf_counter_ns() - start
        cpu_after, delay_after, read_after = self._meter.read()
        cpu_ns = cpu_after - cpu
        row[2:8] = (wall, cpu_ns, delay_after - delay, read_after - read, self._images, self._collate_ns)
        self._made += 1
        row[8] = time.thread_time_ns() - entered - cpu_ns
        row[0] = number + 1
        return batch

    def _make(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """The data set at work. What it opens is noted until the pool of batches is settled."""
        share = self._log.pool // self._lanes
        if share and self._since >= share and hasattr(fetcher, "dataset_iter"):
            # An iterable begins again with the pool, so that its files come again.
            self._begin_again(fetcher)
        if self._files_of is not None or (share and self._made >= share):
            return self._whole(fetcher, original, index)
        self._again = False
        OPENED.listen()
        before = _read_calls()
        try:
            batch = self._whole(fetcher, original, index)
        finally:
            files = OPENED.heard()
        self._learned.append([path for path, _ in files])
        with self._learned_path.open("a") as out:
            out.write(json.dumps({"files": files, "read": _bytes_since(before), "again": self._again}) + "\n")
        return batch

    def _whole(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """A full batch; an iterable that ends begins again, once."""
        self._since += 1
        if not hasattr(fetcher, "dataset_iter"):
            return original(index)
        try:
            batch = original(index)
            if self._images >= self._full or not fetcher.auto_collation:
                self._full = self._images
                return batch
        except StopIteration:
            if not self._made:
                raise
        self._begin_again(fetcher)
        self._since = 1
        return original(index)

    def _begin_again(self, fetcher: Any) -> None:
        """Shuffled as it was before, so that the same samples come in the same order."""
        self._dice()
        fetcher.dataset_iter, fetcher.ended = iter(fetcher.dataset), False
        self._again, self._since = True, 0

    def _hand_over(self, fetcher: Any, samples: Any) -> Any:
        """Collate, or only count; the samples are kept, to stand in for those that mode Q does not make."""
        self._images = len(samples) if fetcher.auto_collation else samples_without_collation(samples)
        self._samples = _fresh(samples)
        if self._log.mode != "T":
            return self._collated(samples)
        if not self._plain:
            self._collated(samples)
        return self._images

    @property
    def _plain(self) -> bool:
        """True where putting a batch together only moves samples into it; a function of the user's may do anything."""
        return self._collate in (default_collate, default_convert)

    def _collated(self, samples: Any) -> Any:
        """The batch. What a function of the user's does to it is preprocessing, and is no part of handing over."""
        start = time.perf_counter_ns()
        batch = self._collate(samples)
        if self._plain:
            self._collate_ns = time.perf_counter_ns() - start
        else:
            self._batch = batch
        return batch

    def _read_only(self, index: Any) -> Any:
        """Read the files of the batch, and hand over samples made before."""
        if self._files_of is not None:
            paths: Iterable[Any] = self._files_of(index)
        else:
            share = self._log.pool // self._lanes
            paths = self._learned[self._made % share] if share else ()
        for path in paths:
            with Path(path).open("rb", buffering=0) as file:
                file.read()
        return self._collated(_fresh(self._samples)) if self._plain else copy.deepcopy(self._batch)


def _fresh(samples: Any) -> Any:
    """Samples that are dicts or lists, each copied: a collate_fn may take them apart."""
    if not isinstance(samples, list):
        return samples
    return [copy.copy(sample) if isinstance(sample, dict | list) else sample for sample in samples]


def learned_path(log: FetchLog, lane: int) -> Path:
    """Where a lane writes what it has learned of files: one JSON object a batch."""
    return log.path.with_name(f"{log.path.name}.files-{lane}")


def _read_calls() -> bytes:
    """What the kernel tells of this thread's reads; empty where it does not."""
    try:
        return Path("/proc/thread-self/io").read_bytes()
    except OSError:
        return b""


def _bytes_since(before: bytes) -> int:
    """Bytes that read calls have returned to this thread since, from storage or memory; 0 where that is not told."""
    now = _read_calls()
    # Having asked before counts as well.
    return int(now.split()[1]) - int(before.split()[1]) - len(before) if before and now else 0


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The `worker_init_fn` of a watched loader: calls the loader's own, then watches this process's fetcher."""

    log: FetchLog
    files_of: FilesOf | None = None
    own: Callable[[int], Any] | None = None
    parent: int | None = None
    """Tie the worker's life to this process; only for workers that are its children."""

    def __call__(self, worker: int) -> None:
        """Run in the worker, before torch makes its fetcher."""
        if self.parent is not None:
            die_with_parent(self.parent)
        if self.own is not None:
            self.own(worker)
        watch = Watch(self.log, worker, self.files_of)
        # torch makes the fetcher after this call, and this process serves no other loader.
        for kind in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            original = kind.fetch
            kind.fetch = (  # type: ignore[method-assign]  # the point of it
                lambda fetcher, index, original=original: watch.fetch(
                    fetcher, lambda index: original(fetcher, index), index
                )
            )


def watch_here(log: FetchLog, iterator: Any, files_of: FilesOf | None) -> Watch:
    """Watch a loader without workers, in the training thread."""
    watch, fetcher = Watch(log, 0, files_of), iterator._dataset_fetcher
    original = fetcher.fetch
    fetcher.fetch = lambda index: watch.fetch(fetcher, original, index)
    return watch
