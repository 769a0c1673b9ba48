from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers import sampling
from loaderprobe.samplers.background import SamplerThread
from loaderprobe.samplers.host import DiskSampler, MachineSampler, WorkerSampler
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.system.process import ProcessCounters
from loaderprobe.testing import FakeClock


def _counters(cpu_s: float | None, read_bytes: int | None) -> ProcessCounters:
    return ProcessCounters(cpu_s=cpu_s, run_delay_s=0.0, read_bytes=read_bytes, delivered_bytes=None)


def _by_name(found: Sequence[Series | Missing]) -> dict[str, Series | Missing]:
    return {item.name: item for item in found}


def test_disk_readings_are_stamped() -> None:
    """Each reading has the time of the clock at which it was taken."""
    clock, counts = FakeClock(), iter((100, 700))
    sampler = DiskSampler(clock, ("vda",), lambda devices: next(counts))
    sampler.sample()
    clock.sleep(0.5)
    sampler.sample()
    (series,) = sampler.series()
    assert isinstance(series, Series)
    assert (series.name, series.unit, series.source) == ("disk_read", "bytes", "/proc/diskstats")
    assert series.values == (100, 700) and series.time_ns[1] - series.time_ns[0] == 500_000_000


def test_no_device_is_missing_not_zero() -> None:
    """Without a device to read there is a reason, and no series."""
    sampler = DiskSampler(FakeClock(), (), lambda devices: None)
    sampler.sample()
    (missing,) = sampler.series()
    assert isinstance(missing, Missing) and missing.name == "disk_read" and missing.reason


def test_workers_add_up_and_keep_what_the_dead_used() -> None:
    """The sum over workers does not fall when one of them has gone."""
    alive: dict[int, ProcessCounters] = {1: _counters(1.0, 10), 2: _counters(2.0, 20)}
    sampler = WorkerSampler(FakeClock(), lambda: (1, 2), alive.get)
    sampler.sample()
    alive[1] = _counters(1.5, 15)
    del alive[2]
    sampler.sample()
    found = _by_name(sampler.series())
    cpu, read = found["worker_cpu"], found["worker_read"]
    assert isinstance(cpu, Series) and cpu.values == (3.0, 3.5)
    assert isinstance(read, Series) and read.values == (30, 35)


def test_workers_may_come_later() -> None:
    """Workers that start after the sampler are read from then on, and nothing stays missing."""
    pids: list[int] = []
    sampler = WorkerSampler(FakeClock(), lambda: pids, lambda pid: _counters(1.0, 10))
    sampler.sample()
    assert all(isinstance(item, Missing) for item in sampler.series())
    pids.append(5)
    sampler.sample()
    assert all(isinstance(item, Series) for item in sampler.series())


def test_hidden_bytes_are_missing() -> None:
    """A worker whose bytes may not be read leaves a reason; its CPU time is still given."""
    sampler = WorkerSampler(FakeClock(), lambda: (1, 2), {1: _counters(1.0, None), 2: _counters(1.0, 5)}.get)
    sampler.sample()
    found = _by_name(sampler.series())
    assert isinstance(found["worker_cpu"], Series) and isinstance(found["worker_read"], Missing)


def test_machine_share_is_between_readings() -> None:
    """The first reading has nothing to compare with and is not kept; the others are shares."""
    shares = iter((0.0, 50.0, 100.0))
    sampler = MachineSampler(FakeClock(), lambda: next(shares))
    for _ in range(3):
        sampler.sample()
    (series,) = sampler.series()
    assert isinstance(series, Series) and series.name == "machine_cpu" and series.values == (0.5, 1.0)


class NvmlError(Exception):
    """As the real one, it cannot be hashed and does not compare with numbers."""

    __hash__ = None  # type: ignore[assignment]  # the trap of the real class, reproduced

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other.value)  # type: ignore[attr-defined]  # the trap again


class FakeNvml:
    """The few calls of pynvml that the sampler makes; `failing` maps a call to an error number."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1

    def __init__(self, **failing: int) -> None:
        self._failing = failing
        self.open = 0

    def _answer(self, call: str, value: Any) -> Any:
        if call in self._failing:
            raise NvmlError(self._failing[call])
        return value

    def nvmlInit(self) -> None:
        self._answer("init", None)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return str(self._answer("handle", uuid))

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._answer("utilization", type("Rates", (), {"gpu": 40}))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return int(self._answer("power", 350_000))

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return int(self._answer("clock", 1980))


def _nvml(nvml: FakeNvml, uuid: str | None = "GPU-1") -> dict[str, Series | Missing]:
    with NvmlSampler(FakeClock(), uuid, nvml) as sampler:
        sampler.sample()
    return _by_name(sampler.series())


def test_nvml_units() -> None:
    """Utilization is a share, power in watts, the clock in MHz, and NVML is closed again."""
    nvml = FakeNvml()
    found = _nvml(nvml)
    values = {name: item.values for name, item in found.items() if isinstance(item, Series)}
    assert values == {"gpu_utilization": (0.4,), "gpu_power": (350.0,), "gpu_sm_clock": (1980.0,)}
    utilization = found["gpu_utilization"]
    assert isinstance(utilization, Series) and "any kernel" in utilization.source
    assert nvml.open == 0


def test_every_nvml_error_is_a_reason() -> None:
    """Whatever NVML says no with, known or not, becomes a Missing with a reason, never 0."""
    for value in (1, 2, 3, 4, 6, 9, 12, 13, 15, 18, 19, 21, 25, 999, 1234):
        missing = _nvml(FakeNvml(init=value))["gpu_utilization"]
        assert isinstance(missing, Missing) and missing.reason


def test_one_figure_may_be_missing() -> None:
    """A GPU that does not give one figure still gives the others."""
    found = _nvml(FakeNvml(utilization=3))
    assert isinstance(found["gpu_utilization"], Missing)
    assert isinstance(found["gpu_power"], Series)


def test_no_gpu_in_use_is_a_reason() -> None:
    """A configuration that trains elsewhere does not ask NVML at all."""
    assert isinstance(_nvml(FakeNvml(init=12), uuid=None)["gpu_utilization"], Missing)


class Scripted:
    """A sampler that runs what it is told."""

    def __init__(self, sample: Callable[[], None]) -> None:
        self._sample = sample

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def sample(self) -> None:
        self._sample()

    def series(self) -> Sequence[Series | Missing]:
        return ()


def _raise() -> None:
    raise ValueError("broken counter")


def test_a_sampler_that_raises_is_missing_and_the_others_go_on() -> None:
    """An exception in one sampler becomes a Missing with its text, and is not repeated."""
    readings: list[int] = []
    thread = SamplerThread([Scripted(_raise), Scripted(lambda: readings.append(1))])
    thread.sample_all()
    thread.sample_all()
    series, missing = thread.collected()
    assert series == [] and len(readings) == 2
    assert [item.reason for item in missing] == ["Scripted stopped: ValueError: broken counter"]


def test_the_thread_samples_at_least_once_and_ends() -> None:
    """However short the measurement, there is a reading; leaving ends the thread."""
    readings: list[int] = []
    with SamplerThread([Scripted(lambda: readings.append(1))], period_s=3600) as thread:
        pass
    assert readings and thread.cpu_s >= 0.0


def test_all_samplers_of_the_product() -> None:
    """Every quantity of the product is either read or has a reason."""
    thread = sampling(FakeClock(), (), lambda: (), None)
    with thread:
        pass
    series, missing = thread.collected()
    names = {item.name for item in series} | {item.name for item in missing}
    assert {"disk_read", "worker_cpu", "worker_read", "gpu_utilization"} <= names
