"""One phase of reading from a storage, and the ceiling that phases give; what kind of device is behind them.

Names and units are fio's where fio has them: `bw_bytes` (bytes/s), `iops` (read calls/s), `runtime` (ms), `clat_ns`
(one read call), `percentile`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.thresholds import BY_REQUESTS, FLAT, LONG_ENOUGH_S, WORTH
from loaderprobe.records.verdict import Evidence

KindOfDevice = Literal["token_bucket", "single_server", "latency", "unknown"]
KindCode = Literal["token_bucket", "single_server", "latency", "from_memory", "probe_busy", "not_paced", "none_of_them"]
"""What the device is, or why that is not known: the last is one that is not like any of the three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """How the device treats idle time, which decides how forecasts for other worker counts are made.

    token_bucket: idle time is credit (throttled block devices, cloud volumes). single_server: one request after the
    other, idle time is lost. latency: each request takes its time, many at once do not disturb each other.
    """

    kind: KindOfDevice
    code: KindCode
    facts: Facts = field(default_factory=dict)
    """What the sentence quotes; with `not_paced` the facts of what is missing, its code under `because`."""
    sentence: str = field(default="", compare=False)
    """The kind in words; `render` adds it where the result leaves the program."""
    evidence: tuple[Evidence, ...]


PhaseName = Literal["files", "direct", "sequential", "paced"]
"""files: the loader's pattern (whole files in random order, through the page cache), a step of the ladder.
direct: the same past the page cache (O_DIRECT). sequential: large reads in a row, as data sheets quote.
paced: one reader that pauses after each file, to tell kinds of device apart."""

Engine = Literal["threads", "processes"]
CacheLabel = Literal["cold", "warm", "mixed", "unproved", "remote"]
"""remote: from an object store, which no page cache of this machine stands before."""
FROM_STORAGE: tuple[CacheLabel, ...] = ("cold", "remote")
"""No cache of this machine served it."""
FROM_MEMORY: tuple[CacheLabel, ...] = ("warm", "mixed")
"""All or part of it came from the page cache."""
PERCENTILES = ("50.000000", "95.000000", "99.000000", "99.900000")
"""Of durations, by fio's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long operations took, ns; `percentile` has PERCENTILES."""

    min: float
    max: float
    mean: float
    stddev: float
    N: int
    percentile: dict[str, float]

    def __post_init__(self) -> None:
        if self.percentile.keys() != set(PERCENTILES):
            raise BadValue(f"percentiles are not {', '.join(PERCENTILES)}")


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
class BandwidthPhase:
    """One pattern at one number of readers, over its steady part: the start of each run of reads is left out.

    Of ranks that read at once after a common start, each its own share, for an agreed time: figures are those of all
    together, rates while all read, cores those of all nodes; `storage_bytes` is None where a rank counts none.
    """

    name: PhaseName
    engine: Engine
    readers: int
    """Of all ranks."""
    block_bytes: int | None
    """Size of one read; None where files are read."""
    pause_s_per_byte: float
    """Pause after each file, for each byte of it; 0 for all phases but the paced one."""
    runtime: float
    """ms of reading, all of it."""
    io_bytes: int
    """Bytes delivered in that time."""
    bw_bytes: float
    bw_low: float
    bw_high: float
    """95 % interval of `bw_bytes`, from slices of the phase, with their correlation."""
    settled: bool
    """True when the interval became as narrow as asked before the time was up."""
    iops: float
    total_ios: int
    files_per_s: float
    """Files read to their end, one that is cut by all its blocks; where `block_bytes` is not None, blocks."""
    clat_ns: Latency
    """One read call; of objects from a request to its first byte."""
    file_ns: Latency | None
    """Open, read to the end, close; of objects all attempts, to the last byte; None where that is not timed."""
    storage_bytes: int | None
    """What this process read from storage; None where the file system does not account reads."""
    cold_fraction: float | None
    """Storage bytes over bytes delivered, at most 1."""
    amplification: float | None
    """Storage bytes over bytes delivered, when cold: above 1 is unused read-ahead."""
    other_bytes_per_s: float | None
    """What the same devices read for others meanwhile; None where it cannot be seen."""
    resident_before: float | None
    """Share of the files in the page cache before the phase."""
    cache: CacheLabel
    """From bytes; `unproved` where they are not counted, `remote` of objects."""
    first_third_bw_bytes: float
    last_third_bw_bytes: float
    cpu_cores: float
    """Cores that the reading itself kept busy."""
    at_least: bool
    """True when the probe itself may be the limit: its own CPU use, or threads without processes."""
    unread: dict[str, int] = field(default_factory=dict)
    """Reason to number of files that could not be read to their end."""
    notes: tuple[Remark, ...] = ()
    ranks: int = 1
    nodes: int = 1
    by_rank: tuple[RankRead, ...] = ()
    """Empty where this process alone reads."""

    def __post_init__(self) -> None:
        rates = (self.bw_bytes, self.bw_low, self.bw_high, self.files_per_s, float(self.io_bytes))
        if self.readers < 1 or not all(rate >= 0 for rate in rates) or (self.storage_bytes or 0) < 0:
            raise BadValue(f"a phase of {self.readers} readers has a rate below 0")
        if self.file_ns is not None and not self.file_ns.mean >= 0:
            raise BadValue(f"a phase of {self.readers} readers has a time below 0")
        if self.amplification is not None and not self.amplification > 0:
            raise BadValue(f"a phase of {self.readers} readers has an amplification of {self.amplification:g}")
        if not 1 <= self.nodes <= self.ranks or (len(self.by_rank) or 1) != self.ranks:
            raise BadValue(f"a phase of {self.ranks} ranks on {self.nodes} nodes has figures of {len(self.by_rank)}")

    @property
    def last_done_bw_bytes(self) -> float:
        """All bytes over the time of the rank that was last."""
        return self.io_bytes / (self.runtime / 1e3)

    @property
    def slowest(self) -> RankRead | None:
        """The rank that got least while all read; None where this process alone reads."""
        return min(self.by_rank, key=lambda rank: rank.bw_bytes, default=None)

    @property
    def long_enough(self) -> bool:
        """True where the slowest rank read for long enough to be called slow."""
        return self.slowest is not None and self.slowest.seconds >= LONG_ENOUGH_S

    @property
    def fairness(self) -> float:
        """The slowest rank's rate over the fastest's; 1 of one."""
        rates = [rank.bw_bytes for rank in self.by_rank]
        return min(rates) / max(rates) if any(rates) else 1.0

    @property
    def in_step_bw_bytes(self) -> float:
        """As many times the slowest rank: what ranks get that wait for each other, the others' share unused."""
        return self.ranks * self.slowest.bw_bytes if self.slowest else self.bw_bytes

    @property
    def moved_bytes_per_s(self) -> float:
        """What the storage itself gave, read-ahead included; what readers got where that was not counted."""
        return self.bw_bytes * self.storage_bytes / self.io_bytes if self.storage_bytes else self.bw_bytes


