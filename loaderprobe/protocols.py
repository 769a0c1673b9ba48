"""What a part must do to take part: a loader, a compute device, a sampler, the page cache, a renderer, a clock.

Every protocol has one to three methods (and what it is called), and a fake of each is in `loaderprobe.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Missing, Mode, Series, WorkerBatches
from loaderprobe.records.report import Report
from loaderprobe.records.timeline import Timeline


class Clock(Protocol):
    """Time as the measuring loop sees it; one clock for everything in a measurement."""

    def now_ns(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...
    def thread_cpu_ns(self) -> int:
        """CPU time of the calling thread."""
        ...

    def process_cpu_ns(self) -> int:
        """CPU time of all threads of this process."""
        ...


class Loader(Protocol):
    """Serves the batches of one file set in one configuration, without end.

    Made by `Class(config, files, scratch)`; `scratch` is a directory for its temporary files.
    Batch `k` holds the images `k * batch_size` to `(k + 1) * batch_size - 1` of the file set, which is
    read round and round in its own order. A context manager: leaving it stops the workers.
    """

    def batches(self) -> Iterator[Any]:
        """A batch is (images, labels) as torch tensors: images float N x 3 x 224 x 224."""
        ...

    def workers(self) -> Sequence[int]:
        """Process ids that read and decode; empty when the training thread does."""
        ...

    def records(self) -> WorkerBatches:
        """What each batch cost, for all batches made so far."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Switched(Protocol):
    """What a `Loader` has beyond that when its workers can make batches in other modes without starting anew."""

    def modes(self) -> frozenset[Mode]:
        """The modes it can be switched to; it begins in C."""
        ...

    def switch(self, mode: Mode) -> None:
        """Batches begun from now on are made in this mode: in C and W wholly, what the cache holds being ours."""
        ...

    def begun_before(self, first_batch: int, time_ns: int) -> bool:
        """True when a batch from `first_batch` on, of those asked for by now, was begun before `time_ns`."""
        ...

    def still(self, taken: int) -> bool:
        """True when, with `taken` batches taken, workers have made all that they were asked for, and rest."""
        ...


@runtime_checkable
class Renewing(Protocol):
    """What a `Loader` has beyond that when it can be kept from meeting the same files warm again."""

    def batches(self) -> Iterator[Any]: ...
    def release(self, taken: int) -> None:
        """Have this process and all workers unmap the pages of mapped files: those could not be evicted.

        Waits until no batch is being made; `taken` have been taken by now.
        """
        ...

    def take_new(self) -> None:
        """From now on make batches that were not made before."""
        ...

    def repeats(self) -> bool:
        """True when it can make batches again."""
        ...

    def repeat(self, batches: int) -> None:
        """From now on make the last so many batches again and again."""
        ...

    def new_left(self) -> float:
        """Batches that were never made, as far as it knows how many there are; below 0 when some came again."""
        ...


class NextRound(Protocol):
    """Decides from what was measured so far which segments would tell more; none ends the measurement."""

    def __call__(self, measurement: Measurement, *, thorough: bool) -> tuple[tuple[Mode, Activity], ...]: ...


class Compute(Protocol):
    """A device that trains. Made by `Class(argument, clock)`: the argument is what follows the colon."""

    def info(self) -> ComputeInfo: ...
    def copy(self, batch: Any) -> Any:
        """Hand the copy of a batch to the device; returns what `step` takes. Does not wait."""
        ...

    def step(self, batch: Any) -> None:
        """Hand one training step to the device; waits only as long as the device's queue makes it."""
        ...

    def finish(self) -> tuple[int, ...]:
        """Wait for all steps handed over; when each has ended, in ns of the clock, since the last call."""
        ...


@runtime_checkable
class Timed(Protocol):
    """What a `Compute` has beyond that when its device tells when it came to each step."""

    def begun(self) -> tuple[int, ...]:
        """When the device, done with all before, came to the copy of each step that `finish` told of last."""
        ...


@runtime_checkable
class Profiling(Protocol):
    """What a `Compute` has beyond that when it can say what its device did, kernel by kernel."""

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        """A window of `steps` steps after `warm_up` others, and the same before it without the profiler.

        `feed(count)` makes storage and loader ready and gives `count` batches; it is called once for each of the two.
        May raise anything: the message is the reason why there is no timeline.
        """
        ...


class Sampler(Protocol):
    """Reads one kind of counter now and then, while training runs."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def sample(self) -> None:
        """Take one reading."""
        ...

    def series(self) -> Sequence[Series | Missing]:
        """What was read; a `Missing` with the reason for what could not be."""
        ...


class PageCache(Protocol):
    """The operating system's file cache, as far as it can be told what to hold."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files from the cache."""
        ...

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once, so that the cache holds them."""
        ...

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None where this user or file system cannot tell."""
        ...


class Renderer(Protocol):
    """Shows a report. Opens no file and measures nothing."""

    def render(self, report: Report) -> str: ...
