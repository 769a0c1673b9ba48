"""The layers of small models: what ran, in which order, where time went, and which line it was."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent

import loaderprobe
from loaderprobe.compute import layers as compute_layers
from loaderprobe.errors import BadValue
from loaderprobe.records.layers import Milliseconds
from tests.compute.slow_pool import Net, QuickPool, SlowPool

IMAGES = (torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4]))


@pytest.fixture(scope="module")
def found() -> loaderprobe.Layers:
    """Of the model with the slow pool, in one thread: several wait for one another on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return loaderprobe.layers(Net(SlowPool()), IMAGES, steps=8, drill=True)
    finally:
        torch.set_num_threads(threads)


def test_layers_stand_in_the_order_in_which_they_run(found: loaderprobe.Layers) -> None:
    """Each call of its own; the model itself has what it does between them; what never ran is named."""
    names = [(layer.name, layer.kind, layer.call) for layer in found.layers]
    assert names == [
        ("", "Net", 0), ("conv", "Conv2d", 0), ("norm", "BatchNorm2d", 0), ("relu", "ReLU", 0), ("relu", "ReLU", 1),
        ("pool", "SlowPool", 0), ("last", "Linear", 0),
    ]  # fmt: skip
    assert found.missing == ("unused",)
    assert [part.name for part in found.parts] == ["copy", "zero_grad", "forward", "loss", "backward", "optimizer"]
    assert all(layer.forward.value > 0 for layer in found.layers)


def test_a_layer_has_its_operators_shapes_and_weights(found: loaderprobe.Layers) -> None:
    """Forward and backward ones; an activation that overwrites its input is marked."""
    by_name = {(layer.name, layer.call): layer for layer in found.layers}
    conv = by_name["conv", 0]
    assert (conv.parameters, conv.inputs, conv.outputs) == (8 * 3 * 9 + 8, ((4, 3, 32, 32),), ((4, 8, 32, 32),))
    assert {(each.name, each.backward, each.count) for each in conv.operators} >= {
        ("aten::conv2d", False, 1), ("ConvolutionBackward0", True, 1), ("torch::autograd::AccumulateGrad", True, 2),
    }  # fmt: skip
    assert [by_name[call].in_place for call in (("relu", 0), ("relu", 1), ("conv", 0))] == [True, True, False]
    assert "aten::add" in [each.name for each in by_name["", 0].operators]


def test_the_drill_ends_at_the_slow_line(found: loaderprobe.Layers) -> None:
    """Layer, operator and line of the planted pool, each with its share of the level above."""
    step, layer, operator, line = found.drill
    assert [each.level for each in found.drill] == ["step", "layer", "operator", "line"]
    assert (step.of_whole, layer.name, operator.name) == (1.0, "pool", "ByIndexBackward")
    assert line.name.startswith("slow_pool.py:") and line.text.endswith("# the slow line")
    # Of what was timed in the same steps: the whole is timed apart, when the machine may be slower or quicker.
    assert layer.ms > 0.5 * sum(each.ms for each in found.layers)
    assert operator.of_above > 0.8 and line.of_above > 0.5
    text = found.text()
    assert "The slowest layer is pool (SlowPool), with" in text and text.count("pool (SlowPool)") == 3
    assert "layer    pool (SlowPool)" in text and "# the slow line" in text.replace("\n", " ")
    assert all(len(each) <= 80 for each in text.splitlines())


def test_a_busy_machine_is_said(found: loaderprobe.Layers) -> None:
    """Layers that took many times the whole, which was timed apart, were timed beside something else."""
    slow = Milliseconds(value=900.0, low=900.0, high=900.0)
    disturbed = replace(found, layers=tuple(replace(each, backward=slow) for each in found.layers))
    part = replace(found, parts=tuple(replace(each, ms=slow) for each in found.parts))
    assert all(
        "something else may have used the machine" in " ".join(each.text().split()) for each in (disturbed, part)
    )
    forward = sum(layer.forward.value for layer in found.layers)
    whole = {"forward": forward, "backward": sum(layer.backward.value for layer in found.layers)}
    fitting = tuple(
        replace(each, ms=replace(each.ms, value=whole.get(each.name, each.ms.value))) for each in found.parts
    )
    assert "something else" not in " ".join(replace(found, parts=fitting).text().split())


