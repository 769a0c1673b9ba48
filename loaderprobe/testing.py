"""Fakes and record builders, for the tests of this product and of anything plugged into it.

Whole measurements without waiting, with exact results. Nothing here may be needed by a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from loaderprobe.protocols import Clock, ComputeArguments, Files
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import BATCH_COLUMNS, ComputeInfo, Mode, Timeline, WorkerBatches

__all__ = [
    "FakeClock",
    "FakeGpu",
    "FakePageCache",
    "ScriptedLoader",
    "Service",
    "example_arguments",
    "example_config",
    "example_files",
]

INSTRUMENT_NS = 20_000
"""CPU time that a fake loader says its recording takes a batch."""


class FakeClock:
    """A clock that moves only when a fake sleeps on it or works."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000
        self._cpu_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def work(self, seconds: float) -> None:
        """Let time pass in which the calling thread uses the CPU."""
        self.sleep(seconds)
        self._cpu_ns += round(seconds * 1e9)

    def thread_cpu_ns(self) -> int:
        return self._cpu_ns

    def process_cpu_ns(self) -> int:
        """As much as the calling thread's: there is no other."""
        return self.thread_cpu_ns()


class FakePageCache:
    """A page cache that holds whole files. `stubborn` files cannot be evicted, `blind` caches tell nothing."""

    def __init__(self, *, stubborn: bool = False, blind: bool = False) -> None:
        self.held: set[Path] = set()
        self._stubborn = stubborn
        self._blind = blind

    def evict(self, paths: Sequence[Path]) -> None:
        if not self._stubborn:
            self.held.difference_update(paths)

    def warm(self, paths: Sequence[Path]) -> None:
        self.held.update(paths)

    def resident(self, paths: Sequence[Path]) -> float | None:
        return None if self._blind else sum(path in self.held for path in paths) / len(paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Seconds that one image takes in a worker, and one batch in the training thread."""

    cpu_s: float
    blocked_s: float = 0.0
    """Waiting for storage, when the file is not in the cache."""
    run_delay_s: float = 0.0
    collate_s: float = 0.0
    """CPU time in the worker of putting one image into its batch."""
    receive_s: float = 0.0
    """CPU time of the training thread a batch."""


@dataclass(slots=True)
class ScriptedLoader:
    """Workers with given service times, on a fake clock: a DataLoader's schedule, exactly.

    Batch k goes to worker k mod N; at most N x prefetch factor batches are outstanding.
    """

    config: RunConfig
    files: Files
    clock: FakeClock
    cache: FakePageCache
    service: Service
    on_batch: Callable[[int], None] = field(default=lambda _: None)
    """Called with every batch number before it is delivered; may raise."""
    _mode: Mode = field(default="baseline")
    _asked_ns: dict[int, int] = field(default_factory=dict)
    """Batches asked for and not yet begun, by number, in order."""
    _begun_ns: dict[int, int] = field(default_factory=dict)
    _free_ns: dict[int, int] = field(default_factory=dict)
    _ready_ns: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _paths: Sequence[Path] = field(init=False)

    def __post_init__(self) -> None:
        self._paths = self.files.absolute(0, self.files.count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def workers(self) -> Sequence[int]:
        return []

    def modes(self) -> frozenset[Mode]:
        return frozenset(
            {"baseline", "warm", "cached_samples", "no_transport"}
            if self.config.loader.workers
            else {"baseline", "warm", "cached_samples", "one_thread"}
        )

    def switch(self, mode: Mode) -> None:
        now_ns = self.clock.now_ns()
        for number in list(self._asked_ns):
            if self._start_ns(number) < now_ns:
                self._make(number)
        self._mode = mode

    def still(self, taken: int) -> bool:
        """Always: a batch is made when it is taken."""
        return True

    def begun_before(self, first_batch: int, time_ns: int) -> bool:
        return any(number >= first_batch and start < time_ns for number, start in self._begun_ns.items())

    def batches(self) -> Iterator[Any]:
        """Batches of the right length, at the right time; without transport only their length."""
        ahead = self.config.loader.batches_ahead
        for number in range(ahead):
            self._asked_ns[number] = self.clock.now_ns()
        number = 0
        while True:
            self.on_batch(number)
            if not ahead:
                self._asked_ns[number] = self.clock.now_ns()
            if number in self._asked_ns:
                self._make(number)
            ready_ns, handed_over = self._ready_ns.pop(number)
            self.clock.sleep(max(0, ready_ns - self.clock.now_ns()) / 1e9)
            self.clock.work(self.service.receive_s if handed_over else 0.0)
            if ahead:
                self._asked_ns[number + ahead] = self.clock.now_ns()
            whole = SimpleNamespace(shape=(self.config.compute.batch_size,)), None
            yield whole if handed_over else self.config.compute.batch_size
            number += 1

    def _start_ns(self, number: int) -> int:
        return max(self._asked_ns[number], self._free_ns.get(number % max(self.config.loader.workers, 1), 0))

    def _make(self, number: int) -> None:
        size, service = self.config.compute.batch_size, self.service
        start_ns = self._begun_ns[number] = self._start_ns(number)
        del self._asked_ns[number]
        paths = [self._paths[k % len(self._paths)] for k in range(number * size, (number + 1) * size)]
        cold = [path for path in paths if path not in self.cache.held]
        self.cache.warm(paths)
        cpu_s = 0.0 if self._mode == "cached_samples" else size * service.cpu_s
        delay_s = 0.0 if self._mode == "cached_samples" else size * service.run_delay_s
        collate_s = 0.0 if self._mode == "no_transport" else size * service.collate_s
        wall_s = cpu_s + delay_s + collate_s + len(cold) * service.blocked_s
        worker = number % max(self.config.loader.workers, 1)
        self._free_ns[worker] = start_ns + round(wall_s * 1e9)
        self._ready_ns[number] = self._free_ns[worker], self._mode != "no_transport"
        read = self.files.delivered_bytes(number * size, size) * len(cold) // len(paths)
        times = (start_ns, *(round(seconds * 1e9) for seconds in (wall_s, cpu_s + collate_s, delay_s)))
        self._rows.append((number, worker, *times, read, size, round(collate_s * 1e9), INSTRUMENT_NS))

    def records(self) -> WorkerBatches:
        names = [name for name in BATCH_COLUMNS if name != "process_cpu_ns"]
        columns: dict[str, Any] = dict(zip(names, zip(*self._rows, strict=True), strict=False))
        return WorkerBatches(**columns)


def example_files(count: int = 4096, size_bytes: int = 100_000) -> FileSet:
    """A file set of equal files that exist nowhere."""
    return FileSet(
        label="500x375",
        root="/nowhere",
        generated=True,
        paths=tuple(f"{index}.JPEG" for index in range(count)),
        classes=(0,) * count,
        size_bytes=(size_bytes,) * count,
        images_found=count,
    )


def example_config(**changes: Any) -> RunConfig:
    """Two workers on an emulated accelerator; `changes` are to options by their names, such as `workers`."""
    if changes.get("workers") == 0:
        changes["prefetch_factor"] = 0
    usual = RunConfig(
        data="0" * 16,
        resolution="500x375",
        loader=LoaderSpec(workers=2, prefetch_factor=2),
        compute=ComputeSpec(name="emulated:1000", batch_size=16),
    )
    return with_options(usual, **changes)


def example_arguments(clock: Clock, **changes: Any) -> ComputeArguments:
    """What makes the compute of an example configuration; `changes` as of `example_config`."""
    config = example_config(**changes)
    return ComputeArguments(spec=config.compute, loader=config.loader, clock=clock)


@dataclass(slots=True)
class FakeGpu:
    """A GPU on a fake clock: steps of `step_s`, one after the other, and the host waits for each. No profiler runs."""

    clock: FakeClock
    step_s: float
    trouble: Exception = field(default_factory=lambda: RuntimeError("no profiler"))
    _begun_ns: list[int] = field(default_factory=list)
    _ended_ns: list[int] = field(default_factory=list)
    _last_begun_ns: tuple[int, ...] = ()

    def info(self) -> ComputeInfo:
        return ComputeInfo(
            name="cuda", device="Fake GPU", synchronous=True, specified_images_per_s=None, source="a fake of a GPU"
        )

    def copy(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        self._begun_ns.append(self.clock.now_ns())
        self.clock.sleep(self.step_s)
        self._ended_ns.append(self.clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        ended, self._ended_ns = tuple(self._ended_ns), []
        self._last_begun_ns, self._begun_ns = tuple(self._begun_ns), []
        return ended

    def begun(self) -> tuple[int, ...]:
        return self._last_begun_ns

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        raise self.trouble
