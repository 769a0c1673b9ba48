"""Steps: a user's own, on the CPU and on a device that runs behind the host; events round them; emulated ones; none."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

import pytest
import torch

from loaderprobe.compute import step as module
from loaderprobe.compute.emulated import EmulatedCompute, parse_rate
from loaderprobe.compute.step import NoCompute, StepCompute
from loaderprobe.compute.torch import StepEvents
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.config import ACCELERATORS
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.testing import FakeClock, example_arguments

STEP_S, LAUNCH_S = 0.010, 0.001
SECOND = 10**9


class Gpu:
    """CUDA on a fake clock, behind the host. One stream: events are reached when the work before them has run."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.free_ns, self.made, self.waits = clock, 0, 0, 0

    def launch(self, seconds: float) -> None:
        """Work of so many seconds; the host goes on at once."""
        self.free_ns = max(self.free_ns, self.clock.now_ns()) + round(seconds * 1e9)

    def step(self, batch: Any) -> None:
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
    monkeypatch.setattr(module, "cuda_in_use", lambda: True)
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
    assert compute.finish() == compute.begun() == ()
    info = compute.info()
    assert (info.synchronous, info.specified_images_per_s, info.device) == (True, None, "CPU")


def test_a_device_that_runs_behind_is_timed_on_its_own_timeline(gpu: Gpu) -> None:
    """Steps are launched in 1 ms each and run for 10 ms each; only the end of a segment is waited for. A step that
    waits for its device, as with loss.item(), is synchronous: at the end there is nothing to wait for."""
    compute = StepCompute(gpu.step, example_arguments(gpu.clock))
    for _ in range(5):
        compute.step(None)
    ended = compute.finish()
    assert [round((b - a) / 1e6) for a, b in pairwise(ended)] == [10, 10, 10, 10]
    assert ended[-1] == gpu.clock.now_ns()
    # The device is never out of work: it comes to each step when the one before has ended.
    assert compute.begun()[1:] == ended[:-1]
    assert (compute.info().synchronous, compute.info().device) == (False, "Fake GPU")

    def wait(batch: Any) -> None:
        gpu.step(batch)
        gpu.synchronize()

    waiting = StepCompute(wait, example_arguments(gpu.clock))
    for _ in range(5):
        waiting.step(None)
    waiting.finish()
    assert waiting.info().synchronous


def test_the_step_that_first_uses_a_device_ends_there(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """One before it ended on the host; when the device began is not known of all."""
    taken: list[Any] = []
    monkeypatch.setattr(module, "cuda_in_use", lambda: len(taken) > 1)

    def step(batch: Any) -> None:
        taken.append(batch)
        gpu.step(batch) if len(taken) > 1 else gpu.clock.sleep(STEP_S)

    compute, begin_ns = StepCompute(step, example_arguments(gpu.clock)), gpu.clock.now_ns()
    for _ in range(3):
        compute.step(None)
    assert [round((end_ns - begin_ns) / 1e6) for end_ns in compute.finish()] == [10, 21, 31]
    assert compute.begun() == ()


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
    """Of 30 ms beside steps of 10 it is 20, of 5 none. The device is waited for once; events are reused."""
    events = StepEvents(gpu.clock)
    for _ in range(2):
        for _ in range(4):
            gpu.clock.sleep(loading_s)
            events.begin()
            events.begin()
            gpu.launch(STEP_S)
            events.end()
        ended = events.finish()
        idle = [round((begun - end) / 1e6) for end, begun in zip(ended, events.begun[1:], strict=False)]
        assert idle == [idle_ms] * 3
        assert ended[-1] == gpu.clock.now_ns()
    assert (gpu.waits, gpu.made) == (2, 8)
    assert events.finish() == events.begun == ()


def test_a_step_that_failed_begins_no_other(gpu: Gpu) -> None:
    """The first step after it has a begin of its own."""
    events = StepEvents(gpu.clock)
    events.begin()
    events.finish()
    gpu.clock.sleep(1)
    events.begin()
    gpu.launch(STEP_S)
    events.end()
    (ended,) = events.finish()
    assert ended - events.begun[0] == round(STEP_S * 1e9)


BATCH = (SimpleNamespace(shape=(100, 3)), None)


@pytest.mark.parametrize(
    ("waits_s", "host_s", "ends_s"),
    [
        # Two steps are submitted at once, the third waits for the first; they end back to back.
        ([0, 0, 0, 0], [0, 0, 1, 2], [1, 2, 3, 4]),
        # A step begins when its batch is there, not before.
        ([0, 5], [0, 5], [1, 6]),
    ],
)
def test_the_host_runs_two_steps_ahead(waits_s: list[int], host_s: list[int], ends_s: list[int]) -> None:
    """The timeline is exact: every step takes batch over rate."""
    clock = FakeClock()
    device = EmulatedCompute(example_arguments(clock, compute="emulated:100"))
    start, host = clock.now_ns(), []
    for wait_s in waits_s:
        clock.sleep(wait_s)
        device.step(BATCH)
        host.append((clock.now_ns() - start) / SECOND)
    assert host == host_s
    assert [(time - start) / SECOND for time in device.finish()] == ends_s
    assert device.finish() == ()


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("mlperf-a100", 400 / 0.435),
        ("mlperf-h100", 400 / 0.224),
        ("v100-amp", 1200),
        ("a100-amp", 2470),
        ("a100-tf32", 938),
        ("rtx3090-amp", 1218),
    ],
)
def test_named_accelerators_have_their_published_rate_and_its_source(name: str, rate: float) -> None:
    """A rate without a source is not to be trusted with money."""
    assert parse_rate(name)[0] == pytest.approx(rate)
    assert len(ACCELERATORS[name][1]) > 20
    info = EmulatedCompute(example_arguments(FakeClock(), compute=f"emulated:{name}")).info()
    assert info.specified_images_per_s == pytest.approx(rate) and "emulated" in info.device


def test_no_step_takes_no_time() -> None:
    """And says that there is none."""
    clock = FakeClock()
    compute = NoCompute(example_arguments(clock))
    now_ns = clock.now_ns()
    for _ in range(3):
        compute.step(torch.zeros(4, 3))
    assert compute.finish() == (now_ns,) * 3
    assert (clock.now_ns(), compute.info().name) == (now_ns, NO_STEP)
