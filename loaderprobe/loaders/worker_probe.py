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
from dataclasses import astuple, dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, get_args

import numpy as np
import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import fetch as torch_fetch

from loaderprobe.batches import samples_asked_for, samples_without_collation
from loaderprobe.loaders.data_files import (
    OPENED,
)
from loaderprobe.loaders.state import global_random_state
from loaderprobe.records.measurement import Mode, WorkerBatches
from loaderprobe.records.waits import CodePlace, StackSamples
from loaderprobe.system.mapped import Evicted, held_files, let_go
from loaderprobe.system.process import ThreadMeter, die_with_parent, process_usage
from loaderprobe.system.stacks import Stack, StackLooks, place_of
from loaderprobe.system.waits import let_be_read_by

# The files behind a worker's first batches, and how the training process gets them.

# Listing what is open and mapped takes some 3 ms in a process with torch in it.
HELD_EVERY_S = 0.05


@dataclass(slots=True)
class BatchReads:
    """The files and reads of one batch."""

    files: dict[str, int] = field(default_factory=dict)
    """Path to bytes, for the files that Python opened."""
    kept_open: dict[str, int] = field(default_factory=dict)
    """The same for files that were open or mapped afterwards, opened by any code; not checked after every batch."""
    called_bytes: int = 0
    """Bytes returned by read calls, from storage, memory or a pipe."""
    restarted: bool = False
    """True when an iterable restarted."""

    @property
    def opened(self) -> list[str]:
        """The paths that Python opened, in order."""
        return list(self.files)


class ReadsRecorder:
    """Records the opened files while batches are made in one lane, and writes one JSON object per batch."""

    def __init__(self, log: FetchLog, lane: int, *, alone: bool) -> None:
        self._path = _path(log, lane)
        self._alone = alone
        self._counter = Path("/proc/self/io" if alone else "/proc/thread-self/io")
        self._next_look_s = 0.0
        self._called: int | None = None

    def begin(self) -> None:
        """Call before a batch is made. In a process that does nothing else, activity between batches counts too."""
        if not self._alone or self._called is None:
            OPENED.start()
            self._called = self._read_calls()

    def end(self, *, restarted: bool) -> BatchReads:
        called, before = self._read_calls(), self._called or 0
        reads = BatchReads(
            files=dict(OPENED.stop(and_restart=self._alone)), called_bytes=max(0, called - before), restarted=restarted
        )
        if time.perf_counter() >= self._next_look_s:
            own = str(self._path.parent)
            reads.kept_open = {path: size for path, size in held_files().items() if not path.startswith(own)}
            self._next_look_s = time.perf_counter() + HELD_EVERY_S
        with self._path.open("a") as out:
            out.write(json.dumps([reads.files, reads.kept_open, reads.called_bytes, reads.restarted]) + "\n")
        # Writing, looking and asking read files, too.
        self._called = self._read_calls()
        return reads

    def close(self) -> None:
        OPENED.stop()

    def _read_calls(self) -> int:
        """Bytes that read calls have returned; 0 where the kernel does not count them."""
        try:
            return int(self._counter.read_bytes().split()[1])
        except OSError:
            return 0


def batch_reads(log: FetchLog, lane: int) -> list[BatchReads]:
    """What was read in a lane so far, by batch."""
    path = _path(log, lane)
    lines: list[Any] = path.read_text().split("\n")[:-1] if path.is_file() else []
    return [BatchReads(*json.loads(line)) for line in lines]


def _path(log: FetchLog, lane: int) -> Path:
    return log.path.with_name(f"{log.path.name}.files-{lane}")


# A signal from the training process to its workers: a thread of each worker answers, whatever the worker is doing.


@dataclass(frozen=True, slots=True)
class WorkerSignals:
    """A named pipe for each worker. Picklable, so that it reaches workers by any start method."""

    folder: Path
    count: int

    @classmethod
    def create(cls, folder: Path, count: int) -> WorkerSignals | None:
        """The pipes, in a new folder under this one; None on a file system without named pipes."""
        made = cls(Path(tempfile.mkdtemp(prefix="signals-", dir=folder)), count)
        try:
            for worker in range(count):
                os.mkfifo(made.path(worker))
        except OSError:
            return None
        return made

    def path(self, worker: int) -> Path:
        """The pipe of one worker."""
        return self.folder / str(worker)

    def send(self) -> None:
        """Signal every worker that still runs."""
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


