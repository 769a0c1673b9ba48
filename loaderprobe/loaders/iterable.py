"""An iterable that gives batches and has no DataLoader that could be copied: it is iterated itself."""

from __future__ import annotations

import functools
import multiprocessing
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.utils.data import Dataset

from loaderprobe.batches import samples_in
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.loaders.unwrap import GIVERS, EndlessBatches, Unwrapped, is_iterator, unwrap
from loaderprobe.protocols import Clock
from loaderprobe.records.config import ITERABLE
from loaderprobe.records.measurement import BATCH_COLUMNS, Mode, WorkerBatches
from loaderprobe.records.remark import Remark
from loaderprobe.stats import mean, median, quantile
from loaderprobe.system.process import ThreadMeter, process_usage, read_process

FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
NO_BATCHES = (Mapping, Sequence, Set, torch.Tensor, np.ndarray, Dataset)
"""What can be iterated and gives no batches: it is one batch, or gives samples or loaders."""
LEAST_BATCHES, MOST_BATCHES = 8, 1000
"""Whose mean is the time that one takes, without the first."""
PAUSES = 3
MOST_PAUSE_S, PAUSED_BATCHES, LEAST_PAUSE = 1.0, 20, 1.5
"""In a pause of the time of so many batches, and at least of 1.5, a loader of its own threads makes batches ahead."""
READY = 0.5
"""A batch that takes less than this share of the usual time was ready."""
MOST_AHEAD = 64
AT_ONCE_S = 50e-6
"""Of batches that take less, it does not matter whether they are made ahead. These figures are chosen: they were tried
on a few libraries, and not measured."""
CHILDREN_EVERY_NS = 20_000_000


class OwnIterable:
    """An iterable of the user's, or a function that makes one, with the settings of a DataLoader that are known of it.

    One that makes batches ahead, in threads or processes of its own, counts as one worker.
    """

    sampler = batch_sampler = batch_size = None
    drop_last = False
    begin_again = "give what begins again with each iter(), or a function that makes it: diagnose(make_batches, step)"

    def __init__(self, source: Any) -> None:
        self.dataset = source
        self.num_workers = self.prefetch_factor = 0
        self.loader = self

    @property
    def name(self) -> str:
        source = self.dataset
        if isinstance(source, FUNCTIONS):
            return str(getattr(getattr(source, "func", source), "__name__", "function"))
        return type(source).__name__

    @property
    def once(self) -> bool:
        """True for an iterator, which cannot begin again."""
        return isinstance(self.dataset, Iterator)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset() if isinstance(self.dataset, FUNCTIONS) else self.dataset)


def to_measure(given: Any) -> Unwrapped | OwnIterable:
    """The DataLoader inside `given`; where there is none, or several, the iterable itself. Else raises BadValue."""
    try:
        return unwrap(given)
    except BadValue:
        kind = type(given)
        refused = issubclass(kind, NO_BATCHES) or is_iterator(given) or any(hasattr(kind, name) for name in GIVERS)
        if not issubclass(kind, FUNCTIONS) and (refused or not hasattr(kind, "__iter__")):
            raise
        return OwnIterable(given)


class _Costs(NamedTuple):
    """Read before and after a batch: ns and bytes, since any moment."""

    now_ns: int
    cpu_ns: int
    delay_ns: int
    process_cpu_ns: int
    """Of all threads of this process, and of the loader's own processes."""
    read_bytes: int


