"""Inside a worker: make each batch in the selected mode and record its cost, without touching the data set.

`worker_init_fn` runs in the worker before torch makes its fetcher, so wrapping the fetcher's `fetch` there
measures whole batches: wall time, thread CPU time, run-queue delay, bytes read. Blocked time is the rest of the
wall time: timers around `decode` would not show it, because Pillow reads lazily.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.utils.data import default_collate, default_convert, get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from loaderprobe.batches import samples_asked_for, samples_without_collation
from loaderprobe.loaders.fetch_log import FIRST_PASS, PASSES, RELEASED, ROWS, FetchLog, OpenLog
from loaderprobe.loaders.reads import ReadsRecorder
from loaderprobe.loaders.state import Restore, global_random_state
from loaderprobe.records.measurement import Mode
from loaderprobe.records.waits import CodePlace, StackSamples
from loaderprobe.system.mapped import Evicted, let_go
from loaderprobe.system.process import ThreadMeter, die_with_parent, process_usage
from loaderprobe.system.scratch import written_in
from loaderprobe.system.stacks import Stack, StackLooks, place_of
from loaderprobe.system.waits import let_be_read_by


@dataclass(frozen=True, slots=True)
class WorkerSignals:
    """Signals to workers: a named pipe for each. Picklable, so that it reaches them by any start method."""

    folder: Path
    count: int

    @classmethod
    def create(cls, folder: Path, count: int) -> WorkerSignals | None:
        """The pipes, in a new folder under this one; None on a file system without named pipes. Raises NoSpace."""
        with written_in(folder):
            made = cls(Path(tempfile.mkdtemp(prefix="signals-", dir=folder)), count)
        try:
            for worker in range(count):
                os.mkfifo(made.path(worker))
        except OSError:
            return None
        return made

    def path(self, worker: int) -> Path:
        return self.folder / str(worker)

    def send(self) -> None:
        for worker in range(self.count):
            with suppress(OSError):  # no worker listens
                pipe = os.open(self.path(worker), os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(pipe, b"!")
                finally:
                    os.close(pipe)

    def handle(self, worker: int, action: Callable[[], None]) -> None:
        """In a worker: call `action` from a separate thread at every signal, as long as the process lives."""
        # Open for both, the pipe never ends when a sender closes it.
        pipe = os.open(self.path(worker), os.O_RDWR | os.O_CLOEXEC)

        def serve() -> None:
            while os.read(pipe, 1):
                action()

        threading.Thread(target=serve, name="loaderprobe-signal", daemon=True).start()


LOOK_EVERY_S = 0.05
"""Waking and looking took 0.7 % of a worker's time, on 2 cores beside another rank."""
STACKS_EVERY_S = 1.0
"""A worker may be killed at any time, so it writes what it has seen so often; less often where that takes longer."""
MOST_WRITING = 0.01
"""Of a worker's time."""
MOST_STACKS = 300
"""Different ones of a worker; those that are new beyond that are not kept."""
_ABOVE = ("loaderprobe.", "torch.utils.data._utils.fetch.", "torch.utils.data._utils.worker.")
"""Modules that call the data set, and are not part of it."""


class StacksSeen:
    """In a worker: counts where its thread is while a batch is made as asked, and writes that to a file."""

    def __init__(self, log: FetchLog, lane: int) -> None:
        self._path = log.beside("stacks", lane)
        self._counts: Counter[Stack] = Counter()
        self._next_s = time.perf_counter() + STACKS_EVERY_S
        self._looks: StackLooks | None = None
        self._counts_now = False

    @contextmanager
    def making(self, counts: bool) -> Iterator[None]:
        """While a batch is made, by the calling thread; `counts` where that is as asked."""
        if self._looks is None:
            self._looks = StackLooks(threading.get_ident(), LOOK_EVERY_S, self.count)
        self._counts_now = counts
        try:
            yield
        finally:
            self._counts_now = False

    def count(self, stack: Stack) -> None:
        """One look. Called from another thread."""
        if not self._counts_now:
            return
        above = [number for number, (_, module) in enumerate(stack) if f"{module}.".startswith(_ABOVE)]
        below = stack[above[-1] + 1 :] if above else ()
        if below and (below in self._counts or len(self._counts) < MOST_STACKS):
            self._counts[below] += 1

    def write(self, *, now: bool = False) -> None:
        """Write what was seen so far: every `STACKS_EVERY_S` seconds, or `now`."""
        begin_s = time.perf_counter()
        if not now and begin_s < self._next_s:
            return
        counted = [(count, [_place(*frame) for frame in stack]) for stack, count in dict(self._counts).items()]
        beside = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):  # a full disk: what was written before stays
            beside.write_text(json.dumps([self._looks.cpu_ns if self._looks else 0, counted]))
            beside.replace(self._path)
        end_s = time.perf_counter()
        self._next_s = end_s + max(STACKS_EVERY_S, (end_s - begin_s) / MOST_WRITING)

    def close(self) -> None:
        if self._looks is not None:
            self._looks.close()
            self.write(now=True)


