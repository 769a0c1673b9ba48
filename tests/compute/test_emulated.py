"""Accelerators on a timeline of their own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from loaderprobe.compute.emulated import EmulatedCompute, SynchronousCompute, parse_rate
from loaderprobe.errors import BadValue
from loaderprobe.records.config import ACCELERATORS
from loaderprobe.testing import FakeClock, example_arguments

BATCH = (SimpleNamespace(shape=(100, 3)), None)


def test_the_host_runs_two_steps_ahead() -> None:
    """Two steps are submitted at once; the third waits for the first to end."""
    clock = FakeClock()
    device = EmulatedCompute(example_arguments(clock, compute="emulated:100"))
    start = clock.now_ns()
    device.step(BATCH)
    device.step(BATCH)
    assert clock.now_ns() == start
    device.step(BATCH)
    assert clock.now_ns() - start == 10**9


def test_steps_end_back_to_back_when_the_input_is_fast() -> None:
    """The timeline is exact: every step takes batch over rate."""
    clock = FakeClock()
    device = EmulatedCompute(example_arguments(clock, compute="emulated:100"))
    start = clock.now_ns()
    for _ in range(4):
        device.step(BATCH)
    assert [time - start for time in device.finish()] == [10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9]
    assert device.finish() == ()


def test_a_late_batch_leaves_the_device_idle() -> None:
    """A step begins when its batch is there, not before."""
    clock = FakeClock()
    device = EmulatedCompute(example_arguments(clock, compute="emulated:100"))
    start = clock.now_ns()
    device.step(BATCH)
    clock.sleep(5)
    device.step(BATCH)
    assert [time - start for time in device.finish()] == [10**9, 6 * 10**9]


def test_the_synchronous_device_waits_for_each_step() -> None:
    """It measures what tools that sleep measure."""
    clock = FakeClock()
    device = SynchronousCompute(example_arguments(clock, compute="emulated:100"))
    start = clock.now_ns()
    device.step(BATCH)
    assert clock.now_ns() - start == 10**9
    assert device.info().synchronous


@pytest.mark.parametrize(
    ("name", "rate"),
    [("mlperf-a100", 400 / 0.435), ("mlperf-h100", 400 / 0.224), ("v100-amp", 1200), ("a100-amp", 2470),
     ("a100-tf32", 938), ("rtx3090-amp", 1218)],
)  # fmt: skip
def test_named_accelerators_have_their_published_rate_and_its_source(name: str, rate: float) -> None:
    """A rate without a source is not to be trusted with money."""
    assert parse_rate(name)[0] == pytest.approx(rate)
    assert len(ACCELERATORS[name].source) > 20
    info = EmulatedCompute(example_arguments(FakeClock(), compute=f"emulated:{name}")).info()
    assert info.specified_images_per_s == pytest.approx(rate)
    assert "emulated" in info.device


@pytest.mark.parametrize("bad", ["", "h100", "0", "-3", "nan", "inf", "1e12"])
def test_other_names_are_refused(bad: str) -> None:
    """The error lists what is known."""
    with pytest.raises(BadValue) as caught:
        parse_rate(bad)
    assert "mlperf-h100" in caught.value.hint