# Where a worker is in the code that makes its batches.

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
        self._path = _stacks_of(log, lane)
        self._counts: Counter[Stack] = Counter()
        self._places: dict[CodeType, tuple[str, str, int, str]] = {}
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
        """What was seen so far, now and then or `now`."""
        begin_s = time.perf_counter()
        if not now and begin_s < self._next_s:
            return
        found = [(count, [self._place(*frame) for frame in stack]) for stack, count in dict(self._counts).items()]
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(json.dumps([self._looks.cpu_ns if self._looks else 0, found]))
        beside.replace(self._path)
        end_s = time.perf_counter()
        self._next_s = end_s + max(STACKS_EVERY_S, (end_s - begin_s) / MOST_WRITING)

    def _place(self, code: CodeType, module: str) -> tuple[str, str, int, str]:
        if code not in self._places:
            self._places[code] = astuple(place_of(code, module))
        return self._places[code]

    def close(self) -> None:
        if self._looks is not None:
            self._looks.close()
            self.write(now=True)


def stacks_seen(log: FetchLog) -> StackSamples | None:
    """What the workers have written so far; None where they have seen nothing."""
    counts: Counter[tuple[CodePlace, ...]] = Counter()
    cpu_ns = 0
    for lane in range(log.lanes):
        if (path := _stacks_of(log, lane)).is_file():
            took_ns, found = json.loads(path.read_text())
            cpu_ns += took_ns
            for count, places in found:
                counts[tuple(CodePlace(*place) for place in places)] += count
    numbers = {place: number for number, place in enumerate(dict.fromkeys(each for stack in counts for each in stack))}
    stacks = tuple(tuple(numbers[each] for each in stack) for stack in counts)
    if not stacks:
        return None
    return StackSamples(functions=tuple(numbers), stacks=stacks, counts=tuple(counts.values()), cpu_ns=cpu_ns)


def _stacks_of(log: FetchLog, lane: int) -> Path:
    return log.path.with_name(f"{log.path.name}.stacks-{lane}")


# The cost of each batch in its worker, and the switch that selects the mode of the next batches.
#
# Both are in one memory-mapped file. It has one row per batch in one lane per worker, which the parent reads at any
# time, and a head that the parent writes and the workers read before every batch. So a change of mode starts no
# process, and all modes see the same machine.

ROWS = 8192
# batch number + 1 (negative while it is being made, written last), start, wall, cpu, run delay, read bytes, images,
# collate, instrument, cpu of the whole process
COLUMNS = 10
MODES: tuple[Mode, ...] = get_args(Mode)
# Of the head, which the parent writes.
MODE, POOL, RELEASE, AHEAD = 0, 1, 2, 3
# Of the head of a lane, which its worker writes.
RELEASED, PASSES = 0, 1
ALWAYS_NEW = -1


@dataclass(frozen=True, slots=True)
class FetchLog:
    """The log of all lanes of one loader. Picklable, so that it reaches workers by any start method."""

    path: Path
    lanes: int

    @classmethod
    def create(cls, path: Path, lanes: int) -> FetchLog:
        """An empty log at `path`, switched to the baseline."""
        np.memmap(path, dtype=np.int64, mode="w+", shape=(1 + lanes + lanes * ROWS, COLUMNS)).flush()
        return cls(path, lanes)

    def open(self, mode: Any) -> OpenLog:
        """The log as mapped memory; `mode` as of numpy's memmap."""
        lanes = self.lanes
        cells = np.asarray(np.memmap(self.path, dtype=np.int64, mode=mode, shape=(1 + lanes + lanes * ROWS, COLUMNS)))
        return OpenLog(cells[0], cells[1 : 1 + lanes], cells[1 + lanes :].reshape(lanes, ROWS, COLUMNS))


Cells = np.ndarray[Any, np.dtype[np.int64]]