def fastest(ladder: Sequence[BandwidthPhase]) -> BandwidthPhase | None:
    """The step with the highest lower end of its interval: a high figure that has not settled is no record."""
    return max(ladder, key=lambda phase: (phase.bw_low, phase.bw_bytes), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCeiling:
    """What the storage under one data set delivers at the concurrencies of a sweep."""

    data: str
    """Fingerprint of the file set."""
    phases: tuple[BandwidthPhase, ...]
    missing: Remark | None = None
    """Why there is no phase."""
    kind: DeviceKind | None = None
    """None where it was not needed: storage was no limit."""

    def __post_init__(self) -> None:
        for phase in self.phases:
            if not (phase.io_bytes > 0 and phase.bw_bytes > 0):
                raise BadValue(f"ceiling: a phase of {phase.readers} readers has no rate")

    def at(self, readers: int) -> BandwidthPhase | None:
        return next((phase for phase in self.phases if phase.readers == readers), None)

    @property
    def device_kind(self) -> KindOfDevice:
        """As a probe with pauses found it; unknown without one."""
        return self.kind.kind if self.kind else "unknown"

    def at_limit(self, bytes_per_s: float) -> bool:
        """True where many readers got no more than one, or no more than this by a factor that counts, of any kind."""
        if self.kind is None:
            return False
        rises = [piece.value for piece in self.kind.evidence if piece.metric == "rise_of_ladder"]
        limit = float(self.kind.facts.get("bytes_per_s", math.inf))
        return limit < WORTH * bytes_per_s or any(rise <= FLAT for rise in rises)

    @property
    def by_requests(self) -> bool | None:
        """True where it limits requests/s, False where bytes/s, as small and large files showed; None if unknown."""
        evidence = self.kind.evidence if self.kind else ()
        return next((piece.value > BY_REQUESTS for piece in evidence if piece.metric == "rate_by_file_size"), None)

    @property
    def bytes_per_s(self) -> float | None:
        """What readers got from it at most, cold; None where that is not known, or was the limit of the probe.

        The mean over all phases that differ from the fastest by noise only: the fastest of several is above what lasts.
        """
        best = max(self.from_storage, key=lambda phase: phase.bw_bytes, default=None)
        if best is None or best.at_least:
            return None
        alike = [phase for phase in self.from_storage if phase.bw_high >= best.bw_low]
        return sum(phase.bw_bytes * phase.runtime for phase in alike) / sum(phase.runtime for phase in alike)

    @property
    def alone_s(self) -> float:
        """What a file takes one reader when no other is in the way.

        The mean of a lone reader before a single server. Elsewhere the fastest of the phase with the fewest readers,
        since a lone reader uses up a token bucket's credit, and waits for more.
        """
        files = [(phase.readers, phase.file_ns) for phase in self.from_storage if phase.file_ns]
        readers, file_ns = min(files, key=lambda pair: pair[0], default=(0, None))
        if file_ns is None:
            return 0.0
        return (file_ns.mean if readers == 1 and self.device_kind == "single_server" else file_ns.min) / 1e9

    @property
    def from_storage(self) -> list[BandwidthPhase]:
        """Where reads are not counted, a known kind proves it: only waiting readers show one."""
        good = FROM_STORAGE if self.device_kind == "unknown" else (*FROM_STORAGE, "unproved")
        return [phase for phase in self.phases if phase.cache in good]


NO_CEILING = StorageCeiling(data="", phases=())
"""Of storage of which nothing is known."""
