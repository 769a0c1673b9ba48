"""The time of each layer of a model in training, with torch's profiler, and of the parts of a step without it."""

from __future__ import annotations

import copy
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch does not list it
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from loaderprobe.compute.drill import drilled
from loaderprobe.compute.layer_events import LAYER, STEP, Call, CallTime, Event, step_times
from loaderprobe.compute.model_batches import called, epochs, is_loader, moved, out_of_memory, samples_in, tensors_in
from loaderprobe.compute.source_lines import Lines, timing, user_line
from loaderprobe.errors import BadValue
from loaderprobe.protocols import Clock
from loaderprobe.records.layers import (
    LayersReport,
    LayerTime,
    Milliseconds,
    OperatorTime,
    PartName,
    PartTime,
    Shape,
)
from loaderprobe.records.origin import Origin
from loaderprobe.stats import median, quantile

WARM_UP_STEPS = 3
LEARNING_RATE = 0.01
MOMENTUM = 0.9

OWN_MODEL = "check that it trains on this batch without loaderprobe"

Loss = Callable[[Any, Any], torch.Tensor]
"""Of (what the model gives, the batch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one call of a layer was given and gave."""

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    in_place: bool


@dataclass(slots=True)
class Hooks:
    """Marks the calls of every module for the profiler, and notes their shapes."""

    seen: dict[Call, Seen] = field(default_factory=dict)
    lines: Lines | None = None
    """Where layers are called is noted here, if anywhere."""
    _calls: dict[str, int] = field(default_factory=dict)
    _open: list[tuple[str, Any, tuple[torch.Tensor, ...], tuple[int, ...]]] = field(default_factory=list)

    @contextmanager
    def on(self, model: torch.nn.Module) -> Iterator[None]:
        """While this lasts."""
        handles: list[Any] = []
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(self._before(name), with_kwargs=True))
            handles.append(module.register_forward_hook(self._after, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def begin_step(self) -> None:
        """Calls are counted from 0 again."""
        self._calls.clear()

    def innermost(self) -> Call | None:
        """The layer that runs now."""
        if not self._open:
            return None
        name = self._open[-1][0]
        return name, self._calls.get(name, 0)

    def _before(self, name: str) -> Callable[..., None]:
        def before(_module: torch.nn.Module, given: Any, named: Any) -> None:
            tensors = tuple(tensors_in((given, named)))
            mark = record_function(LAYER + name)
            mark.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self._open.append((name, mark, tensors, tuple(each._version for each in tensors)))
            if self.lines is not None and (line := user_line(sys._getframe(1))):
                self.lines.called[name, self._calls.get(name, 0)] = line

        return before

    def _after(self, _module: torch.nn.Module, _given: Any, made: Any) -> None:
        name, mark, tensors, versions = self._open.pop()
        mark.__exit__(None, None, None)
        number = self._calls.get(name, 0)
        self._calls[name] = number + 1
        self.seen[name, number] = Seen(
            inputs=tuple(tuple(each.shape) for each in tensors),
            outputs=tuple(tuple(each.shape) for each in tensors_in(made)),
            in_place=any(each._version != version for each, version in zip(tensors, versions, strict=True)),
        )


def measure_layers(
    model: torch.nn.Module, batch: Any, *, loss: Loss, steps: int, clock: Clock, name: str, origin: Origin,
    drill: bool = False,
) -> LayersReport:  # fmt: skip
    """Train a copy of the model, on the device of its weights: `steps` steps, and as many with marks.

    `batch` is one batch, or a loader whose batches are taken in turn, epoch after epoch. With `drill`, two more steps
    find the slowest source line. Raises BadValue for a model without weights.
    """
    measuring = _Measuring(copy.deepcopy(model).train(), batch, loss, clock)
    found = measuring.report(steps, name, origin)
    return replace(found, drill=drilled(found, measuring.lines())) if drill else found


class _Measuring:
    def __init__(self, model: torch.nn.Module, batch: Any, loss: Loss, clock: Clock) -> None:
        weights = [each for each in model.parameters() if each.requires_grad]
        if not weights:
            raise BadValue("the model has no parameters to train", hint="give a model with weights that need gradients")
        self._model, self._loss, self._clock = model, loss, clock
        self._batches = epochs(batch) if is_loader(batch) else None
        self._batch = batch if self._batches is None else next(self._batches)
        self._device = weights[0].device
        self._optimizer = torch.optim.SGD(weights, lr=LEARNING_RATE, momentum=MOMENTUM)
        self._parts: dict[PartName, list[float]] = {}

    def report(self, steps: int, name: str, origin: Origin) -> LayersReport:
        """The steps without marks are half before and half after those with them: a machine drifts."""
        self._run(WARM_UP_STEPS)
        self._parts.clear()
        self._run(steps // 2)
        plain, self._parts = self._parts, {}
        hooks = Hooks()
        with hooks.on(self._model):
            times = self._profiled(hooks, steps)
        self._parts = plain
        self._run(steps - steps // 2)
        parts = tuple(PartTime(name=part, ms=_spread(values)) for part, values in self._parts.items())
        layers = tuple(
            self._layer(call, [each[call] for each in times if call in each], hooks) for call in _order(times)
        )
        ran = {layer.name for layer in layers}
        return LayersReport(
            origin=origin,
            model=name,
            device=_device_name(self._device),
            batch_size=samples_in(self._batch),
            steps=steps,
            parts=parts,
            layers=tuple(layer for layer in layers if layer.ms or layer.operators),
            missing=tuple(path for path, _ in self._model.named_modules() if path not in ran),
        )

    def lines(self) -> Lines:
        """The source lines of a step; those of a step before it are not kept."""
        lines, hooks = Lines(), Hooks()
        with hooks.on(self._model):
            for _ in range(2):
                lines = hooks.lines = Lines()
                hooks.begin_step()
                with timing(lines, hooks.innermost, self._wait):
                    self._step()
        return lines

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        if self._batches is not None:
            with self._part("load"):
                self._batch = next(self._batches)
        with self._part("copy"):
            batch = moved(self._batch, self._device)
        with self._part("zero_grad"):
            self._optimizer.zero_grad(set_to_none=True)
        with self._part("forward"):
            given = called(self._model, batch)
        with self._part("loss"):
            loss = self._loss(given, batch)
        with self._part("backward"):
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        with self._part("optimizer"):
            self._optimizer.step()

    @contextmanager
    def _part(self, name: PartName) -> Iterator[None]:
        """Times a part to its end on the device. Raises BadValue for whatever fails in it."""
        self._wait()
        begin_ns = self._clock.now_ns()
        try:
            yield
            self._wait()
        except BadValue:
            raise
        except Exception as error:  # the model's own code may raise anything
            if out_of_memory(error):
                said = f"a batch of {samples_in(self._batch)} does not fit into memory"
                raise BadValue(said, hint="use a smaller batch") from error
            reason = " ".join(str(error).split())[:300]
            raise BadValue(f"the model fails in {name}: {type(error).__name__}: {reason}", hint=OWN_MODEL) from error
        self._parts.setdefault(name, []).append((self._clock.now_ns() - begin_ns) / 1e6)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _profiled(self, hooks: Hooks, steps: int) -> list[dict[Call, CallTime]]:
        on_gpu = self._device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as profiler:
            for _ in range(steps):
                hooks.begin_step()
                with record_function(STEP):
                    self._step()
        events = [each for each in profiler.events() or () if each.device_type == DeviceType.CPU]
        return step_times(_event(each, on_gpu) for each in events if each.cpu_parent is None)

    def _layer(self, call: Call, times: list[CallTime], hooks: Hooks) -> LayerTime:
        name, number = call
        module = self._model.get_submodule(name)
        seen = hooks.seen.get(call, Seen(inputs=(), outputs=(), in_place=False))
        return LayerTime(
            name=name,
            kind=type(module).__name__,
            call=number,
            forward=_spread([each.forward_us / 1e3 for each in times]),
            backward=_spread([each.backward_us / 1e3 for each in times]),
            operators=_operators(times),
            in_place=seen.in_place,
            parameters=sum(each.numel() for each in module.parameters(recurse=False)),
            inputs=seen.inputs,
            outputs=seen.outputs,
        )


def _order(times: list[dict[Call, CallTime]]) -> list[Call]:
    """Calls of all steps, in the order in which they first ran: a model may take another way in each step."""
    return list(dict.fromkeys(call for step in times for call in step))


def _operators(times: list[CallTime]) -> tuple[OperatorTime, ...]:
    """The slowest first."""
    names = dict.fromkeys(key for each in times for key in each.operators)
    found = [
        OperatorTime(
            name=name,
            backward=backward,
            count=max(each.operators.get((name, backward), (0, 0.0))[0] for each in times),
            ms=median([each.operators.get((name, backward), (0, 0.0))[1] / 1e3 for each in times]),
        )
        for name, backward in names
    ]
    return tuple(sorted(found, key=lambda each: -each.ms))


def _event(event: FunctionEvent, on_gpu: bool) -> Event:
    us: Any = event.device_time_total if on_gpu else event.cpu_time_total
    return Event(
        name=event.name,
        begin_us=event.time_range.start,
        us=us,
        sequence=event.sequence_nr,
        children=tuple(_event(each, on_gpu) for each in event.cpu_children),
    )


def _spread(values: list[float]) -> Milliseconds:
    return Milliseconds(
        value=median(values), low=quantile(values, 0.25), high=quantile(values, 0.75), steps=tuple(values)
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}), {torch.get_num_threads()} threads"
