"""The storage plan: what N accelerators need, what a storage supplies, what limits it first, what to test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.remark import Remark
from loaderprobe.records.supply import Asked, PlanPart, PlanSupply, Quantity

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
