"""The profiler window of a session, on a fake clock."""

from __future__ import annotations

import pytest

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.compute.step import NoCompute
from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.session import window_steps
from loaderprobe.protocols import Compute
from loaderprobe.records.measurement import Measurement, Missing
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import (
    FakeClock,
    FakePageCache,
    ProfiledCompute,
    Service,
    example_arguments,
    example_config,
    example_files,
)
from tests.measure.scripted import scripted_session
from tests.said import said

SERVICE = Service(cpu_s=0.002, blocked_s=0.002)
STEP_S = 0.004


def measured(
    compute: Compute, clock: FakeClock, *, count: int = 4096, budget_s: float | None = None, workers: int = 2,
    cache: FakePageCache | None = None,
) -> Measurement:  # fmt: skip
    """With the window, as the child does it."""
    files, cache = example_files(count), cache or FakePageCache()
    config = example_config(data=files.fingerprint, compute="cuda", workers=workers)
    session = scripted_session(SERVICE, clock, compute, config, files, cache, budget_s=budget_s)
    session.run()
    session.profile()
    return session.measurement((), ())


def reason(measurement: Measurement) -> str:
    """Why there is no timeline."""
    assert measurement.timeline is None
    return next(said(each.reason) for each in measurement.missing if each.name == "gpu_timeline")


def test_a_window_shows_the_pace_of_the_segments() -> None:
    """Two workers deliver a cold batch of 16 every 32 ms, so a step of 4 ms leaves the device idle for the rest."""
    clock = FakeClock()
    found = measured(ProfiledCompute(clock, STEP_S), clock)
    timeline = found.timeline
    assert timeline is not None
    assert timeline.steps == 20
    assert (timeline.end_ns - timeline.begin_ns) / 20 == pytest.approx(32e6, rel=0.1)
    assert timeline.plain_ns == pytest.approx(timeline.end_ns - timeline.begin_ns, rel=0.1)
    assert not any(each.name == "gpu_timeline" for each in found.missing)
    assert decode("measurement", encode("measurement", found), Measurement, "test") == found


def test_files_stay_cold_in_a_window_that_goes_round() -> None:
    """Of a set that the window reads more than once, what was read is cold again: the pace stays that of cold files."""
    clock = FakeClock()
    timeline = measured(ProfiledCompute(clock, STEP_S), clock, count=20 * 16).timeline
    assert timeline is not None
    assert (timeline.end_ns - timeline.begin_ns) / 20 == pytest.approx(32e6, rel=0.1)


def test_a_profiler_in_trouble_costs_nothing_but_the_window() -> None:
    """Its message is the reason."""
    clock = FakeClock()
    for trouble, words in [
        (RuntimeError("CUPTI_ERROR_NOT_INITIALIZED"), "RuntimeError: CUPTI_ERROR_NOT_INITIALIZED"),
        (LoaderprobeError("no records"), "no records"),
    ]:
        found = measured(ProfiledCompute(clock, STEP_S, trouble), clock)
        assert words in reason(found)
        assert found.segments


def test_other_devices_say_why_there_is_no_window() -> None:
    """An emulated one runs no kernels, and without a step nothing trains."""
    clock = FakeClock()
    emulated = EmulatedCompute(example_arguments(clock, compute="emulated:1000"))
    assert "runs no kernels" in reason(measured(emulated, clock))
    clock = FakeClock()
    assert "no step was given" in reason(measured(NoCompute(example_arguments(clock)), clock))


def test_a_window_must_fit_into_the_budget() -> None:
    """What is left of it; else the reason says how long the window would take."""
    clock = FakeClock()
    assert "there was no time left" in reason(measured(ProfiledCompute(clock, STEP_S), clock, budget_s=0.1))


def test_rounds_leave_time_for_the_window() -> None:
    """A budget for a few rounds keeps what the window will take."""
    clock = FakeClock()
    found = measured(ProfiledCompute(clock, STEP_S), clock, budget_s=60.0)
    assert found.timeline is not None
    assert found.wall_s <= 60.0


def test_a_window_sees_past_what_was_made_ahead() -> None:
    """Twice the batches ahead at least, 20 where there is time, fewer for slow loaders, none where that is too few."""
    assert window_steps(example_config(workers=0), 0.1, 0, 45.0) == 20
    assert window_steps(example_config(workers=16, prefetch_factor=2), 0.1, 48, 45.0) == 64
    assert window_steps(example_config(workers=0), 4.0, 0, 45.0) == 8
    refused = window_steps(example_config(workers=8), 1.0, 24, 45.0)
    assert isinstance(refused, Missing) and "would take" in said(refused.reason)


def test_segments_keep_when_the_device_came_to_each_step() -> None:
    """From the end of one step to the begin of the next it had nothing to do: the rest of 32 ms beside 4."""
    clock = FakeClock()
    found = measured(ProfiledCompute(clock, STEP_S), clock)
    (segment, *_) = [s for s in found.segments if s.activity == "training" and s.mode == "baseline"]
    idle = [b - e for e, b in zip(segment.finished_ns, segment.device_begin_ns[1:], strict=False)]
    assert len(segment.device_begin_ns) == segment.steps
    assert sum(idle) / len(idle) == pytest.approx(28e6, rel=0.1)
    assert all(s.device_begin_ns == () for s in found.segments if s.activity == "loader_only")
