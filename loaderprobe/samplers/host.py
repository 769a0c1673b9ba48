"""Counters of the host: bytes read by devices, CPU and bytes of workers, load of the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil

from loaderprobe.protocols import Clock
from loaderprobe.records.remark import Remark
from loaderprobe.samplers.recorded import RecordedSampler
from loaderprobe.system.device import read_sectors
from loaderprobe.system.process import ProcessCounters, read_process


class DiskSampler(RecordedSampler):
    """Bytes that the devices under the data have read, for all processes, cumulative."""

    def __init__(
        self,
        clock: Clock,
        devices: Sequence[str],
        read: Callable[[Sequence[str]], int | None] = read_sectors,
    ) -> None:
        super().__init__(clock)
        self._devices = devices
        self._read = read

    def sample(self) -> None:
        count = self._read(self._devices)
        if count is None:
            self.miss("disk_read", Remark(code="disks_not_listed"))
        else:
            self.record("disk_read", "bytes", "/proc/diskstats", count)


class WorkerSampler(RecordedSampler):
    """CPU seconds and bytes read from storage by all workers together, cumulative."""

    def __init__(
        self,
        clock: Clock,
        pids: Callable[[], Sequence[int]],
        read: Callable[[int], ProcessCounters | None] = read_process,
    ) -> None:
        super().__init__(clock)
        self._pids = pids
        self._read = read
        self._last: dict[int, ProcessCounters] = {}

    def sample(self) -> None:
        """Read every worker's counters; a worker that has ended keeps its last values."""
        for pid in self._pids():
            counters = self._read(pid)
            if counters is not None:
                self._last[pid] = counters
        if not self._last:
            self.miss("worker_cpu", Remark(code="no_workers"))
            self.miss("worker_read", Remark(code="no_workers"))
            return
        cpu = [counters.cpu_s for counters in self._last.values()]
        read = [counters.read_bytes for counters in self._last.values()]
        if None in cpu:
            self.miss("worker_cpu", Remark(code="worker_stat_unreadable"))
        else:
            self.record("worker_cpu", "s", "/proc/PID/stat", sum(value or 0.0 for value in cpu))
        if None in read:
            self.miss("worker_read", Remark(code="worker_io_refused"))
        else:
            self.record("worker_read", "bytes", "/proc/PID/io", sum(value or 0 for value in read))


class MachineSampler(RecordedSampler):
    """Share of all cores busy between readings, for all processes, 0 to 1."""

    def __init__(self, clock: Clock, read: Callable[[], float] = psutil.cpu_percent) -> None:
        super().__init__(clock)
        self._read = read
        self._first = True

    def sample(self) -> None:
        """Read the share since the last reading; the first has nothing to compare with."""
        percent = self._read()
        if not self._first:
            self.record("machine_cpu", "", "/proc/stat", percent / 100)
        self._first = False


class CoresSampler(RecordedSampler):
    """CPU time of all threads of this process between readings, as a share of that of all its cores, 0 to 1."""

    def __init__(self, clock: Clock, cores: float) -> None:
        super().__init__(clock)
        self._cores = cores
        self._before: tuple[int, int] | None = None

    def sample(self) -> None:
        """Read the share since the last reading; the first has nothing to compare with."""
        now = (self._clock.now_ns(), self._clock.process_cpu_ns())
        if self._before is not None and now[0] > self._before[0]:
            share = (now[1] - self._before[1]) / (now[0] - self._before[0]) / self._cores
            self.record("own_cpu", "", "CPU time of this process", min(1.0, share))
        self._before = now
