"""Models by name, written out, or of an installed package: each trains, or says why it does not."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from loaderprobe import plugins
from loaderprobe.analyze.forecast.advice import Known, recommend_groups
from loaderprobe.compute.trainer import CLASSES, Trainer
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.assembly import check_parts
from loaderprobe.records.config import ComputeSpec, with_options
from loaderprobe.testing import example_config
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.test_installed import blocks, install

MODELS = """
import torch
from torch import nn

def frozen(num_classes):
    return nn.Sequential(nn.Flatten(), nn.ReLU())

def number(num_classes):
    return num_classes

def two(num_classes):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(3, num_classes)
        def forward(self, images):
            made = self.last(images.mean((2, 3)))
            return made, made
    return Two()

def narrow(num_classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))

def unfitting():
    return nn.Identity()

NONE = None
"""


@pytest.fixture
def odd_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of models that cannot be trained."""
    (tmp_path / "odd_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_models", raising=False)


def _trained(model: str) -> tuple[Trainer, torch.Tensor]:
    """After one step on two small images; the first weights before it."""
    spec = ComputeSpec(name="cpu", batch_size=2, model=model)
    trainer = Trainer(torch.device("cpu"), spec, plugins.resolve("model", model))
    before = trainer.parameters()[0].detach().clone()
    trainer.train_step(trainer.copy((torch.randn(2, 3, 64, 64), torch.tensor([1, 2]))))
    return trainer, before


@pytest.mark.parametrize("model", ["resnet18", "vgg16", "lenet5", "mlp", "torchvision.models:squeezenet1_1"])
def test_a_model_trains_and_is_named(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights change, and what it is stands in the report."""
    if model == "vgg16":  # a hundred million random numbers take seconds
        monkeypatch.setattr(torch.nn.init, "normal_", lambda weights, *_, **__: weights.detach().fill_(0.01))
        monkeypatch.setattr(torch.nn.init, "kaiming_uniform_", lambda weights, **_: weights.detach().fill_(0.01))
    trainer, before = _trained(model)
    assert not torch.equal(before, trainer.parameters()[0])
    assert trainer.words().startswith({"resnet18": "ResNet-18", "vgg16": "VGG16"}.get(model, model))


@pytest.mark.parametrize(("model", "sides"), [("lenet5", (28, 32, 224)), ("mlp", (28, 32, 224))])
def test_small_models_take_images_of_any_size(model: str, sides: tuple[int, ...]) -> None:
    """Those of MNIST, CIFAR and ImageNet; LeNet-5 has the 61,706 weights of its kind for one channel and 10 classes."""
    made: Any = plugins.resolve("model", model)(num_classes=CLASSES)
    assert all(made(torch.randn(2, 3, side, side)).shape == (2, CLASSES) for side in sides)
    if model == "lenet5":
        small: Any = plugins.resolve("model", model)(num_classes=10)
        # Two channels more in the first convolution of 6 kernels of 5 x 5.
        assert sum(each.numel() for each in small.parameters()) == 61_706 + 6 * 25 * 2


@pytest.mark.usefixtures("odd_models")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("number", "is int, not a torch.nn.Module"),
        ("frozen", "has no parameters to train"),
        ("two", "gives a tuple for 2 images, not a tensor of 2 x 1000"),
        ("narrow", r"gives \(2, 10\) for 2 images"),
        ("unfitting", r"is not made by factory\(num_classes=1000\)"),
        ("NONE", "is not a function"),
    ],
)
def test_what_cannot_be_trained_says_why(name: str, says: str) -> None:
    """With the page that shows what a model must do."""
    with pytest.raises(BadValue, match=says) as caught:
        _trained(f"odd_models:{name}")
    assert caught.value.hint


def test_a_wrong_name_is_found_before_anything_is_measured() -> None:
    """By the check of the device: an unknown name lists the known, a missing module is named."""
    config = example_config(compute="cpu")
    for name, error, says in (
        ("resnet51", BadValue, "no model named 'resnet51'"),
        ("no.such.module:net", MissingPart, "no.such.module:net"),
        ("torchvision.models:resnet51", MissingPart, "resnet51"),
    ):
        with pytest.raises(error, match=re.escape(says)):
            check_parts(config.loader, with_options(config, model=name).compute)
    with pytest.raises(BadValue, match="model does not apply to emulated:500"):
        check_parts(config.loader, with_options(config, compute="emulated:500", model="vgg16").compute)


def test_the_guides_model_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a package of its own, by the name of its entry point."""
    modules = {re.findall(r"^# (\S+\.py)$", code, re.MULTILINE)[0]: code for code in blocks("python")}
    (table,) = (tomllib.loads(text)["project"]["entry-points"] for text in blocks("toml"))
    install(tmp_path, "acme", table, {**modules, "acme/__init__.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("tiny", "acme.models:Rows"):
        trainer, before = _trained(name)
        assert not torch.equal(before, trainer.parameters()[0]), name
    assert plugins.foreign_module("model", "tiny") == "acme.models"


def test_published_rates_are_advised_for_their_model_only() -> None:
    """Another model trains at other rates on the same accelerator."""
    slow = Truth(compute=50.0, cpu_s=0.001, latency_s=0.0, bytes_per_s=1e15)
    for model, names in (("resnet50", ["fast"]), ("vgg16", [])):
        (found,) = recommend_groups([measured(slow, 2, model=model)], Known(accelerators={"fast": 5000.0}))[0].values()
        actions = [each.action for each in found.advice if each.action.code == "accelerator"]
        assert actions
        assert [each.facts["name"] for each in actions if "name" in each.facts] == names
