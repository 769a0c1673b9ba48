"""Real training steps."""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms import v2

from loaderprobe.compute.torch import CpuCompute, CudaCompute
from loaderprobe.errors import MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN


def test_a_cpu_step_trains_and_ends_before_the_host_goes_on() -> None:
    """Weights change with a step, and its end is stamped."""
    clock = SystemClock()
    device = CpuCompute("", clock)
    before = [parameter.detach().clone() for parameter in device._trainer._model.parameters()]
    device.step(device.copy((torch.randn(2, 3, 224, 224), torch.tensor([1, 2]))))
    (finished,) = device.finish()
    assert finished <= clock.now_ns()
    after = list(device._trainer._model.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert device.info().given_images_per_s is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_error_says_what_still_works() -> None:
    """The next step names the CPU and an emulated accelerator."""
    with pytest.raises(MissingPart) as caught:
        CudaCompute("", SystemClock())
    assert "emulated:mlperf-h100" in caught.value.hint


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_cuda_steps_end_in_order_on_the_host_clock() -> None:
    """Event times rise, and lie before the synchronisation that read them."""
    clock = SystemClock()
    device = CudaCompute("", clock)
    batch = device.copy((torch.randn(8, 3, 224, 224), torch.arange(8)))
    for _ in range(5):
        device.step(batch)
    finished = device.finish()
    assert list(finished) == sorted(finished)
    assert finished[-1] <= clock.now_ns()


def test_bytes_are_normalised_on_the_device_as_floats_are_in_the_workers() -> None:
    """Training sees the same numbers, whichever way they were handed over."""
    pixels = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    worker = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION)])
    images, _ = CpuCompute("", SystemClock()).copy((pixels, torch.zeros(2, dtype=torch.int64)))
    assert torch.allclose(images, worker(pixels), atol=1e-5)
