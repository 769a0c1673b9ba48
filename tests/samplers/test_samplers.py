from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers import sampling
from loaderprobe.samplers.host import DiskSampler, MachineSampler, WorkerSampler
from loaderprobe.samplers.recorded import SamplerThread
from loaderprobe.system.process import ProcessCounters
from loaderprobe.testing import FakeClock
from tests.said import all_said


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


class Scripted:
    """A sampler that runs what it is given."""

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
    assert all_said([item.reason for item in missing]) == ["Scripted stopped: ValueError: broken counter"]


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