@cache
def _place(code: CodeType, module: str) -> tuple[Any, ...]:
    return astuple(place_of(code, module))


def stacks_seen(log: FetchLog) -> StackSamples | None:
    """What the workers have written so far; None where they have seen nothing."""
    counts: Counter[tuple[CodePlace, ...]] = Counter()
    cpu_ns = 0
    for lane in range(log.lanes):
        if (path := log.beside("stacks", lane)).is_file():
            took_ns, counted = json.loads(path.read_text())
            cpu_ns += took_ns
            for count, places in counted:
                counts[tuple(CodePlace(*fields) for fields in places)] += count
    distinct = dict.fromkeys(function for stack in counts for function in stack)
    numbers = {function: number for number, function in enumerate(distinct)}
    stacks = tuple(tuple(numbers[function] for function in stack) for stack in counts)
    if not stacks:
        return None
    return StackSamples(functions=tuple(numbers), stacks=stacks, counts=tuple(counts.values()), cpu_ns=cpu_ns)


# Evicting a data set's files ahead of samples, so that each reads as one of a set larger than memory does.
#
# Behind a device that reads ahead by some MB, a few samples at random places of one file bring all of it into memory:
# evicted once, it is warm before timing begins. Evicted whenever the workers together may have read a tenth of it,
# hardly a sample is served by what was read for another. Not more often: one worker's eviction also takes what another
# has just read (by two workers and ahead of each sample, 38 times the bytes of the samples were read where a set ten
# times as large took 22). And by one worker twice in each round of the pool, whose samples come again: they are less
# than a tenth of a large file, and on FUSE and NFS no process knows what it has read.

# Of the time in which samples are made. Assumed. Where evicting would cost a quick loader more, it is done less often.
MOST_SHARE = 0.03
# Of the files, in memory at most, for all workers. Assumed.
MOST_CACHED = 0.1


class EvictAhead:
    """In a worker: evicts the files that are asked for, ahead of samples of a map-style data set."""

    def __init__(self, log: FetchLog, head: OpenLog, lane: int = 0) -> None:
        self._log, self._head, self._lane = log, head, lane
        self._number = 0
        self._files: Evicted | None = None
        self._since_ns = self._lately_ns = self._most_bytes = 0
        self._evicted_at: int | None = None
        """Bytes that this process had read from storage at the last eviction."""
        self._batches = 0
        """Begun since then."""
        self.spent_ns = self.spent_cpu_ns = 0
        """Of all evictions, wall and CPU time."""

    def around(self, dataset: Any) -> Any:
        """The data set, or one that evicts ahead of its samples."""
        if self._head.ahead != self._number:
            self._begin(self._head.ahead)
        if self._files is None:
            return dataset
        self._batches += 1
        return (_Batched if getattr(dataset, "__getitems__", None) else _Single)(dataset, self._drop)

    def _begin(self, number: int) -> None:
        self.close()
        self._number, self._since_ns, self._lately_ns, self._evicted_at = number, time.perf_counter_ns(), 0, None
        if number:
            self._files = Evicted(json.loads(self._log.beside("evict", number).read_text()))
            self._most_bytes = round(MOST_CACHED * self._files.size_bytes / self._log.lanes)

    def _drop(self) -> None:
        if self._head.ahead != self._number:
            return  # files are made warm meanwhile
        read = process_usage().all_read_bytes
        begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        again = self._lane == 0 and 0 < self._head.pool <= 2 * self._log.lanes * self._batches
        few = self._evicted_at is not None and read - self._evicted_at < self._most_bytes and not again
        if self._files is None or few or self._lately_ns > MOST_SHARE * (begin_ns - self._since_ns):
            return
        self._files.drop()
        self._evicted_at, self._batches = read, 0
        took_ns = time.perf_counter_ns() - begin_ns
        self._lately_ns += took_ns
        self.spent_ns += took_ns
        self.spent_cpu_ns += time.thread_time_ns() - begin_cpu_ns

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        self._files = None


