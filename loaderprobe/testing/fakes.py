"""Fakes of clock, page cache and loader: whole measurements without waiting, with exact results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loaderprobe.records.config import FileSet, RunConfig
from loaderprobe.records.measurement import WorkerBatches


class FakeClock:
    """A clock that moves only when somebody sleeps on it or works."""

    def __init__(self) -> None:
        self._now_ns = 1_000_000_000
        self._cpu_ns = 0

    def now_ns(self) -> int:
        """Now, in ns."""
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ns += round(seconds * 1e9)

    def work(self, seconds: float) -> None:
        """Let time pass in which the calling thread uses the CPU."""
        self.sleep(seconds)
        self._cpu_ns += round(seconds * 1e9)

    def thread_cpu_ns(self) -> int:
        """CPU time worked."""
        return self._cpu_ns


class FakePageCache:
    """A page cache that holds whole files. `stubborn` files cannot be evicted, `blind` caches tell nothing."""

    def __init__(self, *, stubborn: bool = False, blind: bool = False) -> None:
        self.held: set[Path] = set()
        self._stubborn = stubborn
        self._blind = blind

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files."""
        if not self._stubborn:
            self.held.difference_update(paths)

    def warm(self, paths: Sequence[Path]) -> None:
        """Hold the files."""
        self.held.update(paths)

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files held."""
        return None if self._blind else sum(path in self.held for path in paths) / len(paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Seconds that one image takes in a worker, and one batch in the training thread."""

    cpu_s: float
    blocked_s: float = 0.0
    """Waiting for storage, when the file is not in the cache."""
    run_delay_s: float = 0.0
    receive_s: float = 0.0
    """CPU time of the training thread a batch."""


@dataclass(slots=True)
class ScriptedLoader:
    """Workers with given service times, on a fake clock: a DataLoader's schedule, exactly.

    Batch k goes to worker k mod N; at most N x prefetch factor batches are outstanding.
    """

    config: RunConfig
    files: FileSet
    clock: FakeClock
    cache: FakePageCache
    service: Service
    on_batch: Callable[[int], None] = field(default=lambda _: None)
    """Called with every batch number before it is handed over; may raise."""
    _free_ns: dict[int, int] = field(default_factory=dict)
    _ready_ns: dict[int, int] = field(default_factory=dict)
    _rows: list[tuple[int, ...]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def workers(self) -> Sequence[int]:
        """No process anywhere."""
        return []

    def batches(self) -> Iterator[Any]:
        """Batches of the right length, at the right time."""
        ahead = self.config.batches_ahead
        for number in range(ahead):
            self._dispatch(number)
        number = 0
        while True:
            self.on_batch(number)
            if not ahead:
                self._dispatch(number)
            self.clock.sleep(max(0, self._ready_ns.pop(number) - self.clock.now_ns()) / 1e9)
            self.clock.work(self.service.receive_s)
            if ahead:
                self._dispatch(number + ahead)
            yield range(self.config.batch_size), None
            number += 1

    def _dispatch(self, number: int) -> None:
        size = self.config.batch_size
        paths = self.files.absolute(number * size, size)
        cold = [path for path in paths if path not in self.cache.held]
        self.cache.warm(paths)
        wall_s = size * (self.service.cpu_s + self.service.run_delay_s) + len(cold) * self.service.blocked_s
        worker = number % max(self.config.workers, 1)
        start_ns = max(self.clock.now_ns(), self._free_ns.get(worker, 0))
        self._free_ns[worker] = self._ready_ns[number] = start_ns + round(wall_s * 1e9)
        read = sum(self.files.size_bytes[0] for _ in cold)
        cpu_ns, delay_ns = round(size * self.service.cpu_s * 1e9), round(size * self.service.run_delay_s * 1e9)
        self._rows.append((number, worker, start_ns, round(wall_s * 1e9), cpu_ns, delay_ns, read, size))

    def records(self) -> WorkerBatches:
        """One row a batch."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * 8
        return WorkerBatches(
            batch=columns[0],
            worker=columns[1],
            start_ns=columns[2],
            wall_ns=columns[3],
            cpu_ns=columns[4],
            run_delay_ns=columns[5],
            read_bytes=columns[6],
            images=columns[7],
        )


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
    """Two workers on an emulated accelerator; `changes` replace fields."""
    fields: dict[str, Any] = {
        "data": "0" * 16,
        "resolution": "500x375",
        "workers": 2,
        "batch_size": 16,
        "prefetch_factor": 2,
        "compute": "emulated:1000",
    }
    fields.update(changes)
    if fields["workers"] == 0:
        fields["prefetch_factor"] = 0
    return RunConfig(**fields)
