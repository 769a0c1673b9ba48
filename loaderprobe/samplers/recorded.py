"""Samplers of the host, the common part of all of them, and one thread that reads them periodically."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from loaderprobe.protocols import Clock, Sampler
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.remark import Remark
from loaderprobe.system.device import read_sectors


class RecordedSampler:
    """Keeps readings by name; a subclass's `sample` calls `record`, or `miss` with a reason."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        self._missing: dict[str, Remark] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def record(self, name: str, unit: str, source: str, value: float) -> None:
        """Keep one reading, stamped now."""
        self._readings.setdefault((name, unit, source), []).append((self._clock.now_ns(), value))
        self._missing.pop(name, None)

    def miss(self, name: str, reason: Remark) -> None:
        """Keep the reason why there is no reading; the first since the last reading stays."""
        self._missing.setdefault(name, reason)

    def series(self) -> Sequence[Series | Missing]:
        """All readings, and the reasons for figures that were never read."""
        # Copies: the sampling thread may be at work.
        missing = list(self._missing.items())
        read = [
            Series(
                name=name,
                unit=unit,
                source=source,
                time_ns=tuple(time_ns for time_ns, _ in readings),
                values=tuple(value for _, value in readings),
            )
            for (name, unit, source), readings in [(key, tuple(kept)) for key, kept in list(self._readings.items())]
        ]
        names = {series.name for series in read}
        return [*read, *(Missing(name=name, reason=reason) for name, reason in missing if name not in names)]


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


PERIOD_S = 0.2


class SamplerThread:
    """Reads every sampler each `period_s`. A sampler that raises is dropped, and the reason is kept."""

    def __init__(self, samplers: Sequence[Sampler], period_s: float = PERIOD_S) -> None:
        self._samplers = list(samplers)
        self._period_s = period_s
        self._broken: list[Missing] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samplers", daemon=True)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for sampler in self._samplers:
            self._open.enter_context(sampler)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._open.close()

    def sample_all(self) -> None:
        for sampler in list(self._samplers):
            try:
                sampler.sample()
            except Exception as error:  # noqa: BLE001  # one counter's trouble must not end the measurement
                self._samplers.remove(sampler)
                name, why = type(sampler).__name__, f"{type(error).__name__}: {error}"
                stopped = Remark(code="sampler_stopped", facts={"sampler": name, "error": why})
                self._broken.append(Missing(name=name, reason=stopped))

    def collected(self) -> tuple[list[Series], list[Missing]]:
        """(all series so far, what is missing and why)."""
        figures = [figure for sampler in self._samplers for figure in sampler.series()]
        series = [figure for figure in figures if isinstance(figure, Series)]
        return series, [*(figure for figure in figures if isinstance(figure, Missing)), *self._broken]

    def _run(self) -> None:
        self.sample_all()
        while not self._stop.wait(self._period_s):
            self.sample_all()
