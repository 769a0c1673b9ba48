"""The storage plan: what N accelerators need, what a storage supplies, what limits it first, what to test."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.remark import Remark
from loaderprobe.records.supply import Asked, PlanPart, PlanSupply, Quantity
from loaderprobe.records.thresholds import STALE_AFTER_MONTHS

# History of the plan as JSON, which no other file holds:
# 1  2026-11  first version
# 2  2026-11  inputs by name; one figure of caches; no replay of ranks, stragglers, curves, scenarios, listing
# 3  2026-11  a storage has the time of a read; its limits have no need and share, which follow from the needs
PLAN_VERSION = 3

NeedName = Literal[
    "read_bytes", "opens", "requests", "reads_in_flight", "capacity", "checkpoint", "read_time", "workers", "cores"
]  # fmt: skip
"""In the order of a plan. read_time: what one read may take on average, with that number of workers. checkpoint:
bytes/s written."""
OF_EACH: tuple[NeedName, ...] = ("workers", "cores")
"""Needs of one accelerator."""
FIXED: tuple[NeedName, ...] = ("capacity", "checkpoint", "read_time")
"""Those that do not grow with the accelerators."""
InputName = Literal[
    "rate", "file_bytes", "amplification", "images", "cpu_s", "wait_s", "other_s", "utilization", "use",
]  # fmt: skip
"""Images/s of one accelerator alone, bytes of a file, storage bytes over bytes asked for, images in the set; CPU time,
wait for a file and other time of a worker for one image; the two shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """What the plan was made from."""

    kind: Literal["sweep", "run", "bandwidth", "trace"]
    path: str
    data: str = ""
    """Its folder; of a run only its name."""
    other_data: tuple[str, ...] = ()
    """Other data sets of the run, which could have been chosen."""
    accelerator: str
    configuration: str = ""
    """Title of the measured configuration; empty for a bandwidth result."""
    doubts: tuple[Remark, ...] = ()
    """Why its figures are less firm than they look."""

    @property
    def on_cpu(self) -> bool:
        """True where a CPU trained, whose need says nothing of that of a GPU."""
        return self.accelerator.lower() == "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What all accelerators together need of one resource while files are cold; of workers and cores, one of them."""

    name: NeedName
    at_utilization: Quantity
    at_most: Quantity
    """At a utilization of 100 %: training never draws more."""
    to_buy: Quantity | None
    """The need over the share of a limit that one dares to use; None for what storage does not sell."""
    node: Quantity | None
    """Of one full node; None for a time, and for what the storage as a whole must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEpoch:
    """What the caches of all nodes answer in one epoch."""

    epoch: int
    hits: float
    """Share of reads; of the page cache at least that."""
    read_bytes_per_s: float
    """What all accelerators then need from the shared storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """How long an epoch takes, and what the cache that was asked for leaves to storage."""

    seconds: Quantity | None
    """Of one epoch at the wanted utilization; None when the number of images is not known."""
    cache_share: float | None
    """Of the set in the cache of one node, at most 1; None without a cache or a known set."""
    cached: tuple[CacheEpoch, ...] = ()


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

    schema: str = "loaderprobe/plan"
    schema_version: int = PLAN_VERSION
    loaderprobe: str
    created_utc: str
    source: PlanSource
    asked: Asked
    needs: tuple[Need, ...]
    supplies: tuple[PlanSupply, ...]
    epochs: EpochPlan
    inputs: dict[InputName, Quantity]
    """All that the plan is computed from, each with its label."""
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

    def stale(self, today: date) -> bool:
        """True when the source was read twelve months ago or longer."""
        read = date.fromisoformat(self.read_on)
        return (today.year - read.year) * 12 + today.month - read.month - (today.day < read.day) >= STALE_AFTER_MONTHS


def _check_numbers(what: str, *values: float | None) -> None:
    for value in values:
        if value is not None and not (0 <= value < math.inf):
            raise BadValue(f"catalogue: {what} has {value:g}, which is no limit")
