"""A user's DataLoader, measured through a copy, so that the loader itself stays unchanged."""

from __future__ import annotations

import functools
import operator
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import count, pairwise
from math import lcm
from pathlib import Path
from typing import Any, Self

from torch.utils.data import DataLoader, IterableDataset, Subset

from loaderprobe.batches import length_of
from loaderprobe.errors import BadValue, LoaderprobeError, NoSpace
from loaderprobe.loaders.fetch_log import ALWAYS_NEW, OpenLog
from loaderprobe.loaders.reads import BatchReads, loader_files, pool_reads
from loaderprobe.loaders.switched import MOST_RELEASE_S, SwitchedLoader, wait_for
from loaderprobe.loaders.unwrap import (
    FOREIGN,
    FOREIGN_HINT,
    EndlessBatches,
    Otherwise,
    Unwrapped,
    bare_copy,
    check_untouched,
    endless,
    kept_iterators,
    own_sampler,
    unwrap,
)
from loaderprobe.loaders.worker_probe import stacks_seen
from loaderprobe.records.diagnosis import LoaderFiles
from loaderprobe.records.measurement import Mode
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import StackSamples
from loaderprobe.system.scratch import SPACE_HINT
from loaderprobe.units import format_duration


class BatchPool:
    """The first batches of a sampler, repeated; or, where repeated ones would be warm, always new ones.

    Every worker must get the same batches in each repetition, so the pool is a whole multiple of their number.
    """

    def __init__(self, source: Any, workers: int) -> None:
        self._source = source
        self._batches: Iterator[Any] = iter(())
        self._multiple = max(1, workers)
        self._kept: list[Any] = []
        self._numbers: list[int] = []
        self._again: list[list[Any]] = []
        self._fresh = False
        self._given: set[Any] = set()
        self.size = 0
        """Number of batches in the pool; 0 while more may be added."""
        self.odd = 0
        """Number of batches left out because their length differs from the first."""
        self.passes = 0
        """Number of restarts of the sampler while new batches were wanted: its files may then be warm."""

    def __len__(self) -> int:
        """Practically infinite, because sub-classes of DataLoader may count their batches."""
        return sys.maxsize

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the sampler: sub-classes of DataLoader read its own sampler, or set its epoch."""
        if name.startswith("__") or name == "_source":
            raise AttributeError(name)
        return getattr(self._source, name)

    def settle(self, taken: int, ahead: int) -> int:
        """Fix the pool at the batches requested so far, once each worker has one; returns its size."""
        if not self.size and len(self._kept) >= self._multiple:
            self.size = len(self._kept) // self._multiple * self._multiple
        return self.size

    def extend(self, batches: int) -> None:
        """Workers ask for batches by their indices: the pool need not be longer."""

    def in_sequence(self) -> bool:
        """Whether most samples follow the one before, as in a set that is not shuffled; or where none has a number."""
        numbers = [_number(index) for batch in self._kept for index in _indices(batch)]
        steps = [second - first for first, second in pairwise(numbers) if first is not None and second is not None]
        return 2 * steps.count(1) >= len(steps)

    def new_left(self) -> float:
        """New batches left in this epoch of the sampler, as far as its length is known; below 0 when it restarted."""
        if self.passes:
            return -float(self.passes)
        length = length_of(self._source)
        return float("inf") if length is None else max(0, length - len(self._kept) - self.odd)

    def take_new(self) -> None:
        self._fresh, self._again = True, []

    def repeat(self, count: int) -> None:
        """From now on repeat the last `count` batches, each for the worker that had it before."""
        last = list(zip(self._numbers, self._kept, strict=True))[-max(count, 2 * self._multiple) :]
        lanes: list[list[Any]] = [[] for _ in range(self._multiple)]
        for number, batch in last:
            lanes[number % self._multiple].append(batch)
        self._again = [lane or [batch for _, batch in last] for lane in lanes]

    def __iter__(self) -> Iterator[Any]:
        self._batches = iter(self._source)
        for number in count():
            if self._again:
                lane = self._again[number % self._multiple]
                yield lane[number // self._multiple % len(lane)]
            elif self._fresh or not self.size:
                if (batch := self._new(number)) is None:
                    return
                yield batch
            else:
                yield self._kept[number % self.size % len(self._kept)]

    def _new(self, number: int) -> Any:
        """The next batch of full length, which is batch `number` of the loader; None where there is none.

        The sampler restarts when it ends, unless the pool holds all its batches.
        """
        while True:
            batch = next(self._batches, None)
            if batch is None:
                if not self._kept:
                    return None
                if not self._fresh:
                    self._whole()
                    return self._kept[len(self._kept) % self.size % len(self._kept)]
                self.passes += 1
                self._batches = iter(self._source)
            elif self._kept and len(_indices(batch)) != len(_indices(self._kept[0])):
                self.odd += 1  # the last batch of an epoch is a short one
            else:
                self._kept.append(batch)
                self._numbers.append(number)
                self._note(batch)
                return batch

    def _note(self, batch: Any) -> None:
        """A sampler may go on for ever, or draw with replacement: what it has given before is not new."""
        indices = [number for index in _indices(batch) if (number := _number(index)) is not None]
        if self._fresh and indices and 2 * len(self._given.intersection(indices)) > len(indices):
            self.passes += 1
        self._given.update(indices)

    def _whole(self) -> None:
        """The sampler has ended: the pool is all its batches, repeated until each worker has as many."""
        whole = len(self._kept) // self._multiple * self._multiple
        self.size = whole or lcm(len(self._kept), self._multiple)


class StreamPool:
    """The first batches of an iterable data set: each worker begins again after its share of them."""

    odd = size = 0

    def __init__(self, log: OpenLog) -> None:
        self._log, self._lanes = log, len(log.rows)
        self._passes = 0
        """Restarts before only new batches were wanted."""

    def settle(self, taken: int, ahead: int) -> int:
        """A short iterable begins again by itself: the pool is what comes before."""
        share, once = -(-(taken + ahead) // self._lanes), self._log.first_pass
        return (share if once is None else min(share, once)) * self._lanes

    def extend(self, batches: int) -> None:
        """Begin again only after so many batches, or more, but no later than where the iterable ends."""
        if 0 < self._log.pool < batches:
            self._log.pool = max(self._log.pool, self.settle(batches, 0))

    def in_sequence(self) -> bool:
        return True

    def take_new(self) -> None:
        """Call it before the pool of the log is set to `ALWAYS_NEW`."""
        if self._log.pool != ALWAYS_NEW:
            self._passes = self._log.passes

    def new_left(self) -> float:
        restarts = self._log.passes - self._passes
        return -float(restarts) if restarts > 0 else float("inf")


def _indices(batch: Any) -> Collection[Any]:
    """What a sampler has given at once: a list or an array of indices, say, or one, which may be a text."""
    whole = isinstance(batch, Collection) and not isinstance(batch, str | bytes) and getattr(batch, "ndim", None) != 0
    return batch if whole else [batch]


def _number(index: Any) -> int | None:
    """Of an index of any type; None for one that is no number."""
    try:
        return None if isinstance(index, bool) else operator.index(index)
    except (TypeError, ValueError):
        return None


# A worker's error arrives as an exception of the same kind, with the worker's traceback as its text.
FROM_WORKER = re.compile(r"Caught (\w+) ")
# A text in the traceback, from any process, and the code that ran there; the innermost first.
PLACES = (
    ("in _collated", "the loader's collate_fn"),
    ("in _next_index", "the loader's sampler"),
    ("self.init(worker)", "the loader's worker_init_fn"),
    ("in fetch", "the data set"),
    ("in create_fetcher", "the data set"),
)
# loaderprobe's functions that call user code; compiled code has no traceback line of its own.
CALLS = (
    "_collated",
    "_restart",
    "make_batch",
    "_full_batch",
    "own_sampler",
    "__call__",
    "__iter__",
    "__next__",
    "__getattr__",
)
PACKAGE = f"{Path(__file__).parents[1]}/"
# The innermost line of a traceback, and Python's message for a class that lacks an attribute.
LINE = re.compile(r'^\s*File "(.+)", line \d+, in (\w+)$', re.MULTILINE)
OURS = "BatchPool|EndlessBatches|Collation|EndlessFetch|WorkerProbe|WorkerSetup|UserLoader"
LACKING = re.compile(rf"'({OURS})' (object|instance)")
OURS_HINT = "please report this with the whole traceback; the loader was not changed"
HINT = "iterate the loader yourself to see the same error; the loader was not changed"


def origin_of(error: Exception) -> LoaderprobeError:
    """The error as one sentence that names its origin; the caller sets `error` as its cause."""
    text, whole = str(error).rstrip(), "".join(traceback.format_exception(error))
    if isinstance(error, NoSpace):  # in a worker: its text is all that has come here
        return NoSpace(text.rpartition("NoSpace: ")[2], hint=SPACE_HINT)
    kind, message, in_worker = type(error).__name__, str(error), FROM_WORKER.match(text)
    if in_worker:
        kind = in_worker[1]
        # The last line that begins with its name; more lines may follow.
        named = re.compile(rf"^(?:[\w.]+\.)?{kind}(?:: (.*))?\Z", re.MULTILINE | re.DOTALL)
        message = ([match[1] or "" for match in named.finditer(text)] or [""])[-1]
    what = f"{kind}: {message}" if message else kind
    # The last line is the innermost; of a worker's error that of the worker, which is the message.
    lines = LINE.findall(text if in_worker else whole)
    ours = bool(lines) and lines[-1][0].startswith(PACKAGE) and lines[-1][1] not in CALLS
    if ours or LACKING.search(text):
        return LoaderprobeError(f"loaderprobe failed in its own code: {what}", hint=OURS_HINT)
    who = next((who for mark, who in PLACES if mark in whole), "the loader")
    return LoaderprobeError(f"{who} raised {what}{', in a worker' if in_worker else ''}", hint=HINT)


# A wrapper or a sub-class may prefetch: so many batches, and a share of those it has given.
AHEAD, AHEAD_SHARE = 1, 0.25
# A sub-class, which is refused where it takes more, may prefetch as prefetch_generator does: its users let it queue
# 10 batches at most, and hold one more. One that merges two batches into one is found once it has given 12.
PREFETCHED = 11


class UserLoader(SwitchedLoader):
    """Drives a copy of a user's loader: map-style or iterable, with any batches and workers.

    `before_batch` is called before each batch is taken, and once one has taken longer than `patience_s`. It may raise;
    else such a wait is an error. Raises BadValue for an object without a DataLoader, and for a loader that measuring
    would consume.
    """

    def __init__(
        self,
        given: DataLoader[Any] | Unwrapped,
        scratch: Path,
        before_batch: Callable[[], None] = lambda: None,
        patience_s: float = 0.0,
    ) -> None:
        self._given = given if isinstance(given, Unwrapped) else unwrap(given)
        self._users = loader = self._given.loader
        check_untouched(loader)
        self._before_batch = before_batch
        self._iterable = isinstance(loader.dataset, IterableDataset)
        pool = None if self._iterable else BatchPool(own_sampler(loader), loader.num_workers)
        super().__init__(endless(loader, pool, patience_s), scratch, files_of=None, tied=False)
        self._pool: BatchPool | StreamPool = StreamPool(self._log) if pool is None else pool
        self._rewrapped: Any = None
        self._epochs = EndlessBatches(())
        # Wrappers and sub-classes begin epoch after epoch; below them is one iterator, with one set of workers.
        self._loader.__dict__["_get_iterator"] = functools.cache(self._loader._get_iterator)

    def __enter__(self) -> Self:
        copied = self._loader
        try:
            for name in kept_iterators(self._users):
                copied.__dict__[name] = DataLoader.__iter__(copied)
            self._rewrapped = self._given.rewrap(copied)
            self._batches = self._epochs = EndlessBatches(copied if self._rewrapped is None else self._rewrapped)
            return self
        except Exception as error:
            super().__exit__(None, None, None)
            if isinstance(error, LoaderprobeError):
                raise
            raise origin_of(error) from error

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._epochs.close()
            if self._rewrapped is not None:
                self._given.release(self._rewrapped)

    def batches(self) -> Iterator[Any]:
        """The loader's batches, in mode no_transport only the number of samples; errors name their origin.

        No batch is kept here, so that releasing one costs the usual time.
        """
        while True:
            self._before_batch()
            try:
                yield next(self._batches)
            except StopIteration:
                return
            except Exception as error:
                if isinstance(error, LoaderprobeError) and not FROM_WORKER.match(error.message):
                    raise
                raise self._trouble(error) from error

    @property
    def taken(self) -> int:
        return self._epochs.taken

    def still(self, taken: int) -> bool:
        """As of any loader, but raises as taking a batch does; a wrapper that prefetches has taken more than given."""
        self._before_batch()
        return super().still(taken if self._iterator is None else max(taken, self._iterator._num_yielded))

    def finishes(self, taken: int) -> bool:
        """Wait until workers have made all batches that were requested, with `taken` taken; raises as taking one does.

        False where that takes longer than as many of the longest so far, and than `MOST_RELEASE_S`: then one may have
        failed, which shows once it is taken.
        """
        longest_s = max(self.records().wall_ns, default=0) / 1e9
        return wait_for(lambda: self.still(taken), max(MOST_RELEASE_S, longest_s * (self._loader.prefetch_factor or 0)))

    def _trouble(self, error: Exception) -> Exception:
        if not FROM_WORKER.match(str(error)) and (dead := self._dead_worker(error)):
            return dead
        if self._loader.timeout > self._users.timeout and str(error).startswith("DataLoader timed out"):
            message = f"no batch came within {format_duration(self._loader.timeout)}"
            hint = "a larger --budget (in Python budget_s) waits longer"
            try:
                self._before_batch()
            except LoaderprobeError as late:
                return type(late)(message, hint=hint)
            return BadValue(message, hint=hint)
        return origin_of(error)

    def check(self, *, broken_off: bool = False) -> None:
        """Raise when the loader does not iterate as torch's DataLoader does. Call it once batches have been taken.

        Where measuring was broken off, nothing is measured instead, and workers may have been ended.
        """
        if self._iterator is None or not self.records().batch:
            raise BadValue(FOREIGN, hint=FOREIGN_HINT)
        if self._rewrapped is None or not broken_off:
            self._check_pace()
        workers = self._loader.num_workers
        ended = list(self._iterator._workers_status).count(False) if workers and not broken_off else 0
        if ended:
            busy = len(set(self.records().worker))
            message = (
                f"{ended} of the {workers} workers had no more batches while others had: their share of the data set "
                "ends, or is empty"
            )
            hint = "give every worker a share that restarts each time (get_worker_info), or use fewer workers"
            if busy + ended != workers:
                raise BadValue(message, hint=hint)
            note = Remark(code="workers_without_data", facts={"idle": ended, "workers": workers, "busy": busy})
            fewer = bare_copy(self._users)
            fewer.__dict__["num_workers"] = busy
            instead = replace(self._given, loader=fewer, notes=(*self._given.notes, note))
            raise Otherwise(message, hint=hint, instead=instead)

    def _check_pace(self) -> None:
        """A sub-class, or a wrapper that is kept, must give one batch for each that it takes."""
        ahead = self._iterator._num_yielded - self._epochs.taken
        allowed = max(AHEAD + AHEAD_SHARE * self._epochs.taken, PREFETCHED if self._rewrapped is None else 0)
        if not 0 <= ahead <= allowed:
            if self._rewrapped is None:
                raise BadValue(FOREIGN, hint=FOREIGN_HINT)
            raise Otherwise(
                f"the wrapper takes {self._iterator._num_yielded} batches to give {self._epochs.taken}",
                hint=FOREIGN_HINT,
                instead=self._given.without_wrappers("not_one_for_one"),
            )

    def notes(self) -> tuple[Remark, ...]:
        notes = list(self._given.notes)
        if not self._users.__dict__.get("in_order", True):
            notes.append(Remark(code="taken_in_order"))
        if self._pool.odd > 1:
            notes.append(Remark(code="odd_batches", facts={"batches": self._pool.odd}))
        return tuple(notes)

    def modes(self) -> frozenset[Mode]:
        """Sub-classes that process their batches must get nothing but batches."""
        kind = type(self._users)
        usual = kind.__iter__ is DataLoader.__iter__ and kind._get_iterator is DataLoader._get_iterator
        plain = usual and not self._given.wrappers
        return super().modes() - (frozenset() if plain else {"no_transport"})

    @property
    def exhausted(self) -> bool:
        """True when the sampler had no more batches, so the pool holds all of them."""
        return self._pool.size > 0

    def settle(self, taken: int) -> int:
        """Make the batches requested so far the pool; returns how many must be made until its files are learned."""
        self._log.pool = self._pool.settle(taken, self._ahead)
        return self._log.pool

    def stacks(self) -> StackSamples | None:
        """Where workers were in the code that makes batches; None before they were sampled."""
        return stacks_seen(self._log_name)

    def pool_reads(self) -> list[BatchReads]:
        return pool_reads(self._log_name, self._log.pool)

    def files(self, batch_size: int) -> LoaderFiles:
        """The files of the settled pool, batch by batch or as a whole; or why they are not known."""
        in_order, dataset = not self._iterable, self._users.dataset
        return loader_files(self.pool_reads(), dataset, batch_size=batch_size, in_order=in_order)

    def take_new(self) -> None:
        self._pool.take_new()
        self._log.pool = ALWAYS_NEW

    def repeats(self) -> bool:
        """True for a map-style data set, whose batches are requested by their indices."""
        return not self._iterable

    def repeat(self, batches: int) -> None:
        assert isinstance(self._pool, BatchPool), "a stream cannot repeat batches"
        self._pool.repeat(batches)

    def samples_in_files(self) -> int | None:
        """Samples in the data set's files, of which a Subset takes a part; None where its length is not known."""
        dataset = self._users.dataset
        while isinstance(dataset, Subset):
            dataset = dataset.dataset
        return length_of(dataset)

    def evicts(self) -> bool:
        """True for a map-style data set of which samples are drawn in random order."""
        return not self._pool.in_sequence()

    def extend_pool(self, batches: int) -> int:
        self._pool.extend(batches)
        return self._log.pool

    def new_left(self) -> float:
        return self._pool.new_left()
