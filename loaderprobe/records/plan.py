"""The storage plan: what N accelerators need, what a storage supplies, what limits it first, what to test."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Interval

# Curves beside a storage plan: the measured ladder, and what caches do in general.


@dataclass(frozen=True, slots=True, kw_only=True)
class RampStep:
    """One step of the measured ladder."""

    readers: int
    files_per_s: float
    bytes_per_s: float
    """Delivered to the readers."""
    p50_s: float | None
    """Median time of one file; None where files were not timed one by one."""
    p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEpochs:
    """The share of reads that reach storage in epoch 1, 2, ..., where each node's cache holds the whole set."""

    nodes: int
    cold: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHits:
    """What a node's cache that holds this share of the set answers in the end."""

    share: float
    lru: float
    """Where the least recently used files leave it."""
    page: Interval
    """The kernel's page cache, by what was measured of it."""
    pinned: float
    """Where a fixed part of the files stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCurves:
    """Caches in general, for the nodes of this plan: no figure of a run is in them."""

    epochs: tuple[NodeEpochs, ...]
    sizes: tuple[CacheHits, ...]


# Why a part of a storage plan is not made.

PlanPart = Literal[
    "measured_storage", "rank_storage", "cold_opens", "workers", "cores", "reads_in_flight", "stragglers", "lock_step"
]  # fmt: skip
"""What a plan may have to leave out, in the order in which that is said."""
# What it costs ranks to take each step together: a replay of measured batches for more ranks.


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchCost:
    """The same ranks with one prefetch factor."""

    prefetch_factor: int
    """0 for the serial loader."""
    alone_s: float
    """Mean step of a rank that waits for no other."""
    step_s: float
    """Mean step of all ranks together."""
    cost: Interval
    """`step_s` over `alone_s`, with a range that holds 90 %, by bootstrap over the measured batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStep:
    """What waiting for each other costs so many ranks, at several prefetch factors."""

    asked: int
    """Ranks that are asked for."""
    ranks: int
    """Ranks that were replayed: no more than batches were measured. Of more the cost is at least that."""
    measured_ranks: int
    """Ranks that the batches were measured on."""
    batches: int
    mean_s: float
    """Of one batch in its worker."""
    longest_s: float
    workers: int
    """Of one rank."""
    prefetch_factor: int
    """As measured."""
    compute_s: float
    """A step of the accelerator."""
    costs: tuple[PrefetchCost, ...]
    """By prefetch factor; empty where storage is saturated."""
    advised: int | None = None
    """The smallest prefetch factor that is within 2 % of the best, where that gains at least 5 %."""
    correlation: float | None = None
    """Between ranks, of the times of batches at the same place; None for one rank."""
    slow_rank: int | None = None
    """A rank whose input was found to be slower: it is replayed once, with batches of its own."""
    slow_host: str = ""
    """A host whose ranks were found to be slower: they are replayed once, with batches of their own."""
    saturated: bool = False
    """True where the measured ranks took all that a shared storage gives: it is never idle, so waiting costs
    nothing there."""
    measured_cost: float | None = None
    """Over one rank alone, without compute, as the measured ranks showed it."""
    replayed_cost: float | None = None
    """The same by the replay."""

    @property
    def at_least(self) -> bool:
        """True when more ranks are asked for than batches can show."""
        return self.asked > self.ranks

    def at(self, prefetch_factor: int) -> PrefetchCost | None:
        """The cost with this prefetch factor."""
        return next((each for each in self.costs if each.prefetch_factor == prefetch_factor), None)


PLAN_SCHEMA = "loaderprobe/plan"

Label = Literal["measured", "given", "published", "assumed", "derived"]
"""measured: in this run. given: an option, or the rate of an emulated accelerator. published: the catalogue.
assumed: a default. derived: by a formula from others."""
WEAKNESS: tuple[Label, ...] = ("measured", "given", "published", "assumed")
"""From the strongest label to the weakest."""
NeedName = Literal[
    "read_bytes", "opens", "requests", "reads_in_flight", "listing", "capacity", "checkpoint", "workers", "cores",
    "batch_memory", "read_time", "stall",
]  # fmt: skip
"""listing: entries of folders when training starts. batch_memory: of the batches that workers have made or are making.
read_time: what one read may take on average, with that number of workers. stall: the longest single delay that full
queues hide."""
SupplyResource = Literal["bandwidth", "opens", "requests", "client", "nic"]
"""client: what one node gets from this storage. nic: what its network carries."""
LeverName = Literal["shards", "cache", "half_size", "utilization"]
UTILIZATION = 0.9
"""Share of their rate that accelerators shall reach, unless another is asked for: the bar of MLPerf Storage."""
USE = 0.8
"""Share of a storage's limit to be used, unless another is asked for: an assumption."""
LISTING_S = 60.0
"""For listing the files, unless another time is asked for: an assumption."""
CacheKind = Literal["none", "page", "pinned"]
"""page: the kernel's page cache decides what stays. pinned: a fixed part of the files stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(Interval):
    """A figure with its unit and where it comes from.

    Its range is from the intervals of measured inputs only; an assumption has scenarios instead.
    """

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
class CheckpointAsked:
    """What training writes: so many bytes, so often; it stands still for a share of that time at most."""

    bytes: float = 205e6
    """Weights and momentum of ResNet-50 in float32: 25.6 million, 8 bytes each."""
    every_s: float = 600.0
    share: float = 0.01
    given: bool = False
    """False when these are the defaults."""


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
    checkpoint: CheckpointAsked = CheckpointAsked()
    listing_s: float = LISTING_S
    """All processes may take so long to list the files before the first step."""
    listing_given: bool = False
    """False when `listing_s` is the default."""
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
    """Of one full node; None for a time, and for what the storage as a whole must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyLimit:
    """One resource of one storage, beside the need for it."""

    resource: SupplyResource
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
class PlanSupply:
    """A storage: its limits, the one that is reached first first."""

    name: str
    label: Label
    source: str
    read_on: str
    """Day on which a published limit was read; empty for others."""
    stale: bool
    limits: tuple[SupplyLimit, ...]
    first_limit: SupplyResource | None
    """None when it has no limit that is known."""
    feeds: float | None
    at_least: bool
    reads_in_flight: Quantity | None
    """An accelerator, for this storage's time of a read; None where that is not known."""
    notes: tuple[Remark, ...] = ()


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
    first_limit: SupplyResource | None


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
    supplies: tuple[PlanSupply, ...]
    rulers: tuple[PlanSupply, ...]
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
    pace: Remark | None = None
    """That the rate is the pace of a storage benchmark; None for that of a training."""
    refused: dict[PlanPart, Remark]
    """What is not said, and why."""
    notes: tuple[Remark, ...]

    def need(self, name: NeedName) -> Need | None:
        """The need of this name; None where it is refused."""
        return next((need for need in self.needs if need.name == name), None)


