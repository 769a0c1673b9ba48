"""Inside a worker: make each batch in the selected mode and record its cost, without touching the data set.

`worker_init_fn` runs in the worker before torch makes its fetcher, so wrapping the fetcher's `fetch` there
measures whole batches: wall time, thread CPU time, run-queue delay, bytes read. Blocked time is the rest of the
wall time: timers around `decode` would not show it, because Pillow reads lazily.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import fetch as torch_fetch

from loaderprobe.batches import samples_asked_for, samples_without_collation
from loaderprobe.loaders.bell import Bells
from loaderprobe.loaders.evict_ahead import EvictAhead
from loaderprobe.loaders.fetch_log import LAPS, RELEASED, ROWS, FetchLog
from loaderprobe.loaders.learned import Learner, Lesson
from loaderprobe.loaders.random_state import global_random_state
from loaderprobe.system.mapped import let_go
from loaderprobe.system.process import die_with_parent
from loaderprobe.system.thread import ThreadMeter, process_usage
from loaderprobe.system.waits import let_be_read_by

FilesOf = Callable[[Sequence[Any]], Iterable[Path]]
"""Maps the indices of a batch to its files."""


class WorkerProbe:
    """Wraps the fetcher of one lane. `files_of` names a batch's files; without it they are learned.

    `alone` is True in a worker, a process that does nothing else: then the data set's threads count too.
    """

    def __init__(self, log: FetchLog, lane: int, files_of: FilesOf | None, *, alone: bool) -> None:
        self._log = log.open("r+")
        self._rows = self._log.rows[lane]
        self._head = self._log.lane_heads[lane]
        self._lane, self._lanes = lane, log.lanes
        self._files_of = files_of
        self._learner = Learner(log, lane, alone=alone)
        self._learned: list[Lesson] = []
        self._meter = ThreadMeter()
        self._ahead = EvictAhead(log)
        self._alone = alone
        self._used = process_usage() if alone else (0, 0)
        self._made = 0
        self._full = 0
        self._samples: Any = None
        self._index: Any = None
        self._images = self._collate_ns = 0
        self._collate: Any = None
        self._batch: Any = None
        self._restore_random_state = global_random_state()
        self._again = False
        self._since = self._released = 0
        self._quiet = False

    def close(self) -> None:
        """Close descriptors and stop recording, for a loader that continues after the measurement."""
        self._meter.close()
        self._learner.close()
        self._ahead.close()

    def fetch(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """One batch in the selected mode, and its row in the log."""
        entered = time.thread_time_ns()
        if self._collate is None:
            self._collate, fetcher.collate_fn = fetcher.collate_fn, lambda data: self._hand_over(fetcher, data)
        learning = not self._quiet and self._is_learning()
        if learning:
            self._learner.listen()
        elif not self._quiet:
            if self._alone:
                self._learner.close()
            # For good, however much longer the pool becomes.
            self._quiet = True
        number = self._lane + self._made * self._lanes
        row = self._rows[self._made % ROWS]
        cpu, delay, read = self._meter.read()
        start = time.perf_counter_ns()
        row[1] = start
        row[0] = -(number + 1)
        self._collate_ns, self._index = 0, index
        raw = self._log.mode == "cached_samples" and self._samples is not None
        evicted_ns, evicted_cpu_ns = self._ahead.spent_ns, self._ahead.spent_cpu_ns
        with one_thread() if self._log.mode == "one_thread" else nullcontext():
            batch = self._read_only(index) if raw else self._evicting(fetcher, original, index)
        wall = time.perf_counter_ns() - start - (self._ahead.spent_ns - evicted_ns)
        cpu_after, delay_after, read_after = self._meter.read()
        evicted_cpu_ns = self._ahead.spent_cpu_ns - evicted_cpu_ns
        cpu_ns, read_bytes = cpu_after - cpu - evicted_cpu_ns, read_after - read
        process_ns = cpu_ns
        if self._alone:
            # Threads of the data set read and compute between batches as well.
            (process_before, read_before), self._used = self._used, process_usage()
            process_ns = self._used[0] - process_before - evicted_cpu_ns
            read_bytes = self._used[1] - read_before
        row[2:8] = (wall, cpu_ns, delay_after - delay, read_bytes, self._images, self._collate_ns)
        row[9] = process_ns
        self._made += 1
        if learning:
            self._learned.append(self._learner.heard(again=self._again))
        row[8] = time.thread_time_ns() - entered - cpu_ns
        row[0] = number + 1
        return batch

    def release(self) -> None:
        """Unmap the pages of mapped files, for which the training process waits. Called from another thread."""
        let_go()
        self._head[RELEASED] = self._log.release

    def _is_learning(self) -> bool:
        """True until the pool of batches is settled and each of its batches has been made once."""
        pool = self._log.pool
        return self._files_of is None and (pool == 0 or self._made < pool // self._lanes)

    def _evicting(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """The batch; where that is asked for, the files are evicted ahead of each of its samples."""
        dataset = fetcher.dataset
        fetcher.dataset = self._ahead.around(dataset, self._log)
        try:
            return self._make(fetcher, original, index)
        finally:
            fetcher.dataset = dataset

    def _make(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """Make the batch with the data set."""
        self._again = False
        share, released = self._log.pool // self._lanes, self._log.release
        if share > 0 and hasattr(fetcher, "dataset_iter") and (self._since >= share or released != self._released):
            # An iterable begins again with the pool, so that its files come again; and after an eviction, which takes
            # what the kernel has read ahead of it.
            self._begin_again(fetcher)
        self._released = released
        return self._whole(fetcher, original, index)

    def _whole(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """A full batch; an iterable that ends is restarted once."""
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
        """Shuffle as before, so that the same samples come in the same order."""
        self._restore_random_state()
        self._head[LAPS] += 1
        fetcher.dataset_iter, fetcher.ended = iter(fetcher.dataset), False
        self._again, self._since = True, 0

    def _hand_over(self, fetcher: Any, samples: Any) -> Any:
        """Collate, or only count; the samples are cached for mode cached_samples."""
        self._images = self._counted(fetcher, samples)
        self._samples = _fresh(samples)
        if self._log.mode != "no_transport":
            return self._collated(samples)
        if not self._plain:
            self._collated(samples)
        return self._images

    def _counted(self, fetcher: Any, samples: Any) -> int:
        """Samples of a batch, by the indices that were asked for: a data set may return it finished.

        An iterable is asked for none: torch takes its samples one by one, or a batch of its own making.
        """
        if not hasattr(fetcher, "dataset_iter"):
            # A batch sampler may yield tuples. Without one a tuple is one index.
            whole = fetcher.auto_collation and hasattr(self._index, "__len__")
            asked = len(self._index) if whole else samples_asked_for(self._index)
            if asked is not None:
                return asked
        return len(samples) if fetcher.auto_collation else samples_without_collation(samples)

    @property
    def _plain(self) -> bool:
        """True where collating only copies samples into the batch; a user's function may do anything."""
        return self._collate in (default_collate, default_convert)

    def _collated(self, samples: Any) -> Any:
        """The batch. The work of a user's collate_fn is preprocessing and not part of transport."""
        start = time.perf_counter_ns()
        batch = self._collate(samples)
        if self._plain:
            self._collate_ns = time.perf_counter_ns() - start
        else:
            self._batch = batch
        return batch

    def _read_only(self, index: Any) -> Any:
        """Read the files of the batch, and return samples made before."""
        if self._files_of is not None:
            paths: Iterable[Any] = self._files_of(index)
        else:
            share = self._log.pool // self._lanes
            paths = self._learned[self._made % share].opened if share else ()
        for path in paths:
            with Path(path).open("rb", buffering=0) as file:
                file.read()
        return self._collated(_fresh(self._samples)) if self._plain else copy.deepcopy(self._batch)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on the calling thread alone; then on as many threads as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fresh(samples: Any) -> Any:
    """Copies of samples that are dicts or lists, because a collate_fn may change them."""
    if not isinstance(samples, list):
        return samples
    return [copy.copy(sample) if isinstance(sample, dict | list) else sample for sample in samples]


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The `worker_init_fn` of a measured loader: calls the loader's own, then wraps this process's fetcher."""

    log: FetchLog
    files_of: FilesOf | None = None
    own: Callable[[int], Any] | None = None
    parent: int | None = None
    """Tie the worker's life to this process; only for workers that are its children."""
    observer: int = 0
    """The process whose children may sample what the worker waits for."""
    bells: Bells | None = None
    """The signal on which the worker unmaps its files."""
    probe: type[WorkerProbe] = WorkerProbe

    def __call__(self, worker: int) -> None:
        """Run in the worker, before torch makes its fetcher."""
        if self.parent is not None:
            die_with_parent(self.parent)
        if self.observer:
            let_be_read_by(self.observer)
        if self.own is not None:
            self.own(worker)
        watch = self.probe(self.log, worker, self.files_of, alone=True)
        if self.bells is not None:
            self.bells.answer(worker, watch.release)
        # torch makes the fetcher after this call, and this process serves no other loader.
        for kind in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            original = kind.fetch
            kind.fetch = (  # type: ignore[method-assign]  # the point of it
                lambda fetcher, index, original=original: watch.fetch(
                    fetcher, lambda index: original(fetcher, index), index
                )
            )


def watch_here(
    log: FetchLog, iterator: Any, files_of: FilesOf | None, probe: type[WorkerProbe] = WorkerProbe
) -> WorkerProbe:
    """Probe a loader without workers, in the training thread."""
    watch, fetcher = probe(log, 0, files_of, alone=False), iterator._dataset_fetcher
    original = fetcher.fetch
    fetcher.fetch = lambda index: watch.fetch(fetcher, original, index)
    return watch
