"""A script that is measured where it runs: watched, seen from outside, or with its loop as the step, in ranks too."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.compute.step import StepCompute
from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.measure.attach import outside, script_ranks, watcher
from loaderprobe.measure.attach.attachment import (
    CANNOT_GO_ON,
    MEASURED,
    Attachment,
    Finished,
    announce,
    budget_of,
    claimed,
    others_that_train,
    workers_start,
)
from loaderprobe.measure.attach.coroutine import SessionCoroutine, Withdrawn
from loaderprobe.measure.attach.outside import LEAST_PASSES, Outside, Pauses
from loaderprobe.measure.attach.script_loaders import ScriptLoader, SeenLoaders
from loaderprobe.measure.attach.script_ranks import AHEAD, PATIENCE_S, ScriptCollectives, StartAgreement
from loaderprobe.measure.attach.watcher import JUDGED_STEPS, ROUNDS, LoopStep, Watched, Watcher, observed
from loaderprobe.measure.further import CUT_SHORT
from loaderprobe.measure.session import AGAIN, ATTEMPTS, GivenUp, Interrupted
from loaderprobe.records.attached import AttachRequest
from loaderprobe.records.diagnosis import OwnMeasured
from loaderprobe.records.measurement import Measurement, WorkerBatches
from loaderprobe.records.rank_processes import NotTogether, RankOffer
from loaderprobe.records.waits import CodePlace
from loaderprobe.render.watch import said, watch_document
from loaderprobe.system import stacks
from loaderprobe.system.stacks import CallTimes, called, is_installed, of_the_script, place_of, shared, stack_of
from loaderprobe.testing import FakeClock, Service, example_arguments, example_config, example_files
from tests.examples.training import Costly, Training
from tests.fakes import FakeGroup, FakeStore
from tests.measure.scripted import in_threads, scripted_session

MS = 1_000_000


def records(count: int, wall_ms: int = 20) -> WorkerBatches:
    """Batches of 8 images."""
    wall_ns = wall_ms * MS
    row = {"wall_ns": wall_ns, "cpu_ns": wall_ns, "process_cpu_ns": wall_ns, "run_delay_ns": 0, "read_bytes": 0}
    columns: dict[str, Any] = {name: (value,) * count for name, value in row.items()}
    begun = tuple(number * 40 * MS for number in range(count))
    return WorkerBatches(batch=tuple(range(count)), worker=(0,) * count, images=(8,) * count, start_ns=begun, **columns)


def loop(
    count: int, wait_ms: int = 10, step_ms: int = 30, validates: bool = False, cores: float = 1.0
) -> list[LoopStep]:
    """Steps of which 3 ms of `next()` and all of the rest are CPU time; after two a validation of 5 s."""
    found, now, cpu = [], 0, 0
    for number in range(count):
        ready = now + wait_ms * MS
        end, end_cpu = ready + step_ms * MS, cpu + (3 + step_ms) * MS
        found.append(
            LoopStep(
                begin_ns=now, ready_ns=ready, end_ns=end, begin_cpu_ns=cpu, ready_cpu_ns=cpu + 3 * MS,
                end_cpu_ns=end_cpu, begin_process_ns=round(now * cores), end_process_ns=round(end * cores),
            )
        )  # fmt: skip
        now, cpu = end + (5000 * MS if validates and number in (9, 33) else 0), end_cpu
    return found


def seen(steps: list[LoopStep], rows: WorkerBatches | None = None) -> Measurement | None:
    return observed(steps, rows or records(60), SimpleNamespace(dataset=(), num_workers=2, prefetch_factor=2), 2.0)


def test_only_training_is_recorded() -> None:
    """Three rounds of waits and steps as they were, and no time of what a loop does between them or instead: it
    validates, a step writes a checkpoint and takes ten times as long, and some have no backward pass."""
    steps = loop(120, validates=True)
    steps[20].end_ns += 301 * MS
    for step in steps[30:60]:
        step.end_ns, step.trains = step.end_ns - 25 * MS, False
    found = seen(steps)
    assert found is not None
    expected = [("baseline", "training", number) for number in range(ROUNDS)]
    assert [(each.mode, each.activity, each.round) for each in found.segments] == expected
    for segment in found.segments:
        pairs = list(zip(segment.begin_ns, segment.ready_ns, segment.end_ns, strict=True))
        assert {(ready - begin, end - ready) for begin, ready, end in pairs} == {(10 * MS, 30 * MS)}
        assert (segment.thread_cpu_ns, segment.receive_cpu_ns) == (33 * MS * segment.steps, 3 * MS * segment.steps)
        assert segment.closed_ns - segment.begin_ns[0] == 40 * MS * segment.steps
    assert found.first_batch_s == 0.01 and found.config.compute.batch_size == 8


@pytest.mark.parametrize(
    ("workers_ms", "process_cores", "reason"),
    [(35, 1.5, "cores_shared"), (35, 0.5, "largest_speedup"), (2, 1.9, "largest_speedup")],
)
def test_compute_is_open_where_workers_may_take_its_cores(workers_ms: int, process_cores: float, reason: str) -> None:
    """Training keeps two cores busy, and looks like compute alone; not where workers need a twentieth of a core."""
    found = seen(loop(60, wait_ms=0, step_ms=40, cores=process_cores), records(60, workers_ms))
    assert found is not None
    bound = verdict(found).bound
    assert bound.reason.code == reason
    assert bound.side == ("compute" if reason == "largest_speedup" else "inconclusive")


class ScriptedLog:
    """Of the workers of a loader: a batch of 8 images is begun every 3 ms, and the last 8192 are kept."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def iterate(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        return original(loader)

    def records(self, since_ns: int) -> WorkerBatches:
        begun = range(1_000_000_000, self.clock.now_ns(), 3 * MS)[-8192:]
        rows = [start for start in begun if start >= since_ns]
        found = records(len(rows), wall_ms=2)
        read_bytes, instrument_ns = (6000,) * len(rows), (50_000,) * len(rows)
        return replace(found, start_ns=tuple(rows), read_bytes=read_bytes, instrument_ns=instrument_ns)