class _Single:
    """What torch's fetcher asks for samples."""

    def __init__(self, dataset: Any, drop: Callable[[], None]) -> None:
        self._dataset, self._drop = dataset, drop

    def __getitem__(self, index: Any) -> Any:
        self._drop()
        return self._dataset[index]


class _Batched(_Single):
    def __getitems__(self, indices: Any) -> Any:
        self._drop()
        return self._dataset.__getitems__(indices)


FilesOf = Callable[[Sequence[Any]], Iterable[Path]]
"""Maps the indices of a batch to its files."""


class BatchMeter:
    """Measures what a batch costs the calling thread, evictions ahead of its samples left out; its bytes are those of
    all threads of the process, and of the commands that it ran.

    In a process that does nothing else, bytes and `process_cpu_ns` are those since the last batch: threads of the data
    set read and compute between batches as well.
    """

    def __init__(self, ahead: EvictAhead, *, alone: bool) -> None:
        self._ahead, self._alone = ahead, alone
        self._thread = ThreadMeter()
        self._process = process_usage()
        self._before = (0, 0, 0)
        self._evicted = (0, 0)
        self._begin_ns = 0

    def begin(self) -> int:
        """Returns the time, in ns."""
        self._evicted = self._ahead.spent_ns, self._ahead.spent_cpu_ns
        self._before = self._thread.read()
        if not self._alone:
            self._process = process_usage()
        self._begin_ns = time.perf_counter_ns()
        return self._begin_ns

    def end(self) -> tuple[int, int, int, int, int]:
        """Wall time, CPU time, run delay, bytes, and CPU time of the process and of the commands that it ran."""
        evicted_cpu_ns = self._ahead.spent_cpu_ns - self._evicted[1]
        wall_ns = time.perf_counter_ns() - self._begin_ns - (self._ahead.spent_ns - self._evicted[0])
        cpu, delay, _ = (after - before for before, after in zip(self._before, self._thread.read(), strict=True))
        before, self._process = self._process, process_usage()
        process_ns, read, ran_ns, ran_read = (now - last for last, now in zip(before, self._process, strict=True))
        cpu_ns = cpu - evicted_cpu_ns
        own_ns = process_ns - evicted_cpu_ns if self._alone else cpu_ns
        return wall_ns, cpu_ns, delay, read + ran_read, own_ns + ran_ns

    def close(self) -> None:
        self._thread.close()


class Collation:
    """Stands in for a fetcher's `collate_fn`: counts samples, and `keeps` them for mode cached_samples."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self.images = 0
        self.collate_ns = 0
        """Of copying samples into the batch; 0 where a function of the user's does that."""
        self.samples: Any = None
        """Of the last batch; None before the first, and while others are fetched."""
        self._index: Any = None
        self._mode: Mode = "baseline"
        self._fetcher: Any = None
        self._collate: Any = None
        self._batch: Any = None
        """The last one of a function of the user's."""

    def begin(self, fetcher: Any, index: Any, mode: Mode) -> None:
        """The samples at `index` are going to be fetched, without the last batch beside them in memory."""
        self.collate_ns, self._index, self._mode = 0, index, mode
        if mode != "cached_samples":
            self.samples = self._batch = None
        if fetcher is not self._fetcher:  # persistent workers get another one with each epoch
            self._fetcher, self._collate = fetcher, fetcher.collate_fn
            fetcher.collate_fn = partial(self._hand_over, fetcher)

    def repeated(self) -> Any:
        """A batch of samples that were made before."""
        return self._collated(_fresh(self.samples)) if self._plain else copy.deepcopy(self._batch)

    def _hand_over(self, fetcher: Any, samples: Any) -> Any:
        """The batch; in mode no_transport the number of its samples."""
        self.images = self._counted(fetcher, samples)
        if self._keeps:
            self.samples = _fresh(samples)
        if self._mode != "no_transport":
            return self._collated(samples)
        if not self._plain:
            self._collated(samples)
        return self.images

    def _counted(self, fetcher: Any, samples: Any) -> int:
        """Samples of a batch, by the indices that were asked for: a data set may return it finished.

        An iterable is asked for none: torch takes its samples one by one, or a batch of its own making.
        """
        if not hasattr(fetcher, "dataset_iter"):
            # A batch sampler may yield tuples. Without one a tuple is one index.
            whole = fetcher.auto_collation and hasattr(self._index, "__len__")
            count = len(self._index) if whole else samples_asked_for(self._index)
            if count is not None:
                return count
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
            self.collate_ns = time.perf_counter_ns() - start
        elif self._keeps:
            self._batch = batch
        return batch


