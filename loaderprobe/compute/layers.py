"""The time of each layer of a model in training, with torch's profiler, and of the parts of a step without it.

A profiler keeps a record of each operator, about 5 kB, until its step is evaluated. A model with more operators than
that is worth has its layers timed by the clock instead, so what is kept never grows with the operators of a step.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch does not list it
from torch.autograd.profiler import profile, record_function
from torch.autograd.profiler_util import FunctionEvent
from torch.utils._python_dispatch import TorchDispatchMode

from loaderprobe.batches import samples_in
from loaderprobe.compute.trainer import ModelCopy, device_words, epochs, is_loader, moved, part_of_step, tensors_in
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.environment import Origin
from loaderprobe.records.layers import (
    LAST_CALL,
    DrillLevel,
    LayersReport,
    LayerTime,
    LevelName,
    Milliseconds,
    OperatorTime,
    PartName,
    PartTime,
)
from loaderprobe.stats import median, quantile

# From a profiler's events to the time of each layer, its operators forward and backward (`loaderprobe explain layers`).
#
# Autograd gives a backward function the number of the operator that made it. The gradient that is added to a weight has
# no such operator; it follows the function that made it.

LAYER = "loaderprobe layer "
EVALUATE = "autograd::engine::evaluate_function: "

Call = tuple[str, int]
"""(path of the module, 0 for its first call in a step; later calls than the last that has a row share its row)."""


@dataclass(slots=True)
class CallTime:
    """Microseconds of one call of a layer in one step."""

    forward_us: float = 0.0
    backward_us: float = 0.0
    operators: dict[tuple[str, bool], tuple[int, float]] = field(default_factory=dict)
    """(count, microseconds) by (name, whether it is of the backward pass)."""

    def add(self, name: str, us: float, *, backward: bool, calls: int = 1) -> None:
        """The time of one more call of an operator; without `calls`, more of the last."""
        if backward:
            self.backward_us += us
        else:
            self.forward_us += us
        count, total = self.operators.get((name, backward), (0, 0.0))
        self.operators[name, backward] = (count + calls, total + us)


@dataclass(slots=True)
class Owners:
    """Which layer made a backward function: autograd's numbers go up while layers take turns."""

    _turns: list[tuple[int, Call | None]] = field(default_factory=list)

    def turn(self, number: int, call: Call | None) -> None:
        """Functions from this number on are of that call of a layer, or of none."""
        if self._turns and self._turns[-1][0] == number:
            self._turns.pop()
        self._turns.append((number, call))

    def of(self, number: int) -> Call | None:
        """None for a function that no layer made."""
        index = bisect_right(self._turns, number, key=itemgetter(0)) - 1
        return self._turns[index][1] if index >= 0 else None


def numbered(name: str, number: int) -> Call:
    """The call of a layer that has so many before it in the step."""
    return name, min(number, LAST_CALL)


_begin_us = attrgetter("time_range.start")


def layer_times(roots: Iterable[FunctionEvent], us: Callable[[FunctionEvent], float]) -> dict[Call, CallTime]:
    """The time of each call of a layer in one step, in the order in which they began.

    `us` gives the microseconds of an event and of what it called: on the host, or of the kernels that they launched.
    """
    times: dict[Call, CallTime] = {}
    owners: dict[int, Call] = {}
    calls: Counter[str] = Counter()

    def forward(event: FunctionEvent, around: Call | None) -> None:
        """Walk the events of the forward pass; `around` is the innermost layer around this one."""
        if event.name.startswith(EVALUATE):
            return
        name, layer = event.name.removeprefix(LAYER), None
        if name != event.name:
            layer = around = numbered(name, calls[name])
            calls[name] += 1
            times.setdefault(layer, CallTime())
        # Autograd's number of an operator, and of the backward function that it made; else negative.
        elif around is not None and event.sequence_nr >= 0:
            # An operator without gradient bears the number of the next one with: the last of a number made it.
            owners[event.sequence_nr] = around
        for child in event.cpu_children:
            forward(child, around)
            if layer is not None and not child.name.startswith(LAYER):
                own_us = us(child) - sum(map(us, _outermost(child.cpu_children, LAYER)))
                times[layer].add(child.name, own_us, backward=False)

    # On a GPU the backward pass runs in a thread of its own.
    events = sorted(roots, key=_begin_us)
    for event in events:
        forward(event, None)
    owner: Call | None = None
    for event in sorted(_outermost(events, EVALUATE), key=_begin_us):
        owner = owners.get(event.sequence_nr, owner if event.name.endswith("AccumulateGrad") else None)
        if owner is not None:
            times[owner].add(event.name.removeprefix(EVALUATE), us(event), backward=True)
    return times


