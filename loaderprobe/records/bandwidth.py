"""What `loaderprobe bandwidth` found: how fast storage delivers files, what limits it, and what that feeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.environment import SCHEMA_VERSION, Origin, StorageLocation
from loaderprobe.records.measurement import Missing
from loaderprobe.records.phases import FROM_MEMORY, BandwidthPhase, CacheLabel, DeviceKind, Latency, PhaseName, fastest
from loaderprobe.records.remark import READ_AGAIN, Facts, Remark
from loaderprobe.records.supply import Feed

LimitedBy = Literal[
    "bandwidth", "latency", "latency then bandwidth", "memory", "probe", "unknown", "process", "rank", "host"
]
"""The last three of ranks only."""
LimitCode = Literal[
    "no_step", "from_memory", "probe_busy", "interrupted", "one_step", "flat", "uneven", "rises", "rises_then_flat",
    "too_short", "slow_rank", "slow_host", "plateau", "process", "rising", "one_step_of_ranks",
]  # fmt: skip
"""What the ladder shows. flat: it is flat from its first step on. uneven: steps get less than those before. rises: it
rises with the readers. rises_then_flat: it rises less than they do, and ends flat or not.

The last line is of ranks. too_short: they differ, but read for too short a time to tell. slow_rank: one gets far less
than the others. slow_host: nearly all ranks of a host get far less than each rank elsewhere. plateau: two doublings of
the readers together gained next to nothing. process: as many readers in more ranks get more, so one process or node is
the limit. rising: more readers may get more. one_step_of_ranks: nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What stops the ladder from rising."""

    by: LimitedBy
    knee_readers: int | None
    """The smallest number of readers that gets within 5 % of the best."""
    code: LimitCode
    facts: Facts = field(default_factory=dict)
    """What the sentence quotes: readers, bytes/s, and `file_s`, the median time of a file at the first step."""
    sentence: str = field(default="", compare=False)
    """The limit in words; `render` adds it where the result leaves the program."""


MetadataOperation = Literal["open", "stat"]
"""open: open and close, without a read. stat: ask for size and times by name."""
MetadataLabel = Literal["cold", "asked", "warm", "unproved"]
"""cold: names and inodes were dropped, and came from storage or the server by count. asked: they were not dropped, but
the server was asked each time, by count. warm: they were not dropped, or came from memory all the same. unproved:
dropped, but nothing counts where they came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPhase:
    """One operation on the names of whole files, each once after every drop, at one number of readers."""

    operation: MetadataOperation
    readers: int
    runtime: float
    """ms of the operations, all of it; dropping is not in it."""
    total_ops: int
    ops_per_s: float
    ops_low: float
    ops_high: float
    """95 % interval of `ops_per_s`; `ops_per_s` itself where there are too few readings for one."""
    op_ns: Latency
    drops: int
    """How often the machine's names and inodes were dropped for it; 0 when the user did not ask for that."""
    storage_bytes: int | None
    """What this process read from storage meanwhile; None where the file system does not account reads."""
    server_calls: int | None
    """Calls for names and attributes that the NFS client sent meanwhile, or read calls of the program that serves a
    FUSE mount, for the whole mount; None elsewhere."""
    metadata: MetadataLabel
    cpu_cores: float
    at_least: bool
    """True when the probe's own CPU use may be the limit."""
    unread: dict[str, int] = field(default_factory=dict)
    """Reason to number of operations that failed."""
    short: bool = False
    """True when a pass over the files after a drop took under a second: a device's saved credit and its read-ahead of
    inodes weigh in, and the rate that lasts may be lower."""

    def __post_init__(self) -> None:
        if self.readers < 1 or self.total_ops < 1 or not (self.ops_per_s > 0 and self.ops_high >= self.ops_per_s):
            raise BadValue(f"{self.operation}s of {self.readers} readers have no rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthMeasurement:
    """All phases, the files they read, and where those live, as rank 0 sees it."""

    schema: str = "loaderprobe/bandwidth"
    schema_version: int = SCHEMA_VERSION
    path: str
    location: StorageLocation
    files_found: int
    files_used: int
    mean_size_bytes: float
    images: bool
    """True when the files are images, so that files/s are images/s."""
    scratch: bool
    drop_caches: bool
    interrupted: bool
    phases: tuple[BandwidthPhase, ...]
    metadata: tuple[MetadataPhase, ...] = ()
    missing: tuple[Missing, ...] = ()
    """Phases that were not measured, by name, and why."""
    failed: tuple[str, ...] = ()
    """Names of those of them that ended in an error."""
    notes: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.mean_size_bytes < math.inf and self.files_used >= 0 and self.files_found >= 0):
            raise BadValue("a size or a count is below 0")

    @property
    def by_ranks(self) -> bool:
        """True where ranks read, each its own share, and not this process alone."""
        return any(phase.by_rank for phase in self.phases)

    @property
    def steps(self) -> tuple[BandwidthPhase, ...]:
        """The phases in the loader's pattern, as they were read; several ranks and one may have as many readers."""
        return tuple(phase for phase in self.phases if phase.name == "files")

    @property
    def ladder(self) -> tuple[BandwidthPhase, ...]:
        """The steps by number of readers; of as many the fastest, since one process or node may hold the others up."""
        best = {phase.readers: phase for phase in sorted(self.steps, key=lambda phase: phase.bw_bytes)}
        return tuple(best[readers] for readers in sorted(best))

    @property
    def best(self) -> BandwidthPhase | None:
        """The fastest step, by `fastest`; of ranks, of those with the most on the most nodes.

        One that came partly from memory counts only where all did.
        """
        largest = max(((phase.ranks, phase.nodes) for phase in self.steps), default=None)
        steps = [phase for phase in self.steps if (phase.ranks, phase.nodes) == largest]
        return fastest([phase for phase in steps if phase.cache not in FROM_MEMORY] or steps)

    @property
    def ladder_cut_short(self) -> bool:
        """True when the probe was interrupted before anything but the ladder was measured."""
        names = [*(phase.name for phase in self.phases), *(missing.name for missing in self.missing)]
        return self.interrupted and not self.metadata and all(name == "files" for name in names)

    @property
    def from_memory(self) -> bool:
        """True when a step of the ladder did not come from storage alone: then nothing is said about storage."""
        return self.location.in_memory or any(phase.cache in FROM_MEMORY for phase in self.steps)

    @property
    def read_again(self) -> Remark | None:
        """The note that the files were read again, where the best step alone read more than they hold.

        All that it got may have come from a cache below this machine, or of the store.
        """
        note = next((note for note in self.notes if note.code in READ_AGAIN), None)
        best = self.best
        if note is None or best is None or self.from_memory:
            return None
        return note if best.io_bytes > float(note.facts["size_bytes"]) else None

    def cache_of(self, phase: BandwidthPhase) -> CacheLabel:
        """Where its bytes came from; of a file system in memory no device stands behind them, whatever is counted."""
        return "warm" if self.location.in_memory else phase.cache

    def operations(self, operation: MetadataOperation) -> tuple[MetadataPhase, ...]:
        """The phases of one operation, by number of readers."""
        phases = (phase for phase in self.metadata if phase.operation == operation)
        return tuple(sorted(phases, key=lambda phase: phase.readers))

    def best_of(self, operation: MetadataOperation) -> MetadataPhase | None:
        """The fastest by the lower end of their interval; cold ones before others."""
        return max(
            self.operations(operation),
            key=lambda phase: (phase.metadata == "cold", phase.ops_low, phase.ops_per_s),
            default=None,
        )

    def phase(self, name: PhaseName) -> BandwidthPhase | None:
        """The phase of this name, of those that are made once."""
        return next((phase for phase in self.phases if phase.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthReport(BandwidthMeasurement):
    """The measurement, where it was made, and what follows from it."""

    origin: Origin
    limit: Limit
    kind: DeviceKind
    feeds: tuple[Feed, ...]
    """Empty when the files are no images, and when their reads cannot be proved to have come from storage."""
    feeds_in_step: tuple[Feed, ...] = ()
    """`feeds` of ranks by as many times the slowest: what accelerators in step get at least."""
