"""How busy a process keeps the cores that it may use."""

from __future__ import annotations

from loaderprobe.protocols import Clock
from loaderprobe.samplers.recorded import RecordedSampler


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
