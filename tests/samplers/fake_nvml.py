"""The calls of pynvml that the sampler makes, answered by value, on the clock of the test."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from loaderprobe.render.messages import MESSAGES
from loaderprobe.testing import FakeClock

NVML_ERRORS = {
    int(code.removeprefix("error.nvml.")): text for code, text in MESSAGES.items() if code.startswith("error.nvml.")
}
"""What each error of NVML means in words."""


class NvmlError(Exception):
    """As the real one, it cannot be hashed and does not compare with numbers."""

    __hash__ = None  # type: ignore[assignment]  # the trap of the real class, reproduced

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other.value)  # type: ignore[attr-defined]  # the trap again


class MetricsGet:
    """As c_nvmlGpmMetricsGet_t: version 0 until the caller sets it."""

    def __init__(self) -> None:
        self.version = 0
        self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=999, value=math.nan) for _ in range(333)]


class FakeNvml:
    """One GPU without GPM, unless `gpm` is set. `failing` maps a call to the number of its error.

    GPM's value of metric n is n plus the seconds between the two samples, so that a test sees what was compared.
    """

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = MetricsGet

    def __init__(self, *, clock: FakeClock | None = None, gpm: bool = False, **failing: int) -> None:
        self.failing = failing
        self.clock = clock or FakeClock()
        self.gpm = gpm
        self.open = 0
        self.samples = 0
        self.known = ("GPU-1",)
        self.instance: int | None = None
        self.pids = [4711, 4711]
        self.metric_status: dict[int, int] = {}
        self.taken_on: list[tuple[Any, ...]] = []

    def _answer(self, call: str, value: Any) -> Any:
        if call in self.failing:
            raise NvmlError(self.failing[call])
        return value

    def nvmlInit(self) -> None:
        self._answer("init", None)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._answer("handle", None)
        if uuid not in self.known:
            raise NvmlError(6)
        return uuid

    def nvmlDeviceIsMigDeviceHandle(self, handle: str) -> Any:
        # As pynvml: an object that is true whatever its value.
        return self._answer("is_mig", SimpleNamespace(value=int(self.instance is not None)))

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        return "parent"

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int | None:
        return self.instance

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return list(self._answer("mig_mode", [0, 0]))

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._answer("utilization", SimpleNamespace(gpu=40))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._answer("power", 350_000))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return int(self._answer("energy", 5_000))

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return int(self._answer({1: "sm_clock", 2: "memory_clock"}[which], {1: 1980, 2: 2619}[which]))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return int(self._answer("throttle", 4))

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self._answer("processes", self.pids)]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return self._answer("gpm_support", SimpleNamespace(isSupportedDevice=int(self.gpm)))

    def nvmlGpmSampleAlloc(self) -> Any:
        self._answer("gpm_alloc", None)
        self.samples += 1
        return SimpleNamespace(at_ns=0)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self._answer("gpm_free", None)
        self.samples -= 1

    def nvmlGpmSampleGet(self, handle: str, sample: Any) -> None:
        self._answer("gpm_sample", None)
        self.taken_on.append((handle,))
        sample.at_ns = self.clock.now_ns()

    def nvmlGpmMigSampleGet(self, handle: str, instance: int, sample: Any) -> None:
        self.nvmlGpmSampleGet(handle, sample)
        self.taken_on[-1] = (handle, instance)

    def nvmlGpmMetricsGet(self, asked: MetricsGet) -> None:
        if asked.version != 1:
            raise NvmlError(25)
        self._answer("gpm_metrics", None)
        seconds = (asked.sample2.at_ns - asked.sample1.at_ns) / 1e9
        assert seconds > 0, "a sample was compared with itself or overwritten"
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = self.metric_status.get(metric.metricId, 0)
            metric.value = math.nan if metric.nvmlReturn else metric.metricId + seconds
