"""One configuration on a fake clock, where every rate is known exactly; its pace, its window, and its parts before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from loaderprobe import testing
from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.api.batch_size import Meter, with_readings
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.compute.step import NoCompute, StepCompute
from loaderprobe.errors import LoaderprobeError, MissingPart
from loaderprobe.measure import capabilities
from loaderprobe.measure.assembly import alternatives
from loaderprobe.measure.image_data import image_sets
from loaderprobe.measure.pace import LONGEST, MAX_SECONDS, MIN_SECONDS, Pace, pace_for
from loaderprobe.measure.session import Interrupted, Session, window_steps
from loaderprobe.protocols import Compute
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import Capability
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import BATCH_COLUMNS, Missing, Mode, Others, WorkerBatches
from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.doctor import step_words, why_words
from loaderprobe.system import device
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock, FakeGpu, ScriptedLoader, Service, example_config, example_files
from tests.batch_sizes import ScriptedProber
from tests.fakes import example_location
from tests.measure import scripted
from tests.measure.scripted import FEW_STEPS, ScriptedStream, measured, measured_alone, scripted_session
from tests.said import all_said, said

FILES = example_files(4096)
RECORDED = [name for name in BATCH_COLUMNS if name != "process_cpu_ns"]


def test_every_file_is_read_once_in_a_cold_segment() -> None:
    """It ends before the set begins again. Twelve files cannot be read so: they are measured with a note."""
    service = Service(cpu_s=0.0001, blocked_s=0.0001)
    found = measured_alone(service, files=example_files(512), compute="emulated:1e6")
    assert all(segment.steps * segment.batch_size < 512 for segment in found.segments if segment.mode == "baseline")
    assert verdict(found).cold_fraction == pytest.approx(1)
    service = Service(cpu_s=0.002, blocked_s=0.001)
    few = measured_alone(service, files=example_files(12), batch_size=4, compute="emulated:50")
    assert any("too few" in note for note in all_said(few.notes))
    assert verdict(few).bound.cause == "compute"


def test_the_begin_of_a_serial_stream_is_in_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes once an epoch, and here with each segment."""
    monkeypatch.setattr(scripted, "ScriptedLoader", ScriptedStream)
    found = measured_alone(Service(cpu_s=0.01), workers=0, compute="emulated:1000")
    waits = [ready - begin for s in found.segments for begin, ready in zip(s.begin_ns, s.ready_ns, strict=True)]
    assert waits and max(waits) < 5e9


class Chunks(ScriptedStream):
    """Reads 40 batches at once, when it begins and whenever they are used up."""

    batches_a_chunk, chunk_s, first = 40, 8.0, -1

    def switch(self, mode: Mode) -> None:
        super().switch(mode)
        self.first = -1

    def _make(self, number: int) -> None:
        super()._make(number)
        self.first = number if self.first < 0 else self.first
        reads, row = (number - self.first) % self.batches_a_chunk == 0, list(self._rows[-1])
        size = FILES.delivered_bytes(0, self.config.compute.batch_size)
        row[RECORDED.index("read_bytes")] = self.batches_a_chunk * size if reads else 0
        if reads and self._mode != "warm":
            chunk_ns, (ready_ns, handed_over) = round(self.chunk_s * 1e9), self._ready_ns[number]
            self._ready_ns[number] = ready_ns + chunk_ns, handed_over
            row[RECORDED.index("wall_ns")] += chunk_ns
        self._rows[-1] = tuple(row)


@pytest.mark.parametrize(("budget_s", "images_per_s", "whole"), [(300, 1e5, True), (60, 1e5, False), (30, 26, False)])
def test_a_stream_that_reads_in_chunks_is_timed_over_whole_ones(
    monkeypatch: pytest.MonkeyPatch, budget_s: float, images_per_s: float, *, whole: bool
) -> None:
    """Its segments become longer until they hold their share of the reads, where there is time; else it is open. What a
    slow step needs for as many batches is no reason to leave the budget."""
    monkeypatch.setattr(scripted, "ScriptedLoader", Chunks)
    config = example_config(data=FILES.fingerprint, workers=0, batch_size=8, compute=f"emulated:{images_per_s:g}")
    session = scripted_session(Service(cpu_s=0.005), config, FILES, budget_s=budget_s)
    session.access, session.stream = "parts", True
    measurement = measured(session)
    found = verdict(measurement)
    assert measurement.wall_s <= max(budget_s, 60.0)
    assert found.bound.cause == ("storage" if whole else "inconclusive")
    if budget_s == 60.0:  # what it lacked counts whole chunks
        again = scripted_session(Service(cpu_s=0.005), config, FILES, budget_s=budget_s + (session.more_s or 0.0))
        again.access, again.stream = "parts", True
        assert verdict(measured(again)).bound.cause == "storage"
    if whole:
        a_batch_s = 8 * 0.005 + Chunks.chunk_s / Chunks.batches_a_chunk
        assert found.rates_images_per_s.loader == pytest.approx(8 / a_batch_s)


