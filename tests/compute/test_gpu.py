"""What only a GPU can show: events and profiler agree, nothing is lost, every option trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from loaderprobe.analyze.gpu import attribute
from loaderprobe.compute.kineto import DeviceLimits
from loaderprobe.compute.profile import Device, record_window
from loaderprobe.compute.torch import CudaCompute
from loaderprobe.loaders.state import kept_batch
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN
from loaderprobe.records.measurement import Timeline
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import example_arguments

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]

STEPS, WARM_UP, SIZE = 20, 3, 64
HOST_WORK = 30_000_000


def host_batch() -> Any:
    images, labels = torch.randint(0, 256, (SIZE, 3, 224, 224), dtype=torch.uint8), torch.arange(SIZE)
    return images.pin_memory(), labels.pin_memory()


@pytest.fixture(scope="module")
def starved() -> tuple[Timeline, tuple[int, ...]]:
    """A window behind a slow loader; and of the same steps by their events, from the end of each to the begin of the
    next, in ns. One session of the profiler in this process: a later one may lose records."""
    compute = CudaCompute(example_arguments(SystemClock(), compute="cuda"))
    batch = host_batch()

    def feed(count: int) -> Iterator[Any]:
        for _ in range(count):
            # The loader that is planted works on the host for longer than the GPU takes for a step.
            torch.rand(HOST_WORK)
            yield batch

    for _ in range(10):
        compute.step(compute.copy(batch))
    compute.finish()
    properties = torch.cuda.get_device_properties(0)
    device = Device(
        name=properties.name,
        index=0,
        limits=DeviceLimits.of(properties),
        step=lambda given: compute.step(compute.copy(given)),
        synchronize=torch.cuda.synchronize,
        backward_threads=lambda: compute._trainer.backward_threads,
    )
    timeline = record_window(feed, device, steps=STEPS, warm_up=WARM_UP, batch_size=SIZE)
    ended, begun = compute.finish()[-STEPS:], compute.begun()[-STEPS:]
    return timeline, tuple(b - e for e, b in zip(ended, begun[1:], strict=False))


def test_events_and_profiler_agree_on_the_exposed_wait(starved: tuple[Timeline, tuple[int, ...]]) -> None:
    """Within 2 % of the time of a step; the wait that was planted is the main cause."""
    timeline, idle_ns = starved
    gaps = attribute(timeline).gaps_of(STEPS)
    by_events_ns = sum(idle_ns) / len(idle_ns)
    assert by_events_ns == pytest.approx(gaps.input_ns / STEPS, abs=0.02 * gaps.window_ns / STEPS)
    assert gaps.share("input") > 0.5


def test_every_launch_left_a_record(starved: tuple[Timeline, tuple[int, ...]]) -> None:
    """At most 1 % may be missing; nothing that cannot be true; each kernel has its occupancy."""
    timeline, _ = starved
    assert timeline.launches > STEPS * 100
    assert timeline.launches_without_record <= 0.01 * timeline.launches
    assert sum(each.count for each in timeline.rejected) <= 0.01 * timeline.launches
    kernels = [n for n, kind in enumerate(timeline.records.kind) if kind == "kernel"]
    assert all(timeline.records.occupancy[n] is not None for n in kernels)
    assert not any(timeline.records.loader[n] for n in kernels)
    assert timeline.records.kind.count("h2d") >= STEPS


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp16"}, {"precision": "fp32"}, {"precision": "tf32"}, {"memory_format": "contiguous"},
        {"side_stream": True},
    ],
)  # fmt: skip
def test_options_train_without_waiting_for_the_gpu(options: dict[str, Any]) -> None:
    """A step of them is submitted, and torch sees no call that synchronises. Steps end in order on the host's clock."""
    clock = SystemClock()
    compute = CudaCompute(example_arguments(clock, compute="cuda", **options))
    batch = host_batch()
    for _ in range(3):
        compute.step(compute.copy(batch))
    compute.finish()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            compute.step(compute.copy(batch))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    finished = compute.finish()
    assert len(finished) == 3 and list(finished) == sorted(finished) and finished[-1] <= clock.now_ns()


def test_batches_that_are_kept_for_compute_alone_stay_pinned() -> None:
    """As the loader pins them."""
    assert [part.is_pinned() for part in kept_batch(host_batch())] == [True, True]


def test_jpeg_files_are_decoded_on_the_gpu() -> None:
    """An image of one colour keeps it, whatever is cropped, and is normalised as by the workers."""
    from torchvision.io import encode_jpeg

    color = torch.tensor([120, 60, 200], dtype=torch.uint8)
    pixels = color.reshape(3, 1, 1).repeat(1, 320, 400)
    file = encode_jpeg(pixels, quality=95)
    compute = CudaCompute(example_arguments(SystemClock(), compute="cuda", gpu_decode=True))
    batch = torch.tensor([len(file)] * 4), torch.cat([file] * 4), torch.arange(4)
    images, labels = compute.copy(batch)
    assert images.shape == (4, 3, 224, 224)
    assert labels.tolist() == [0, 1, 2, 3]
    expected = (color / 255 - torch.tensor(CHANNEL_MEAN)) / torch.tensor(CHANNEL_DEVIATION)
    assert torch.allclose(images.mean((0, 2, 3)).cpu(), expected, atol=0.05)
    compute.step((images, labels))
    assert len(compute.finish()) == 1