Watching = tuple[Watcher, Watched, FakeClock]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """A training on a fake clock that is watched, and its loader, with a scripted log."""
    clock, loader = FakeClock(), DataLoader(Costly(), batch_size=8, num_workers=2)
    times = {"perf_counter_ns": clock.now_ns, "thread_time_ns": clock.thread_cpu_ns}
    monkeypatch.setattr(watcher, "time", SimpleNamespace(**times, process_time_ns=clock.process_cpu_ns))
    request = AttachRequest(run="", scratch=str(tmp_path), command="train.py", budget_s=None, watch=True)
    made = Watcher(request, lambda *_: None, lambda _: None, lambda _: None)  # type: ignore[arg-type,return-value]
    seen = made.iterator_made(loader)
    seen.watching = ScriptedLog(clock)
    yield made, seen, clock
    made.close()


def train(watched: Watching, step_s: float, take: Callable[[], Any] = lambda: None) -> None:
    """One step, whose batch is there at once unless `take` says otherwise."""
    made, seen, clock = watched
    made.next_batch(seen, iter(()), take)
    clock.work(step_s)
    made.backward()
    made.optimizer_stepped()


def test_a_long_interval_is_judged_by_its_last_steps(watched: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rates are of all 10,000, more than a log keeps. Only the first half waits for input."""
    monkeypatch.setattr(watcher, "FIRST_S", 30.0)
    made, seen, clock = watched
    for number in range(10_000):
        wait_s, step_s = (0.002, 0.001) if number < 5_000 else (0.0, 0.003)
        train(watched, step_s, partial(clock.sleep, wait_s))
    assert len(seen.steps) == JUDGED_STEPS
    made.next_batch(seen, iter(()), lambda: None)
    (interval,) = seen.intervals
    assert interval.steps == 10_000 and interval.images_per_s == pytest.approx(8 / 0.003)
    assert interval.input_wait_fraction == pytest.approx(1 / 3)
    assert interval.read_bytes_per_s == pytest.approx(6000 / 0.003)
    assert interval.bound is not None and interval.bound.side == "compute"


@pytest.mark.parametrize(
    ("workers", "shape", "expected_s", "unit"),
    [(2, (8, 3, 4, 4), 0.0, "images/s"), (0, (8, 16), 10 * 50e-6, "samples/s")],
)
def test_what_the_training_thread_records_itself_is_overhead(
    watched: Watching, workers: int, shape: tuple[int, ...], expected_s: float, unit: str
) -> None:
    """Without workers it makes the batches. Only rates of batches that hold images are of images."""
    vars(watched[1].loader).update(num_workers=workers)
    for _ in range(11):
        train(watched, 0.01, partial(torch.zeros, shape))
    found = watched[0].result()
    assert found is not None and found.overhead_s == pytest.approx(expected_s)
    facts = {"interval": found.intervals[0], "ranks": 1, "images": found.images}
    assert f"800 {unit}, " in said("script.watched", facts)
    assert watch_document(found).sections[0].title.lower() == f"{unit} over time"


@pytest.mark.parametrize("slow", [0, 1])
def test_a_first_step_that_compiles_is_in_no_rate(watched: Watching, slow: int) -> None:
    """It took longer than the first interval. It is between the second batch and the third where a loop is ahead."""
    for number in range(11):
        train(watched, 47.0 if number == slow else 0.01)
    found = watched[0].result()
    assert found is not None
    (interval,) = found.intervals
    assert interval.steps == 9 - slow and interval.images_per_s == pytest.approx(800)


@pytest.mark.parametrize("leaves", [False, True])
def test_workers_that_start_and_end_are_waited_for(watched: Watching, leaves: bool) -> None:
    """The rate is lower by that. A validation between two loops counts only after a `break`, for the step before it."""
    made, seen, clock = watched

    def end() -> None:
        clock.sleep(0.1)
        raise StopIteration

    for _ in range(3):
        made.get_iterator(seen.loader, lambda _: clock.sleep(0.1))  # type: ignore[arg-type,return-value]
        for _ in range(10):
            train(watched, 0.02)
        if not leaves:
            with pytest.raises(StopIteration):
                made.next_batch(seen, iter(()), end)
        clock.work(0.5)
    found = made.result()
    assert found is not None
    (interval,) = found.intervals
    wait_s, busy_s = (0.3, 29 * 0.02 + 2 * 0.5) if leaves else (0.5, 30 * 0.02)
    assert interval.input_wait_fraction == pytest.approx(wait_s / (wait_s + busy_s))
    assert interval.images_per_s == pytest.approx(8 * interval.steps / (wait_s + busy_s))


@pytest.mark.parametrize(
    ("start_s", "options", "again", "expected_s"),
    [
        (0.05, {}, False, 0.15),
        (0.01, {}, False, None),
        (0.05, {"persistent_workers": True}, False, None),
        (0.05, {"persistent_workers": True}, True, 0.15),
        (0.05, {"num_workers": 0}, True, None),
    ],
)
def test_workers_that_start_each_epoch_are_said_where_they_matter(
    tmp_path: Path, start_s: float, options: dict[str, Any], again: bool, expected_s: float | None
) -> None:
    """Starting them, waiting for their first batch but for what it takes to make it, and ending them: in no rate."""
    request, clock = AttachRequest(run="", scratch=str(tmp_path), command="train.py", budget_s=None), FakeClock()
    made = Attachment(request, lambda *_: None, lambda *_: None, clock=clock.now_ns)
    make = partial(DataLoader, Costly(), batch_size=8, **({"num_workers": 1} | options))
    loader = make()

    seen = made.iterator_made(loader)
    assert seen is not None

    def iterator(_: Any) -> Iterator[Any]:
        made.iterator_made(loader)
        clock.sleep(start_s)
        return iter(())

    def end() -> None:
        clock.sleep(start_s)
        raise StopIteration

    for _ in range(3):
        loader = make() if again else loader
        made.get_iterator(loader, iterator)
        for wait_s in (start_s + 0.01, 0.3):
            made.next_batch(seen, iter(()), lambda wait_s=wait_s: clock.sleep(wait_s))  # type: ignore[misc]
            clock.work(0.5)
        with pytest.raises(StopIteration):
            made.next_batch(seen, iter(()), end)
    walls_ns = (40 * MS,) * 60 + (10 * MS,) * 60 + (MS,) * 600  # in training, of the loader alone, of cached samples
    rows = replace(records(720), wall_ns=walls_ns)
    measured = observed(loop(60), rows, SimpleNamespace(dataset=(), num_workers=1, prefetch_factor=2), 2.0)
    assert measured is not None
    alone = (replace(each, activity="loader_only", first_batch=each.first_batch + 60) for each in measured.segments)
    measured = replace(measured, segments=(*measured.segments, *alone))
    facts = [note.facts for note in workers_start(seen, measured)]
    expected = {"start_s": expected_s, "epoch_s": 0.8, "starts": 3}
    assert facts == ([] if expected_s is None else [pytest.approx(expected)])


@pytest.mark.parametrize(
    ("asked_s", "step_s", "in_ranks", "expected"),
    [
        (None, 0.1, False, (60.0, 60.0)),
        (None, 0.1, True, (120.0, 0.0)),
        (None, 2.0, True, (240.0, 0.0)),
        (20.0, 2.0, True, (20.0, 0.0)),
        (20.0, 2.0, False, (20.0, 0.0)),
    ],
)
def test_ranks_have_as_much_time_as_one_process_whose_verdict_is_open(
    monkeypatch: pytest.MonkeyPatch, asked_s: float | None, step_s: float, in_ranks: bool, expected: tuple[float, float]
) -> None:
    """Eight ranks of 12 workers fitted one round into 60 s, which shows no noise. A budget that is given is kept."""
    request = AttachRequest(run="", scratch="", command="train.py", budget_s=asked_s)
    assert budget_of(request, step_s, in_ranks=in_ranks) == expected


@pytest.mark.parametrize(
    ("trains", "steps", "launched", "lines"),
    [
        (True, 8, 1, ("10 s 2 batches were taken, and 2", "20 s 4 batches", "41 s 8 batches")), (True, 1, 1, ()),
        (False, 8, 1, ("0 backward passes made. A loop without them is measured with --loader 0", "20 s", "41 s")),
        (True, 8, 2, ()),
    ],
)  # fmt: skip
def test_slow_steps_that_are_waited_for_are_said(
    tmp_path: Path, trains: bool, steps: int, launched: int, lines: tuple[str, ...]
) -> None:
    """Less and less often; of ranks that would all say so, not."""
    heard, clock = list[str](), FakeClock()
    request = AttachRequest(run="", scratch=str(tmp_path), command="train.py", budget_s=None, after_steps=99)
    made = Attachment(request, lambda *each: heard.append(said(*each)), lambda *_: None, launched, clock.now_ns)
    seen = made.iterator_made(DataLoader(Costly(), batch_size=8))
    assert seen is not None
    for _ in range(9):
        made.next_batch(seen, iter(()), lambda: clock.sleep(0.1))
        if trains:
            made.backward()
        clock.work(5.0 if steps == 8 else 0.1)
    assert len(heard) == len(lines) and all(map(str.__contains__, heard, lines)), heard
    # Whoever names a loader is not advised to name one.
    named = Attachment(
        replace(request, loader=0), lambda *each: heard.append(said(*each)), lambda *_: None, launched, clock.now_ns
    )
    named.next_batch(seen, iter(()), lambda: clock.sleep(0.1))
    assert len(heard) == len(lines) + bool(lines) and "--loader" not in "".join(heard[len(lines) :])


@pytest.mark.parametrize("slow", [0, 1, 8])
def test_a_step_is_as_long_as_those_without_the_longest(tmp_path: Path, slow: int) -> None:
    """One that compiles for 47 s made a budget of five minutes, for steps of 60 ms. Loops may be a batch ahead."""
    clock = FakeClock()
    request = AttachRequest(run="", scratch=str(tmp_path), command="train.py", budget_s=None)
    made = Attachment(request, lambda *_: None, lambda *_: None, clock=clock.now_ns)
    seen = made.iterator_made(DataLoader(Costly(), batch_size=8))
    assert seen is not None
    for number in range(9):
        made.next_batch(seen, iter(()), lambda: clock.sleep(0.01))
        clock.work(47.0 if number == slow else 0.05)
        assert number or seen.step_s(clock.now_ns()) == pytest.approx(0.06 if slow else 47.01)
    assert seen.step_s(clock.now_ns()) == pytest.approx(0.06)


def get_batch() -> FrameType:
    return sys._getframe()


def slow_batch(clock: FakeClock, seconds: float) -> None:
    clock.sleep(seconds)


Made = tuple[Outside, list[str], FakeClock]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Of a training on a fake clock, and what is said of it; no process samples waits."""
    monkeypatch.setattr("loaderprobe.samplers.waits.WaitsSampler._begin", lambda self, folder: None)
    heard, clock = list[str](), FakeClock()
    return Outside(lambda code, facts: heard.append(said(code, facts)), tmp_path, clock.now_ns), heard, clock


def test_the_time_beside_the_model_is_that_of_a_function(made: Made) -> None:
    """As a share of a step; not that of an evaluation, which makes batches, too, nor of a step that holds one."""
    seen, heard, clock = made

    class Model(torch.nn.Module):
        def forward(self, seconds: float) -> None:
            clock.sleep(seconds)

    model = Model()

    def evaluate() -> None:
        for _ in range(100):
            slow_batch(clock, 0.05)
            model(0.01)

    def train(count: int) -> None:
        for step in range(count):
            if step % 110 == 109:
                evaluate()
            slow_batch(clock, 0.003)
            model(0.007)
            seen.backward()
            seen.optimizer_stepped()

    train(LEAST_PASSES)
    before = sys.getprofile()
    train(400)
    assert sys.getprofile() is before and heard
    seen.close()
    found = seen.seen()
    assert found is not None
    assert found.place.startswith("slow_batch (test_attach.py:")
    assert found.share == pytest.approx(0.3, abs=0.001) and found.step_s == pytest.approx(0.01, rel=0.01)
    assert found.timed >= outside.TIMED_STEPS


def test_another_thread_is_no_part_of_the_training(made: Made) -> None:
    """Its passes are no steps; timing that it ends leaves no hook: it goes with the next call in its own thread."""
    seen, heard, clock = made

    def passes() -> None:
        for _ in range(LEAST_PASSES + 1):
            seen.backward()

    in_threads([passes])
    assert heard and seen._count == 1
    passes()
    assert seen._count == 1
    calls = CallTimes(stack_of(sys._getframe()), clock.now_ns)
    begun = calls.begin()
    in_threads([calls.end])
    slow_batch(clock, 0.01)
    assert begun and sys.getprofile() is None


def test_what_timing_costs_is_no_time_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is looked up once the step is over."""
    clock = FakeClock()

    def slow_place_of(*given: Any) -> CodePlace:
        clock.sleep(1.0)
        return place_of(*given)

    monkeypatch.setattr(stacks, "place_of", slow_place_of)
    calls = CallTimes(stack_of(sys._getframe()), clock.now_ns)
    begun, before = calls.begin(), clock.now_ns()
    for _ in range(3):
        slow_batch(clock, 0.01)
    after_ns = clock.now_ns()
    calls.end()
    found = {place.name: ns for place, ns in calls.taken().items()}
    assert begun and after_ns - before == 30_000_000 == found["slow_batch"]


def test_a_script_that_is_profiled_is_left_alone(made: Made) -> None:
    """Its own hook stays."""
    seen, _, clock = made

    def profiler(*_: object) -> None:
        """A profiler."""

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        for _ in range(200):
            slow_batch(clock, 0.01)
            seen.backward()
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
    assert seen.seen() is None


def test_a_place_is_the_script_s_own_by_its_file_and_a_library_s_by_its_name() -> None:
    """The script ends where torch begins: what a closure of an optimizer calls is the optimizer's."""
    here = stack_of(sys._getframe())
    inside = stack_of(get_batch())
    assert shared(here, inside) == here
    assert of_the_script((*here, (here[-1][0], "torch._tensor"), *inside)) == here
    assert str(called(here, inside)).startswith("get_batch (test_attach.py:") and called(here, here) is None
    assert str(place_of(subprocess.list2cmdline.__code__, "subprocess")) == "list2cmdline of subprocess"


@pytest.mark.parametrize("folders", [[site.getusersitepackages()], site.getsitepackages()])
def test_what_pip_installs_for_a_user_is_a_library_as_well(folders: list[str]) -> None:
    """And what a virtual environment has of the system's."""
    for folder in folders:
        code = get_batch.__code__.replace(co_filename=f"{folder}/torchvision/io.py")
        assert str(place_of(code, "torchvision.io")) == "get_batch of torchvision.io"
        assert is_installed(code.co_filename) and not is_installed(f"/home{code.co_filename}")


def test_a_pause_says_where_it_was() -> None:
    """Not a step of usual length."""
    clock = FakeClock()
    pauses = Pauses(clock.now_ns)
    pauses.begin()
    clock.sleep(4)
    assert pauses.end() is None
    pauses.begin()
    clock.sleep(30)
    pauses.on_stack(stack_of(get_batch()))
    clock.sleep(10)
    seconds, place = pauses.end() or (0.0, "")
    assert seconds == 40 == pauses.total_s and place.startswith("get_batch (test_attach.py:")


@pytest.mark.parametrize(
    ("batches", "passes", "updates", "expected"),
    [
        (8, 1, 1, ""),
        (7, 3, 1, "too_few_steps"),
        (8, 3, 1, ""),  # three backward passes are one step
        (64, 1, 0, ""),  # by an optimizer that torch does not know
        (63, 1, 0, "too_few_steps"),
        (12, 8, 3, ""),  # with an optimizer for each parameter
        (12, 25, 3, "no_loader"),  # a validation between many updates
    ],
)
def test_a_loader_that_trains_is_chosen(tmp_path: Path, batches: int, passes: int, updates: int, expected: str) -> None:
    """Once a batch of it had so many steps, of up to eight updates each."""
    loaders, chosen = SeenLoaders(ScriptLoader), list[bool]()
    seen = loaders.seen(Training(tmp_path).loader)
    for _ in range(batches):
        loaders.took(seen, 1, 2)
        for _ in range(passes):
            loaders.backward()
            chosen.append(loaders.choice(None, 8) is seen)
            for _ in range(updates):
                loaders.optimizer_stepped()
    assert any(chosen) == (not expected)
    assert not expected or loaders.why_none(None) == expected


@pytest.mark.parametrize(("before", "period"), [(0, 4), (0, 16), (1, 16)])
def test_gradients_are_accumulated_over_whole_updates(tmp_path: Path, before: int, period: int) -> None:
    """Also over more batches than are left alone first; an optimizer's step before the first batch is no update."""
    loaders = SeenLoaders(ScriptLoader)
    seen = loaders.seen(Training(tmp_path).loader)
    for _ in range(before):
        loaders.optimizer_stepped()
    while loaders.choice(None, 8) is not seen:
        loaders.took(seen, 1, 2)
        loaders.backward()
        if seen.batches % period == 0:
            loaders.optimizer_stepped()
    assert (seen.period, seen.batches) == (period, max(period, 8))


def test_a_command_is_claimed_once_and_knows_which_other_processes_train(tmp_path: Path) -> None:
    """Not this one, and none that has ended. A script outlives the command: its folder is gone then."""
    announce(tmp_path / "gone")
    assert not claimed(tmp_path / "gone")
    assert claimed(tmp_path) and not claimed(tmp_path)
    announce(tmp_path)
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    (tmp_path / f"trains-{ended.pid}").touch()
    ended.wait()
    assert others_that_train(tmp_path) == 0
    (tmp_path / f"trains-{os.getppid()}").touch()
    assert others_that_train(tmp_path) == 1


OFFER = RankOffer(loader=0, batch_size=8, workers=2, prefetch_factor=2, period=1)
OTHER_THREAD = NotTogether(code="other_thread", ranks=(1,))
Step = Callable[[Any], None]


def test_an_interruption_reaches_the_step_that_it_disturbed() -> None:
    """With the first of its reasons; the steps before it are counted."""
    seen: list[tuple[int, str, int]] = []

    def session(step: Step) -> None:
        for batch in range(4):
            try:
                step(batch)
            except Interrupted as why:
                seen.append((batch, str(why), why.steps))

    coroutine = SessionCoroutine(session)
    for _ in range(3):
        coroutine.next()
    coroutine.interrupt("validation")
    coroutine.interrupt("next epoch")
    coroutine.next()
    assert (seen, coroutine.undisturbed) == ([(2, "validation", 3)], 1)


class Meeting:
    """Three ranks, whose turns a test gives."""

    def __init__(self) -> None:
        self.store, self.clock = FakeStore(), FakeClock()
        self.ranks = [StartAgreement(self.store, rank, 3, self.clock) for rank in range(3)]

    def steps(self, first: int, last: int, *ranks: int) -> dict[int, int]:
        """These ranks, or all, ask before each of these passes; the pass at which each took over."""
        taken: dict[int, int] = {}
        for passes in range(first, last):
            for rank in ranks or (0, 1, 2):
                if rank not in taken and self.ranks[rank].ask(passes, OFFER):
                    taken[rank] = passes
        return taken


def test_all_take_over_at_the_same_step() -> None:
    """Some steps after the last has offered its loader. Who refuses too late takes over with the others."""
    meeting = Meeting()
    taken = meeting.steps(8, 40)
    assert len(taken) == 3 and len(set(taken.values())) == 1 and 8 + AHEAD <= taken[0] <= 9 + AHEAD
    meeting.ranks[1].refuse(OTHER_THREAD)
    assert meeting.ranks[1].agreed and meeting.ranks[1].not_together is None


def test_a_rank_that_is_ahead_waits_for_the_word_of_rank_0() -> None:
    """It polls at the step, and rank 0 comes meanwhile."""
    meeting = Meeting()
    assert not meeting.steps(8, 12)
    named = meeting.ranks[0].proposed
    assert named is not None
    meeting.steps(12, named[0])

    def sleep(seconds: float) -> None:
        meeting.clock._now_ns += round(seconds * 1e9)
        assert meeting.ranks[0].ask(named[0], OFFER)

    meeting.ranks[1].clock = type("Polled", (), {"now_ns": meeting.clock.now_ns, "sleep": staticmethod(sleep)})()
    assert meeting.ranks[1].ask(named[0], OFFER)


def not_together(code: Any, *ranks: int, detail: str = "") -> NotTogether:
    return NotTogether(code=code, ranks=ranks, detail=detail)


@pytest.mark.parametrize(
    ("turns", "why", "waits"),
    [
        # Rank 0 trains on without a loader of another, for some time or until its script ends.
        (lambda of: (of.steps(8, 60, 0, 2), of.clock.sleep(PATIENCE_S + 1)), not_together("silent", 1), False),
        (lambda of: (of.steps(8, 10, 0, 2), of.ranks[0].end()), not_together("silent", 1), False),
        (lambda of: (of.steps(8, 10), of.ranks[1].end()), not_together("ended", 1), False),
        (lambda of: of.ranks[1].refuse(OTHER_THREAD), OTHER_THREAD, False),
        (lambda of: (of.steps(8, 12), of.ranks[1].refuse(OTHER_THREAD)), OTHER_THREAD, False),
        (
            lambda of: of.ranks[1].ask(8, replace(OFFER, batch_size=4, loader=1)),
            not_together("loaders_differ", 1, detail="batch_size"),
            False,
        ),
        # It hears of the step when it has passed it, or never.
        (
            lambda of: (of.steps(8, 9, 1, 2), of.steps(8, 9, 0), of.steps(50, 51, 1)),
            not_together("out_of_step", 1),
            False,
        ),
        (lambda of: (of.steps(8, 9, 1), of.steps(8, 40, 0, 2)), not_together("out_of_step", 1), False),
        # Rank 0 does not come to the step.
        (lambda of: (of.steps(8, 10), of.steps(10, 40, 1, 2)), not_together("out_of_step", 0), True),
    ],
)
def test_ranks_not_together_go_on(turns: Callable[[Meeting], object], why: NotTogether, *, waits: bool) -> None:
    """All have the reason and none takes over; no rank waits for one that may not come, but for a while at the step."""
    meeting = Meeting()
    begin_ns = meeting.clock.now_ns()
    turns(meeting)
    waited_s = (meeting.clock.now_ns() - begin_ns) / 1e9
    assert not waits or script_ranks.ANSWER_TIMEOUT_S <= waited_s < script_ranks.ANSWER_TIMEOUT_S + 1
    assert meeting.steps(60, 70) == {}
    assert [rank.not_together for rank in meeting.ranks] == [why] * 3


@pytest.mark.parametrize(("error", "said"), [(None, MEASURED), (LoaderprobeError("it ended"), CANNOT_GO_ON)])
def test_a_rank_that_follows_says_if_it_was_measured(tmp_path: Path, error: LoaderprobeError | None, said: str) -> None:
    """Where the script goes on although its end was heard."""

    def give_up() -> None:
        if error is not None:
            raise error

    request = AttachRequest(run=str(tmp_path), scratch=str(tmp_path), command="train.py", budget_s=None)
    rank = Attachment(request, lambda *_: None, lambda *_: None)
    nothing = SimpleNamespace(stop=lambda: None, close=lambda: None, total_s=0.0, happens=False)
    given_up = SimpleNamespace(give_up=give_up, inside=False, over=False)
    vars(rank).update(
        _ranks=SimpleNamespace(is_coordinator=False, not_together=None),
        _takeover=SimpleNamespace(evaluation=nothing, pauses=nothing, other_training=nothing, coroutine=given_up),
    )
    rank._loaders.trained_in = threading.get_ident()
    rank.end()
    with pytest.raises(Finished, match=said):
        rank.loop_begins(None)


STEP_S = 0.01
"""That a step of a loop takes on a fake clock."""


def loop_session(clock: FakeClock, step: Step, service: Service, parts: dict[str, Any], **options: Any) -> Measurement:
    """What is measured until the loop gives up; `parts` are those that are not usual, `options` of the session."""
    session = scripted_session(
        service, example_config(), example_files(), clock=clock,
        make=lambda *_: StepCompute(step, example_arguments(clock)), **{"period": 1, **options},
    )  # fmt: skip
    session.parts = replace(session.parts, **parts)
    with suppress(GivenUp):
        session.run()
    return session.measurement((), ())


def trained(interrupted: Callable[[int], bool], *, other_s: float = 1.0, **options: Any) -> Measurement:
    """What is measured of a loop that does something else, for `other_s`, after the steps that `interrupted` names."""
    clock = FakeClock()
    coroutine = SessionCoroutine(lambda step: loop_session(clock, step, Service(cpu_s=0.002), {}, **options))
    while True:
        coroutine.next()
        if coroutine.over:
            return coroutine.result  # type: ignore[no-any-return]
        clock.sleep(STEP_S)
        if interrupted(coroutine.steps):
            clock.sleep(other_s)
            coroutine.interrupt("validation")


def holds_no_interruption(found: Measurement) -> bool:
    """No step of any segment lasts as long as a validation, and segments were measured again."""
    spans = [span for segment in found.segments for span in zip(segment.begin_ns, segment.end_ns, strict=True)]
    return AGAIN in found.notes and all(end - begin < 0.5e9 for begin, end in spans)


def test_segments_with_an_interruption_are_void() -> None:
    """And batches are still counted right."""
    found = trained(lambda number: number % 40 == 0)
    assert holds_no_interruption(found)
    taken = [segment.first_batch for segment in found.segments if segment.first_batch >= 0]
    assert len(set(taken)) == len(taken)


def paused(at: int, beyond_s: float = 0.0) -> Measurement:
    return trained(lambda number: number == at, other_s=200.0, budget_s=100.0, beyond_s=lambda _: beyond_s)


def test_a_long_pause_of_the_script_ends_a_budget() -> None:
    """With the rounds that there are; not before the first is over, nor where an open verdict has more time."""
    whole = trained(lambda _: False, budget_s=100.0)
    late, early = (paused(at) for at in (250, 40))
    assert CUT_SHORT in late.notes and late.wall_s < 250
    assert 0 < len(late.segments) < len(whole.segments)
    assert {"loader_only", "training"} <= {segment.activity for segment in early.segments}
    longer = paused(250, beyond_s=300.0)
    assert CUT_SHORT not in longer.notes and len(longer.segments) == len(whole.segments)


def test_a_loop_that_never_trains_in_a_row_is_refused() -> None:
    """After some attempts, with the reason."""
    with pytest.raises(BadValue, match="never trained 6 steps in a row: validation"):
        trained(lambda number: number > 40)
    assert ATTEMPTS > 1


class Rank:
    """One rank in a thread of its own, with a fake clock of its own; `after` is what its loop does after each step."""

    def __init__(self, group: FakeGroup, cpu_s: float, after: Callable[[Rank], None]) -> None:
        self.group, self.clock, self.collectives = group, FakeClock(), ScriptCollectives(group)
        self._service, self._after = Service(cpu_s=cpu_s), after
        self.found: Measurement | None = None
        self.error: BaseException | None = None
        self.coroutine = self.collectives.coroutine = SessionCoroutine(self._measured, self.collectives)

    def run(self) -> None:
        try:
            self.coroutine.next()
            while not self.coroutine.over:
                self.clock.sleep(STEP_S)
                self._after(self)
                if not self.coroutine.over:
                    self.coroutine.next()
            self.found = self.coroutine.result
        except (Withdrawn, LostRank) as error:
            self.error = error

    def _measured(self, step: Callable[[Any], None]) -> Measurement:
        return loop_session(self.clock, step, self._service, {"collectives": self.collectives})

    @property
    def steps(self) -> list[tuple[str, str, int]]:
        assert self.found is not None
        return [(each.mode, each.activity, each.steps) for each in self.found.segments]


def nothing(_: Rank) -> None:
    """A loop that goes on for ever."""


def ran(*loops: tuple[float, Callable[[Rank], None]]) -> list[Rank]:
    """All ranks, by the CPU time of their samples and what their loops do, to their ends."""
    ranks = [Rank(group, *loop) for group, loop in zip(FakeGroup.of(len(loops)), loops, strict=True)]
    in_threads(rank.run for rank in ranks)
    return ranks


def test_what_disturbs_one_rank_voids_the_segment_of_all() -> None:
    """Both begin it again, and take the same steps in the same segments, although one is slower."""

    def validates(rank: Rank) -> None:
        if rank.coroutine.steps % 40 == 0:
            rank.clock.sleep(1.0)
            rank.coroutine.interrupt("validation")

    ranks = ran((0.001, validates), (0.004, nothing))
    assert ranks[0].steps == ranks[1].steps and ranks[0].group.calls == ranks[1].group.calls
    assert all(rank.found is not None and holds_no_interruption(rank.found) for rank in ranks)


def test_a_rank_that_refuses_lets_no_loop_be_handed_over() -> None:
    """The others hear of it before their first step, rank 0 with the reason."""
    first, second = (Rank(group, 0.001, nothing) for group in FakeGroup.of(2))
    not_together = NotTogether(code="refused", ranks=(1,), detail="no batches")
    refusals: list[NotTogether | None] = []
    in_threads([lambda: refusals.append(second.collectives.refusal(not_together)), first.run])
    assert isinstance(first.error, Withdrawn) and first.coroutine.steps == 0
    assert [first.error.why, *refusals] == [not_together, not_together]


def test_a_script_that_ends_on_one_rank_ends_the_measurement_of_all() -> None:
    """With the whole rounds so far; the other's loop waits at its next batch meanwhile."""

    def ends(rank: Rank) -> None:
        if rank.coroutine.steps == 300:
            rank.coroutine.give_up()

    first, second = ran((0.001, ends), (0.001, nothing))
    assert first.steps == second.steps != []
    assert first.coroutine.steps == second.coroutine.steps == 300


def test_a_rank_that_dies_leaves_no_other_waiting() -> None:
    """They lose it where they meet next."""

    def dies(rank: Rank) -> None:
        if rank.coroutine.steps == 30:
            rank.group.leave()
            raise LostRank("it died")

    first, _ = ran((0.001, nothing), (0.001, dies))
    assert isinstance(first.error, LostRank) and 29 <= first.coroutine.steps <= 30


def test_ctrl_c_while_ranks_are_written_leaves_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there already; the script ends by Ctrl-C."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    kept = list[OwnMeasured]()
    request = AttachRequest(run=str(tmp_path), scratch=str(tmp_path), command="train.py", budget_s=None)
    attachment = Attachment(request, lambda *_: None, kept.append)
    measured: Any = OwnMeasured(config=None, measurement=seen(loop(60), records(60)), data=None)  # type: ignore[arg-type]  # not read
    vars(attachment)["_ranks"] = SimpleNamespace(
        measure=lambda *_: measured, notes=lambda _: (), keep=interrupted, not_together=None, is_coordinator=True
    )
    monkeypatch.setattr("loaderprobe.measure.attach.attachment.workers_start", lambda *_: ())
    pauses: Any = SimpleNamespace(total_s=0.0, close=lambda: None)
    measure = partial(attachment._measured, None, pauses, 60.0, 0.0)  # type: ignore[arg-type]  # its loader is not asked
    takeover: Any = SimpleNamespace(
        coroutine=SessionCoroutine(measure), pauses=pauses, resumes=lambda: None, epoch_is_over=False
    )
    with pytest.raises(KeyboardInterrupt):
        attachment._measured_batch(takeover, (iter(()), 1))
    assert len(kept) == 1 and attachment.record().why_not is None