class IterableLoader:
    """Drives an iterable: a `Loader`, and `Switched` between nothing but making batches as asked.

    What a batch costs is what the training thread sees: how long it waits for it, and meanwhile its own CPU time and
    that of the process. What it waits for is sampled in the loader's processes, where it has any, else in this one.
    """

    kind = ITERABLE
    own_threads = True

    def __init__(self, given: OwnIterable, clock: Clock, before_batch: Callable[[], None]) -> None:
        self.given, self._clock, self._before_batch = given, clock, before_batch
        self.new_processes: Callable[[], None] = lambda: None
        """Called when others make the batches than before."""
        self._meter = ThreadMeter()
        self._epochs: EndlessBatches | None = None
        self._last: _Costs | None = None
        self._rows: list[tuple[int, ...]] = []
        self._mean_s = 0.0
        self._foreign = frozenset(_children())
        self._alive: set[int] = set()
        self._used: dict[tuple[int, int], tuple[int, int]] = {}
        """CPU time and bytes of all of the loader's processes, those that have ended among them."""
        self._next_look_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._epochs is not None:
            self._epochs.close()
        self._epochs = None
        self._meter.close()

    def batches(self) -> Iterator[Any]:
        """Without end, as long as it can begin again."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._before_batch()
        begin = self._costs()
        try:
            self._epochs = self._epochs or EndlessBatches(self.given)
            batch = next(self._epochs)
        except (StopIteration, LoaderprobeError):
            raise
        except Exception as error:
            if known := _known(error):
                raise known from error
            raise LoaderprobeError(
                f"the loader raised {type(error).__name__}: {error}", hint="iterate it alone to see the same error"
            ) from error
        end = self._costs()
        samples = samples_in(batch)
        if not samples and not self._rows:
            raise BadValue(
                f"the iterable gives a {type(batch).__name__} without a tensor or an array of samples",
                hint="give batches of tensors or numpy arrays, alone or in tuples, lists and dicts",
            )
        self._rows.append((begin.now_ns, *self._spent(begin, end), samples))
        self._last = end
        return batch

    def _spent(self, begin: _Costs, end: _Costs) -> tuple[int, int, int, int, int]:
        """(wall, CPU, run delay, bytes read, CPU of all): what is made ahead is also made between two batches."""
        cpu_ns = end.cpu_ns - begin.cpu_ns
        since = self._last or begin if self.given.num_workers else begin
        others_ns = end.process_cpu_ns - since.process_cpu_ns - (end.cpu_ns - since.cpu_ns)
        read_bytes = max(0, end.read_bytes - since.read_bytes)
        delay_ns = max(0, end.delay_ns - begin.delay_ns)
        return end.now_ns - begin.now_ns, cpu_ns, delay_ns, read_bytes, cpu_ns + max(0, others_ns)

    def _costs(self) -> _Costs:
        now_ns, (_, delay_ns, _) = self._clock.now_ns(), self._meter.read()
        if now_ns >= self._next_look_ns:
            self._look_at_children()
            self._next_look_ns = now_ns + CHILDREN_EVERY_NS
        cpu_ns, read_bytes = map(sum, zip(*self._used.values(), strict=True)) if self._used else (0, 0)
        return _Costs(
            now_ns=now_ns,
            cpu_ns=self._clock.thread_cpu_ns(),
            delay_ns=delay_ns,
            process_cpu_ns=self._clock.process_cpu_ns() + cpu_ns,
            read_bytes=process_usage().read_bytes + read_bytes,
        )

    def _look_at_children(self) -> None:
        """Note what the loader's processes have used so far; those of each epoch may be new ones."""
        before, self._alive = self._alive, set(self.workers())
        for pid in self._alive:
            if (counters := read_process(pid)) is not None:
                self._used[pid, counters.start] = round(counters.cpu_s * 1e9), counters.read_bytes or 0
        if before != self._alive:
            self.new_processes()

    @property
    def taken(self) -> int:
        return len(self._rows)

    def workers(self) -> Sequence[int]:
        """Ids of the processes that Python started for it; empty where threads make its batches."""
        return [pid for pid in _children() if pid not in self._foreign]

    def learn(self, keep: Callable[[Any], None], enough: Callable[[], bool]) -> None:
        """Take the first batches until there are enough; `keep` gets each. Then learn whether it makes them ahead.

        Raises StopIteration where it ends.
        """
        while self.taken < LEAST_BATCHES or (self.taken < MOST_BATCHES and not self.given.once and not enough()):
            keep(next(self))
        self._mean_s = mean([row[1] / 1e9 for row in self._rows[1:]] or [0.0])
        ready = [self._ready() for _ in range(PAUSES)] if self._mean_s > AT_ONCE_S else [0]
        if median(ready):  # one of them may meet the end of an epoch
            self.given.num_workers, self.given.prefetch_factor = 1, max(ready)

    def _ready(self) -> int:
        """Batches that are ready after a pause; the serial loader makes none."""
        longest_s = min(MOST_PAUSE_S, PAUSED_BATCHES * self._mean_s)
        self._clock.sleep(max(LEAST_PAUSE * self._mean_s, longest_s))
        for ready in range(MOST_AHEAD):
            next(self)
            if self._rows[-1][1] > READY * self._mean_s * 1e9:
                return ready
        return MOST_AHEAD

    def records(self) -> WorkerBatches:
        rows = ((number, 0, *row) for number, row in enumerate(self._rows))
        columns: dict[str, Any] = dict(zip(BATCH_COLUMNS, zip(*rows, strict=True), strict=False))
        return WorkerBatches(**columns)

    def modes(self) -> frozenset[Mode]:
        """It makes whole batches and nothing less; where its files are known, they can be warm."""
        return frozenset({"baseline", "warm"})

    def switch(self, mode: Mode) -> None:
        """Files are cold or warm, whatever it does."""

    def begun_before(self, first_batch: int, time_ns: int) -> bool:
        """True, as far as is known: as many are dropped as it makes ahead."""
        return True

    def still(self, taken: int) -> bool:
        """True once it had the time to make all that it makes ahead."""
        # A batch that was ready says nothing about how long one takes.
        batch_ns = quantile([row[1] for row in self._rows], 0.9) if self._rows else 0.0
        ahead_ns = (self.given.num_workers * self.given.prefetch_factor + 1) * batch_ns if self.given.num_workers else 0
        return self._last is None or self._clock.now_ns() >= self._last.now_ns + ahead_ns

    def check(self, *, broken_off: bool) -> None:
        """Whatever it gives is measured."""

    def stacks(self) -> None:
        """Not looked at."""

    def notes(self) -> tuple[Remark, ...]:
        itself = Remark(code="iterated_itself", facts={"iterable": self.given.name})
        ahead = Remark(code="made_ahead", facts={"batches": self.given.prefetch_factor})
        return (itself, ahead) if self.given.num_workers else (itself,)


def _known(error: BaseException) -> LoaderprobeError | None:
    """Our own error that a library has wrapped into others; None without one."""
    causes: list[BaseException | None] = [error]
    while causes:
        cause = causes.pop()
        if isinstance(cause, LoaderprobeError):
            return cause
        if cause is not None:
            causes += [cause.__context__, cause.__cause__]
        if isinstance(cause, BaseExceptionGroup):
            causes += cause.exceptions
    return None


def _children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
