"""What recordings of torch.profiler show of a training: ms a step by cause, rank by rank. Everything is estimated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.files import SkippedFile
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import TimePart
from loaderprobe.records.verdict import DeviceUse, Gaps, GapVerdict, TimelineView

MarkName = Literal["profiler_steps", "batches", "optimizer_steps", "none"]
"""What separates the steps of a recording."""


class HostSpan(NamedTuple):
    """What a thread of the host was in: an operator, an annotation or a function of Python. Nanoseconds."""

    name: str
    thread: int
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class HostSpans:
    """The spans of a recording that are kept, by what they are for."""

    steps: list[HostSpan] = field(default_factory=list)
    """ProfilerStep marks."""
    waits: list[HostSpan] = field(default_factory=list)
    """Asking a loader for a batch, named by an annotation; where there is none, from recorded stacks."""
    optimizer: list[HostSpan] = field(default_factory=list)
    long: list[HostSpan] = field(default_factory=list)
    """Functions and operators that took long enough to hold the host up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpans:
    """The steps of a recording. Nanoseconds."""

    steps: tuple[tuple[int, int], ...]
    """The last ends with all of its work."""
    marked: MarkName
    thread: int | None
    """That trains; None where nothing shows it."""
    left_out: int
    """Slow steps before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A function or a call, and what it took a step."""

    name: str
    seconds: float
    """A step."""
    count: float = 0.0
    """A step; 0 where it is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """How long a step takes at least if something cost nothing; `input` is with copies and the loader's kernels."""

    name: str
    """A resource that gaps show."""
    step_s: float
    speedup: float
    """At most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one recording shows, or the mean of several. Times are seconds a step."""

    bound: GapVerdict
    gaps: Gaps
    use: DeviceUse
    free: tuple[Free, ...]
    notes: tuple[Remark, ...] = ()
    """Doubts, and what was left out."""

    @property
    def steps(self) -> int:
        """Of several recordings the fewest."""
        return self.gaps.steps

    @property
    def step_s(self) -> float:
        """The mean of all steps."""
        return self.gaps.step_s

    @property
    def fed_step_s(self) -> float:
        """Of a step if input cost nothing, at least; as recorded where that is not known."""
        return next((free.step_s for free in self.free if free.name == "input"), self.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRank(Recorded):
    """One recording."""

    path: str
    rank: int | None
    world_size: int | None
    gpu: str
    """Its name; empty where the recording has none."""
    device: int
    amd: bool
    marked: MarkName
    steps_s: tuple[float, ...]
    """Of each step, in order, from mark to mark; without marks, the one window."""
    steps_parts_s: dict[TimePart, tuple[float, ...]]
    """Of each step; they sum to its `steps_s`."""
    loader: str
    """What asked for batches, by its span; empty without one."""
    wait_s: float | None
    """The training thread inside `next()`, hidden behind kernels or not; None without spans of a loader."""
    syncs: float
    """How often the host waited for the GPU, a step."""
    blocking: tuple[Named, ...]
    """Calls that blocked the host while the GPU was idle."""
    held: tuple[Named, ...]
    """Functions, or operators, that held the host up while the GPU was idle."""
    batch_size: int | None
    """Images a step, by the shape of the first convolution or as given."""
    view: TimelineView
    """In columns of equal time, each of the part that took most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport(Recorded):
    """What limits the training in some recordings. The figures of the whole are means over its ranks."""

    schema: str = "loaderprobe/trace"
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    ranks: tuple[TraceRank, ...]
    waited_for: int | None
    """Place in `ranks` of the one that the others wait for; None for a single one, and where they wait alike."""
    unread: tuple[SkippedFile, ...] = ()
