"""The storage plan: what N accelerators need, what a storage supplies, what limits it first, what to test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.lock_step import LockStep
from loaderprobe.records.note import Note
from loaderprobe.records.origin import SCHEMA_VERSION
from loaderprobe.records.plan_curves import CacheCurves, RampStep
from loaderprobe.records.plan_reason import PlanPart, PlanReason

PLAN_SCHEMA = "loaderprobe/plan"

Label = Literal["measured", "given", "published", "assumed", "derived"]
"""measured: in this run. given: an option, or the rate of an emulated accelerator. published: the catalogue.
assumed: a default. derived: by a formula from others."""
WEAKNESS: tuple[Label, ...] = ("measured", "given", "published", "assumed")
"""From the strongest label to the weakest."""
NeedName = Literal["read_bytes", "opens", "requests", "reads_in_flight", "workers", "cores"]
Resource = Literal["bandwidth", "opens", "requests", "client", "nic"]
"""client: what one node gets from this storage. nic: what its network carries."""
LeverName = Literal["shards", "cache", "half_size", "utilization"]
UTILIZATION = 0.9
"""Share of their rate that accelerators shall reach, unless another is asked for: the bar of MLPerf Storage."""
USE = 0.8
"""Share of a storage's limit to be used, unless another is asked for: an assumption."""
CacheKind = Literal["none", "page", "pinned"]
"""page: the kernel's page cache decides what stays. pinned: a fixed part of the files stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A figure with its range and where it comes from."""

    value: float
    low: float
    high: float
    """From the intervals of measured inputs only; an assumption has scenarios instead."""
    unit: str
    label: Label
    weakest: Label
    """Of a derived figure: the weakest label among its inputs; else its own label."""
    source: str
    formula: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAsked:
    """The cache of one node, for files."""

    kind: CacheKind = "none"
    bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is planned for. Two different shares: `utilization` of the accelerators, `use` of the storage's limits."""

    accelerators: int
    utilization: float = UTILIZATION
    utilization_given: bool = False
    """False when `utilization` is the default."""
    use: float = USE
    use_given: bool = False
    """False when `use` is the default."""
    per_node: int = 8
    nic_bytes_per_s: float | None = None
    images_per_file: int = 1
    """1: a folder of images; more: shards."""
    epochs: int = 1
    growth: float = 1.0
    cache: CacheAsked = CacheAsked()
    simulate_ranks: int | None = None
    """Ranks to replay in lock-step; None: as many as accelerators, where the run has ranks."""
    today: str = ""
    """ISO 8601; against which the catalogue may be stale."""

    @property
    def nodes(self) -> int:
        """Machines that hold the accelerators."""
        return -(-self.accelerators // self.per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """What the plan was made from."""

    kind: Literal["sweep", "run", "bandwidth", "trace"]
    path: str
    data: str
    """Its folder; of a run only its name."""
    other_data: tuple[str, ...]
    """Other data sets of the run, which could have been chosen."""
    accelerator: str
    configuration: str
    """Title of the measured configuration; empty for a bandwidth result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What all accelerators together need of one resource while files are cold."""

    name: NeedName
    at_utilization: Quantity
    at_most: Quantity
    """At a utilization of 100 %: training never draws more."""
    to_buy: Quantity | None
    """The need over the share of a limit that one dares to use; None for what storage does not sell."""
    node: Quantity | None
    """Of one full node; None for what is per accelerator anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyLimit:
    """One resource of one storage, beside the need for it."""

    resource: Resource
    limit: Quantity
    """Of the storage as a whole."""
    need: Quantity
    """Of all accelerators at the wanted utilization, cold."""
    share: float
    """Need over limit."""
    feeds: float
    """Accelerators, with the share of the limit that one dares to use."""
    at_least: bool
    """True when the limit is known to be at least that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """A storage: its limits, the one that is reached first first."""

    name: str
    label: Label
    source: str
    read_on: str
    """Day on which a published limit was read; empty for others."""
    stale: bool
    limits: tuple[SupplyLimit, ...]
    first_limit: Resource | None
    """None when it has no limit that is known."""
    feeds: float | None
    at_least: bool
    reads_in_flight: Quantity | None
    """An accelerator, for this storage's time of a read; None where that is not known."""
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochShare:
    """The share of reads that reach the shared storage in one epoch: what caches do not hold."""

    epoch: int
    cold_low: float
    cold_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """Epochs and caches."""

    seconds: Quantity | None
    """Of one epoch at the wanted utilization; None when the number of images is not known."""
    cache_share: float | None
    """Of the set in the cache of one node, at most 1; None without a cache or a known set."""
    shares: tuple[EpochShare, ...]
    sets_read: tuple[float, float] | None
    """How many times the set is read from shared storage over all epochs, at least and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """What waiting for the slowest of all ranks costs, as shares of a step."""

    ranks: int
    steps: int
    """From how many measured steps."""
    longest_s: float
    alone: float
    """Share that one accelerator waits: the least, when all ranks wait together."""
    independent: float
    """Share when ranks wait independently of each other: the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyFeeds:
    """What a storage feeds after a change."""

    supply: str
    feeds: float | None
    first_limit: Resource | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """The cache that lets a storage feed all accelerators from the second epoch on."""

    supply: str
    hits: float
    """Share of reads that must come from the cache."""
    pinned_bytes: float | None
    """A node; None when the size of the set is not known."""
    page_bytes: float | None
    """The same for the kernel's page cache, at the fewest hits that it may give."""
    page_bytes_low: float | None
    """At the most hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change, and what it does to the need and to each storage."""

    name: LeverName
    to: float
    """Images a shard, bytes a file, utilization; 0 for the cache."""
    read_bytes: Quantity
    opens: Quantity
    feeds: tuple[SupplyFeeds, ...]
    caches: tuple[CacheSize, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Another value of an assumption, and what would have to be bought then."""

    value: float
    read_bytes_to_buy: float
    feeds: float | None
    """By the first storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A figure that the plan is made from."""

    name: str
    quantity: Quantity
    scenarios: tuple[Scenario, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The test of the delivered storage: on each node at once, so many readers, at least these figures a node."""

    nodes: int
    readers: int
    readers_from: Literal["workers", "reads_in_flight", "assumed"]
    bytes_per_s: float
    """Delivered to the readers of one node."""
    files_per_s: float | None
    """None for shards, of which blocks are read."""
    compute: str
    """For `sweep --compute`; empty where the accelerator is a real one."""
    workers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The whole plan."""

    schema: str = PLAN_SCHEMA
    schema_version: int = SCHEMA_VERSION
    loaderprobe: str
    created_utc: str
    source: PlanSource
    asked: Asked
    needs: tuple[Need, ...]
    supplies: tuple[Supply, ...]
    rulers: tuple[Supply, ...]
    """Reference designs beside the need: nothing that is on offer."""
    ramp: tuple[RampStep, ...]
    """The ladder of the measured storage, by readers; empty where none counts."""
    epochs: EpochPlan
    curves: CacheCurves
    stragglers: Stragglers | None
    lock_step: LockStep | None = None
    """None where it is refused, and where neither the run has ranks nor any were asked for."""
    levers: tuple[Lever, ...]
    ledger: tuple[LedgerEntry, ...]
    acceptance: Acceptance
    refused: dict[PlanPart, PlanReason]
    """What is not said, and why."""
    notes: tuple[Note, ...]

    def need(self, name: NeedName) -> Need | None:
        """The need of this name; None where it is refused."""
        return next((need for need in self.needs if need.name == name), None)