def test_a_better_layer_is_another_line() -> None:
    """Of torch's own backward functions, the line is where the model calls the layer."""
    found = loaderprobe.layers(Net(QuickPool()), IMAGES, steps=4, drill=True)
    assert "ByIndexBackward" not in {each.name for layer in found.layers for each in layer.operators}
    assert found.drill[-1].name.startswith("slow_pool.py:") and "self." in found.drill[-1].text


def test_the_weights_stay_as_they_are() -> None:
    """A copy is trained, hooks are gone, and gradients are none."""
    model = Net(QuickPool()).eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    loaderprobe.layers(model, IMAGES, steps=4)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert not model.training and not model.conv._forward_hooks and model.conv.weight.grad is None


class Turns(nn.Module):
    """Takes another way in every other step."""

    def __init__(self) -> None:
        super().__init__()
        self.odd, self.even, self.step = nn.Linear(3, 5), nn.Linear(3, 5), 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.step += 1
        given: torch.Tensor = (self.odd if self.step % 2 else self.even)(inputs)
        return given


class Named(nn.Module):
    """Takes its inputs by name and gives an object with its loss, as transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 5)

    def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> Any:
        return type("Output", (), {"loss": self.one(left * right).sum()})()


def test_control_flow_and_named_inputs() -> None:
    """All ways that were taken are listed; a dict is given by name, and a loss of the model's own is used."""
    found = loaderprobe.layers(Turns(), (torch.randn(2, 3), torch.tensor([0, 1])), steps=4)
    assert {layer.name for layer in found.layers} >= {"odd", "even"}
    named = loaderprobe.layers(Named(), {"left": torch.randn(2, 3), "right": torch.randn(2, 3)}, steps=4)
    assert [layer.name for layer in named.layers if layer.name] == ["one"] and named.batch_size == 2


class Broken(nn.Module):
    """Fails forward or backward."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.one, self.where = nn.Linear(3, 5), where

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.where == "forward":
            raise RuntimeError("no way")
        made: torch.Tensor = self.one(inputs).sigmoid()
        if self.where == "backward":
            made.data_ptr(), made.add_(1)
        return made


@pytest.mark.parametrize(
    ("model", "batch", "says"),
    [
        (nn.Flatten(), IMAGES, "no parameters to train"),
        (
            Broken("forward"),
            (torch.randn(2, 3), torch.tensor([0, 1])),
            "in forward with a batch of 2: RuntimeError: no way",
        ),
        (
            Broken("backward"),
            (torch.randn(2, 3), torch.tensor([0, 1])),
            "in backward with a batch of 2: RuntimeError: one",
        ),
        (nn.Linear(3, 5), torch.randn(2, 3), "no usual loss for a Tensor"),
    ],
)
def test_what_cannot_be_trained_says_where(model: nn.Module, batch: Any, says: str) -> None:
    """The part of the step that fails, with the reason of the model's own."""
    with pytest.raises(BadValue, match=says) as caught:
        loaderprobe.layers(model, batch, steps=4)
    assert caught.value.hint


def test_json_and_frame_have_every_layer(found: loaderprobe.Layers) -> None:
    """The same figures, with units in the names of columns."""
    plain: Mapping[str, Any] = json.loads(found.json())
    assert (plain["schema"], plain["schema_version"]) == ("loaderprobe/layers", 1)
    assert [each["name"] for each in plain["layers"]] == [layer.name for layer in found.layers]
    assert set(plain["layers_over_whole"]) == {"forward", "backward"}
    frame = found.to_frame()
    assert list(frame["forward_ms"]) == [layer.forward.value for layer in found.layers]
    assert list(frame["implementation"])[1] == "aten::conv2d"


def _values(found: loaderprobe.Layers) -> Iterator[float]:
    for layer in found.layers:
        yield from (layer.forward.low, layer.forward.value, layer.forward.high)


def test_ranges_hold_their_medians(found: loaderprobe.Layers) -> None:
    """The middle half of the steps."""
    values = list(_values(found))
    assert all(low <= middle <= high for low, middle, high in zip(values[::3], values[1::3], values[2::3], strict=True))


