"""A training without a DataLoader is seen from outside."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from loaderprobe.measure.attach import outside
from loaderprobe.measure.attach.attachment import announce, claimed, others_that_train
from loaderprobe.measure.attach.outside import LEAST_PASSES, Outside, Pauses
from loaderprobe.measure.attach.script_loaders import SeenLoaders
from loaderprobe.records.waits import CodePlace
from loaderprobe.render.attachment_words import no_loader_yet
from loaderprobe.system import stacks
from loaderprobe.system.stacks import CallTimes, called, of_the_script, place_of, shared, stack_of
from loaderprobe.testing import FakeClock
from tests.examples.training import Training


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process samples waits."""
    monkeypatch.setattr("loaderprobe.samplers.waits.WaitsSampler._begin", lambda self, folder: None)


def made(tmp_path: Path) -> tuple[Outside, list[str], FakeClock]:
    said: list[str] = []
    clock = FakeClock()
    return Outside(said.append, tmp_path, no_loader_yet, clock.now_ns), said, clock


@pytest.mark.usefixtures("quiet")
def test_passes_without_a_loader_are_said_once(tmp_path: Path) -> None:
    """After a hundred of them; before, a loader may still come."""
    seen, said, _ = made(tmp_path)
    for _ in range(LEAST_PASSES - 1):
        seen.backward()
    assert not said
    for _ in range(300):
        seen.backward()
    (line,) = said
    assert line.startswith(f"{LEAST_PASSES} backward passes without a new batch of a torch DataLoader")


@pytest.mark.usefixtures("quiet")
def test_slow_passes_are_said_after_a_minute(tmp_path: Path) -> None:
    """By the clock."""
    seen, said, clock = made(tmp_path)
    for _ in range(3):
        seen.backward()
        assert not said
        clock.sleep(25)
    seen.backward()
    assert len(said) == 1 and said[0].startswith("4 backward passes")


@pytest.mark.usefixtures("quiet")
def test_several_passes_a_batch_are_no_training_without_a_loader(tmp_path: Path) -> None:
    """However long it goes on."""
    seen, said, clock = made(tmp_path)
    for _ in range(200):
        seen.took()
        for _ in range(3):
            seen.backward()
        clock.sleep(30)
    assert not said and not seen.looked


def get_batch() -> FrameType:
    return sys._getframe()


def slow_batch(clock: FakeClock, seconds: float) -> None:
    clock.sleep(seconds)


@pytest.mark.usefixtures("quiet")
def test_the_time_beside_the_model_is_that_of_a_function(tmp_path: Path) -> None:
    """As a share of a step; not that of an evaluation, which makes batches, too, nor of a step that holds one."""
    seen, said, clock = made(tmp_path)

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
            seen.updated()

    train(LEAST_PASSES)
    before = sys.getprofile()
    train(400)
    assert sys.getprofile() is before and said
    seen.close()
    found = seen.seen()
    assert found is not None
    assert found.place.startswith("slow_batch (test_outside.py:")
    assert found.share == pytest.approx(0.3, abs=0.001) and found.step_s == pytest.approx(0.01, rel=0.01)
    assert found.timed >= outside.TIMED_STEPS


def test_timing_that_another_thread_ends_leaves_no_hook() -> None:
    """It goes with the next call in its own thread."""
    clock = FakeClock()
    calls = CallTimes(stack_of(sys._getframe()), clock.now_ns)
    begun = calls.begin()
    other = threading.Thread(target=calls.end)
    other.start()
    other.join()
    slow_batch(clock, 0.01)
    assert begun and sys.getprofile() is None


@pytest.mark.usefixtures("quiet")
def test_passes_of_another_thread_are_no_steps(tmp_path: Path) -> None:
    """Of the thread that is looked at."""
    seen, said, _ = made(tmp_path)

    def passes() -> None:
        for _ in range(LEAST_PASSES + 1):
            seen.backward()

    other = threading.Thread(target=passes)
    other.start()
    other.join()
    assert said and seen._count == 1
    passes()
    assert seen._count == 1


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


