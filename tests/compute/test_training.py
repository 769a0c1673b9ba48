"""Real training steps: of models by name, written out, or installed; with each option; and by two gloo ranks."""

from __future__ import annotations

import gc
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from loaderprobe import plugins
from loaderprobe.compute import torch as module
from loaderprobe.compute.profile import Device, thread_numbers
from loaderprobe.compute.step import ExchangingStep, step_in_ranks
from loaderprobe.compute.torch import CpuCompute, CudaCompute, Gradients, crop
from loaderprobe.compute.trainer import CLASSES, FORMATS, Trainer
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import Peers
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, ComputeSpec
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock, example_arguments
from tests.test_installed import blocks, install
from tests.warm import in_two_ranks


def frozen(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.ReLU())


def number(num_classes: int) -> int:
    return num_classes


class Two(nn.Linear):
    """Gives its outputs twice."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(3, num_classes)

    def forward(self, images: torch.Tensor) -> Any:
        made = super().forward(images.mean((2, 3)))
        return made, made


def narrow(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))


def unfitting() -> nn.Module:
    return nn.Identity()


SMALL = (torch.randn(2, 3, 64, 64), torch.tensor([-1, 21_841]))
"""Any number is a class: data may have more than the model, or number them otherwise."""


def _trainer(model: str, device: str = "cpu", **options: Any) -> Trainer:
    spec = ComputeSpec(name="cpu", batch_size=2, model=model, **options)
    return Trainer(torch.device(device), spec, plugins.resolve("model", model))


def _trains(trainer: Trainer, step: Callable[[], None] | None = None) -> bool:
    """Whether a step, of two small images, changes the first weights; all stay finite."""
    weights = next(trainer._model.parameters()).detach()
    before = weights.clone()
    if step is None:
        trainer.train_step(trainer.copy(SMALL))
    else:
        step()
    assert all(each.isfinite().all() for each in trainer._model.parameters())
    return not torch.equal(before, weights)


@pytest.mark.parametrize(
    ("model", "sides", "words"),
    [("lenet5", (28, 32, 224), "lenet5"), ("mlp", (28, 32, 224), "mlp"), ("vgg16", (64,), "VGG16")],
)
def test_models_take_images_of_any_size(model: str, sides: tuple[int, ...], words: str) -> None:
    """Those of MNIST, CIFAR and ImageNet; LeNet-5 has the 61,706 weights of its kind for one channel and 10 classes.
    VGG-16 is torchvision's own, here without its hundred million random numbers."""
    factory: Any = plugins.resolve("model", model)
    with torch.device("meta"):
        made = factory(num_classes=CLASSES)
        assert all(made(torch.empty(2, 3, side, side)).shape == (2, CLASSES) for side in sides)
        assert _trainer(model, "meta").words().startswith(words)
    if model == "lenet5":
        small = factory(num_classes=10)
        # Two channels more in the first convolution of 6 kernels of 5 x 5.
        assert sum(each.numel() for each in small.parameters()) == 61_706 + 6 * 25 * 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("number", "is int, not a torch.nn.Module"),
        ("frozen", "has no parameters to train"),
        ("Two", "gives a tuple for 2 images, not a tensor of 2 x 1000"),
        ("narrow", r"gives \(2, 10\) for 2 images"),
        ("unfitting", r"is not made by factory\(num_classes=1000\)"),
        ("SMALL", "is not a function"),
    ],
)
def test_what_cannot_be_trained_says_why(name: str, says: str) -> None:
    """With the page that shows what a model must do."""
    with pytest.raises(BadValue, match=says) as caught:
        _trains(_trainer(f"{__name__}:{name}"))
    assert caught.value.hint


