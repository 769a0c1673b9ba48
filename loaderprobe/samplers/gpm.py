"""GPM: how many SMs are busy and how many warps they hold, on Hopper and newer GPUs.

The driver computes an average between any two samples, neighbours or the first and the last. Not yet verified on a
device: that no counter overflows between samples many minutes apart. GPM does not use CUPTI (NVIDIA/DCGM issue 62), so
a profiler may run at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from loaderprobe.protocols import Clock
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.samplers.nvml_device import NvmlDevice, call
from loaderprobe.samplers.nvml_errors import NOT_SUPPORTED, reason_for

# nvml.h: samples should be more than 100 ms apart, for the driver refreshes them no faster.
LEAST_GAP_NS = 110_000_000
UNSUPPORTED = Unavailable(code="no_gpm")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpmMetric:
    """A figure of GPM; with several ids (one for each engine) the largest is taken."""

    name: str
    unit: str
    meaning: str
    ids: tuple[int, ...]
    """Numbers of nvmlGpmMetricId_t."""
    scale: float = 0.01
    """Factor from NVML's unit, usually percent, to the unit of `Series`."""

    @property
    def source(self) -> str:
        """The source of a reading, as text."""
        return f"NVML GPM, average since the previous reading: {self.meaning}"


_MEBIBYTE = 1 << 20
METRICS = (
    GpmMetric(name="gpu_graphics_utilization", unit="", meaning="share of time the engines had work", ids=(1,)),
    GpmMetric(name="gpu_sm_utilization", unit="", meaning="share of SMs that were busy", ids=(2,)),
    GpmMetric(name="gpu_sm_occupancy", unit="", meaning="active warps over the maximum of the SMs", ids=(3,)),
    GpmMetric(name="gpu_tensor_utilization", unit="", meaning="share of time the tensor cores were busy", ids=(5,)),
    GpmMetric(name="gpu_dram_utilization", unit="", meaning="memory traffic over the maximum", ids=(10,)),
    GpmMetric(name="gpu_pcie_to_device", unit="bytes/s", meaning="PCIe traffic to the GPU", ids=(21,), scale=_MEBIBYTE),
    GpmMetric(
        name="gpu_pcie_from_device", unit="bytes/s", meaning="PCIe traffic from the GPU", ids=(20,), scale=_MEBIBYTE
    ),
    GpmMetric(name="gpu_jpeg_utilization", unit="", meaning="the busiest JPEG engine", ids=tuple(range(40, 48))),
)

Answers = Mapping[str, float | Unavailable]
"""Metric name to its value, or to the reason why it has none."""


class GpmReader:
    """Averages between samples of one GPU. NVML's samples are not thread-safe: one thread makes and reads them.

    Another thread may call `whole`, and `close` once that thread has ended. Methods raise nvml.NVMLError.
    """

    def __init__(self, clock: Clock, device: NvmlDevice) -> None:
        self._clock = clock
        self._device = device
        self._allocated: list[Any] = []
        self._first: Any = None
        self._previous: Any = None
        self._spare: list[Any] = []
        self._first_ns = self._last_ns = 0
        self._whole: Answers = {}

    def start(self) -> Unavailable | None:
        """Take the first sample. A GPU without GPM gives a reason and no readings."""
        nvml = self._device.nvml
        try:
            supported = call(nvml, "nvmlGpmQueryDeviceSupport", self._device.parent).isSupportedDevice
        except nvml.NVMLError as error:
            if error.value != NOT_SUPPORTED:
                raise
            supported = 0
        if not supported:
            return UNSUPPORTED
        for _ in range(3):
            self._allocated.append(call(nvml, "nvmlGpmSampleAlloc"))
        self._first, *self._spare = self._allocated
        self._take(self._first)
        self._previous, self._first_ns = self._first, self._last_ns
        return None

    def read(self) -> Answers | None:
        """Averages since the previous reading; None when that is too recent for the driver."""
        if self._clock.now_ns() - self._last_ns < LEAST_GAP_NS:
            return None
        current = self._spare[-1]
        self._take(current)
        self._spare.pop()
        before, self._previous = self._previous, current
        if before is not self._first:
            self._spare.append(before)
        answers = self._between(before, current)
        self._whole = answers if before is self._first else self._between(self._first, current)
        return answers

    def whole(self) -> list[Series | Missing]:
        """One average of each metric from the first sample to the last, as a separate reading."""
        answers, last_ns = self._whole, self._last_ns
        over = f"NVML GPM, one average over the {(last_ns - self._first_ns) / 1e9:.1f} s before this reading"
        found: list[Series | Missing] = []
        for metric in METRICS:
            answer = answers.get(metric.name)
            name = f"{metric.name}_mean"
            if isinstance(answer, Unavailable):
                found.append(Missing(name=name, reason=answer))
            elif answer is not None:
                source = f"{over}: {metric.meaning}"
                found.append(Series(name=name, unit=metric.unit, source=source, time_ns=(last_ns,), values=(answer,)))
        return found

    def close(self) -> None:
        """Free the samples; a lost GPU has freed them already."""
        for sample in self._allocated:
            with suppress(self._device.nvml.NVMLError):
                call(self._device.nvml, "nvmlGpmSampleFree", sample)
        self._allocated.clear()

    def _take(self, sample: Any) -> None:
        device = self._device
        if device.instance is None:
            call(device.nvml, "nvmlGpmSampleGet", device.handle, sample)
        else:
            call(device.nvml, "nvmlGpmMigSampleGet", device.parent, device.instance, sample)
        self._last_ns = self._clock.now_ns()

    def _between(self, first: Any, last: Any) -> Answers:
        nvml = self._device.nvml
        ids = [number for metric in METRICS for number in metric.ids]
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics, asked.sample1, asked.sample2 = len(ids), first, last
        for place, number in enumerate(ids):
            asked.metrics[place].metricId = number
        call(nvml, "nvmlGpmMetricsGet", asked)
        metrics = {number: asked.metrics[place] for place, number in enumerate(ids)}
        return {metric.name: _answer(metric, [metrics[number] for number in metric.ids]) for metric in METRICS}


def _answer(metric: GpmMetric, metrics: list[Any]) -> float | Unavailable:
    """Each metric has its own status, even in a successful answer."""
    values = [each.value * metric.scale for each in metrics if each.nvmlReturn == 0 and math.isfinite(each.value)]
    if values:
        return float(max(values))
    status = next((each.nvmlReturn for each in metrics if each.nvmlReturn != 0), None)
    return Unavailable(code="gpm_no_number") if status is None else of_gpm(status)


def of_gpm(status: int) -> Unavailable:
    """The reason of an error of GPM, for one metric or for all."""
    return replace(reason_for(status), code="gpm")