def test_a_kernel_without_io_accounting_counts_no_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its /proc has no `io`, and what processes read is 0 for ever: no proof that files came from memory."""
    monkeypatch.setattr(device, "PROC", tmp_path)
    assert not measured_alone(Service(cpu_s=0.001)).storage_counts_reads
    (tmp_path / "self").mkdir()
    (tmp_path / "self/io").write_text("read_bytes: 0\n")
    assert measured_alone(Service(cpu_s=0.001)).storage_counts_reads


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


@pytest.mark.parametrize(("workers", "fewest"), [(0, 3), (2, 4), (3, 3), (8, 8)])
def test_the_shortest_cold_segment_is_whole_periods_of_the_workers(workers: int, fewest: int) -> None:
    """Two workers give three batches in the time of two: a rate that is half too high."""
    assert pace_for(workers=workers, rounds=3, budget_s=15.0).fewest_cold == fewest


@given(workers=st.integers(0, 64), rounds=st.integers(1, 9), budget=st.none() | st.floats(0.0, 1e4))
def test_any_budget_leaves_a_pace_that_ends(workers: int, rounds: int, budget: float | None) -> None:
    """However small the budget, a segment has a length between the least and the most."""
    pace = pace_for(workers=workers, rounds=rounds, budget_s=budget)
    assert MIN_SECONDS <= pace.max_s <= MAX_SECONDS
    assert pace.enough(max(workers, 1) * 12, MAX_SECONDS)


def test_batches_are_read_when_their_segment_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before others take their place in the log; also of shards that are warm, of which a segment asks no records."""
    read, records, latest = set[int](), ScriptedLoader.records, FEW_STEPS + 20

    def noted(loader: ScriptedLoader) -> WorkerBatches:
        made = records(loader)
        read.update(made.batch[-latest:])
        return made

    monkeypatch.setattr(ScriptedLoader, "records", noted)
    files = example_files()
    config = example_config(data=files.fingerprint, cache="warm", compute="emulated:1e6", workers=1)
    session = scripted_session(Service(cpu_s=0.0), config, files)
    session.access = "parts"
    found = measured(session)
    numbers = {n for s in found.segments if s.first_batch >= 0 for n in range(s.first_batch, s.first_batch + s.steps)}
    assert numbers <= read and len(numbers) >= 2 * FEW_STEPS


STEP_S = 0.004
Make = Callable[[FakeClock], Compute]


def session_of(service: Service, make: Make, changes: dict[str, Any], **options: Any) -> Session:
    """`changes` are of the configuration, `options` of the session."""
    config = example_config(data=FILES.fingerprint, **changes)
    return scripted_session(service, config, FILES, make=lambda _, clock: make(clock), **options)


@pytest.mark.parametrize(
    ("make", "budget_s", "words"),
    [
        (lambda clock: FakeGpu(clock, STEP_S, RuntimeError("CUPTI_ERROR")), None, "RuntimeError: CUPTI_ERROR"),
        (lambda clock: FakeGpu(clock, STEP_S, LoaderprobeError("no records")), None, "no records"),
        (lambda clock: EmulatedCompute(testing.example_arguments(clock, compute="emulated:9")), None, "runs no kernel"),
        (lambda clock: NoCompute(testing.example_arguments(clock)), None, "no step was given"),
        (lambda clock: FakeGpu(clock, STEP_S), 0.1, "there was no time left"),
    ],
)
def test_without_a_window_there_is_its_reason(make: Make, budget_s: float | None, words: str) -> None:
    """A profiler in trouble, a device that runs no kernels, or no time cost nothing but the window. Two workers deliver
    a cold batch of 16 every 32 ms; the window comes last, as the child does it."""
    service = Service(cpu_s=0.002, blocked_s=0.002)
    session = session_of(service, make, {"compute": "cuda", "rounds": 1}, budget_s=budget_s)
    session.run()
    session.profile()
    found = session.measurement((), ())
    assert found.timeline is None and found.segments
    assert words in next(said(each.reason) for each in found.missing if each.name == "gpu_timeline")