class OpenLog:
    """A mapped log: the head, a head and rows of each lane. Batch `k` is made by lane `k mod lanes`."""

    def __init__(self, head: Cells, lane_heads: Cells, rows: Cells) -> None:
        self._head = head
        self.lane_heads = lane_heads
        self.rows = rows

    @property
    def mode(self) -> Mode:
        """The mode of the next batch."""
        return MODES[int(self._head[MODE])]

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._head[MODE] = MODES.index(mode)

    @property
    def pool(self) -> int:
        """Batches before the same are made again; 0 while that is not known, ALWAYS_NEW if they never are."""
        return int(self._head[POOL])

    @pool.setter
    def pool(self, batches: int) -> None:
        self._head[POOL] = batches

    @property
    def release(self) -> int:
        """Number of requests to workers to unmap the pages of the data's files."""
        return int(self._head[RELEASE])

    def ask_release(self) -> None:
        """Ask every worker to unmap them now, and to restart an iterable with its next batch."""
        self._head[RELEASE] += 1

    @property
    def ahead(self) -> int:
        """Number of the list of files that workers evict ahead of each sample; 0 where they evict none."""
        return int(self._head[AHEAD])

    @ahead.setter
    def ahead(self, number: int) -> None:
        self._head[AHEAD] = number

    @property
    def all_released(self) -> bool:
        """True when every worker has done so."""
        return bool((self.lane_heads[:, RELEASED] >= self._head[RELEASE]).all())

    @property
    def passes(self) -> int:
        """Most restarts of any worker's iterable."""
        return int(self.lane_heads[:, PASSES].max())

    def made(self, number: int) -> bool:
        """True when this batch, or a later one in its place, has been made."""
        lanes = len(self.rows)
        return int(self.rows[number % lanes, number // lanes % ROWS, 0]) >= number + 1

    def begun_before(self, first: int, count: int, time_ns: int) -> bool:
        """True when one of `count` batches from number `first` on was begun before `time_ns`."""
        lanes = len(self.rows)
        for number in range(first, first + count):
            row = self.rows[number % lanes, number // lanes % ROWS]
            if abs(int(row[0])) == number + 1 and row[1] < time_ns:
                return True
        return False

    def read(self) -> WorkerBatches:
        """All complete rows, by batch number."""
        lanes = len(self.rows)
        rows = np.array(self.rows).reshape(-1, COLUMNS)
        rows = rows[rows[:, 0] > 0]
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        batch = rows[:, 0] - 1
        newest = int(batch[-1]) + 1 if len(batch) else 0
        columns = [tuple(column.tolist()) for column in rows.T]
        return WorkerBatches(
            batch=tuple(batch.tolist()),
            worker=tuple((batch % lanes).tolist()),
            start_ns=columns[1],
            wall_ns=columns[2],
            cpu_ns=columns[3],
            run_delay_ns=columns[4],
            read_bytes=columns[5],
            images=columns[6],
            collate_ns=columns[7],
            instrument_ns=columns[8],
            process_cpu_ns=columns[9],
            lost=max(0, newest - ROWS * lanes),
        )


# Evicting a data set's files ahead of samples, so that each reads as one of a set larger than memory does.
#
# Behind a device that reads ahead by some MB, a few samples at random places of one file bring all of it into memory:
# evicted once, it is warm before timing begins. Evicted whenever the workers together may have read a tenth of it,
# hardly a sample is served by what was read for another. Not more often: one worker's eviction also takes what another
# has just read (by two workers and ahead of each sample, 38 times the bytes of the samples were read where a set ten
# times as large took 22).

# Of the time in which samples are made. Assumed. Where evicting would cost a quick loader more, it is done less often.
MOST_SHARE = 0.03
# Of the files, in memory at most, for all workers. Assumed.
MOST_CACHED = 0.1


def ask(log: FetchLog, number: int, paths: Sequence[Path]) -> None:
    """Let the workers evict these files from now on. `number` must be new."""
    _list_of(log, number).write_text(json.dumps([str(path) for path in paths]))


class EvictAhead:
    """In a worker: evicts the files that are asked for, ahead of samples of a map-style data set."""

    def __init__(self, log: FetchLog) -> None:
        self._log = log
        self._number = 0
        self._files: Evicted | None = None
        self._asked: OpenLog | None = None
        self._since_ns = self._lately_ns = self._most_bytes = 0
        self._evicted_at: int | None = None
        """Bytes that this process had read from storage at the last eviction."""
        self.spent_ns = self.spent_cpu_ns = 0
        """Of all evictions, wall and CPU time."""

    def around(self, dataset: Any, log: OpenLog) -> Any:
        """The data set, or one that evicts ahead of its samples."""
        if log.ahead != self._number:
            self._begin(log.ahead)
        if self._files is None:
            return dataset
        self._asked = log
        return (_Batched if getattr(dataset, "__getitems__", None) else _Single)(dataset, self._drop)

    def _begin(self, number: int) -> None:
        self.close()
        self._number, self._since_ns, self._lately_ns, self._evicted_at = number, time.perf_counter_ns(), 0, None
        if number:
            self._files = Evicted(json.loads(_list_of(self._log, number).read_text()))
            self._most_bytes = round(MOST_CACHED * self._files.size_bytes / self._log.lanes)

    def _drop(self) -> None:
        if self._asked is None or self._asked.ahead != self._number:
            return  # files are made warm meanwhile
        _, read = process_usage()
        begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        few = self._evicted_at is not None and read - self._evicted_at < self._most_bytes
        if self._files is None or few or self._lately_ns > MOST_SHARE * (begin_ns - self._since_ns):
            return
        self._files.drop()
        self._evicted_at = read
        took_ns = time.perf_counter_ns() - begin_ns
        self._lately_ns += took_ns
        self.spent_ns += took_ns
        self.spent_cpu_ns += time.thread_time_ns() - begin_cpu_ns

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        self._files = None


class _Single:
    def __init__(self, dataset: Any, drop: Any) -> None:
        self._dataset, self._drop = dataset, drop

    def __getattr__(self, name: str) -> Any:
        if name in ("_dataset", "__getitems__"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        self._drop()
        return self._dataset[index]


class _Batched(_Single):
    def __getitems__(self, indices: Any) -> Any:
        self._drop()
        return self._dataset.__getitems__(indices)


def _list_of(log: FetchLog, number: int) -> Path:
    return log.path.with_name(f"{log.path.name}.evict-{number}")


FilesOf = Callable[[Sequence[Any]], Iterable[Path]]
"""Maps the indices of a batch to its files."""


class WorkerProbe:
    """Wraps the fetcher of one lane. `files_of` names a batch's files; without it they are learned.

    `alone` is True in a worker, a process that does nothing else: then the data set's threads count too.
    """

    looks = True
    """Whether the stack of the thread is looked at, where the pipeline is the user's."""

    def __init__(self, log: FetchLog, lane: int, files_of: FilesOf | None, *, alone: bool) -> None:
        self._log = log.open("r+")
        self._rows = self._log.rows[lane]
        self._head = self._log.lane_heads[lane]
        self._lane, self._lanes = lane, log.lanes
        self._files_of = files_of
        self._reads = ReadsRecorder(log, lane, alone=alone)
        self._pool_reads: list[BatchReads] = []
        self._meter = ThreadMeter()
        self._ahead = EvictAhead(log)
        self._seen = StacksSeen(log, lane) if files_of is None and self.looks else None
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
        self._reads.close()
        self._ahead.close()
        if self._seen is not None:
            self._seen.close()

    def fetch(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        """One batch in the selected mode, and its row in the log."""
        entered = time.thread_time_ns()
        if self._collate is None:
            self._collate, fetcher.collate_fn = fetcher.collate_fn, lambda data: self._hand_over(fetcher, data)
        learning = not self._quiet and self._is_learning()
        if learning:
            self._reads.begin()
        elif not self._quiet:
            if self._alone:
                self._reads.close()
            # For good, however much longer the pool becomes.
            self._quiet = True
        number = self._lane + self._made * self._lanes
        row = self._rows[self._made % ROWS]
        cpu, delay, _ = self._meter.read()
        if not self._alone:
            self._used = process_usage()
        start = time.perf_counter_ns()
        row[1] = start
        row[0] = -(number + 1)
        self._collate_ns, self._index = 0, index
        evicted_ns, evicted_cpu_ns = self._ahead.spent_ns, self._ahead.spent_cpu_ns
        batch = self._in_mode(fetcher, original, index, learning=learning)
        wall = time.perf_counter_ns() - start - (self._ahead.spent_ns - evicted_ns)
        cpu_after, delay_after, _ = self._meter.read()
        evicted_cpu_ns = self._ahead.spent_cpu_ns - evicted_cpu_ns
        cpu_ns = cpu_after - cpu - evicted_cpu_ns
        # Threads of the data set read as well and, in a process that does nothing else, between batches and compute.
        (process_before, read_before), self._used = self._used, process_usage()
        read_bytes = self._used[1] - read_before
        process_ns = self._used[0] - process_before - evicted_cpu_ns if self._alone else cpu_ns
        row[2:8] = (wall, cpu_ns, delay_after - delay, read_bytes, self._images, self._collate_ns)
        row[9] = process_ns
        self._made += 1
        if learning:
            self._pool_reads.append(self._reads.end(restarted=self._again))
        if self._seen is not None:
            self._seen.write()
        row[8] = time.thread_time_ns() - entered - cpu_ns
        row[0] = number + 1
        return batch

    def _in_mode(self, fetcher: Any, original: Callable[[Any], Any], index: Any, *, learning: bool) -> Any:
        """The batch in the selected mode, seen where it is made as asked."""
        mode = self._log.mode
        raw = mode == "cached_samples" and self._samples is not None
        as_asked = not learning and mode in ("baseline", "warm")
        seen = self._seen.making(as_asked) if self._seen is not None else nullcontext()
        with one_thread() if mode == "one_thread" else nullcontext(), seen:
            return self._read_only(index) if raw else self._evicting(fetcher, original, index)

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
        self._head[PASSES] += 1
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
            paths = self._pool_reads[self._made % share].opened if share else ()
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
    signals: WorkerSignals | None = None
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
        if self.signals is not None:
            self.signals.handle(worker, watch.release)
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
