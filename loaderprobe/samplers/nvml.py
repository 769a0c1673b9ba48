"""NVML: utilization, power, energy, clocks and other processes of the GPU. An error gives a reason, never 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from loaderprobe.protocols import Clock
from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.samplers.gpm import METRICS, GpmReader, of_gpm
from loaderprobe.samplers.nvml_device import NvmlDevice, call, open_device
from loaderprobe.samplers.nvml_errors import FATAL, FINAL, reason_for
from loaderprobe.samplers.recorded import RecordedSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlFigure:
    """One figure from one NVML call."""

    name: str
    unit: str
    source: str
    read: Callable[[NvmlDevice], float | Unavailable]
    """The value, or the reason why there is none. Raises nvml.NVMLError."""


def _clock_mhz(device: NvmlDevice, which: str) -> float:
    nvml = device.nvml
    return float(call(nvml, "nvmlDeviceGetClockInfo", device.handle, getattr(nvml, which)))


def _other_processes(device: NvmlDevice) -> float | Unavailable:
    """Number of processes on this GPU without this one, which trains there.

    It is not matched by its id, because in a container NVML often lists the host's ids.
    """
    listed = device.ask("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    pids = {process.pid for process in listed}
    if not pids:
        return Unavailable(code="no_process_listed")
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
    """Readings of the GPU that trains, found by UUID. `nvml` is the pynvml module or a fake.

    Only one thread may call `sample`. NVML's errors are not raised: a missing figure has a reason.
    """

    def __init__(self, clock: Clock, uuid: str | None, nvml: Any = None) -> None:
        super().__init__(clock)
        self._nvml = nvml
        self._uuid = uuid
        self._device: NvmlDevice | None = None
        self._gpm: GpmReader | None = None
        self._figures = list(FIGURES)
        self._with_gpm = True
        self._lost: Unavailable | None = None
        self._stopped: dict[str, Unavailable] = {}
        self._begun_ns = 0

    def __enter__(self) -> Self:
        self._begun_ns = self._clock.now_ns()
        reason = self._open()
        if reason is not None:
            self._miss_all(reason)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device is not None:
            if self._gpm is not None:
                self._gpm.close()
            self._shut_down()

    def sample(self) -> None:
        """Read the figures that this GPU offers; the others keep their reason."""
        device = self._device
        if device is None:
            return
        for figure in list(self._figures):
            if self._lost is None:
                self._read(device, figure)
        if self._with_gpm and self._lost is None:
            self._read_gpm(device)

    def series(self) -> Sequence[Series | Missing]:
        """All readings, and the reasons for figures that were never read or that stopped early."""
        found = list(super().series())
        ends = {series.name: series.time_ns[-1] for series in found if isinstance(series, Series)}
        for name, reason in dict(self._stopped).items():
            if name in ends:
                facts = reason.facts | {"ended_after_s": (ends[name] - self._begun_ns) / 1e9}
                found.append(Missing(name=name, reason=replace(reason, facts=facts)))
        return [*found, *(self._gpm.whole() if self._gpm is not None else ())]

    def _open(self) -> Unavailable | None:
        """The reason why there is no GPU to read; None when there is one."""
        if self._uuid is None:
            return Unavailable(code="no_gpu_trains")
        try:
            self._nvml = self._nvml or import_module("pynvml")
        except ImportError as error:
            return Unavailable(code="pynvml_missing", facts={"error": str(error)})
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            return reason_for(error.value)
        try:
            self._device = open_device(self._nvml, self._uuid)
        except self._nvml.NVMLError as error:
            self._shut_down()
            return reason_for(error.value)
        return None

    def _shut_down(self) -> None:
        # A GPU lost meanwhile must not cost the measurement: all its readings are kept already.
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read(self, device: NvmlDevice, figure: NvmlFigure) -> None:
        try:
            value = figure.read(device)
        except self._nvml.NVMLError as error:
            if error.value in FINAL:
                self._figures.remove(figure)
            self._fail((figure.name,), error, device.explain(error))
            return
        if isinstance(value, Unavailable):
            self._stop((figure.name,), value)
        else:
            self._stopped.pop(figure.name, None)
            self.record(figure.name, figure.unit, figure.source, value)

    def _read_gpm(self, device: NvmlDevice) -> None:
        names = tuple(metric.name for metric in METRICS)
        try:
            if self._gpm is None:
                self._start_gpm(device, names)
                return
            answers = self._gpm.read()
        except self._nvml.NVMLError as error:
            self._with_gpm = error.value not in FINAL
            self._fail(names, error, of_gpm(error.value))
            return
        for metric in METRICS:
            answer = answers.get(metric.name) if answers is not None else None
            if isinstance(answer, Unavailable):
                self._stop((metric.name,), answer)
            elif answer is not None:
                self._stopped.pop(metric.name, None)
                self.record(metric.name, metric.unit, metric.source, answer)

    def _start_gpm(self, device: NvmlDevice, names: tuple[str, ...]) -> None:
        reader = GpmReader(self._clock, device)
        try:
            reason = reader.start()
        except self._nvml.NVMLError:
            reader.close()
            raise
        if reason is None:
            self._gpm = reader
        else:
            self._with_gpm = False
            self._stop(names, reason)

    def _fail(self, names: tuple[str, ...], error: Any, reason: Unavailable) -> None:
        self._stop(names, reason)
        if error.value in FATAL:
            self._lost = reason
            self._miss_all(reason)

    def _stop(self, names: tuple[str, ...], reason: Unavailable) -> None:
        for name in names:
            self.miss(name, reason)
            self._stopped[name] = reason

    def _miss_all(self, reason: Unavailable) -> None:
        for figure in (*FIGURES, *METRICS):
            self.miss(figure.name, reason)
            self._stopped.setdefault(figure.name, reason)