def test_the_guides_model_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a package of its own, by the name of its entry point."""
    modules = {re.findall(r"^# (\S+\.py)$", code, re.MULTILINE)[0]: code for code in blocks("python")}
    (table,) = (tomllib.loads(text)["project"]["entry-points"] for text in blocks("toml"))
    install(tmp_path, "acme", table, {**modules, "acme/__init__.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _trains(_trainer("tiny")) and _trains(_trainer("acme.models:Rows"))
    assert plugins.foreign_module("model", "tiny") == "acme.models"


def test_a_cpu_step_trains_and_ends_before_the_host_goes_on() -> None:
    """Weights change with a step, and its end is stamped. Bytes are normalised on the device as floats are in the
    workers: training sees the same numbers, whichever way they were sent."""
    from torchvision.transforms import v2

    clock = SystemClock()
    device = CpuCompute(example_arguments(clock, compute="cpu"))
    pixels = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    worker = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION)])
    assert torch.allclose(device.copy((pixels, SMALL[1]))[0], worker(pixels), atol=1e-5)
    assert _trains(device._trainer, lambda: device.step(device.copy(SMALL)))
    (finished,) = device.finish()
    assert finished <= clock.now_ns()
    assert device.info().specified_images_per_s is None


@pytest.mark.parametrize(("asked", "threads"), [(None, 3), ("8", 8)])
def test_a_cpu_trains_within_its_quota(monkeypatch: pytest.MonkeyPatch, asked: str | None, threads: int) -> None:
    """Unless the user has said how many: torch makes one for each core that it may run on."""
    monkeypatch.setattr(module, "cores_available", lambda: 3.5)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    made: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", made.append)
    CpuCompute(example_arguments(SystemClock(), compute="cpu"))
    assert [8, *made][-1] == threads


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_error_says_what_still_works() -> None:
    """The next step names the CPU and an emulated accelerator."""
    with pytest.raises(MissingPart) as caught:
        CudaCompute(example_arguments(SystemClock(), compute="cuda"))
    assert "emulated:mlperf-h100" in caught.value.hint


@pytest.mark.parametrize("decoder", [None, object()], ids=["no decoder", "decoding on the GPU"])
def test_on_rocm_the_window_is_recorded_without_occupancy(monkeypatch: pytest.MonkeyPatch, decoder: Any) -> None:
    """The profiler records AMD's kernels, too; what limits a multiprocessor there is not known."""
    taken: list[Device] = []
    monkeypatch.setattr(torch.version, "hip", "6.3", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "AMD Instinct MI300X")
    monkeypatch.setattr(module, "record_window", lambda feed, device, **rest: taken.append(device))
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
    trainer = _trainer("resnet18", **options)
    seen: list[Any] = []
    trainer._model.conv1.register_forward_hook(lambda module, given, made: seen.append((given[0], made)))
    assert _trains(trainer)
    (given, made), *_ = seen
    assert made.dtype == (torch.bfloat16 if options.get("precision") == "bf16" else torch.float32)
    assert given.is_contiguous(memory_format=FORMATS[options.get("memory_format", "channels_last")])
    assert trainer.backward_threads == thread_numbers() and trainer.words().startswith("ResNet-18")


def test_a_compiled_model_is_the_one_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile is given the model, and what it returns is called."""
    compiled = Mock()

    def compile_(model: Any) -> Mock:
        compiled.side_effect = model
        return compiled

    monkeypatch.setattr(torch, "compile", compile_)
    trainer = _trainer("lenet5", compile=True)
    trainer.train_step(trainer.copy(SMALL))
    compiled.assert_called_once()
    assert "torch.compile" in trainer.words()


def test_crops_are_square() -> None:
    """As models take them, whatever the size of an image."""
    assert crop()(torch.zeros(3, 300, 500, dtype=torch.uint8)).shape == (3, 224, 224)


LONGEST_S = 60.0


def exchanges(rank: int, scratch: Path) -> None:
    """One rank, whose gradients are 1 on rank 0 and 2 on rank 1 by themselves."""
    store: Any = dist.FileStore(str(scratch / "store"), 2)  # type: ignore[attr-defined]  # torch does not list it
    group: Any = SimpleNamespace(rank=rank, size=2)
    peers = Peers(group=group, local_rank=rank, cores=1.0, store=store, timeout_s=LONGEST_S)
    model = torch.nn.Linear(4, 1, bias=False)
    gradients = Gradients(torch.device("cpu"), peers)
    wrapped = gradients.exchanged_by(model)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        wrapped(torch.full((1, 4), 1.0 + rank)).sum().backward()

    found = []
    for on in (True, False, True):
        gradients.exchanged = on
        gradients.step(train)
        assert model.weight.grad is not None
        found.append(float(model.weight.grad[0, 0]))
    gradients.exchange_alone()
    (scratch / f"rank-{rank}.json").write_bytes(msgspec.json.encode(found))


def test_gradients_are_exchanged_unless_that_is_off(tmp_path: Path, python: str) -> None:
    """With it, each rank has the mean of both; without, its own."""
    in_two_ranks(python, exchanges, tmp_path)
    found = [msgspec.json.decode((tmp_path / f"rank-{rank}.json").read_bytes()) for rank in range(2)]
    assert found == [[1.5, 1.0, 1.5], [1.5, 2.0, 1.5]]


@pytest.fixture
def models() -> Iterator[list[DistributedDataParallel]]:
    """Of different sizes, in a group of one."""
    store: Any = dist.HashStore()  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield [DistributedDataParallel(torch.nn.Linear(4, outputs)) for outputs in (8, 2)]
    dist.destroy_process_group()


def test_ranks_exchange_in_one_order(models: list[DistributedDataParallel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order the collector of a rank has them in: else their sizes would not match."""
    for known in (models, models[::-1]):
        monkeypatch.setattr(gc, "get_objects", lambda known=known: known)
        made = step_in_ranks(lambda _: None, example_arguments(FakeClock()))
        assert isinstance(made, ExchangingStep)
        assert [bucket.numel() for bucket, _ in made._buckets] == [10, 40]
