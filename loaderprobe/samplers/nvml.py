"""NVML: how busy the GPU is, its power and its clock. Every error is a reason, never 0."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from loaderprobe.protocols import Clock
from loaderprobe.samplers.recorded import RecordedSampler

UTILIZATION = "gpu_utilization"
SOURCE = "NVML utilization: share of time with any kernel at all"
# NVML's errors by value: its exceptions compare badly.
REASONS = {
    1: "NVML was not initialised",
    3: "this GPU does not support it",
    4: "no permission to ask NVML",
    6: "NVML does not know this GPU",
    9: "the NVIDIA driver is not loaded",
    12: "there is no NVIDIA driver library (libnvidia-ml.so.1)",
    13: "the driver is too old for it",
    15: "the GPU has been lost",
    18: "driver and library versions differ: reboot after the driver's update",
    999: "NVML failed; in a container the GPU may have been taken away",
}


class NvmlSampler(RecordedSampler):
    """Readings of one GPU, found by UUID: CUDA's numbering is not NVML's. `nvml` is the pynvml module or a fake."""

    def __init__(self, clock: Clock, uuid: str | None, nvml: Any = None) -> None:
        super().__init__(clock)
        self._nvml = nvml or import_module("pynvml")
        self._uuid = uuid
        self._handle: Any = None

    def __enter__(self) -> Self:
        if self._uuid is None:
            self.miss(UTILIZATION, "no GPU trains in this configuration")
            return self
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.miss(UTILIZATION, reason_for(error))
            return self
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except self._nvml.NVMLError as error:
            self.miss(UTILIZATION, reason_for(error))
            self._nvml.nvmlShutdown()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            # A GPU lost meanwhile must not cost the measurement: all its readings are kept already.
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def sample(self) -> None:
        """Read what this GPU offers; the rest keeps its reason."""
        if self._handle is None:
            return
        nvml, handle = self._nvml, self._handle
        self._read(UTILIZATION, "", SOURCE, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        self._read("gpu_power", "W", "NVML power usage", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        self._read("gpu_sm_clock", "MHz", "NVML clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))

    def _read(self, name: str, unit: str, source: str, call: Any) -> None:
        try:
            self.record(name, unit, source, float(call()))
        except self._nvml.NVMLError as error:
            self.miss(name, reason_for(error))


def reason_for(error: Any) -> str:
    """An NVML error in words."""
    return REASONS.get(error.value, f"NVML error {error.value}: {error}")
