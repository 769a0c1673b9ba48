"""Where the time of a training step goes: by part, and by layer in the order in which layers run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.verdict import Interval

LAST_CALL = 99
"""Calls of a layer from this one on are one row: a layer in a loop may be called any number of times."""
PartName = Literal["load", "copy", "zero_grad", "forward", "loss", "backward", "optimizer"]
LevelName = Literal["step", "layer", "operator", "line"]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Milliseconds(Interval):
    """Of a step: the median over the steps, and the range of the middle half."""

    steps: tuple[float, ...] = ()
    """Of each step, in order; of a layer, those in which it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """A part of a step, timed without a profiler."""

    name: PartName
    ms: Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """An operator that a layer runs itself."""

    name: str
    """`aten::conv2d`; of the backward pass, autograd's name: `ConvolutionBackward0`."""
    backward: bool
    count: int
    """Calls in a step."""
    ms: float
    """In a step, over all calls; median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """One call of a layer in a step, without the layers inside it."""

    name: str
    """Path of the module; empty for the model itself."""
    kind: str
    """Class of the module."""
    call: int
    """0 for the first call in a step, 1 for the second of a layer that is used twice; 99 for all from there on."""
    forward: Milliseconds
    backward: Milliseconds
    operators: tuple[OperatorTime, ...]
    in_place: bool
    parameters: int
    """Of this layer alone."""
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    @property
    def ms(self) -> float:
        return self.forward.value + self.backward.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLevel:
    """One level on the way from the step to a source line: the slowest there."""

    level: LevelName
    name: str
    """Of a layer: the path of its module. Of a line: `file.py:12`."""
    call: int
    """Of a layer, which call in a step; else 0."""
    text: str
    """The source of a line; else empty."""
    ms: float
    of_above: float
    """Share of the level above."""
    of_whole: float
    """Share of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport:
    """A model's step, in parts and in layers."""

    origin: Origin
    model: str
    device: str
    batch_size: int
    steps: int
    """Timed without the profiler, and as many with it."""
    parts: tuple[PartTime, ...]
    layers: tuple[LayerTime, ...]
    """In the order in which they first run."""
    missing: tuple[str, ...]
    """Layers that never ran."""
    precision: str = "fp32"
    unlisted: int = 0
    """Operators of a step, where they are too many to record each; 0 where they are listed.

    Then the forward time of a layer is that of the clock, with Python between its operators. The backward pass, timed
    without marks, is divided among layers by the time of their operators, each timed by itself. Operators of the
    forward pass are not listed.
    """
    drill: tuple[DrillLevel, ...] = ()
    """From the step to the slowest source line; empty unless asked for."""
    schema: str = "loaderprobe/layers"
    schema_version: int = SCHEMA_VERSION

    @property
    def step_ms(self) -> float:
        """All parts together."""
        return sum(part.ms.value for part in self.parts)

    @property
    def over_whole(self) -> dict[PartName, float]:
        """What the layers add up to, as a share of the forward and of the backward pass timed without a profiler."""
        added: dict[PartName, float] = {
            "forward": sum(layer.forward.value for layer in self.layers),
            "backward": sum(layer.backward.value for layer in self.layers),
        }
        whole = {part.name: part.ms.value for part in self.parts}
        return {name: value / whole[name] for name, value in added.items() if whole.get(name)}