def test_many_operators_take_no_more_memory_than_training() -> None:
    """Of a model that assigns 10,404 elements in a loop; the layer and its line are named. Records of it take 1 GB."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.compute.slow_fill"], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["measured"] - said["trained"] < 200e6
    found = json.loads(said["result"])
    assert found["unlisted"] > compute_layers.MOST_OPERATORS
    step, layer, line = found["drill"]
    assert (step["level"], layer["level"], layer["name"], line["level"]) == ("step", "layer", "1", "line")
    assert line["name"].startswith("slow_fill.py:") and line["text"].endswith("# the slow line")


def test_records_of_a_step_are_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record of a profiler is left when the following step begins, though the collector of cycles is off."""
    alive: list[int] = []
    begin = compute_layers.Hooks.begin_step

    def counted(self: compute_layers.Hooks) -> None:
        alive.append(sum(isinstance(each, FunctionEvent) for each in gc.get_objects()))
        begin(self)

    monkeypatch.setattr(compute_layers.Hooks, "begin_step", counted)
    gc.collect()
    gc.disable()
    try:
        loaderprobe.layers(Net(QuickPool()), IMAGES, steps=4)
    finally:
        gc.enable()
    assert alive == [alive[0]] * 6  # two steps that are counted, and four with records


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several wait for one another on busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def by_clock(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any model has too many operators."""
    monkeypatch.setattr(compute_layers, "MOST_OPERATORS", 0)


@pytest.mark.usefixtures("by_clock")
def test_layers_by_the_clock_add_up() -> None:
    """The same layers in the same order; forward by the clock, and the whole backward pass divided among them."""
    found = loaderprobe.layers(Net(SlowPool()), IMAGES, steps=4, drill=True)
    assert [(layer.name, layer.call) for layer in found.layers] == [
        ("", 0), ("conv", 0), ("norm", 0), ("relu", 0), ("relu", 1), ("pool", 0), ("last", 0),
    ]  # fmt: skip
    assert found.missing == ("unused",) and found.unlisted > 256
    assert all(layer.forward.value > 0 for layer in found.layers)
    by_name = {(layer.name, layer.call): layer for layer in found.layers}
    assert {(each.name, each.backward, each.count) for each in by_name["conv", 0].operators} == {
        ("ConvolutionBackward0", True, 1), ("torch::autograd::AccumulateGrad", True, 2),
    }  # fmt: skip
    assert [each.name for each in by_name["relu", 1].operators] == ["ReluBackward0"]
    step, layer_, operator, line = found.drill
    assert (step.level, layer_.name, operator.name) == ("step", "pool", "ByIndexBackward")
    assert line.text.endswith("# the slow line")
    text = " ".join(found.text().split())
    assert "too many to record each" in text and "the profiler adds" not in text
    # Shares of the same backward pass; the medians of shares need not add up to that of their sum.
    assert 0.5 < json.loads(found.json())["layers_over_whole"]["backward"] < 1.1


class Often(nn.Module):
    """Calls a layer many times, as a loop over a sequence does."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for _ in range(120):
            inputs = self.one(inputs)
        return inputs


@pytest.mark.parametrize("most", [0, compute_layers.MOST_OPERATORS])
def test_calls_without_end_share_a_row(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer has 100 rows at most; the last has the time of all calls from there on."""
    monkeypatch.setattr(compute_layers, "MOST_OPERATORS", most)
    found = loaderprobe.layers(Often(), (torch.randn(2, 3), torch.tensor([0, 1])), steps=4)
    rows = [layer for layer in found.layers if layer.name == "one"]
    assert [layer.call for layer in rows] == list(range(100))
    assert {each.name: each.count for each in rows[-1].operators}["AddmmBackward0"] == 21
    assert rows[-1].ms > 5 * sorted(layer.ms for layer in rows)[50]
    assert "call 100 and later" in found.text()


class Ours(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Says whether its worker has a mode that times operators."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        assert torch._C._len_torch_dispatch_stack() == 0
        return torch.randn(3), index


def test_workers_start_without_marks() -> None:
    """Each epoch of two batches starts its workers, also in steps that are counted and drilled."""
    loader = torch.utils.data.DataLoader(Ours(), batch_size=2, num_workers=1, multiprocessing_context="fork")
    found = loaderprobe.layers(nn.Linear(3, 5), loader, steps=4, drill=True)
    assert found.part("load") is not None and len(found.layers) == 1