# What a kind of storage promises: an entry of the catalogue, its limits as published, with date and source.

StorageFamily = Literal["block", "file", "parallel", "object", "design"]
"""design: a reference design that names rates, not a product."""
LimitName = Literal["read_bytes_per_s", "opens_per_s", "requests_per_s"]

STALE_AFTER_MONTHS = 12
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A limit that depends on the size that is bought: base + per_unit x size, up to at_most."""

    base: float = 0.0
    per_unit: float = 0.0
    at_most: float | None = None
    least_size: float = 0.0
    """It is published for sizes from here on."""
    most_size: float | None = None
    """To here; None: for all larger ones."""

    def __post_init__(self) -> None:
        _check_numbers("a limit", self.base, self.per_unit, self.at_most, self.least_size, self.most_size)
        if not self.base + self.per_unit > 0:
            raise BadValue("a limit of the catalogue is 0")

    def at(self, size: float) -> float | None:
        """The limit at this size; None where it is not published."""
        if size < self.least_size or (self.most_size is not None and size > self.most_size):
            return None
        value = self.base + self.per_unit * size
        return value if self.at_most is None else min(value, self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A variant of an entry that differs in bandwidth, named ENTRY-TIER."""

    name: str
    read_bytes_per_s_per_unit: float
    least_size: float = 0.0
    client_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        _check_numbers("a tier", self.read_bytes_per_s_per_unit, self.least_size, self.client_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """The published limits of one kind of storage. Bytes/s, operations/s, seconds."""

    name: str
    family: StorageFamily
    unit: str
    """Of the size that is bought: `TiB`, `prefix`; empty where no limit depends on a size."""
    least_size: float = 0.0
    most_size: float | None = None
    tiers: tuple[Tier, ...] = ()
    """Where there are any, they give the bandwidth."""
    read_bytes_per_s: Amount | None = None
    """None: not published."""
    opens_per_s: Amount | None = None
    requests_per_s: Amount | None = None
    client_bytes_per_s: float | None = None
    """What a single client gets at most."""
    latency_s: tuple[float, float] | None = None
    """Of one small read, at best and typically."""
    at_least: tuple[LimitName, ...] = ()
    """Limits that are a promise and no maximum."""
    read_on: str
    """Day on which the source was read, ISO 8601."""
    source: str
    second_hand: str = ""
    """What was read on a page that cites the vendor only."""
    note: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not all(_NAME.fullmatch(f"t{tier.name}") for tier in self.tiers):
            raise BadValue(f"catalogue: {self.name!r} is no name (small letters, digits and -)")
        if not self.source:
            raise BadValue(f"catalogue: {self.name} has no source")
        _check_numbers(self.name, self.least_size, self.most_size, self.client_bytes_per_s, *(self.latency_s or ()))
        try:
            date.fromisoformat(self.read_on)
        except ValueError as error:
            raise BadValue(f"catalogue: {self.name} was read on {self.read_on!r}, which is no date") from error

    @property
    def names(self) -> tuple[str, ...]:
        """What `--storage` takes: the name, or one for each tier."""
        return tuple(f"{self.name}-{tier.name}" for tier in self.tiers) or (self.name,)

    def tier(self, name: str) -> Tier | None:
        """The tier that one of `names` means."""
        return next((tier for tier in self.tiers if name == f"{self.name}-{tier.name}"), None)

    def stale(self, today: date) -> bool:
        """True when the source was read twelve months ago or longer."""
        read = date.fromisoformat(self.read_on)
        return (today.year - read.year) * 12 + today.month - read.month - (today.day < read.day) >= STALE_AFTER_MONTHS


def _check_numbers(what: str, *values: float | None) -> None:
    for value in values:
        if value is not None and not (0 <= value < math.inf):
            raise BadValue(f"catalogue: {what} has {value:g}, which is no limit")