@pytest.mark.usefixtures("quiet")
def test_a_script_that_is_profiled_is_left_alone(tmp_path: Path) -> None:
    """Its own hook stays."""
    seen, _, clock = made(tmp_path)

    def heard(*_: object) -> None:
        """A profiler."""

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        for _ in range(200):
            slow_batch(clock, 0.01)
            seen.backward()
        assert sys.getprofile() is heard
    finally:
        sys.setprofile(before)
    assert seen.seen() is None


def test_the_script_ends_where_torch_begins() -> None:
    """What a closure of an optimizer calls is the optimizer's."""
    here = stack_of(sys._getframe())
    inside = stack_of(get_batch())
    assert shared(here, inside) == here
    assert of_the_script((*here, (here[-1][0], "torch._tensor"), *inside)) == here
    assert str(called(here, inside)).startswith("get_batch (test_outside.py:") and called(here, here) is None


def test_a_function_of_a_library_is_named_with_it() -> None:
    """The script's own by its file."""
    text = subprocess.list2cmdline.__code__
    assert str(place_of(text, "subprocess")) == "list2cmdline of subprocess"


def test_a_pause_says_where_it_was() -> None:
    """Not a step of usual length."""
    clock = FakeClock()
    pauses = Pauses(clock.now_ns)
    pauses.begin()
    clock.sleep(4)
    assert pauses.end() is None
    pauses.begin()
    clock.sleep(30)
    pauses.heard(stack_of(get_batch()))
    clock.sleep(10)
    seconds, place = pauses.end() or (0.0, "")
    assert seconds == 40 and place.startswith("get_batch (test_outside.py:")
    assert pauses.total_s == 40


def test_three_backward_passes_are_one_step(tmp_path: Path) -> None:
    """So the loader is left alone for as many steps as any other."""
    loaders = SeenLoaders()
    seen = loaders.seen(Training(tmp_path).loader)
    for _ in range(7):
        loaders.took(seen, 1, 2)
        for _ in range(3):
            loaders.backward()
    assert loaders.choice(None, 8) is None
    loaders.took(seen, 1, 2)
    loaders.backward()
    assert loaders.choice(None, 8) is seen


def test_a_validation_between_many_updates_is_no_training(tmp_path: Path) -> None:
    """One batch for up to eight updates is, also with an optimizer for each parameter."""
    for updates, trains in ((8, True), (25, False)):
        loaders = SeenLoaders()
        seen = loaders.seen(Training(tmp_path).loader)
        chosen = []
        for _ in range(12):
            loaders.took(seen, 1, 2)
            for _ in range(updates):
                loaders.backward()
                chosen.append(loaders.choice(None, 8))
                for _ in range(3):
                    loaders.updated()
        assert any(chosen) is trains
        assert loaders.why_none(None) == ("too_few_steps" if trains else "no_loader")
        assert seen.trained == 12


def test_a_batch_without_a_pass_is_no_step_unless_that_is_usual(tmp_path: Path) -> None:
    """As where the losses of four batches are added up."""
    for batches in (1, 4):
        loaders = SeenLoaders()
        seen = loaders.seen(Training(tmp_path).loader)
        for number in range(6):
            for _ in range(batches):
                assert seen.passes.trains or not number
                loaders.took(seen, 1, 2)
            loaders.backward()
        for _ in range(batches):
            assert seen.passes.trains
            loaders.took(seen, 1, 2)
        assert not seen.passes.trains and not seen.passes.evaluates
        loaders.took(seen, 1, 2)
        assert seen.passes.evaluates


def test_a_script_outlives_the_command(tmp_path: Path) -> None:
    """Its folder is gone then: a first backward pass is no error, and nothing is measured."""
    announce(tmp_path / "gone")
    assert not claimed(tmp_path / "gone")
    assert claimed(tmp_path) and not claimed(tmp_path)


def test_processes_that_train_are_counted_while_they_run(tmp_path: Path) -> None:
    """Not this one, and none that has ended."""
    announce(tmp_path)
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    (tmp_path / f"trains-{ended.pid}").touch()
    ended.wait()
    assert others_that_train(tmp_path) == 0
    (tmp_path / f"trains-{os.getppid()}").touch()
    assert others_that_train(tmp_path) == 1
    assert multiprocessing.parent_process() is None
