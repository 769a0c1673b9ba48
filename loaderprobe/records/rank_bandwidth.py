"""What storage delivers to several ranks that read at once, each its own shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.bandwidth import CacheLabel, Feed, Latency
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.note import Note
from loaderprobe.records.origin import SCHEMA_VERSION, Origin

RANK_BANDWIDTH_SCHEMA = "loaderprobe/rank-bandwidth"
LONG_ENOUGH_S = 1.0
"""Of reading, to say of one rank that it is slow: a throttled disk grants its saved credit in the first 0.25 s."""

RanksLimitCode = Literal[
    "from_memory", "probe_busy", "too_short", "slow_rank", "slow_host", "plateau", "process", "rising", "one_step"
]  # fmt: skip
"""from_memory: files were not cold. probe_busy: the probe's own CPU use may be the limit. too_short: ranks differ, but
read for too short a time to tell. slow_rank: one rank gets far less than the others. slow_host: nearly all ranks of a
host get far less than each rank elsewhere. plateau: two doublings of the readers together gained next to nothing.
process: as many readers in more ranks get more, so one process or node is the limit. rising: more readers may get more.
one_step: nothing to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRead:
    """What one rank read."""

    rank: int
    """Among those that read."""
    node: int
    host: str
    bw_bytes: float
    """While all read."""
    io_bytes: int
    """In the whole of its time."""
    seconds: float
    """Until it had no more work, or the agreed time was over and its last file read."""
    storage_bytes: int | None
    """Of those from storage; None where that is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksPhase:
    """So many ranks that read at once after a common start, for an agreed time. Rates leave out how each run begins."""

    ranks: int
    nodes: int
    readers: int
    """Of each rank."""
    runtime: float
    """ms of reading, all of it."""
    bw_bytes: float
    """Of all ranks together while all read: what others call first done."""
    bw_low: float
    bw_high: float
    """95 % interval of `bw_bytes`."""
    settled: bool
    """True when the interval became as narrow as asked."""
    last_done_bw_bytes: float
    """All bytes over the time of the rank that was last."""
    files_per_s: float
    """Of all ranks together; where files are read whole, each is opened once."""
    file_ns: Latency
    """Open, read to the end, close; of all ranks."""
    cold_fraction: float | None
    """Storage bytes over bytes delivered, at most 1."""
    cache: CacheLabel
    cpu_cores: float
    """Cores that the reading kept busy, on all nodes together."""
    at_least: bool
    """True when the probe's own CPU use may be the limit."""
    by_rank: tuple[RankRead, ...]
    unread: dict[str, int] = field(default_factory=dict)
    """Reason to number of files that could not be read to their end."""

    @property
    def clients(self) -> int:
        """Readers of all ranks."""
        return self.ranks * self.readers

    @property
    def slowest(self) -> RankRead:
        """The rank that got least while all read."""
        return min(self.by_rank, key=lambda each: each.bw_bytes)

    @property
    def long_enough(self) -> bool:
        """True where the slowest rank read for long enough to be called slow."""
        return self.slowest.seconds >= LONG_ENOUGH_S

    @property
    def fairness(self) -> float:
        """The slowest rank's rate over the fastest's."""
        most = max(each.bw_bytes for each in self.by_rank)
        return self.slowest.bw_bytes / most if most else 1.0

    @property
    def in_step_bw_bytes(self) -> float:
        """As many times the slowest rank: what ranks get that wait for each other, the others' share unused."""
        return self.ranks * self.slowest.bw_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksLimit:
    """What limits the ranks, and the figures that say so."""

    code: RanksLimitCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """Rates in bytes/s."""
    sentence: str = field(default="", compare=False)
    """In words; added where the report leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBandwidthReport:
    """All steps of the ladder of ranks, and what limits them."""

    schema: str = RANK_BANDWIDTH_SCHEMA
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    path: str
    location: StorageLocation
    """As rank 0 sees it."""
    hosts: tuple[str, ...]
    """One for each node."""
    files_found: int
    files_used: int
    mean_size_bytes: float
    images: bool
    whole_files: bool
    """False when blocks are read."""
    interrupted: bool
    phases: tuple[RanksPhase, ...]
    limit: RanksLimit
    feeds: tuple[Feed, ...] = ()
    """By what all ranks get together; empty as in a report of one process."""
    feeds_in_step: tuple[Feed, ...] = ()
    """The same by as many times the slowest rank: what accelerators in step get at least."""
    notes: tuple[Note, ...] = ()

    @property
    def ladder(self) -> tuple[RanksPhase, ...]:
        """The steps with as many readers a rank as the first one, by ranks and nodes."""
        first = self.phases[0].readers if self.phases else 0
        return tuple(
            sorted((each for each in self.phases if each.readers == first), key=lambda each: (each.ranks, each.nodes))
        )

    @property
    def largest(self) -> RanksPhase | None:
        """The step with the most ranks."""
        return max(self.phases, key=lambda each: (each.ranks, each.nodes), default=None)
