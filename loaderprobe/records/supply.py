"""What is asked of a storage, and what it supplies: figures with their unit, and with where they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import USE, UTILIZATION
from loaderprobe.records.verdict import Interval

PlanPart = Literal["measured_storage", "opens", "cold_opens", "workers", "cores", "reads_in_flight"]
"""What a plan may have to leave out, in the order in which that is said."""
Label = Literal["measured", "given", "published", "assumed", "derived"]
"""measured: in this run. given: an option, or the rate of an emulated accelerator. published: the catalogue.
assumed: a default. derived: by a formula from others."""
WEAKNESS: tuple[Label, ...] = ("measured", "given", "published", "assumed")
"""From the strongest label to the weakest."""
SupplyResource = Literal["bandwidth", "opens", "requests", "client", "nic"]
"""client: what one node gets from this storage. nic: what its network carries."""
CacheKind = Literal["none", "page", "pinned"]
"""page: the kernel's page cache decides what stays. pinned: a fixed part of the files stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(Interval):
    """A figure with its unit and where it comes from. Its range is from the intervals of measured inputs only."""

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
    """What training writes: so many bytes, so often; it stands still for `share` of that time at most."""

    bytes: float
    every_s: float
    share: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is planned for. Two different shares: `utilization` of the accelerators, `use` of the storage's limits."""

    accelerators: int
    utilization: float = UTILIZATION
    utilization_given: bool = False
    use: float = USE
    use_given: bool = False
    per_node: int = 8
    nic_bytes_per_s: float | None = None
    images_per_file: int = 1
    """1: a folder of images; more: shards; 0: large files, of which it is not known how many images each has."""
    growth: float = 1.0
    """A factor that is in `accelerators`."""
    cache: CacheAsked = CacheAsked()
    checkpoint: CheckpointAsked | None = None
    """None: not planned for."""

    @property
    def nodes(self) -> int:
        """Machines that hold the accelerators."""
        return -(-self.accelerators // self.per_node)

    @property
    def of_node(self) -> int:
        """Accelerators of a full node."""
        return min(self.per_node, self.accelerators)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplyLimit:
    """One resource of one storage."""

    resource: SupplyResource
    limit: Quantity
    """Of the storage as a whole; on offer, of `client` and `nic` for each node."""
    at_least: bool = False
    """True when the limit is known to be at least that."""
    feeds: float = math.inf
    """Accelerators, with the share of the limit that one dares to use; of a limit on offer, not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """The cache of a node that lets a storage feed all accelerators, once it has filled."""

    hits: float
    """Share of reads that must come from the cache."""
    pinned_bytes: float | None
    """None when the size of the set is not known."""
    page_bytes: float | None
    """The same for the kernel's page cache, at the fewest hits that it gives from epoch 3 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSupply:
    """A storage as it was measured, given or published, and once it is judged, what it is to the accelerators."""

    name: str
    label: Label
    source: str
    limits: tuple[SupplyLimit, ...]
    """Once judged, the one that is reached first first."""
    latency_s: Quantity | None = None
    """Of one read of one file; None where that is not known."""
    nodes: int = 1
    """Machines that a measured one was read from at once."""
    read_on: str = ""
    """Day on which a published limit was read; empty for others."""
    stale: bool = False
    first_limit: SupplyResource | None = None
    """None when it has no limit that is known, as with the next two."""
    feeds: float | None = None
    at_least: bool = False
    reads_in_flight: Quantity | None = None
    """An accelerator, for this storage's time of a read; None where that is not known."""
    cache: CacheSize | None = None
    """None where it is enough, and where it may be."""
    notes: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How many accelerators of one name, training ResNet-50, the storage feeds: what `plan` says of this result."""

    accelerator: str
    images_per_s: float
    """Of one accelerator, as published."""
    count: float
    utilization: float
    """Share of that rate which the accelerators shall reach."""
    use: float
    """Share of a limit of the storage that is used."""
    first_limit: SupplyResource
    at_least: bool = False
    """True when that limit may be higher."""
