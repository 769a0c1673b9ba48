"""Counters of the host: bytes that devices have read, and this process's share of its cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaderprobe.protocols import Clock
from loaderprobe.records.remark import Remark
from loaderprobe.samplers.recorded import RecordedSampler
from loaderprobe.system.device import read_sectors


class DiskSampler(RecordedSampler):
    """Bytes that the devices under the data have read, for all processes, cumulative."""

    def __init__(
        self, clock: Clock, devices: Sequence[str], read: Callable[[Sequence[str]], int | None] = read_sectors
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
