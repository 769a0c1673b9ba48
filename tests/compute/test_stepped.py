"""Events round each step, with a fake of CUDA on a fake clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from loaderprobe.compute.torch import StepEvents
from loaderprobe.testing import FakeClock
from tests.compute.fake_gpu import Gpu

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu(FakeClock())
    cuda = SimpleNamespace(
        Event=found.event, synchronize=found.synchronize, current_stream=lambda device: None
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    return found


def test_the_wait_that_a_device_feels_lies_between_two_steps(gpu: Gpu) -> None:
    """A loader of 30 ms beside steps of 10 ms leaves 20 ms; one of 5 ms leaves none, though the host waits for it."""
    for loading_s, idle_ms in ((0.030, 20), (0.005, 0)):
        events = StepEvents(DEVICE, gpu.clock)
        for _ in range(4):
            gpu.clock.sleep(loading_s)
            events.begin()
            events.begin()
            gpu.launch(0.010)
            events.end()
        ended = events.finish()
        idle = [round((b - e) / 1e6) for e, b in zip(ended, events.begun[1:], strict=False)]
        assert idle == [idle_ms] * 3
        assert ended[-1] == gpu.clock.now_ns()


def test_the_device_is_waited_for_once_and_events_are_used_again(gpu: Gpu) -> None:
    """Not within the loop; the second segment makes no new events."""
    events = StepEvents(DEVICE, gpu.clock)
    for _ in range(2):
        for _ in range(5):
            events.begin()
            gpu.launch(0.001)
            events.end()
        events.finish()
    assert (gpu.waits, gpu.made) == (2, 10)
    assert events.finish() == ()
    assert events.begun == ()
