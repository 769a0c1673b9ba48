"""Steps: a user's own, on the CPU and on a device that runs behind the host; events round them; emulated ones; none."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

import pytest
import torch

from loaderprobe.compute import step as module
from loaderprobe.compute import torch as with_torch
from loaderprobe.compute.emulated import EmulatedCompute, parse_rate
from loaderprobe.compute.step import NoCompute, StepCompute
from loaderprobe.compute.torch import StepEvents
from loaderprobe.errors import LoaderprobeError
from loaderprobe.loaders import torch as torch_loader
from loaderprobe.records.config import ACCELERATORS
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.testing import FakeClock, example_arguments

STEP_S, LAUNCH_S = 0.010, 0.001
SECOND = 10**9
BEGIN_NS = FakeClock().now_ns()


class Gpu:
    """CUDA on a fake clock, behind the host. One stream: events are reached when the work before them has run."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.free_ns, self.made, self.waits, self.in_use = clock, 0, 0, 0, False

    def launch(self, seconds: float) -> None:
        """Work of so many seconds; the host goes on at once."""
        self.in_use = True
        self.free_ns = max(self.free_ns, self.clock.now_ns()) + round(seconds * 1e9)

    def step(self) -> None:
        """One that takes as long as others to launch, and to run."""
        self.clock.sleep(LAUNCH_S)
        self.launch(STEP_S)

    def synchronize(self, device: Any = None) -> None:
        self.waits += 1
        self.clock.sleep(max(0, self.free_ns - self.clock.now_ns()) / 1e9)

    def event(self, *, enable_timing: bool) -> Any:
        """As torch.cuda.Event."""
        gpu = self
        gpu.made += 1

        class Event:
            reached_ns = 0

            def record(self, stream: Any = None) -> None:
                self.reached_ns = max(gpu.free_ns, gpu.clock.now_ns())

            def elapsed_time(self, other: Self) -> float:
                return (other.reached_ns - self.reached_ns) / 1e6

        return Event()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu(FakeClock())
    cuda = SimpleNamespace(
        Event=found.event, synchronize=found.synchronize, get_device_name=lambda: "Fake GPU",
        current_stream=lambda device: None,
    )  # fmt: skip
    monkeypatch.setattr(module, "cuda_in_use", lambda: found.in_use)
    monkeypatch.setattr(torch, "cuda", cuda)
    return found


@pytest.mark.parametrize(
    ("in_use", "step", "begun_ms", "ended_ms", "synchronous"),
    [
        (False, lambda gpu: gpu.clock.work(STEP_S), [], [10, 20, 30], True),
        # Launched in 1 ms each: the device comes to each step when the one before has ended.
        (True, Gpu.step, [0, 11, 21], [11, 21, 31], False),
        # As with loss.item(): at the end of a segment there is nothing to wait for.
        (True, lambda gpu: (gpu.step(), gpu.synchronize()), [0, 11, 22], [11, 22, 33], True),
        # The first step ended on the host; when the device began is not known of all.
        (
            False,
            lambda gpu: gpu.step() if gpu.clock.now_ns() > BEGIN_NS else gpu.clock.sleep(STEP_S),
            [],
            [10, 21, 31],
            False,
        ),
    ],
    ids=["on the CPU", "behind the host", "waits for its device", "the second first uses the device"],
)
def test_a_step_ends_where_it_ran(
    gpu: Gpu, in_use: bool, step: Callable[[Gpu], object], begun_ms: list[int], ended_ms: list[int], synchronous: bool
) -> None:
    """On the CPU when it returns; on a device that runs behind on its own timeline, without a wait but for the last."""
    gpu.in_use = in_use
    compute = StepCompute(lambda _: step(gpu), example_arguments(gpu.clock))
    for _ in range(3):
        compute.step(compute.copy(torch.zeros(2)))
    ended, begun = ([round((at - BEGIN_NS) / 1e6) for at in stamps] for stamps in (compute.finish(), compute.begun()))
    assert (begun, ended, gpu.clock.now_ns()) == (begun_ms, ended_ms, BEGIN_NS + ended_ms[-1] * 1_000_000)
    assert compute.finish() == compute.begun() == ()
    info = compute.info()
    assert (info.synchronous, info.specified_images_per_s) == (synchronous, None)
    assert info.device == ("Fake GPU" if gpu.in_use else "CPU")