class EndlessFetch:
    """Makes full batches; an iterable begins again with the pool, and where it ends."""

    def __init__(self, log: OpenLog, lane: int, collation: Collation, begin_again: Restore) -> None:
        self._log, self._head, self._lanes = log, log.lane_heads[lane], len(log.lane_heads)
        self._collation = collation
        self._restore_random_state = begin_again
        self._since = self._released = 0
        self._full: int | None = None
        """Samples of the largest batch so far; None before the first."""

    def make_batch(self, fetcher: Any, original: Callable[[Any], Any], index: Any, made: int) -> Any:
        """The batch after `made` others."""
        share, released = self._log.pool // self._lanes, self._log.release
        evicting = released != self._released and made >= self._log.begin
        if share > 0 and hasattr(fetcher, "dataset_iter") and (self._since >= share or evicting):
            # An iterable begins again with the pool, so that its files come again; and after an eviction, which takes
            # what the kernel has read ahead of it.
            self._restart(fetcher)
        self._released = released if evicting else self._released
        return self._full_batch(fetcher, original, index)

    def _full_batch(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """A full batch; an iterable that ends is restarted once."""
        self._since += 1
        if not hasattr(fetcher, "dataset_iter"):
            return original(index)
        try:
            batch = original(index)
            if self._collation.images >= (self._full or 0) or not fetcher.auto_collation:
                self._full = self._collation.images
                return batch
        except StopIteration:
            if self._full is None:
                raise
        self._head[FIRST_PASS] = self._head[FIRST_PASS] or self._since - 1
        self._restart(fetcher)
        self._since = 1
        return original(index)

    def _restart(self, fetcher: Any) -> None:
        """Shuffle as before, so that the same samples come in the same order."""
        self._restore_random_state()
        self._head[PASSES] += 1
        fetcher.dataset_iter, fetcher.ended = iter(fetcher.dataset), False
        self._since = 0


class WorkerProbe:
    """Wraps the fetcher of one lane. `files_of` names a batch's files; without it they are learned, and stacks sampled.

    `alone` is True in a worker, a process that does nothing else: then the data set's threads count too. `begin_again`
    restores the random state of when the data set was first iterated; by default that of now. A `passive` one records
    what batches cost, and nothing else.
    """

    def __init__(
        self, log: FetchLog, lane: int, files_of: FilesOf | None, *, alone: bool, begin_again: Restore | None = None,
        passive: bool = False,
    ) -> None:  # fmt: skip
        self._passive = passive
        self._log = log.open("r+")
        self._lane, self._lanes = lane, log.lanes
        self._files_of = files_of
        self._made = 0
        self._making = False
        self._reads = ReadsRecorder(log, lane, alone=alone)
        self._ahead = EvictAhead(log, self._log, lane)
        self._meter = BatchMeter(self._ahead, alone=alone)
        self._stacks = StacksSeen(log, lane) if files_of is None and not passive else None
        self._collation = Collation(keeps=not passive)
        self._fetching = EndlessFetch(self._log, lane, self._collation, begin_again or global_random_state())

    def close(self) -> None:
        """Close descriptors and stop recording, for a loader that continues after the measurement."""
        self._meter.close()
        self._reads.close()
        self._ahead.close()
        if self._stacks is not None:
            self._stacks.close()

    def fetch(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """One batch in the selected mode, and its row in the log.

        What is fetched while a batch is made is part of it: a data set may iterate a DataLoader of its own.
        """
        if self._making:
            return original(index)
        entered = time.thread_time_ns()
        recorded = self._reads.begin(wanted=self._is_learning())
        number = self._lane + self._made * self._lanes
        row = self._log.rows[self._lane][self._made % ROWS]
        row[1] = self._meter.begin()
        row[0] = -(number + 1)
        # Once the log shows that the batch is begun: one that is made as before a switch was begun before it.
        mode = self._log.mode
        self._collation.begin(fetcher, index, mode)
        self._making = True
        try:
            batch = self._in_mode(mode, fetcher, original, index, recorded=recorded)
        finally:
            self._making = False
        row[2:7] = self._meter.end()
        row[7:9] = self._collation.images, self._collation.collate_ns
        self._made += 1
        if recorded:
            self._reads.end()
        if self._stacks is not None:
            self._stacks.write()
        row[9] = time.thread_time_ns() - entered - row[3]
        row[0] = number + 1
        return batch

    def release(self) -> None:
        """Unmap the pages of mapped files, for which the training process waits. Called from another thread."""
        let_go()
        self._log.lane_heads[self._lane][RELEASED] = self._log.release

    def _is_learning(self) -> bool:
        """True until the pool of batches is settled and each of its batches has been made once."""
        pool = self._log.pool
        return self._files_of is None and not self._passive and (pool == 0 or self._made < pool // self._lanes)

    def _in_mode(self, mode: Mode, fetcher: Any, original: Callable[[Any], Any], index: Any, *, recorded: bool) -> Any:
        """The batch in the selected mode; stacks are sampled where it is made as asked."""
        read_only = mode == "cached_samples" and self._collation.samples is not None
        as_asked = not recorded and mode in ("baseline", "warm")
        sampling = self._stacks.making(as_asked) if self._stacks is not None else nullcontext()
        with one_thread() if mode == "one_thread" else nullcontext(), sampling:
            return self._read_only(index) if read_only else self._evicting(fetcher, original, index)

    def _evicting(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """The batch; where that is asked for, the files are evicted ahead of each of its samples."""
        if self._passive:
            return original(index)
        dataset = fetcher.dataset
        fetcher.dataset = self._ahead.around(dataset)
        try:
            return self._fetching.make_batch(fetcher, original, index, self._made)
        finally:
            fetcher.dataset = dataset

    def _read_only(self, index: Any) -> Any:
        """Read the files of the batch, and return samples made before."""
        share = self._log.pool // self._lanes
        if self._files_of is not None:
            paths: Iterable[Any] = self._files_of(index)
        else:
            paths = self._reads.batches[self._made % share].files if share else ()
        for path in paths:
            with Path(path).open("rb", buffering=0) as file:
                file.read()
        return self._collation.repeated()


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on the calling thread alone."""
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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class WorkerSetup:
    """The `worker_init_fn` of a measured loader: calls `init`, then wraps this process's fetcher."""

    log: FetchLog
    files_of: FilesOf | None = None
    init: Callable[[int], Any] | None = None
    """The loader's own `worker_init_fn`."""
    parent: int | None = None
    """Tie the worker's life to this process; only for workers that are its children."""
    observer: int = 0
    """The process whose children may sample what the worker waits for."""
    signals: WorkerSignals | None = None
    """The signal on which the worker unmaps its files."""
    passive: bool = False
    """Only record what batches cost."""

    def __call__(self, worker: int) -> None:
        """Run in the worker, before torch makes its fetcher."""
        info = get_worker_info()
        assert info is not None
        if self.parent is not None:
            die_with_parent(self.parent)
        if self.observer:
            let_be_read_by(self.observer)
        if self.init is not None:
            self.init(worker)
        watch = WorkerProbe(self.log, worker, self.files_of, alone=True, passive=self.passive)
        if self.signals is not None:
            self.signals.handle(worker, watch.release)
        # torch makes the fetcher after this call. What a data set fetches by its own DataLoader is part of a batch.
        for kind in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            original = kind.fetch
            kind.fetch = (  # type: ignore[method-assign]  # the point of it
                lambda fetcher, index, original=original: (
                    watch.fetch(fetcher, partial(original, fetcher), index)
                    if fetcher.dataset is info.dataset
                    else original(fetcher, index)
                )
            )


def watch_here(
    log: FetchLog, iterator: Any, files_of: FilesOf | None = None, *, begin_again: Restore | None = None,
    passive: bool = False,
) -> WorkerProbe:  # fmt: skip
    """Probe a loader without workers, in the training thread."""
    watch = WorkerProbe(log, 0, files_of, alone=False, begin_again=begin_again, passive=passive)
    fetcher = iterator._dataset_fetcher
    original = fetcher.fetch
    fetcher.fetch = lambda index: watch.fetch(fetcher, original, index)
    return watch
