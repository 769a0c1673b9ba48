"""A training without a DataLoader is seen from outside, and which loader of a script trains."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
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
    return Outside(heard.append, tmp_path, no_loader_yet, clock.now_ns), heard, clock


@pytest.mark.parametrize(
    ("steps", "batch", "passes", "seconds", "said"),
    [
        (LEAST_PASSES - 1, False, 1, 0.0, 0),
        (400, False, 1, 0.0, LEAST_PASSES),
        (3, False, 1, 25.0, 0),
        (4, False, 1, 25.0, 4),
        (200, True, 3, 30.0, 0),  # several passes a batch, however long it goes on
    ],
)
def test_passes_without_a_loader_are_said_once(
    made: Made, steps: int, batch: bool, passes: int, seconds: float, said: int
) -> None:
    """After a hundred of them, or a minute; before, a loader may still come."""
    seen, heard, clock = made
    for _ in range(steps):
        if batch:
            seen.took()
        for _ in range(passes):
            seen.backward()
        clock.sleep(seconds)
    assert [line.split(" without a new batch of a torch DataLoader")[0] for line in heard] == (
        [f"{said} backward passes"] if said else []
    )
    assert seen.looked == bool(said)


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
            seen.updated()

    train(LEAST_PASSES)
    before = sys.getprofile()
    train(400)
    assert sys.getprofile() is before and heard
    seen.close()
    found = seen.seen()
    assert found is not None
    assert found.place.startswith("slow_batch (test_outside.py:")
    assert found.share == pytest.approx(0.3, abs=0.001) and found.step_s == pytest.approx(0.01, rel=0.01)
    assert found.timed >= outside.TIMED_STEPS


def in_another_thread(call: Callable[[], Any]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_another_thread_is_no_part_of_the_training(made: Made) -> None:
    """Its passes are no steps; timing that it ends leaves no hook: it goes with the next call in its own thread."""
    seen, heard, clock = made

    def passes() -> None:
        for _ in range(LEAST_PASSES + 1):
            seen.backward()

    in_another_thread(passes)
    assert heard and seen._count == 1
    passes()
    assert seen._count == 1
    calls = CallTimes(stack_of(sys._getframe()), clock.now_ns)
    begun = calls.begin()
    in_another_thread(calls.end)
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


def test_a_place_is_the_script_s_own_by_its_file_and_a_library_s_by_its_name() -> None:
    """The script ends where torch begins: what a closure of an optimizer calls is the optimizer's."""
    here = stack_of(sys._getframe())
    inside = stack_of(get_batch())
    assert shared(here, inside) == here
    assert of_the_script((*here, (here[-1][0], "torch._tensor"), *inside)) == here
    assert str(called(here, inside)).startswith("get_batch (test_outside.py:") and called(here, here) is None
    assert str(place_of(subprocess.list2cmdline.__code__, "subprocess")) == "list2cmdline of subprocess"


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
    assert seconds == 40 == pauses.total_s and place.startswith("get_batch (test_outside.py:")


@pytest.mark.parametrize(
    ("batches", "passes", "updates", "expected"),
    [
        (8, 1, 0, ""),
        (7, 3, 0, "too_few_steps"),
        (8, 3, 0, ""),  # three backward passes are one step
        (12, 8, 3, ""),  # with an optimizer for each parameter
        (12, 25, 3, "no_loader"),  # a validation between many updates
    ],
)
def test_the_loader_that_trains_is_chosen(
    tmp_path: Path, batches: int, passes: int, updates: int, expected: str
) -> None:
    """Once a batch of it had so many steps, of up to eight updates each."""
    loaders, chosen = SeenLoaders(), list[bool]()
    seen = loaders.seen(Training(tmp_path).loader)
    for _ in range(batches):
        loaders.took(seen, 1, 2)
        for _ in range(passes):
            loaders.backward()
            chosen.append(loaders.choice(None, 8) is seen)
            for _ in range(updates):
                loaders.updated()
    assert any(chosen) == (not expected)
    assert not expected or loaders.why_none(None) == expected


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