def raising(error: BaseException) -> StepCompute:
    return StepCompute(Mock(side_effect=error), example_arguments(FakeClock()))


@pytest.mark.parametrize("error", [ValueError("bad shape"), StopIteration(), SystemExit("no data")])
def test_whatever_a_step_raises_is_named_as_its_own(error: BaseException) -> None:
    """Also what would end an iteration, or the program, silently; not what torch reports of a worker by a signal."""
    with pytest.raises(LoaderprobeError, match=f"your step raised {type(error).__name__}") as caught:
        raising(error).step(None)
    assert caught.value.__cause__ is error
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        raising(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")).step(None)


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


@pytest.mark.parametrize(("loading_s", "idle_ms"), [(0.030, 20), (0.005, 0)])
def test_the_wait_that_a_device_feels_lies_between_two_steps(gpu: Gpu, loading_s: float, idle_ms: int) -> None:
    """Of 30 ms beside steps of 10 it is 20, of 5 none. The device is waited for once; events are reused. A step that
    fails, as the last here, begins no other."""
    events = StepEvents(gpu.clock)
    for _ in range(2):
        for _ in range(4):
            gpu.clock.sleep(loading_s)
            events.begin()
            events.begin()
            gpu.launch(STEP_S)
            events.end()
        events.begin()
        ended = events.finish()
        idle = [round((begun - end) / 1e6) for end, begun in zip(ended, events.begun[1:], strict=False)]
        assert idle == [idle_ms] * 3 and ended[0] - events.begun[0] == round(STEP_S * 1e9)
        assert ended[-1] == gpu.clock.now_ns()
    assert (gpu.waits, gpu.made) == (2, 10)
    assert events.finish() == events.begun == ()


BATCH = (SimpleNamespace(shape=(100, 3)), None)


def test_the_host_runs_two_steps_ahead() -> None:
    """The timeline is exact: every step takes batch over rate. Two are submitted at once, the third waits for the
    first; they end back to back. A step begins when its batch is there, not before."""
    clock = FakeClock()
    device = EmulatedCompute(example_arguments(clock, compute="emulated:100"))
    host = []
    for wait_s in (0, 0, 0, 0, 5):
        clock.sleep(wait_s)
        device.step(BATCH)
        host.append((clock.now_ns() - BEGIN_NS) / SECOND)
    assert host == [0, 0, 1, 2, 7]
    assert [(time - BEGIN_NS) / SECOND for time in device.finish()] == [1, 2, 3, 4, 8]
    assert device.finish() == ()


RATES = {
    "mlperf-a100": 400 / 0.435,
    "mlperf-h100": 400 / 0.224,
    "v100-amp": 1200,
    "a100-amp": 2470,
    "a100-tf32": 938,
    "rtx3090-amp": 1218,
}


@pytest.mark.parametrize("name", RATES)
def test_named_accelerators_have_their_published_rate_and_its_source(name: str) -> None:
    """A rate without a source is not to be trusted with money."""
    assert parse_rate(name)[0] == pytest.approx(RATES[name])
    assert len(ACCELERATORS[name][1]) > 20
    info = EmulatedCompute(example_arguments(FakeClock(), compute=f"emulated:{name}")).info()
    assert info.specified_images_per_s == pytest.approx(RATES[name]) and "emulated" in info.device


def test_no_step_takes_no_time() -> None:
    """And says that there is none."""
    clock = FakeClock()
    compute = NoCompute(example_arguments(clock))
    now_ns = clock.now_ns()
    for _ in range(3):
        compute.step(torch.zeros(4, 3))
    assert compute.finish() == (now_ns,) * 3
    assert (clock.now_ns(), compute.info().name) == (now_ns, NO_STEP)


def test_a_step_of_the_users_own_needs_no_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training of texts may have none, and its import takes over a second."""
    for name in ("torchvision", "torchvision.io", "torchvision.transforms"):
        monkeypatch.setitem(sys.modules, name, None)
    for part in (with_torch, torch_loader):
        assert runpy.run_path(str(part.__file__))["annotations"]
