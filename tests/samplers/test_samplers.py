"""Counters of disk and cores on a fake clock, and the thread that samples them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.samplers import sampling
from loaderprobe.samplers.host import CoresSampler, DiskSampler
from loaderprobe.samplers.recorded import SamplerThread
from loaderprobe.testing import FakeClock
from tests.said import all_said


def test_disk_readings_are_stamped() -> None:
    """Each has the time of the clock at which it was taken; without a device there is a reason, and no series."""
    clock, counts = FakeClock(), iter((100, 700))
    sampler = DiskSampler(clock, ("vda",), lambda _: next(counts))
    sampler.sample()
    clock.sleep(0.5)
    sampler.sample()
    (series,) = sampler.series()
    assert isinstance(series, Series)
    assert (series.name, series.unit, series.source) == ("disk_read", "bytes", "/proc/diskstats")
    assert series.values == (100, 700) and series.time_ns[1] - series.time_ns[0] == 500_000_000
    without = DiskSampler(FakeClock(), (), lambda _: None)
    without.sample()
    (missing,) = without.series()
    assert isinstance(missing, Missing) and missing.name == "disk_read" and missing.reason


def test_a_share_is_between_readings() -> None:
    """Of what this process takes of two cores; the first has nothing to compare with."""
    clock = FakeClock()
    own = CoresSampler(clock, cores=2)
    for work_s, sleep_s in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)):
        clock.work(work_s)
        clock.sleep(sleep_s)
        own.sample()
    (series,) = own.series()
    assert isinstance(series, Series) and (series.name, series.values) == ("own_cpu", (0.5, 0.0))


class Scripted:
    """A sampler that runs what it is given."""

    def __init__(self, sample: Callable[[], None]) -> None:
        self.sample = sample

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def series(self) -> Sequence[Series | Missing]:
        return ()


def test_a_sampler_that_raises_is_missing_and_the_others_go_on() -> None:
    """An exception in one sampler becomes a Missing with its text, and is not repeated."""

    def broken() -> None:
        raise ValueError("broken counter")

    readings: list[int] = []
    thread = SamplerThread([Scripted(broken), Scripted(lambda: readings.append(1))])
    thread.sample_all()
    thread.sample_all()
    series, missing = thread.collected()
    assert series == [] and len(readings) == 2
    assert all_said([item.reason for item in missing]) == ["Scripted stopped: ValueError: broken counter"]


def test_the_thread_samples_at_least_once_and_ends() -> None:
    """However short the measurement, there is a reading; every quantity of the product is read or has a reason."""
    readings: list[int] = []
    with SamplerThread([Scripted(lambda: readings.append(1))], period_s=3600):
        pass
    assert readings
    with sampling(FakeClock(), (), None) as thread:
        pass
    series, missing = thread.collected()
    names = {item.name for item in series} | {item.name for item in missing}
    assert {"disk_read", "gpu_utilization"} <= names