def _outermost(events: Iterable[FunctionEvent], prefix: str) -> Iterator[FunctionEvent]:
    """Those of such names among events and what they called, without what they called themselves."""
    for event in events:
        if event.name.startswith(prefix):
            yield event
        else:
            yield from _outermost(event.cpu_children, prefix)


Line = tuple[str, int]
"""(file, number)."""
_OURS = f"{Path(__file__).parents[1]}/"
_TORCH = f"{Path(torch.__file__).parent}/"


Took = Callable[[FrameType, Any, float], object]
"""Takes (the frame that ran an operator, the backward function that runs now or None, seconds) of each operator."""


@dataclass(slots=True)
class Lines:
    """Seconds by line, for each call of a layer: of its forward pass, and of each backward function by its name."""

    innermost: Callable[[], Call | None]
    """The layer that runs now."""
    forward: dict[Call, dict[Line, float]] = field(default_factory=dict)
    backward: dict[tuple[Call, str], dict[Line, float]] = field(default_factory=dict)
    _made: dict[int, tuple[Line, Call]] = field(default_factory=dict)
    """Where in the forward pass the backward function of a number was made, and for which layer."""

    def add(self, frame: FrameType, node: Any, seconds: float) -> None:
        """One operator of a layer or of a backward function; those of no line of the model are left out.

        A backward function that torch runs by itself is of the line whose operator made it.
        """
        line, layer = user_line(frame), self.innermost()
        if node is not None:
            made_by, layer = self._made.get(node._sequence_nr(), (None, None))
            line = line or made_by
        elif line is not None and layer is not None:
            # Autograd numbers a function before its operator runs; operators without gradient follow with its number.
            self._made.setdefault(torch._C._autograd._get_sequence_nr() - 1, (line, layer))
        if line is None or layer is None:
            return
        by_line = (
            self.forward.setdefault(layer, {}) if node is None else self.backward.setdefault((layer, node.name()), {})
        )
        by_line[line] = by_line.get(line, 0.0) + seconds


