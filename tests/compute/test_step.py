"""A user's own step, on the CPU and on a device that runs behind the host; and no step."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from loaderprobe.compute import step as module
from loaderprobe.compute.step import NoCompute, StepCompute
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.testing import FakeClock, example_arguments
from tests.compute.fake_gpu import Gpu

STEP_S = 0.010
LAUNCH_S = 0.001


class SteppingGpu(Gpu):
    """One whose steps all take as long to launch, and to run."""

    def step(self, batch: Any) -> None:
        """A step that returns at once."""
        self.clock.sleep(LAUNCH_S)
        self.launch(STEP_S)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SteppingGpu:
    """In use, as far as the step can see."""
    found = SteppingGpu(FakeClock())
    monkeypatch.setattr(module, "cuda_in_use", lambda: True)
    cuda = SimpleNamespace(Event=found.event, synchronize=found.synchronize, get_device_name=lambda: "Fake GPU")
    monkeypatch.setattr(torch, "cuda", cuda)
    return found


def test_a_step_on_the_cpu_ends_when_it_returns() -> None:
    """And is synchronous: its ends are those of the calls."""
    clock = FakeClock()
    compute = StepCompute(lambda batch: clock.work(STEP_S), example_arguments(clock))
    begin_ns = clock.now_ns()
    for _ in range(3):
        compute.step(compute.copy(torch.zeros(2)))
    assert compute.finish() == tuple(begin_ns + round(number * STEP_S * 1e9) for number in (1, 2, 3))
    assert compute.finish() == ()
    assert compute.begun() == ()
    info = compute.info()
    assert (info.synchronous, info.specified_images_per_s, info.device) == (True, None, "CPU")


def test_a_device_that_runs_behind_is_timed_on_its_own_timeline(gpu: SteppingGpu) -> None:
    """Steps are launched in 1 ms each and run for 10 ms each; only the end of a segment is waited for."""
    compute = StepCompute(gpu.step, example_arguments(gpu.clock))
    for _ in range(5):
        compute.step(None)
    ended = compute.finish()
    assert [round((b - a) / 1e6) for a, b in pairwise(ended)] == [10, 10, 10, 10]
    assert ended[-1] == gpu.clock.now_ns()
    # The device is never out of work: it comes to each step when the one before has ended.
    assert compute.begun()[1:] == ended[:-1]
    assert (compute.info().synchronous, compute.info().device) == (False, "Fake GPU")


def test_a_step_that_waits_for_its_device_is_synchronous(gpu: SteppingGpu) -> None:
    """As with loss.item(): at the end there is nothing left to wait for."""

    def step(batch: Any) -> None:
        gpu.step(batch)
        gpu.synchronize()

    compute = StepCompute(step, example_arguments(gpu.clock))
    for _ in range(5):
        compute.step(None)
    compute.finish()
    assert compute.info().synchronous


@pytest.mark.parametrize("error", [ValueError("bad shape"), StopIteration(), RuntimeError("out of memory")])
def test_whatever_a_step_raises_is_named_as_its_own(error: Exception) -> None:
    """Also what would otherwise end an iteration silently."""

    def step(batch: Any) -> None:
        raise error

    with pytest.raises(LoaderprobeError, match=f"your step raised {type(error).__name__}") as caught:
        StepCompute(step, example_arguments(FakeClock())).step(None)
    assert caught.value.__cause__ is error


def test_what_torch_reports_of_a_worker_is_not_the_steps_own() -> None:
    """It arrives by a signal, in the midst of whatever runs."""

    def step(batch: Any) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    with pytest.raises(RuntimeError, match="DataLoader worker"):
        StepCompute(step, example_arguments(FakeClock())).step(None)


def test_a_step_may_take_its_batch_apart() -> None:
    """The batch that stays is whole again for the next step, and its tensors are the same."""
    image = torch.ones(2)
    batch = {"image": image, "rest": [[image], (image, {"label": image})]}
    seen: list[Any] = []

    def step(given: Any) -> None:
        seen.append(given.pop("image"))
        given["rest"][1][1].clear()
        given["rest"][0].clear()

    compute = StepCompute(step, example_arguments(FakeClock()))
    compute.step(batch)
    compute.step(batch)
    assert all(each is image for each in seen)
    assert batch == {"image": image, "rest": [[image], (image, {"label": image})]}


def test_no_step_takes_no_time() -> None:
    """And says that there is none."""
    clock = FakeClock()
    compute = NoCompute(example_arguments(clock))
    now_ns = clock.now_ns()
    for _ in range(3):
        compute.step(torch.zeros(4, 3))
    assert compute.finish() == (now_ns,) * 3
    assert clock.now_ns() == now_ns
    assert compute.info().name == NO_STEP
