"""One model on the CPU, on one device and on several: what was timed, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.verdict import Interval

DEVICES_SCHEMA = "loaderprobe/devices"
LARGER = 4
"""How many times as large the larger batch is."""

ARTICLE = ("mlp", "lenet5", "lstm", "resnet152")
"""The models of the article that this repeats, which have its data."""

DeviceName = Literal["cpu", "cuda"]
DataKind = Literal["mnist", "images", "sine"]
SegmentName = Literal["training", "no_exchange", "resident", "larger_batch", "larger_no_exchange"]
GainName = Literal["gradients", "input", "batch"]
ExperimentName = GainName | Literal["larger"]
DeviceCause = Literal["gradients", "input", "batch", "either", "compute", "inconclusive"]

EXPERIMENTS: dict[ExperimentName, tuple[SegmentName, SegmentName]] = {
    "gradients": ("no_exchange", "training"),
    "input": ("resident", "training"),
    "batch": ("larger_no_exchange", "no_exchange"),
    "larger": ("larger_batch", "training"),
}
"""What each compares of several ranks: a segment with another. A larger batch exchanges gradients less often, too, so
whether the batch is too small is asked without exchange."""
EXPERIMENTS_ALONE: dict[ExperimentName, tuple[SegmentName, SegmentName]] = {
    "input": ("resident", "training"),
    "batch": ("larger_batch", "training"),
}
"""The same of one rank, which exchanges nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On what a model is trained: ranks of one process each, a GPU for each or the CPU for all."""

    device: DeviceName
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise BadValue(f"{self.ranks} ranks cannot train", hint="use 1 or more")

    @property
    def name(self) -> str:
        """`cpu`, `2xcuda`."""
        return self.device if self.ranks == 1 else f"{self.ranks}x{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model, the samples that it is trained on, and how many are in a batch and in an epoch."""

    model: str
    data: DataKind
    shape: tuple[int, ...]
    """Of one sample: (channels, height, width), or (steps, values) of a sequence."""
    batch_size: int
    """Of all ranks together."""
    samples: int
    """Of an epoch."""

    @property
    def larger_batch(self) -> int | None:
        """The size of the larger batch; None where an epoch has too few samples for one."""
        return size if (size := LARGER * self.batch_size) <= self.samples else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSegment:
    """Some steps of one kind, which all ranks began together."""

    name: SegmentName
    round: int
    batch_size: int
    """Of all ranks together."""
    steps: int
    seconds: tuple[float, ...]
    """Of each rank."""

    @property
    def step_s(self) -> float:
        """Of the slowest rank."""
        return max(self.seconds) / self.steps

    @property
    def samples_per_s(self) -> float:
        """Of all ranks together, as long as the slowest took."""
        return self.batch_size / self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """What every rank of a placement measures."""

    workload: Workload
    placement: Placement
    threads: int
    """Of a rank, for operators on the CPU."""
    rounds: int
    steps: int | None
    """Of a segment; None takes as many as fit into its usual time."""
    seed: int
    timeout_s: float
    """Without a step of any rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """What one placement gave."""

    placement: Placement
    device: str = ""
    """The name of the GPU; empty for a CPU, which the environment names."""
    backend: str = ""
    """`gloo` or `nccl`; empty with one rank, which exchanges nothing."""
    threads: int = 0
    """Of a rank, for operators on the CPU."""
    gradient_bytes: int = 0
    """What a rank exchanges in a step."""
    segments: tuple[DeviceSegment, ...] = ()
    failure: RunFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMeasured:
    """A placement that did not fail; of one rank, with its own seconds alone."""

    config: RunConfig
    result: PlacementResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadResult:
    """A workload on each placement, in the order in which they were measured."""

    workload: Workload
    placements: tuple[PlacementResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport:
    """The same models and data on several devices."""

    origin: Origin
    cores: float
    """That all ranks of a placement share."""
    results: tuple[WorkloadResult, ...]
    interrupted: bool = False
    schema: str = DEVICES_SCHEMA
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGain:
    """How many times as fast training became in an experiment."""

    name: ExperimentName
    speedup: Interval
    by_round: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The parts of a training step in ms: what the step was longer by than without them, and the rest."""

    exchange: float
    input: float
    compute: float

    @property
    def whole(self) -> float:
        """The step."""
        return self.exchange + self.input + self.compute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVerdict:
    """One placement that was measured: how fast it is, and why not faster."""

    placement: Placement
    step_ms: Interval
    epoch_s: Interval
    samples_per_s: Interval
    speedup: Interval | None
    """Against one process of the same device; None for that itself, and where it was not measured."""
    efficiency: float | None
    """The speed-up over what as much hardware should give: ranks for GPUs, 1 for the CPU, whose cores ranks share."""
    parts: StepParts
    gains: tuple[DeviceGain, ...]
    cause: DeviceCause
    candidates: tuple[GainName, ...] = ()
    """Of `either`: the gains that do not differ."""

    def gain(self, name: ExperimentName) -> DeviceGain | None:
        """None for an experiment that this placement has not."""
        return next((each for each in self.gains if each.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """The placements of a workload that were measured, compared."""

    workload: Workload
    placements: tuple[PlacementVerdict, ...]
    fastest: Placement | None
    """None when none was measured."""
    close: tuple[Placement, ...]
    """Others that do not differ from it beyond noise."""
