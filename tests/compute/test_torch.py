"""Real training steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision.transforms import v2

from loaderprobe.compute import torch as module
from loaderprobe.compute.profile import Device, thread_numbers
from loaderprobe.compute.torch import CpuCompute, CudaCompute, crop, split
from loaderprobe.compute.trainer import FORMATS, Trainer
from loaderprobe.errors import MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, ComputeSpec
from loaderprobe.testing import example_arguments


def test_a_cpu_step_trains_and_ends_before_the_host_goes_on() -> None:
    """Weights change with a step, and its end is stamped."""
    clock = SystemClock()
    device = CpuCompute(example_arguments(clock, compute="cpu"))
    before = [parameter.detach().clone() for parameter in device._trainer.parameters()]
    device.step(device.copy((torch.randn(2, 3, 224, 224), torch.tensor([1, 2]))))
    (finished,) = device.finish()
    assert finished <= clock.now_ns()
    after = list(device._trainer.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert device.info().specified_images_per_s is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_error_says_what_still_works() -> None:
    """The next step names the CPU and an emulated accelerator."""
    with pytest.raises(MissingPart) as caught:
        CudaCompute(example_arguments(SystemClock(), compute="cuda"))
    assert "emulated:mlperf-h100" in caught.value.hint


def test_bytes_are_normalised_on_the_device_as_floats_are_in_the_workers() -> None:
    """Training sees the same numbers, whichever way they were sent."""
    pixels = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    worker = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION)])
    images, _ = CpuCompute(example_arguments(SystemClock(), compute="cpu")).copy(
        (pixels, torch.zeros(2, dtype=torch.int64))
    )
    assert torch.allclose(images, worker(pixels), atol=1e-5)


@pytest.mark.parametrize("decoder", [None, object()], ids=["no decoder", "decoding on the GPU"])
def test_on_rocm_the_window_is_recorded_without_occupancy(monkeypatch: pytest.MonkeyPatch, decoder: Any) -> None:
    """The profiler records AMD's kernels, too; what limits a multiprocessor there is not known."""
    taken: list[Device] = []
    monkeypatch.setattr(torch.version, "hip", "6.3", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "AMD Instinct MI300X")
    monkeypatch.setattr(module, "record_window", lambda feed, stage, device, **rest: taken.append(device))
    monkeypatch.setattr(CudaCompute, "finish", lambda self: ())
    compute = object.__new__(CudaCompute)
    compute._device, compute._decoder, compute._side = torch.device("cuda", 1), decoder, None
    compute.profile(lambda count: iter(()), steps=20, warm_up=3, batch_size=4)
    (device,) = taken
    assert (device.name, device.index, device.limits) == ("AMD Instinct MI300X", 1, None)
    assert device.loader_streams == (decoder is not None)


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"memory_format": "contiguous"}, {"precision": "fp32"}])
def test_options_of_the_cpu_train(options: dict[str, Any]) -> None:
    """Whichever is asked for is used, and weights change; the thread of the backward pass is known then."""
    trainer = Trainer(torch.device("cpu"), ComputeSpec(name="cpu", batch_size=2, **options))
    seen: list[Any] = []
    trainer._model.conv1.register_forward_hook(lambda module, given, made: seen.append((given[0], made)))
    before = trainer.parameters()[0].detach().clone()
    trainer.train_step(trainer.copy((torch.randn(2, 3, 64, 64), torch.tensor([1, 2]))))
    (given, made), *_ = seen
    assert made.dtype == (torch.bfloat16 if options.get("precision") == "bf16" else torch.float32)
    assert given.is_contiguous(memory_format=FORMATS[options.get("memory_format", "channels_last")])
    assert not torch.equal(before, trainer.parameters()[0])
    assert trainer.backward_threads == thread_numbers()


def test_a_compiled_model_is_the_one_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile is given the model, and what it returns is called."""
    calls: list[Any] = []

    def compiled(model: Any) -> Any:
        def forward(images: Any) -> Any:
            calls.append(images)
            return model(images)

        return forward

    monkeypatch.setattr(torch, "compile", compiled)
    trainer = Trainer(torch.device("cpu"), ComputeSpec(name="cpu", batch_size=2, compile=True))
    trainer.train_step(trainer.copy((torch.randn(2, 3, 64, 64), torch.tensor([1, 2]))))
    assert len(calls) == 1
    assert "torch.compile" in trainer.words()


def test_files_in_a_row_come_apart_and_crops_are_square() -> None:
    """What workers pack for the GPU; each file is where its length says."""
    files = split(torch.tensor([2, 3]), torch.tensor([1, 2, 3, 4, 5], dtype=torch.uint8))
    assert [each.tolist() for each in files] == [[1, 2], [3, 4, 5]]
    assert crop()(torch.zeros(3, 300, 500, dtype=torch.uint8)).shape == (3, 224, 224)