def short_epochs(clock: FakeClock, step_s: float, steps: int) -> Compute:
    """The step of a script, whose epochs have so many."""
    done = 0

    def step(_: Any) -> None:
        nonlocal done
        clock.work(step_s)
        done += 1
        if done % steps == 0:
            raise Interrupted("an epoch began", steps)

    return StepCompute(step, testing.example_arguments(clock))


@pytest.mark.parametrize(("steps", "workers"), [(22, 8), (30, 16)])
def test_short_epochs_end_segments_between_groups_of_batches(steps: int, workers: int) -> None:
    """Workers give their batches in groups of as many as they are: cut within one, the loader seemed a quarter faster
    than it is, and compute, which is 7 % faster than the loader, the limit."""
    true_rate = 100.0 * workers
    changes: dict[str, Any] = {"workers": workers, "batch_size": 8, "compute": "own", "cache": "warm"}

    def make(clock: FakeClock) -> Compute:
        return short_epochs(clock, 8 / (1.07 * true_rate), steps)

    judged = verdict(measured(session_of(Service(cpu_s=0.01), make, changes, period=1)))
    assert judged.rates_images_per_s.loader == pytest.approx(true_rate, rel=0.01)
    assert judged.bound.side == "input"


def test_as_many_rounds_as_are_asked_for() -> None:
    """Also where they are more than the usual most."""
    found = measured_alone(Service(cpu_s=0.004, blocked_s=0.004), rounds=14, session={"thorough": True})
    assert len({segment.round for segment in found.segments}) >= 14


class SlowCopies(FakeGpu):
    """Copies take as long as two steps: the loader is fast enough, and so is compute alone."""

    def copy(self, batch: Any) -> Any:
        self.clock.sleep(2 * self.step_s)
        return batch


@pytest.mark.parametrize(("kind", "steps", "kept"), [(FakeGpu, 1, False), (FakeGpu, 40, True), (SlowCopies, 40, True)])
def test_no_time_is_kept_for_a_window_without_effect(kind: type[FakeGpu], steps: int, kept: bool) -> None:
    """Where an input limits, by the first round; it then has what is left. On an H100 the rounds had too little."""
    make = partial(kind, step_s=steps * STEP_S)
    session = session_of(Service(cpu_s=0.002), make, {"compute": "cuda"}, budget_s=60.0)
    session.run()
    assert bool(session._window_s()) is kept


@pytest.mark.parametrize(
    ("loader", "step_s", "expected"),
    [
        ({"workers": 0}, 0.1, 20),
        ({"workers": 16, "prefetch_factor": 2}, 0.1, 64),
        ({"workers": 0}, 4.0, 8),
        ({"workers": 8}, 1.0, 18),
        ({"workers": 8}, 2.0, None),
    ],
)
def test_a_window_sees_past_what_was_made_ahead(loader: dict[str, Any], step_s: float, expected: int | None) -> None:
    """Twice the batches ahead, or 20, where there is time; fewer for slow loaders, none where that is too few."""
    found = window_steps(example_config(**loader), step_s, 45.0)
    if expected is None:
        assert isinstance(found, Missing) and "would take" in said(found.reason)
    else:
        assert found == expected


class PlainLoader(ScriptedLoader):
    """A loader that knows no other ways to make its samples."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, FakeClock(), testing.FakePageCache(), Service(cpu_s=0.001))


def test_only_a_loader_that_knows_other_ways_is_asked_for_them() -> None:
    """An outsider's need know none, and where the GPU decodes none applies."""
    for changes in ({"gpu_decode": True}, {"loader": f"{__name__}:PlainLoader"}):
        assert alternatives(example_config(**changes), example_files(8)) == ()


