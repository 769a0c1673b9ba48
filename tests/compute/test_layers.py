"""Layers of a model: times from made-up events; and small models really trained, down to the slow line."""

from __future__ import annotations

import gc
import json
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.utils.data import DataLoader, Dataset

import loaderprobe
from loaderprobe.compute import layers as compute_layers
from loaderprobe.compute.layers import EVALUATE, LAYER, Owners, layer_times
from loaderprobe.errors import BadValue
from tests.compute.models import Fill, Hungry, Named, Net, Often, QuickPool, SlowPool, Turns


def event(name: str, begin: float, us: float, *children: Any, sequence: int = -1) -> Any:
    """As torch's FunctionEvent."""
    span = SimpleNamespace(start=begin)
    return SimpleNamespace(name=name, time_range=span, us=us, sequence_nr=sequence, cpu_children=children)


def layer(name: str, begin: float, us: float, *children: Any) -> Any:
    return event(LAYER + name, begin, us, *children)


def back(name: str, begin: float, us: float, sequence: int = -1) -> Any:
    return event(EVALUATE + name, begin, us, event(name, begin, us), sequence=sequence)


Times = dict[tuple[str, int], tuple[float, float]]
ACCUMULATE = "torch::autograd::AccumulateGrad"
FORWARD = layer(
    "", 0, 100,
    layer("conv", 5, 40, event("aten::conv2d", 10, 30, event("aten::convolution", 11, 20, sequence=7), sequence=7)),
    event("aten::add", 50, 8, sequence=8),
    layer("fc", 60, 20, event("aten::linear", 62, 15, sequence=9)),
    layer("fc", 82, 12, event("aten::linear", 83, 10, sequence=10)),
)  # fmt: skip
BACKWARD = (
    back("AddmmBackward0", 110, 6, 10), back(ACCUMULATE, 117, 2), back("AddmmBackward0", 120, 5, 9),
    back("AddBackward0", 126, 3, 8), back("ConvolutionBackward0", 130, 50, 7), back(ACCUMULATE, 181, 4),
)  # fmt: skip
INNER = layer("conv", 10, 20, event("aten::conv2d", 11, 18, sequence=5))
# An operator without gradient bears the number of the next one, which has one: the images of a batch need none.
WITHOUT_GRADIENT = layer(
    "", 0, 100,
    layer("size", 5, 20, event("aten::adaptive_avg_pool2d", 10, 9, sequence=7)),
    layer("lstm", 30, 40, event("aten::lstm", 31, 30, event("aten::mkldnn", 32, 20, sequence=7), sequence=7)),
)  # fmt: skip
TIMES: Times = {("", 0): (8, 3), ("conv", 0): (30, 54), ("fc", 0): (15, 5), ("fc", 1): (10, 8)}
STEPS: dict[str, tuple[list[Any], Times]] = {
    "the model has what runs between its layers; a layer used twice has two calls": ([FORWARD, *BACKWARD], TIMES),
    "on a GPU autograd runs in a thread of its own, which may come first": ([*BACKWARD[::-1], FORWARD], TIMES),
    "around the whole step there may be another event": ([event("step", 0, 200, FORWARD, *BACKWARD)], TIMES),
    "the loss has no layer, nor has a gradient that follows no known function": (
        [event("aten::nll_loss", 1, 5, sequence=3), back("NllLossBackward0", 10, 5, 3), back(ACCUMULATE, 20, 5)], {},
    ),
    "a layer inside an operator is not counted twice, as with checkpointing": (
        [layer("", 1, 60, event("CheckpointFunction", 5, 40, INNER))], {("", 0): (20, 0), ("conv", 0): (18, 0)},
    ),
    "an operator without gradient takes no backward time": (
        [WITHOUT_GRADIENT, back("MkldnnRnnBackward0", 130, 50, 7)],
        {("", 0): (0, 0), ("size", 0): (9, 0), ("lstm", 0): (30, 50)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_each_layer_has_its_own_operators_forward_and_backward(name: str) -> None:
    """In microseconds, by layer and call; the gradient of a weight follows the function that made it."""
    roots, expected = STEPS[name]
    found = layer_times(roots, attrgetter("us"))
    assert {call: (time.forward_us, time.backward_us) for call, time in found.items()} == expected
    if expected == TIMES:
        assert found["conv", 0].operators == {
            ("aten::conv2d", False): (1, 30),
            ("ConvolutionBackward0", True): (1, 50),
            (ACCUMULATE, True): (1, 4),
        }


def test_a_backward_function_has_the_layer_that_ran_at_its_number() -> None:
    """Layers without functions have none; before the first and after the last layer there is none."""
    owners = Owners()
    assert owners.of(3) is None
    for number, call in ((5, ("", 0)), (5, ("conv", 0)), (7, ("", 0)), (7, ("fc", 0)), (9, None)):
        owners.turn(number, call)
    assert [owners.of(number) for number in (4, 5, 6, 7, 8, 9, 2**64 - 1)] == [
        None, ("conv", 0), ("conv", 0), ("fc", 0), ("fc", 0), None, None,
    ]  # fmt: skip


IMAGES = (torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4]))
VECTORS = (torch.randn(2, 3), torch.tensor([0, 1]))
CALLS = [("", 0), ("conv", 0), ("norm", 0), ("relu", 0), ("relu", 1), ("pool", 0), ("last", 0)]


@pytest.fixture(scope="module")
def found(one_thread: None) -> loaderprobe.Layers:
    """Of the model with the slow pool."""
    return loaderprobe.layers(Net(SlowPool()), IMAGES, steps=8, drill=True)


def test_layers_stand_in_the_order_in_which_they_run(found: loaderprobe.Layers) -> None:
    """Each call of its own, with its operators, shapes and weights; the model has what it does between them. Ranges,
    the middle half of steps, hold medians; an activation that overwrites its input is marked."""
    assert [(layer.name, layer.call) for layer in found.layers] == CALLS
    assert found.layers[0].kind == "Net" and found.missing == ("unused",)
    assert [part.name for part in found.parts] == ["copy", "zero_grad", "forward", "loss", "backward", "optimizer"]
    assert all(0 < layer.forward.low <= layer.forward.value <= layer.forward.high for layer in found.layers)
    by_name = {(layer.name, layer.call): layer for layer in found.layers}
    conv = by_name["conv", 0]
    assert (conv.parameters, conv.inputs, conv.outputs) == (8 * 3 * 9 + 8, ((4, 3, 32, 32),), ((4, 8, 32, 32),))
    assert {(each.name, each.backward, each.count) for each in conv.operators} >= {
        ("aten::conv2d", False, 1), ("ConvolutionBackward0", True, 1), (ACCUMULATE, True, 2),
    }  # fmt: skip
    assert [by_name[call].in_place for call in (("relu", 0), ("relu", 1), ("conv", 0))] == [True, True, False]
    assert "aten::add" in [each.name for each in by_name["", 0].operators]


def test_the_drill_ends_at_the_slow_line(found: loaderprobe.Layers) -> None:
    """Layer, operator and line of the planted pool, each with its share of the level above."""
    step, layer, operator, line = found.drill
    assert [each.level for each in found.drill] == ["step", "layer", "operator", "line"]
    assert (step.of_whole, layer.name, operator.name) == (1.0, "pool", "ByIndexBackward")
    assert line.name.startswith("models.py:") and line.text.endswith("# the slow line")
    # Of what was timed in the same steps: the whole is timed apart, when the machine may be slower or quicker.
    assert layer.ms > 0.5 * sum(each.ms for each in found.layers)
    assert operator.of_above > 0.8 and line.of_above > 0.5
    text = found.text()
    assert text.count("pool (SlowPool)") == 3
    assert "layer    pool (SlowPool)" in text and "# the slow line" in text.replace("\n", " ")
    assert all(len(each) <= 80 for each in text.splitlines())


def test_the_weights_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is trained; no hook, gradient or record of a profiler stays. A better layer is where it is called, and a
    backward operator of torch leads to the line whose operator made it."""
    alive: list[int] = []
    begin = compute_layers.Hooks.begin_step

    def counted(self: compute_layers.Hooks) -> None:
        alive.append(sum(isinstance(each, FunctionEvent) for each in gc.get_objects()))
        begin(self)

    monkeypatch.setattr(compute_layers.Hooks, "begin_step", counted)
    model = Net(QuickPool()).eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    gc.collect()
    gc.disable()
    try:
        loaderprobe.layers(model, IMAGES, steps=4)
    finally:
        gc.enable()
    assert alive == [alive[0]] * 11  # five plain steps, two that are counted, and four with records
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert not model.training and not model.conv._forward_hooks and model.conv.weight.grad is None
    found = loaderprobe.layers(model, IMAGES, steps=4, drill=True)
    assert "ByIndexBackward" not in {each.name for layer in found.layers for each in layer.operators}
    assert found.drill[-1].name.startswith("models.py:") and "self." in found.drill[-1].text


def test_control_flow_and_named_inputs() -> None:
    """All ways that were taken are listed; a dict is given by name, and a loss of the model's own is used."""
    found = loaderprobe.layers(Turns(), VECTORS, steps=4)
    assert {layer.name for layer in found.layers} >= {"odd", "even"}
    named = loaderprobe.layers(Named(), {"left": torch.randn(2, 3), "right": torch.randn(2, 3)}, steps=4)
    assert [layer.name for layer in named.layers if layer.name] == ["one"] and named.batch_size == 2


def test_layers_by_the_clock_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model with too many operators the profiler records none, so that memory does not grow with them. The same
    layers in the same order; forward by the clock, and the whole backward pass divided among them."""
    monkeypatch.setattr(compute_layers, "MOST_OPERATORS", 0)
    monkeypatch.delattr(compute_layers, "profile")
    found = loaderprobe.layers(Net(SlowPool()), IMAGES, steps=4, drill=True)
    assert [(layer.name, layer.call) for layer in found.layers] == CALLS
    assert found.missing == ("unused",) and found.unlisted > 256
    assert all(layer.forward.value > 0 for layer in found.layers)
    by_name = {(layer.name, layer.call): layer for layer in found.layers}
    assert {(each.name, each.backward, each.count) for each in by_name["conv", 0].operators} == {
        ("ConvolutionBackward0", True, 1), (ACCUMULATE, True, 2),
    }  # fmt: skip
    assert [each.name for each in by_name["relu", 1].operators] == ["ReluBackward0"]
    step, layer_, operator, line = found.drill
    assert (step.level, layer_.name, operator.name) == ("step", "pool", "ByIndexBackward")
    assert line.text.endswith("# the slow line")
    text = " ".join(found.text().split())
    assert "too many to record each" in text and "the profiler adds" not in text
    # Shares of the same backward pass; the medians of shares need not add up to that of their sum.
    assert 0.5 < json.loads(found.json())["layers_over_whole"]["backward"] < 1.1
    filled = nn.Sequential(nn.Conv2d(3, 2, 3), Fill(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 10))
    large = torch.randn(2, 3, 64, 64), torch.tensor([1, 2])
    step, layer_, line = loaderprobe.layers(filled, large, steps=4, drill=True).drill
    assert [step.level, layer_.level, line.level] == ["step", "layer", "line"]
    assert layer_.name == "1" and line.text.endswith("# the slow line")


@pytest.mark.parametrize("most", [0, compute_layers.MOST_OPERATORS])
def test_calls_without_end_share_a_row(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer has 100 rows at most; the last has the time of all calls from there on."""
    monkeypatch.setattr(compute_layers, "MOST_OPERATORS", most)
    found = loaderprobe.layers(Often(), VECTORS, steps=4)
    rows = [layer for layer in found.layers if layer.name == "one"]
    assert [layer.call for layer in rows] == list(range(100))
    assert {each.name: each.count for each in rows[-1].operators}["AddmmBackward0"] == 21
    assert rows[-1].ms > 5 * sorted(layer.ms for layer in rows)[50]
    assert "call 100 and later" in found.markdown()


def test_what_cudnn_cannot_do_at_all_is_no_lack_of_memory() -> None:
    """One size is tried, so nothing says that a smaller batch would do."""
    with pytest.raises(BadValue, match=r"the model fails in forward.*CUDNN_STATUS_NOT_SUPPORTED"):
        loaderprobe.layers(Hungry(0, "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), VECTORS, steps=4)


class Ours(Dataset[tuple[torch.Tensor, int]]):
    """Says whether its worker has a mode that times operators."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        assert torch._C._len_torch_dispatch_stack() == 0
        return torch.randn(3), index


def test_workers_start_without_marks() -> None:
    """Each epoch of two batches starts its workers, also in steps that are counted and drilled."""
    loader = DataLoader(Ours(), batch_size=2, num_workers=1, multiprocessing_context="fork")
    found = loaderprobe.layers(nn.Linear(3, 5), loader, steps=4, drill=True)
    assert "load" in [part.name for part in found.parts] and len(found.layers) == 1