class Timing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """`took` hears of each operator that runs in this time, after `wait` has waited for it to end on the device."""

    def __init__(self, took: Took, wait: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._took, self._wait = took, wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe(1)
        node = torch._C._current_autograd_node()
        begin_s = time.perf_counter()
        made = func(*args, **(kwargs or {}))
        self._wait()
        self._took(frame, node, time.perf_counter() - begin_s)
        return made


def user_line(frame: FrameType | None) -> Line | None:
    """The innermost line of the model; None where torch alone runs, as in its own backward functions."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


def drilled(report: LayersReport, lines: Lines) -> tuple[DrillLevel, ...]:
    """The step, its slowest layer, the slowest operator in that, the slowest line of that.

    Where operators of the forward pass are not listed, the way goes from a layer that is slow there to the line.
    """
    layer = max(report.layers, key=lambda layer: layer.ms)
    forward = report.unlisted and layer.forward.value >= layer.backward.value
    operator = layer.operators[0] if layer.operators and not forward else None
    call = (layer.name, layer.call)
    backward = operator is not None and operator.backward
    times = (lines.backward.get((call, operator.name)) if operator and backward else lines.forward.get(call)) or {}
    levels: list[tuple[LevelName, str, str, float]] = [
        ("step", report.model, "", report.step_ms),
        ("layer", layer.name, "", layer.ms),
    ]
    if operator is not None:
        levels.append(("operator", operator.name, "", operator.ms))
    if times:
        whole_ms = layer.forward.value if operator is None else operator.ms
        line, seconds = max(times.items(), key=lambda pair: pair[1])
        levels.append(("line", *_shown(line), whole_ms * seconds / sum(times.values())))
    return tuple(
        DrillLevel(
            level=level,
            name=name,
            call=layer.call if level == "layer" else 0,
            text=text,
            ms=ms,
            of_above=ms / levels[max(0, depth - 1)][3],
            of_whole=ms / report.step_ms,
        )
        for depth, (level, name, text, ms) in enumerate(levels)
    )


def _shown(line: Line) -> tuple[str, str]:
    """(`file.py:12`, the source there)."""
    file, number = line
    return f"{Path(file).name}:{number}", linecache.getline(file, number).strip()


WARM_UP_STEPS = 3
MOST_OPERATORS = 20_000
"""Operators of a step, forward and backward, that a profiler records. On a CPU they are about 30,000 records and 0.14
GB (torch 2.14), on a GPU up to three times that: the kernel and its launch are records too. Models of 80 transformer
blocks run about 12,000."""
LEARNING_RATE = 0.01

Loss = Callable[[Any, Any], torch.Tensor]
"""Of (what the model gives, the batch)."""


@dataclass(slots=True)
class Hooks:
    """Marks the calls of every module for the profiler, or for the clock, and notes their shapes."""

    shapes: dict[Call, dict[str, Any]] = field(default_factory=dict)
    """What each call was given and gave, as fields of its `LayerTime`."""
    clock: ByClock | None = None
    """Times the layers of this step, instead of a profiler."""
    _calls: Counter[str] = field(default_factory=Counter)
    _open: list[tuple[str, Any, tuple[torch.Tensor, ...], tuple[int, ...]]] = field(default_factory=list)

    @contextmanager
    def on(self, model: torch.nn.Module) -> Iterator[None]:
        handles: list[Any] = []
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(partial(self._before, name), with_kwargs=True))
            handles.append(module.register_forward_hook(self._after, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_step(self) -> None:
        self._calls.clear()

    def innermost(self) -> Call | None:
        """The layer that runs now."""
        return self._call(self._open[-1][0]) if self._open else None

    def _call(self, name: str) -> Call:
        return numbered(name, self._calls[name])

    def _before(self, name: str, _module: torch.nn.Module, given: Any, named: Any) -> None:
        tensors = tuple(tensors_in((given, named)))
        mark: AbstractContextManager[object] = nullcontext() if self.clock else record_function(LAYER + name)
        mark.__enter__()
        self._open.append((name, mark, tensors, tuple(tensor._version for tensor in tensors)))
        if self.clock:
            self.clock.turn(self.innermost())

    def _after(self, _module: torch.nn.Module, _given: Any, made: Any) -> None:
        name, mark, tensors, versions = self._open.pop()
        mark.__exit__(None, None, None)
        call = self._call(name)
        self._calls[name] += 1
        if self.clock:
            self.clock.turn(self.innermost())
        self.shapes[call] = {
            "inputs": tuple(tuple(tensor.shape) for tensor in tensors),
            "outputs": tuple(tuple(tensor.shape) for tensor in tensors_in(made)),
            "in_place": any(tensor._version != version for tensor, version in zip(tensors, versions, strict=True)),
        }


@dataclass(slots=True)
class ByClock:
    """The layers of one step: forward by the clock, backward by the time of their operators, each by itself."""

    now_us: Callable[[], float]
    """After what runs on the device."""
    times: dict[Call, CallTime] = field(default_factory=dict)
    backward_us: float = 0.0
    """Of all operators of the backward pass, also of those that no layer made."""
    _owners: Owners = field(default_factory=Owners)
    _forward: bool = True
    _running: Call | None = None
    _since_us: float = 0.0
    _node: Any = None
    _owner: Call | None = None

    def turn(self, call: Call | None) -> None:
        """This layer is the innermost from now on. What runs again in the backward pass belongs to that."""
        if not self._forward:
            return
        if self._running is not None:
            self.times[self._running].forward_us += self.now_us() - self._since_us
        if call is not None:
            self.times.setdefault(call, CallTime())
        self._running = call
        self._owners.turn(torch._C._autograd._get_sequence_nr(), call)
        self._since_us = self.now_us()

    @contextmanager
    def backward(self, wait: Callable[[], None]) -> Iterator[None]:
        self._forward = False
        with Timing(self._took, wait):
            yield
        self._node = None

    def _took(self, _frame: FrameType, node: Any, seconds: float) -> None:
        if node is None:
            return
        begins = node is not self._node
        if begins:
            # What no layer made is of the loss, which comes first, or adds the gradient of the layer before it.
            self._node, self._owner = node, self._owners.of(node._sequence_nr()) or self._owner
        self.backward_us += seconds * 1e6
        if self._owner is not None:
            self.times[self._owner].add(node.name(), seconds * 1e6, backward=True, calls=int(begins))


def measure_layers(
    model: torch.nn.Module, batch: Any, *, loss: Loss, steps: int, clock: Clock, name: str, origin: Origin,
    drill: bool = False, precision: str = "fp32", progress: OnStage = lambda *_: None,
) -> LayersReport:  # fmt: skip
    """Train a copy of the model, on the device of its weights: `steps` steps, and as many with marks.

    `batch` is one batch, or a loader whose batches are taken in turn, epoch after epoch. With `drill`, two more steps
    find the slowest source line. While warming up, the operators of a step are counted: of more than MOST_OPERATORS,
    layers are timed by the clock. Records of a step are gone before the next. Raises BadValue for a model without
    weights.
    """
    copy, every = ModelCopy(model, loss, LEARNING_RATE, precision=precision), WARM_UP_STEPS + 2 * steps + 2 * drill
    measuring = _Measuring(copy, batch, clock, lambda done: progress("training steps", done, every))
    report = measuring.report(steps, name, origin)
    return replace(report, drill=drilled(report, measuring.lines())) if drill else report


class _Measuring:
    def __init__(self, model: ModelCopy, batch: Any, clock: Clock, on_step: Callable[[int], None]) -> None:
        self._done, self._on_step = 0, on_step
        on_step(0)
        self._trained, self._model, self._device, self._clock = model, model.model, model.device, clock
        self._batches = epochs(batch) if is_loader(batch) else None
        self._batch = batch if self._batches is None else next(self._batches)
        self._parts: dict[PartName, list[float]] = {}

    def report(self, steps: int, name: str, origin: Origin) -> LayersReport:
        """The steps without marks are half before and half after those with them: a machine drifts."""
        self._run(1)
        operators = self._counted(WARM_UP_STEPS - 1)
        self._parts.clear()
        self._run(steps // 2)
        plain, self._parts = self._parts, {}
        listed = operators <= MOST_OPERATORS
        hooks = Hooks()
        with hooks.on(self._model):
            times = [self._profiled(hooks) if listed else self._clocked(hooks) for _ in range(steps)]
        self._parts = plain
        self._run(steps - steps // 2)
        if not listed:
            backward_us = median(self._parts["backward"]) * 1e3
            times = [{call: _scaled(time, backward_us) for call, time in step.items()} for step in times]
        parts = tuple(PartTime(name=part, ms=_spread(values)) for part, values in self._parts.items())
        # In the order in which calls first ran: a model may take another way in each step.
        calls = dict.fromkeys(call for step in times for call in step)
        layers = tuple(self._layer(call, [step[call] for step in times if call in step], hooks) for call in calls)
        ran = {layer.name for layer in layers}
        return LayersReport(
            origin=origin,
            model=name,
            device=device_words(self._device),
            precision=self._trained.precision,
            batch_size=samples_in(self._batch),
            steps=steps,
            parts=parts,
            layers=tuple(layer for layer in layers if layer.ms or layer.operators),
            missing=tuple(path for path, _ in self._model.named_modules() if path not in ran),
            unlisted=0 if listed else operators,
        )

    def lines(self) -> Lines:
        """The source lines of a step; those of a step before it are not kept."""
        hooks = Hooks()
        with hooks.on(self._model):
            for _ in range(2):
                lines = Lines(hooks.innermost)
                self._step(hooks, Timing(lines.add, self._trained.wait))
        return lines

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._step(Hooks(), nullcontext())

    def _step(
        self, hooks: Hooks, marks: AbstractContextManager[object],
        in_backward: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        """Loads without marks: workers that start there must not inherit them, and what loading runs is of no layer."""
        hooks.begin_step()
        if self._batches is not None:
            with self._part("load"):
                self._batch = next(self._batches)
        with marks:
            with self._part("copy"):
                batch = moved(self._batch, self._device)
            self._trained.step(batch, self._part, in_backward)
        self._done += 1
        self._on_step(self._done)

    @contextmanager
    def _part(self, name: PartName) -> Iterator[None]:
        """Times a part to its end on the device. Raises BadValue for whatever fails in it."""
        self._trained.wait()
        begin_ns = self._clock.now_ns()
        with part_of_step(name, samples_in(self._batch)):
            yield
            self._trained.wait()
        self._parts.setdefault(name, []).append((self._clock.now_ns() - begin_ns) / 1e6)

    def _counted(self, steps: int) -> int:
        """The most operators of a step, with two for each call of a layer, which has a mark."""
        largest, hooks = 0, Hooks()
        with hooks.on(self._model):
            for _ in range(steps):
                count = itertools.count()
                self._step(hooks, Timing(lambda *_: next(count), lambda: None))  # noqa: B023  # of this step
                largest = max(largest, next(count))
        return largest

    def _profiled(self, hooks: Hooks) -> dict[Call, CallTime]:
        """One step, whose records are let go at once."""
        on_gpu = self._device.type == "cuda"
        # The class in torch.profiler is in a cycle of references, which would keep the records; so would theirs.
        profiler = profile(use_device="cuda" if on_gpu else None, use_kineto=True)
        self._step(hooks, profiler)
        events = [event for event in profiler.function_events or () if event.device_type == DeviceType.CPU]
        roots = [event for event in events if event.cpu_parent is None]
        times = layer_times(roots, attrgetter("device_time_total" if on_gpu else "cpu_time_total"))
        for event in events:
            event.cpu_parent = None
        return times

    def _clocked(self, hooks: Hooks) -> dict[Call, CallTime]:
        """One step without a profiler; backward times are shares of its backward pass."""

        def now_us() -> float:
            self._trained.wait()
            return self._clock.now_ns() / 1e3

        clock = hooks.clock = ByClock(now_us)
        self._step(hooks, nullcontext(), lambda: clock.backward(self._trained.wait))
        return {call: _scaled(time, 1 / (clock.backward_us or 1.0)) for call, time in clock.times.items()}

    def _layer(self, call: Call, times: list[CallTime], hooks: Hooks) -> LayerTime:
        name, number = call
        module = self._model.get_submodule(name)
        return LayerTime(
            name=name,
            kind=type(module).__name__,
            call=number,
            forward=_spread([time.forward_us / 1e3 for time in times]),
            backward=_spread([time.backward_us / 1e3 for time in times]),
            operators=_operators(times),
            parameters=sum(parameter.numel() for parameter in module.parameters(recurse=False)),
            **hooks.shapes[call],
        )


def _scaled(time: CallTime, factor: float) -> CallTime:
    """The backward part times a factor."""
    operators = {key: (count, us * factor) for key, (count, us) in time.operators.items()}
    return CallTime(forward_us=time.forward_us, backward_us=time.backward_us * factor, operators=operators)


def _operators(times: list[CallTime]) -> tuple[OperatorTime, ...]:
    names = dict.fromkeys(key for time in times for key in time.operators)
    operators = [
        OperatorTime(
            name=name,
            backward=backward,
            count=max(time.operators.get((name, backward), (0, 0.0))[0] for time in times),
            ms=median([time.operators.get((name, backward), (0, 0.0))[1] / 1e3 for time in times]),
        )
        for name, backward in names
    ]
    return tuple(sorted(operators, key=lambda operator: -operator.ms))


def _spread(values: list[float]) -> Milliseconds:
    return Milliseconds(
        value=median(values), low=quantile(values, 0.25), high=quantile(values, 0.75), steps=tuple(values)
    )