def test_ones_own_folders_with_such_file_names_are_one_data_set(tmp_path: Path) -> None:
    """A `spec.json` of another program makes no generated set."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
        (tmp_path / name / "spec.json").write_text("{}")
    (found,) = image_sets(tmp_path, sample=100)
    assert (found.label, found.generated, len(found.paths)) == (tmp_path.name, False, 2)


def refused(reason: Remark | None, scope: int = 0) -> dict[str, Any]:
    """Parts in which system calls of a child may not be seen for a reason."""
    return {"_why_letters_only": lambda pid: reason, "yama_scope": lambda: scope}


def others(seen: Others | None) -> dict[str, Any]:
    why = Missing(name="others", reason=Remark(code="machine_uncounted"))
    meter = SimpleNamespace(begin=lambda: None, end=lambda: seen, missing=lambda: (why,))
    return {"OthersMeter": lambda: meter, "LOOK_S": 0.0}


def free(size_bytes: float) -> dict[str, Any]:
    return {"disk_usage": lambda _: SimpleNamespace(free=size_bytes)}


TRACE, PLACE = Remark(code="trace_refused"), example_location("/data")
FAR_AHEAD = replace(PLACE, read_ahead_bytes=2560 * 1024)
TAKEN = Others(span_ns=10**9, cores=2, cpu_ns=380_000_000, own_cpu_ns=0, steal_ns=0)
IDLE = replace(TAKEN, cpu_ns=190_000_000)
NO_WRITING = {"os.fsync": Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))}


@pytest.mark.parametrize(
    ("parts", "ask", "state", "words", "step"),
    [
        # Where a child may be looked at, workers may; else there is the step that brings the rest, if any.
        (refused(None), lambda _: capabilities._waits(), "yes", "", ""),
        (refused(TRACE), lambda _: capabilities._waits(), "limited", "hardened", "SYS_PTRACE"),
        (refused(TRACE, scope=2), lambda _: capabilities._waits(), "limited", "hardened", "ptrace_scope=1"),
        (refused(reported("not known")), lambda _: capabilities._waits(), "limited", "not known", ""),
        (others(TAKEN), lambda _: capabilities._others(), "limited", "they take 19 % of 2 cores now", "end other"),
        (others(IDLE), lambda _: capabilities._others(), "yes", "they take 9.5 % of 2 cores now", ""),
        (others(None), lambda _: capabilities._others(), "no", "counts no CPU time", ""),
        # Cold reads are tried on a file: on a full disk there is none.
        (NO_WRITING, lambda path: capabilities._cold_reads(path, PLACE), "limited", "No space left", "/data"),
        (free(5e9), capabilities._free_space, "yes", "5.00 GB free", ""),
        (free(2e6), capabilities._free_space, "limited", "2.00 MB free", "another disk"),
        ({}, lambda _: capabilities._storage(PLACE), "yes", "ext4 on vdb", ""),
        ({}, lambda _: capabilities._storage(FAR_AHEAD), "yes", "ext4 on vdb, read-ahead 2560 KiB", ""),
    ],
)
def test_what_can_be_measured_here_has_its_state_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], ask: Callable[[Path], Capability],
    state: str, words: str, step: str,
) -> None:  # fmt: skip
    """With the reason, and the step that brings the rest where there is one; nothing is left behind."""
    for name, part in parts.items():
        monkeypatch.setattr(f"loaderprobe.measure.capabilities.{name}", part)
    found = ask(tmp_path)
    assert (found.state, found.next_step is None) == (state, not step)
    assert words in why_words(found) and (not step or step in step_words(found))
    assert list(tmp_path.iterdir()) == []


def test_a_strategy_that_needs_utilization_says_that_it_is_not_there() -> None:
    """Instead of growing the batch for ever. A meter reads however short it is; of no GPU it gives the reason."""
    prober = ScriptedProber(rate=float, utilization=lambda size: 0.5)
    assert with_readings(prober.probe)(8).utilization == 0.5
    with pytest.raises(MissingPart, match="needs the utilization of the device: the device is scripted"):
        with_readings(ScriptedProber(rate=float).probe)(8)
    assert not with_readings(ScriptedProber(rate=float, fits_up_to=4).probe)(8).fits
    for gpu in (None, "GPU-none"):
        with Meter(SystemClock(), gpu, period_s=1.0) as meter:
            sum(range(100_000))
        readings = meter.readings()
        if gpu:
            assert isinstance(readings, Missing) and readings.reason
        else:
            assert not isinstance(readings, Missing) and all(0 <= reading <= 1 for reading in readings)
