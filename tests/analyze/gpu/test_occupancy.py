"""How full kernels make a device: against sums worked out by hand, and against every single nanosecond."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import use_of
from tests.examples import timelines
from tests.examples.timelines import TimelineScript

kernel = st.tuples(
    st.integers(-10, 60), st.integers(0, 30), st.sampled_from((0.125, 0.5, 2.0)), st.booleans(), st.booleans()
)


def test_idle_time_counts_for_efficiency_and_not_for_occupancy() -> None:
    """Half a window with kernels that fill half of the SMs at an occupancy of 0.25."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 50, blocks_per_sm=0.5, occupancy=0.25)
    found = use_of(script.build(100))
    assert (found.training_busy, found.sm_efficiency_estimated, found.occupancy_estimated) == (0.5, 0.25, 0.25)
    assert found.occupancy_coverage == 1.0


def test_occupancy_is_weighted_by_time() -> None:
    """A long kernel counts for more than a short one."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 90, occupancy=0.2)
    script.kernel(90, 100, occupancy=1.0)
    assert use_of(script.build(100)).occupancy_estimated == pytest.approx(0.28)


def test_an_unknown_occupancy_is_left_out_and_said() -> None:
    """The mean is over what is known; the coverage says how much that is. None is not 0."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 60, occupancy=0.5)
    script.kernel(60, 100, occupancy=None)
    found = use_of(script.build(100))
    assert (found.occupancy_estimated, found.occupancy_coverage) == (0.5, 0.6)


def test_with_nothing_known_there_is_no_figure() -> None:
    """Neither estimate is 0 when no kernel has its grid; how busy the device was is still known."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 80, occupancy=None, blocks_per_sm=None)
    found = use_of(script.build(100))
    assert found.sm_efficiency_estimated is None
    assert found.occupancy_estimated is None
    assert found.kernel_busy == 0.8


def test_kernels_of_the_loader_count_apart() -> None:
    """Busy is reported twice: with training alone, and with any kernel; copies are neither."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 20)
    script.kernel(10, 50, loader=True, stream=13)
    script.copy(60, 90)
    found = use_of(script.build(100))
    assert (found.training_busy, found.kernel_busy) == (0.2, 0.5)


def test_communication_is_no_training() -> None:
    """A GPU that waits for others in NCCL has a kernel, and does not train."""
    script = TimelineScript(unit_ns=1)
    script.kernel(0, 20)
    script.kernel(10, 80, exchange=True, stream=20)
    found = use_of(script.build(100))
    assert (found.training_busy, found.kernel_busy) == (0.2, 0.8)


@given(st.lists(kernel, max_size=8))
def test_efficiency_is_the_mean_over_every_nanosecond(kernels: list[tuple[int, int, float, bool, bool]]) -> None:
    """Streams that overlap add up to at most all SMs."""
    script = TimelineScript(unit_ns=1)
    for begin, length, blocks, loader, second in kernels:
        script.kernel(begin, begin + length, blocks_per_sm=blocks, loader=loader, stream=13 if second else 7)
    timeline = script.build(50)
    filled = sum(min(1.0, sum(k[2] for k in kernels if k[0] <= at < k[0] + k[1])) for at in range(50)) / 50
    found = use_of(timeline)
    if any(k[0] < 50 and k[0] + k[1] > 0 and k[1] for k in kernels):
        assert found.sm_efficiency_estimated == pytest.approx(filled)
    else:
        assert found.sm_efficiency_estimated is None
    columns = {name: tuple(reversed(getattr(timeline.records, name))) for name in timeline.records.__slots__}
    backwards = use_of(replace(timeline, records=replace(timeline.records, **columns)))
    assert backwards.sm_efficiency_estimated == pytest.approx(found.sm_efficiency_estimated)


def test_tiny_kernels_fill_little() -> None:
    """A launch-bound window: busy a quarter of the time, with a quarter of the SMs."""
    found = use_of(timelines.launch_bound())
    assert found.training_busy == pytest.approx(0.25, abs=0.01)
    assert found.sm_efficiency_estimated == pytest.approx(0.0625, abs=0.003)
    assert found.occupancy_estimated == pytest.approx(0.05)
