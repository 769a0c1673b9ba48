"""What the machine gives a measurement: time, counters, the page cache, how busy the device is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from loaderprobe.records.measurement import Missing, Series


class Clock(Protocol):
    """Time for the measuring loop; one clock for everything in a measurement."""

    def now_ns(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...
    def thread_cpu_ns(self) -> int:
        """CPU time of the calling thread."""

    def process_cpu_ns(self) -> int:
        """CPU time of all threads of this process."""


class Sampler(Protocol):
    """Reads one kind of counter periodically during training."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def sample(self) -> None:
        """Take one reading."""

    def series(self) -> Sequence[Series | Missing]:
        """All readings; a `Missing` with the reason for each figure without readings."""


class PageCache(Protocol):
    """The operating system's file cache, as far as it can be controlled."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files from the cache."""

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once, so that the cache holds them."""

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None where it is unknown for this user or file system."""


class UtilizationMeter(Protocol):
    """Reads how busy the training device is, in a thread of its own, while it is entered."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def readings(self) -> tuple[float, ...] | Missing:
        """Shares, 0 to 1, in the order of time; or why there are none. Called after leaving it."""
