"""What recordings of torch.profiler show of a training: ms a step by cause, rank by rank. Everything is estimated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Side

TRACE_SCHEMA = "loaderprobe/trace"

TraceCause = Literal["input", "copy", "host", "sync", "communication", "compute", "mixed", "not_known"]
"""What limits training. host: launching. sync: the host waits for the GPU. mixed: two sides take about as much."""
PartName = Literal["compute", "communication", "input", "copy", "loader", "sync", "launch", "device", "unknown"]
"""To what each moment of a recording goes. communication: nothing but it ran. device: the hardware's own latency."""
PART_NAMES: tuple[PartName, ...] = (
    "compute", "communication", "input", "copy", "loader", "sync", "launch", "device", "unknown",
)  # fmt: skip
FreeName = Literal["input", "copy", "host", "communication"]
FREE: dict[FreeName, tuple[PartName, ...]] = {
    "input": ("input", "copy", "loader"),
    "copy": ("copy",),
    "host": ("launch", "sync"),
    "communication": ("communication",),
}
"""What goes if something costs nothing. Of these, `copy` is a part of `input`; the other three are sides."""
MarkName = Literal["profiler_steps", "batches", "optimizer_steps", "none"]
"""What separates the steps of a recording."""
COLUMNS = 1000
"""Of a strip."""


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
    """Asking a loader for a batch, named by an annotation."""
    waits_in_stacks: list[HostSpan] = field(default_factory=list)
    """The same, from recorded stacks."""
    optimizer: list[HostSpan] = field(default_factory=list)
    long: list[HostSpan] = field(default_factory=list)
    """Functions and operators that took long enough to hold the host up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpans:
    """The steps of a recording, and the window that holds them with all of their work. Nanoseconds."""

    steps: tuple[tuple[int, int], ...]
    marked: MarkName
    thread: int | None
    """That trains; None where nothing shows it."""
    left_out: int
    """Slow steps before the first."""
    begin_ns: int
    end_ns: int


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

    name: FreeName
    step_s: float
    speedup: float
    """At most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBound:
    """The estimated verdict."""

    side: Side
    cause: TraceCause
    how: Literal["estimated"] = "estimated"
    candidates: tuple[FreeName, ...] = ()
    """With cause `mixed`: the sides, the largest first."""
    sentence: str = field(default="", compare=False)
    """In words; `render` adds it where the result leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A recording as columns of equal time: runs of what took most of each."""

    window_s: float
    parts: tuple[PartName, ...]
    columns: tuple[int, ...]
    """How many columns each part goes on for; they sum to `COLUMNS`."""
    steps: tuple[float, ...]
    """Where steps begin, in columns."""
    waits: tuple[tuple[int, int], ...]
    """Columns (first, end) in which the training thread asked its loader for a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRank:
    """One recording. Times are seconds a step, the mean of all steps; shares are of the window."""

    path: str
    rank: int | None
    world_size: int | None
    gpu: str
    """Its name; empty where the recording has none."""
    device: int
    amd: bool
    marked: MarkName
    steps: int
    step_s: float
    steps_s: tuple[float, ...]
    """Of each step, in order, from mark to mark; without marks, the one window."""
    bound: TraceBound
    shares: dict[PartName, float]
    """They sum to 1."""
    parts_s: dict[PartName, float]
    """They sum to `step_s`."""
    steps_parts_s: dict[PartName, tuple[float, ...]]
    """Of each step; they sum to its `steps_s`."""
    free: tuple[Free, ...]
    busy_fraction: float
    """Share of the window with a kernel of any kind."""
    sm_efficiency: float | None
    """Estimated mean share of SMs with a block, over the window."""
    occupancy: float | None
    """Estimated mean share of an SM's warps that are active, over the kernels' time."""
    occupancy_coverage: float
    """Share of the kernels' time for which it could be computed."""
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
    pageable_s: float
    """The part of the copies that came from pageable memory."""
    batch_size: int | None
    """Images a step, by the shape of the first convolution or as given."""
    notes: tuple[Remark, ...]
    """Doubts, and what was left out."""
    strip: Strip

    def __post_init__(self) -> None:
        if abs(sum(self.shares.values()) - 1) > 1e-9 or not self.steps > 0:
            raise LoaderprobeError(f"the shares of a recording sum to {sum(self.shares.values())}, not to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file that gave no result."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """What limits the training in some recordings. The figures of the whole are means over its ranks."""

    schema: str = TRACE_SCHEMA
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    bound: TraceBound
    shares: dict[PartName, float]
    parts_s: dict[PartName, float]
    free: tuple[Free, ...]
    busy_fraction: float
    sm_efficiency: float | None
    occupancy: float | None
    occupancy_coverage: float
    steps: int
    """The fewest of a rank."""
    step_s: float
    ranks: tuple[TraceRank, ...]
    waited_for: int | None
    """Place in `ranks` of the one that the others wait for; None for a single one, and where they wait alike."""
    notes: tuple[Remark, ...] = ()
    unread: tuple[Unread, ...] = ()
