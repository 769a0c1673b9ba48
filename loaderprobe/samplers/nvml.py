"""NVML: utilization, power, energy, clocks and other processes of the GPU. An error gives a reason, never 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

from loaderprobe.protocols import Clock
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.remark import Remark
from loaderprobe.samplers.recorded import RecordedSampler

# NVML's errors by value, because its exceptions cannot be hashed or compared reliably.

NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
# After these nothing more comes from this GPU, and asking a lost one may block.
FATAL = frozenset({1, 9, 12, 15, 16, 18})
# These answers do not change while a process runs.
FINAL = frozenset({2, NOT_SUPPORTED, 4, FUNCTION_NOT_FOUND, 25})


def reason_for(status: int) -> Remark:
    """The reason of an error, or of the status of a single figure within a successful answer."""
    return Remark(code="nvml", facts={"status": status})


ERROR_NOT_FOUND = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlDevice:
    """Handles of a GPU. A call without an answer raises `nvml.NVMLError` and no other error."""

    nvml: Any
    """The pynvml module."""
    handle: Any
    """The device that trains: a whole GPU or a MIG instance."""
    parent: Any
    """The whole GPU."""
    instance: int | None
    """Number of the GPU instance; None for a whole GPU."""

    def ask(self, *names: str) -> Any:
        """The result of the first of these functions that both pynvml and the driver have."""
        for name in names[:-1]:
            try:
                return call(self.nvml, name, self.handle)
            except self.nvml.NVMLError as error:
                if error.value != FUNCTION_NOT_FOUND:
                    raise
        return call(self.nvml, names[-1], self.handle)

    def explain(self, error: Any) -> Remark:
        """The reason of an error; names MIG where MIG is the reason."""
        if error.value != NOT_SUPPORTED:
            return reason_for(error.value)
        if self.instance is not None:
            return Remark(code="mig_instance")
        with suppress(self.nvml.NVMLError):  # a GPU without MIG answers with an error as well
            if call(self.nvml, "nvmlDeviceGetMigMode", self.handle)[0]:
                return Remark(code="mig_split")
        return reason_for(error.value)


def call(nvml: Any, name: str, *arguments: Any) -> Any:
    """`nvml.name(*arguments)`. A pynvml without that function raises the same error as a driver without it."""
    function = getattr(nvml, name, None)
    if function is None:
        raise nvml.NVMLError(FUNCTION_NOT_FOUND)
    return function(*arguments)


def open_device(nvml: Any, uuid: str) -> NvmlDevice:
    """The GPU or MIG instance with this UUID, because CUDA's numbering is not NVML's. NVML must be initialised.

    Raises nvml.NVMLError when NVML does not know it.
    """
    handle = _handle(nvml, uuid)
    try:
        # pynvml returns a C integer here, which is true even when it is 0.
        answer = call(nvml, "nvmlDeviceIsMigDeviceHandle", handle)
        is_instance = bool(getattr(answer, "value", answer))
    except nvml.NVMLError as error:
        if error.value not in (FUNCTION_NOT_FOUND, NOT_SUPPORTED):
            raise
        is_instance = False
    if not is_instance:
        return NvmlDevice(nvml=nvml, handle=handle, parent=handle, instance=None)
    return NvmlDevice(
        nvml=nvml,
        handle=handle,
        parent=call(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle),
        instance=int(call(nvml, "nvmlDeviceGetGpuInstanceId", handle)),
    )


def _handle(nvml: Any, uuid: str) -> Any:
    """Both prefixes are tried, because torch does not mark the UUID of a MIG instance."""
    try:
        return call(nvml, "nvmlDeviceGetHandleByUUID", uuid)
    except nvml.NVMLError as error:
        if error.value != ERROR_NOT_FOUND or not uuid.startswith("GPU-"):
            raise
        return call(nvml, "nvmlDeviceGetHandleByUUID", uuid.replace("GPU-", "MIG-", 1))


# GPM: how many SMs are busy and how many warps they hold, on Hopper and newer GPUs. It does not use CUPTI, so it reads
# the same while a profiler runs (tried on an H100).

# nvml.h: samples should be more than 100 ms apart, for the driver refreshes them no faster.
LEAST_GAP_NS = 110_000_000
UNSUPPORTED = Remark(code="no_gpm")


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

Answers = Mapping[str, float | Remark]
"""Metric name to its value, or to the reason why it has none."""


class GpmReader:
    """Averages between samples of one GPU. NVML's samples are not thread-safe: one thread makes and reads them.

    Another thread may call `close` once that thread has ended. Methods raise nvml.NVMLError.
    """

    def __init__(self, clock: Clock, device: NvmlDevice) -> None:
        self._clock = clock
        self.device = device
        self._samples: list[Any] = []
        """The last, and one to take the next in."""
        self._last_ns = 0

    def _start(self) -> Answers | Remark:
        nvml = self.device.nvml
        try:
            supported = call(nvml, "nvmlGpmQueryDeviceSupport", self.device.parent).isSupportedDevice
        except nvml.NVMLError as error:
            if error.value != NOT_SUPPORTED:
                raise
            supported = 0
        if not supported:
            return UNSUPPORTED
        try:
            for _ in range(2):
                self._samples.append(call(nvml, "nvmlGpmSampleAlloc"))
            self._take(self._samples[0])
        except nvml.NVMLError:
            self.close()
            raise
        return {}

    def read(self) -> Answers | Remark:
        """Averages since the previous reading; none at first, and when that is too recent for the driver.

        The reason for a GPU without GPM.
        """
        if not self._samples:
            return self._start()
        if self._clock.now_ns() - self._last_ns < LEAST_GAP_NS:
            return {}
        before, now = self._samples
        self._take(now)
        self._samples.reverse()
        return self._between(before, now)

    def close(self) -> None:
        """Free the samples; a lost GPU has freed them already."""
        for sample in self._samples:
            with suppress(self.device.nvml.NVMLError):
                call(self.device.nvml, "nvmlGpmSampleFree", sample)
        self._samples.clear()

    def _take(self, sample: Any) -> None:
        device = self.device
        if device.instance is None:
            call(device.nvml, "nvmlGpmSampleGet", device.handle, sample)
        else:
            call(device.nvml, "nvmlGpmMigSampleGet", device.parent, device.instance, sample)
        self._last_ns = self._clock.now_ns()

    def _between(self, first: Any, last: Any) -> Answers:
        nvml = self.device.nvml
        ids = [number for metric in METRICS for number in metric.ids]
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics, request.sample1, request.sample2 = len(ids), first, last
        for index, number in enumerate(ids):
            request.metrics[index].metricId = number
        call(nvml, "nvmlGpmMetricsGet", request)
        metrics = {number: request.metrics[index] for index, number in enumerate(ids)}
        return {metric.name: _answer(metric, [metrics[number] for number in metric.ids]) for metric in METRICS}


def _answer(metric: GpmMetric, replies: list[Any]) -> float | Remark:
    """Each metric has its own status, even in a successful answer."""
    values = [reply.value * metric.scale for reply in replies if reply.nvmlReturn == 0 and math.isfinite(reply.value)]
    if values:
        return float(max(values))
    status = next((reply.nvmlReturn for reply in replies if reply.nvmlReturn != 0), None)
    return Remark(code="gpm_no_number") if status is None else Remark(code="gpm", facts={"status": status})


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlFigure:
    """One figure from one NVML call."""

    name: str
    unit: str
    source: str
    read: Callable[[NvmlDevice], float | Remark]
    """The value, or the reason why there is none. Raises nvml.NVMLError."""


def _clock_mhz(device: NvmlDevice, which: str) -> float:
    nvml = device.nvml
    return float(call(nvml, "nvmlDeviceGetClockInfo", device.handle, getattr(nvml, which)))


def _other_processes(device: NvmlDevice) -> float | Remark:
    """Number of processes on this GPU without this one, which trains there.

    It is not matched by its id, because in a container NVML often lists the host's ids.
    """
    listed = device.ask("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    pids = {process.pid for process in listed}
    if not pids:
        return Remark(code="no_process_listed")
    return float(len(pids) - 1)


FIGURES = (
    NvmlFigure(
        name="gpu_utilization", unit="", source="NVML utilization: share of time with any kernel at all",
        read=lambda device: device.ask("nvmlDeviceGetUtilizationRates").gpu / 100,
    ),
    NvmlFigure(
        name="gpu_power", unit="W", source="NVML power usage; since Ampere an average over 1 s",
        read=lambda device: device.ask("nvmlDeviceGetPowerUsage") / 1000,
    ),
    NvmlFigure(
        name="gpu_energy", unit="J", source="NVML total energy consumption since the driver was loaded",
        read=lambda device: device.ask("nvmlDeviceGetTotalEnergyConsumption") / 1000,
    ),
    NvmlFigure(
        name="gpu_sm_clock", unit="MHz", source="NVML clock of the SMs",
        read=lambda device: _clock_mhz(device, "NVML_CLOCK_SM"),
    ),
    NvmlFigure(
        name="gpu_memory_clock", unit="MHz", source="NVML clock of the memory",
        read=lambda device: _clock_mhz(device, "NVML_CLOCK_MEM"),
    ),
    NvmlFigure(
        name="gpu_throttle", unit="bits", source="NVML clocks event reasons: 0 none, 1 idle, others lower the clocks",
        read=lambda device: float(
            device.ask("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        ),
    ),
    NvmlFigure(
        name="gpu_other_processes", unit="", source="NVML compute processes on this GPU without this one, at least",
        read=_other_processes,
    ),
)  # fmt: skip


class NvmlSampler(RecordedSampler):
    """Readings of the GPU that trains, found by UUID.

    Only one thread may call `sample`. NVML's errors are not raised: a missing figure has a reason.
    """

    def __init__(self, clock: Clock, uuid: str | None) -> None:
        super().__init__(clock)
        self._nvml: Any = None
        self._uuid = uuid
        self._gpm: GpmReader | None = None
        """None without a GPU."""
        self._final: set[str] = set()
        """Names of figures that are asked for no more."""
        self._begun_ns = 0

    def __enter__(self) -> Self:
        self._begun_ns = self._clock.now_ns()
        reason = self._open()
        if reason is not None:
            self._miss((*FIGURES, *METRICS), reason)
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpm is not None:
            self._gpm.close()
            self._shut_down()

    def sample(self) -> None:
        """Read the figures that this GPU offers; the others keep their reason."""
        gpm = self._gpm
        if gpm is None:
            return
        for figure in FIGURES:
            if figure.name not in self._final:
                with self._asking((figure,), gpm.device.explain):
                    self._keep(figure, figure.read(gpm.device))
        if METRICS[0].name not in self._final:
            with self._asking(METRICS, lambda error: Remark(code="gpm", facts={"status": error.value})):
                answers = gpm.read()
                if isinstance(answers, Remark):
                    self._final.update(metric.name for metric in METRICS)
                    self._miss(METRICS, answers)
                else:
                    for metric in METRICS:
                        self._keep(metric, answers.get(metric.name))

    def series(self) -> Sequence[Series | Missing]:
        """All readings, and the reasons for figures that were never read or that stopped early."""
        figures = list(super().series())
        ends = {series.name: series.time_ns[-1] for series in figures if isinstance(series, Series)}
        for name, reason in dict(self._missing).items():
            if name in ends:
                facts = reason.facts | {"ended_after_s": (ends[name] - self._begun_ns) / 1e9}
                figures.append(Missing(name=name, reason=replace(reason, facts=facts)))
        return figures

    def _open(self) -> Remark | None:
        """The reason why there is no GPU to read; None when there is one."""
        if self._uuid is None:
            return Remark(code="no_gpu_trains")
        try:
            self._nvml = import_module("pynvml")
        except ImportError as error:
            return Remark(code="pynvml_missing", facts={"error": str(error)})
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            return reason_for(error.value)
        try:
            self._gpm = GpmReader(self._clock, open_device(self._nvml, self._uuid))
        except self._nvml.NVMLError as error:
            self._shut_down()
            return reason_for(error.value)
        return None

    def _shut_down(self) -> None:
        # A GPU lost meanwhile must not cost the measurement: all its readings are kept already.
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    @contextmanager
    def _asking(self, figures: Sequence[NvmlFigure | GpmMetric], explain: Callable[[Any], Remark]) -> Iterator[None]:
        """An error is the reason of these figures, and of all where the GPU is lost."""
        try:
            yield
        except self._nvml.NVMLError as error:
            every = (*FIGURES, *METRICS) if error.value in FATAL else figures
            if error.value in FATAL | FINAL:
                # Why it is asked no more outlives what was wrong before.
                for figure in every:
                    self._final.add(figure.name)
                    self._missing.pop(figure.name, None)
            self._miss(every, explain(error))

    def _keep(self, figure: NvmlFigure | GpmMetric, answer: float | Remark | None) -> None:
        if isinstance(answer, Remark):
            self.miss(figure.name, answer)
        elif answer is not None:
            self.record(figure.name, figure.unit, figure.source, answer)

    def _miss(self, figures: Sequence[NvmlFigure | GpmMetric], reason: Remark) -> None:
        for figure in figures:
            self.miss(figure.name, reason)
