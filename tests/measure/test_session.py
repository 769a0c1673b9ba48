"""One configuration, measured on a fake clock where every rate is known exactly; its pace and its profiler window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.compute.step import NoCompute
from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.assembly import make_compute
from loaderprobe.measure.pace import LONGEST, MAX_SECONDS, MIN_SECONDS, Pace, pace_for
from loaderprobe.measure.profiler_window import window_steps
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
from tests.measure.conftest import Measure
from tests.measure.scripted import scripted_session
from tests.said import all_said, said


def test_storage_is_named_with_its_exact_speedup(measure_fake: Measure) -> None:
    """2 workers, 2 ms CPU and 6 ms storage an image: 250 images/s cold, 1000 warm, so the speed-up is 4.

    The wait for the first batch is reported, and is in no segment.
    """
    found = measure_fake(Service(cpu_s=0.002, blocked_s=0.006), compute="emulated:100000")
    judged = verdict(found)
    assert (judged.bound.side, judged.bound.cause) == ("input", "storage")
    assert judged.images_per_s.value == pytest.approx(250, rel=0.02)
    assert judged.speedups.storage is not None
    assert judged.speedups.storage.value == pytest.approx(4, rel=0.03)
    assert judged.speedups.storage.how == "measured"
    assert judged.cold_fraction == pytest.approx(1)
    assert found.first_batch_s > 0
    assert all(segment.first_batch != 0 for segment in found.segments)


@dataclass(frozen=True)
class Shards:
    """Files of many samples each, which is all that a session needs to know."""

    shards: int = 64
    samples: int = 64
    sample_bytes: int = 100_000

    @property
    def count(self) -> int:
        """Samples in all shards."""
        return self.shards * self.samples

    def absolute(self, first: int, count: int) -> list[Path]:
        """Each shard once."""
        numbers = (k // self.samples % self.shards for k in range(first, first + count))
        return [Path(f"/nowhere/{number}.tar") for number in dict.fromkeys(numbers)]

    def delivered_bytes(self, first: int, count: int) -> int:
        """All samples are of one size."""
        return count * self.sample_bytes


def test_a_file_may_hold_many_samples() -> None:
    """A session asks any `Files` which of them a batch reads: each is evicted, warmed and counted."""
    clock, cache, files = FakeClock(), FakePageCache(), Shards()
    config = example_config(compute="emulated:100000")
    service = Service(cpu_s=0.002, blocked_s=0.4)
    session = scripted_session(service, clock, make_compute(config, clock), config, files, cache, thorough=True)
    session.run()
    segments = session.measurement((), ()).segments
    resident = {segment.mode: segment.resident_before for segment in segments}
    assert (resident["baseline"], resident["warm"]) == (0.0, 1.0)
    assert all(
        segment.delivered_bytes == segment.steps * segment.batch_size * files.sample_bytes for segment in segments
    )


def test_the_wait_for_the_first_batch_after_a_flush_is_not_timed(measure_fake: Measure) -> None:
    """Two workers of 200 ms a batch keep up with steps of 150 ms, but after a flush none of theirs is ready."""
    service = Service(cpu_s=0.0001, blocked_s=0.0249)
    judged = verdict(measure_fake(service, workers=2, batch_size=8, compute="emulated-sync:53.333"))
    assert judged.images_per_s.value == pytest.approx(53.333, rel=0.001)
    assert judged.bound.cause == "compute"


def test_compute_binding_needs_no_cold_proof(measure_fake: Measure) -> None:
    """Where even a free input gains nothing, a missing experiment cannot matter."""
    cache, service = FakePageCache(stubborn=True), Service(cpu_s=0.001, blocked_s=0.001)
    judged = verdict(measure_fake(service, page_cache=cache, files=example_files(2048), compute="emulated:50"))
    assert judged.bound.cause == "compute"


def test_every_file_is_read_once_in_a_cold_segment(measure_fake: Measure) -> None:
    """The segment ends before the set begins again, so all its bytes come from storage. Twelve files cannot be read
    so: they are measured all the same, with a note."""
    service = Service(cpu_s=0.0001, blocked_s=0.0001)
    found = measure_fake(service, files=example_files(512), compute="emulated:1e6")
    assert all(segment.steps * segment.batch_size < 512 for segment in found.segments if segment.mode == "baseline")
    assert verdict(found).cold_fraction == pytest.approx(1)
    few = measure_fake(
        Service(cpu_s=0.002, blocked_s=0.001), files=example_files(12), batch_size=4, compute="emulated:50"
    )
    assert any("too few" in note for note in all_said(few.notes))
    assert verdict(few).bound.cause == "compute"


def test_rounds_hold_every_mode(measure_fake: Measure) -> None:
    """Each round has each planned segment once, in an order that differs between rounds."""
    measurement = measure_fake(Service(cpu_s=0.002), rounds=5)
    orders = [[(s.mode, s.activity) for s in measurement.segments if s.round == number] for number in range(5)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) > 1


@pytest.mark.parametrize(("budget_s", "segments"), [(9.0, 8), (11.0, 10)])
def test_an_ablation_is_not_thought_as_slow_as_cold_reads(
    measure_fake: Measure, budget_s: float, segments: int
) -> None:
    """Cold segments take 1.6 s here, warm ones 0.7 s: a round begins when there is time for its own segments."""
    clock, files = FakeClock(), example_files()
    config = example_config(data=files.fingerprint, compute="emulated:100000", batch_size=8)
    service, compute = Service(cpu_s=0.001, blocked_s=0.05), make_compute(config, clock)
    session = scripted_session(service, clock, compute, config, files, FakePageCache(), budget_s=budget_s)
    session.run()
    assert len(session.measurement((), ()).segments) == segments


@pytest.mark.parametrize(
    ("pace", "steps", "seconds", "enough"),
    [
        # With N workers step times have a period of N, so a segment holds whole periods.
        (Pace(multiple=5), 12, 10.0, False),
        (Pace(multiple=5), 15, 0.7, True),
        # Twelve steps of a second each are not waited for; three are.
        (Pace(), 2, 3.0, False),
        (Pace(), 3, 3.0, True),
        # Two workers that take 2.8 s a batch: four batches come within 5.7 s, not three. There is an end to waiting.
        (Pace(multiple=2, max_s=1.4), 3, LONGEST * 1.4 + 0.1, False),
        (Pace(multiple=2, max_s=1.4), 4, LONGEST * 1.4 + 0.1, True),
        (Pace(multiple=2, max_s=1.4), 3, 2 * LONGEST * 1.4, True),
        (Pace(multiple=2, max_s=1.4), 0, 2 * LONGEST * 1.4, False),
        # Reading a file twice would read it warm.
        (Pace(max_batches=4), 4, 0.01, True),
    ],
)
def test_a_segment_ends_when_it_is_long_enough(pace: Pace, steps: int, seconds: float, enough: bool) -> None:
    """In steps and in time; a slow device or loader ends it by time."""
    assert pace.enough(steps, seconds) is enough


def test_ranks_expect_as_many_steps_as_end_a_segment() -> None:
    """They agree ahead. Where workers are blocked it is longer: token buckets grant in slices."""
    seconds = LONGEST * 1.4
    assert Pace(multiple=2, max_s=1.4).expected(3, seconds) == 4
    assert Pace(multiple=64, max_s=1.4).expected(3, seconds) == 6
    assert Pace().for_blocked_workers().min_s == pytest.approx(2.0)
    assert Pace(max_s=1.0).for_blocked_workers().min_s == pytest.approx(1.0)


@given(workers=st.integers(0, 64), rounds=st.integers(1, 9), budget=st.none() | st.floats(0.0, 1e4))
def test_any_budget_leaves_a_pace_that_ends(workers: int, rounds: int, budget: float | None) -> None:
    """However small the budget, a segment has a length between the least and the most."""
    pace = pace_for(workers=workers, rounds=rounds, budget_s=budget)
    assert MIN_SECONDS <= pace.max_s <= MAX_SECONDS
    assert pace.enough(max(workers, 1) * 12, MAX_SECONDS)


STEP_S = 0.004
MakeCompute = Callable[[FakeClock], Compute]


def profiled(clock: FakeClock, trouble: Exception | None = None) -> Compute:
    return ProfiledCompute(clock, STEP_S, trouble)


def with_window(make: MakeCompute = profiled, *, count: int = 4096, budget_s: float | None = None) -> Measurement:
    """Of two workers that deliver a cold batch of 16 every 32 ms, with the window, as the child does it."""
    clock, files = FakeClock(), example_files(count)
    config = example_config(data=files.fingerprint, compute="cuda", workers=2)
    service = Service(cpu_s=0.002, blocked_s=0.002)
    session = scripted_session(service, clock, make(clock), config, files, FakePageCache(), budget_s=budget_s)
    session.run()
    session.profile()
    return session.measurement((), ())


def test_a_window_shows_the_pace_of_the_segments() -> None:
    """A step of 4 ms leaves the device idle for the rest of 32 ms, in the window and between the steps of segments."""
    found = with_window()
    timeline = found.timeline
    assert timeline is not None
    assert timeline.steps == 20
    assert (timeline.end_ns - timeline.begin_ns) / 20 == pytest.approx(32e6, rel=0.1)
    assert timeline.plain_ns == pytest.approx(timeline.end_ns - timeline.begin_ns, rel=0.1)
    assert not any(each.name == "gpu_timeline" for each in found.missing)
    assert decode("measurement", encode("measurement", found), Measurement, "test") == found
    (segment, *_) = [s for s in found.segments if s.activity == "training" and s.mode == "baseline"]
    idle = [b - e for e, b in zip(segment.finished_ns, segment.device_begin_ns[1:], strict=False)]
    assert len(segment.device_begin_ns) == segment.steps
    assert sum(idle) / len(idle) == pytest.approx(28e6, rel=0.1)
    assert all(s.device_begin_ns == () for s in found.segments if s.activity == "loader_only")


def test_files_stay_cold_in_a_window_that_goes_round() -> None:
    """Of a set that the window reads more than once, what was read is cold again: the pace stays that of cold files."""
    timeline = with_window(count=20 * 16).timeline
    assert timeline is not None
    assert (timeline.end_ns - timeline.begin_ns) / 20 == pytest.approx(32e6, rel=0.1)


@pytest.mark.parametrize(
    ("make", "budget_s", "words"),
    [
        (lambda clock: profiled(clock, RuntimeError("CUPTI_ERROR")), None, "RuntimeError: CUPTI_ERROR"),
        (lambda clock: profiled(clock, LoaderprobeError("no records")), None, "no records"),
        (lambda clock: EmulatedCompute(example_arguments(clock, compute="emulated:1000")), None, "runs no kernels"),
        (lambda clock: NoCompute(example_arguments(clock)), None, "no step was given"),
        (profiled, 0.1, "there was no time left"),
    ],
)
def test_without_a_window_there_is_its_reason(make: MakeCompute, budget_s: float | None, words: str) -> None:
    """A profiler in trouble, a device that runs no kernels, or no time cost nothing but the window."""
    found = with_window(make, budget_s=budget_s)
    assert found.timeline is None and found.segments
    assert words in next(said(each.reason) for each in found.missing if each.name == "gpu_timeline")


def test_rounds_leave_time_for_the_window() -> None:
    """A budget for a few rounds keeps what the window will take."""
    found = with_window(budget_s=60.0)
    assert found.timeline is not None
    assert found.wall_s <= 60.0


@pytest.mark.parametrize(
    ("loader", "step_s", "flushed", "expected"),
    [
        ({"workers": 0}, 0.1, 0, 20),
        ({"workers": 16, "prefetch_factor": 2}, 0.1, 48, 64),
        ({"workers": 0}, 4.0, 0, 8),
        ({"workers": 8}, 1.0, 24, None),
    ],
)
def test_a_window_sees_past_what_was_made_ahead(
    loader: dict[str, Any], step_s: float, flushed: int, expected: int | None
) -> None:
    """Twice the batches ahead at least, 20 where there is time, fewer for slow loaders, none where that is too few."""
    found = window_steps(example_config(**loader), step_s, flushed, 45.0)
    if expected is None:
        assert isinstance(found, Missing) and "would take" in said(found.reason)
    else:
        assert found == expected
