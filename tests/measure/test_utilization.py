"""How busy the training device is, and what is said where that cannot be read."""

from __future__ import annotations

import pytest

from loaderprobe.errors import MissingPart
from loaderprobe.measure.batch_size import Meter, WithReadings
from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.measurement import Missing
from loaderprobe.render.words import remark_words
from loaderprobe.samplers.host import CoresSampler
from loaderprobe.testing import FakeClock, ScriptedProber


def test_the_share_of_the_cores_is_that_between_readings() -> None:
    """CPU time over wall time and cores; nothing for the first reading."""
    clock = FakeClock()
    sampler = CoresSampler(clock, cores=2)
    sampler.sample()
    assert not sampler.series()
    clock.work(1.0)
    sampler.sample()
    clock.sleep(1.0)
    sampler.sample()
    (series,) = sampler.series()
    assert not isinstance(series, Missing) and series.values == (0.5, 0.0)


def test_a_meter_reads_however_short_it_is() -> None:
    """Of the CPU; of a GPU that is not there, it gives the reason."""
    meter = Meter(SystemClock(), None, period_s=1.0)
    with meter:
        sum(range(100_000))
    readings = meter.readings()
    assert not isinstance(readings, Missing) and all(0 <= each <= 1 for each in readings)
    with Meter(SystemClock(), "GPU-none", period_s=1.0) as of_gpu:
        pass
    found = of_gpu.readings()
    assert isinstance(found, Missing) and found.reason


def test_a_strategy_that_needs_utilization_says_that_it_is_not_there() -> None:
    """Instead of growing the batch for ever."""
    assert (
        WithReadings(ScriptedProber(rate=float, utilization=lambda size: 0.5), remark_words).probe(8).utilization == 0.5
    )
    with pytest.raises(MissingPart, match="needs the utilization of the device: the device is scripted"):
        WithReadings(ScriptedProber(rate=float), remark_words).probe(8)
    assert not WithReadings(ScriptedProber(rate=float, fits_up_to=4), remark_words).probe(8).fits
