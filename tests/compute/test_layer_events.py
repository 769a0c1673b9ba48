"""Times of layers from made-up events: nesting, layers used twice, backward functions and the weights after them."""

from __future__ import annotations

from loaderprobe.compute.layers import EVALUATE, LAYER, STEP, CallTime, OperatorEvent, Owners, step_times


def event(name: str, begin: float, us: float, *children: OperatorEvent, sequence: int = -1) -> OperatorEvent:
    return OperatorEvent(name=name, begin_us=begin, us=us, sequence=sequence, children=children)


def layer(name: str, begin: float, us: float, *children: OperatorEvent) -> OperatorEvent:
    return event(LAYER + name, begin, us, *children)


def back(name: str, begin: float, us: float, sequence: int = -1) -> OperatorEvent:
    return event(EVALUATE + name, begin, us, event(name, begin, us), sequence=sequence)


FORWARD = layer(
    "", 0, 100,
    layer("conv", 5, 40, event("aten::conv2d", 10, 30, event("aten::convolution", 11, 20, sequence=7), sequence=7)),
    event("aten::add", 50, 8, sequence=8),
    layer("fc", 60, 20, event("aten::linear", 62, 15, sequence=9)),
    layer("fc", 82, 12, event("aten::linear", 83, 10, sequence=10)),
)  # fmt: skip
BACKWARD = (
    back("AddmmBackward0", 110, 6, 10),
    back("torch::autograd::AccumulateGrad", 117, 2),
    back("AddmmBackward0", 120, 5, 9),
    back("AddBackward0", 126, 3, 8),
    back("ConvolutionBackward0", 130, 50, 7),
    back("torch::autograd::AccumulateGrad", 181, 4),
)


def seen(time: CallTime) -> tuple[float, float]:
    return time.forward_us, time.backward_us


def test_each_layer_has_its_own_operators_forward_and_backward() -> None:
    """The model itself has what runs between its layers; a layer used twice has two calls; weights follow."""
    (step,) = step_times([event(STEP, 0, 200, FORWARD, *BACKWARD)])
    assert {call: seen(time) for call, time in step.items()} == {
        ("", 0): (8, 3), ("conv", 0): (30, 54), ("fc", 0): (15, 5), ("fc", 1): (10, 8),
    }  # fmt: skip
    assert step["conv", 0].operators == {
        ("aten::conv2d", False): (1, 30),
        ("ConvolutionBackward0", True): (1, 50),
        ("torch::autograd::AccumulateGrad", True): (1, 4),
    }


def test_a_backward_thread_beside_the_step_belongs_to_it() -> None:
    """On a GPU autograd runs in a thread of its own, whose events are not in the step's."""
    later = [event(STEP, 300, 100, layer("fc", 301, 9, event("aten::linear", 302, 9, sequence=20)))]
    roots = [event(STEP, 0, 105, FORWARD), *BACKWARD, *later, back("AddmmBackward0", 350, 7, 20)]
    first, second = step_times(reversed(roots))
    assert seen(first["conv", 0]) == (30, 54)
    assert {call: seen(time) for call, time in second.items()} == {("fc", 0): (9, 7)}


def test_what_has_no_layer_is_left_out() -> None:
    """The loss, and a gradient that follows no known function."""
    step = event(STEP, 0, 50, event("aten::nll_loss", 1, 5, sequence=3), back("NllLossBackward0", 10, 5, 3),
                 back("torch::autograd::AccumulateGrad", 20, 5))  # fmt: skip
    assert step_times([step]) == [{}]


def test_a_layer_inside_an_operator_is_not_counted_twice() -> None:
    """As with checkpointing, where a function calls modules."""
    inner = layer("conv", 10, 20, event("aten::conv2d", 11, 18, sequence=5))
    (step,) = step_times([event(STEP, 0, 99, layer("", 1, 60, event("CheckpointFunction", 5, 40, inner)))])
    assert seen(step["conv", 0]) == (18, 0) and seen(step["", 0]) == (20, 0)


def test_an_operator_without_gradient_takes_no_backward_time() -> None:
    """It bears the number of the next operator, which has one: the images of a batch need no gradient."""
    forward = layer(
        "", 0, 100,
        layer("size", 5, 20, event("aten::adaptive_avg_pool2d", 10, 9, sequence=7)),
        layer("lstm", 30, 40, event("aten::lstm", 31, 30, event("aten::mkldnn", 32, 20, sequence=7), sequence=7)),
    )  # fmt: skip
    (step,) = step_times([event(STEP, 0, 200, forward, back("MkldnnRnnBackward0", 130, 50, 7))])
    assert (seen(step["size", 0]), seen(step["lstm", 0])) == ((9, 0), (30, 50))


def test_a_backward_function_has_the_layer_that_ran_at_its_number() -> None:
    """Layers without functions have none; before the first and after the last layer there is none."""
    owners = Owners()
    assert owners.of(3) is None
    for number, call in ((5, ("", 0)), (5, ("conv", 0)), (7, ("", 0)), (7, ("fc", 0)), (9, None)):
        owners.turn(number, call)
    assert [owners.of(number) for number in (4, 5, 6, 7, 8, 9, 2**64 - 1)] == [
        None, ("conv", 0), ("conv", 0), ("fc", 0), ("fc", 0), None, None,
    ]  # fmt: skip
