"""The search for a batch size: what was tried, what was chosen and why it ended, and the paper's tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records import check_at_least
from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.layers import Milliseconds
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Bound, Interval

StrategyName = Literal["throughput", "gpu-usage", "epoch-time"]
StopCode = Literal[
    "no_candidate_better",
    "probes_spent",
    "converged",
    "at_maximum",
    "at_minimum",
    "loops_spent",
    "out_of_memory",
    "nothing_fits",
    "interrupted",
]
"""Why a search ended. no_candidate_better: no size can be faster by more than 2 %. probes_spent: the most probes were
made, and a faster size is possible. converged: the rule of the paper's strategies. nothing_fits: not even one image."""
UtilizationOf = Literal["gpu", "cores"]
"""gpu: share of time with any kernel (NVML). cores: CPU time of the training process over that of all its cores."""
LimitName = Literal["compute", "memory", "maximum", "loader"]
"""What keeps the rate from rising at the chosen size: memory and the largest size allowed where it still rises there.
Else compute where batches stay in memory; loader where they are loaded, and `findings` has what limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeProbe:
    """Some training steps with batches of one size, after others to warm up."""

    batch_size: int
    fits: bool
    """False where memory ended, or would have ended by a prediction; then there are no rates."""
    ran: bool = True
    """False where it was not tried, because by the growth of memory so far it cannot fit."""
    steps: int = 0
    images_per_s: Interval | None = None
    """The mean over the steps; its 95 % interval from their spread."""
    step_ms: Milliseconds | None = None
    utilization: float | None = None
    """Mean of the readings, 0 to 1."""
    utilization_samples: tuple[float, ...] = ()
    """One a reading, in the order of time."""
    memory_bytes: int | None = None
    """At most, beyond what the process had before; of what did not fit, what it was predicted to take."""
    wall_s: float = 0.0
    """With warming up."""
    unavailable: dict[str, Remark] = field(default_factory=dict)
    """Field name to reason, for utilization and memory where they are None."""

    def __post_init__(self) -> None:
        check_at_least("probe", self, {"batch_size": 1, "steps": 0, "wall_s": 0.0, "utilization_samples": 0.0})
        if self.fits and (self.images_per_s is None or not self.images_per_s.value > 0):
            raise BadValue(f"probe of batch size {self.batch_size}: it fits, and has no rate")

    @property
    def usage(self) -> float | None:
        """The paper's utilization: the mean of the upper half of the readings above 0; None without readings."""
        readings = sorted(reading for reading in self.utilization_samples if reading > 0)
        upper = readings[len(readings) - len(readings) // 2 :]
        if not self.utilization_samples:
            return None
        return math.fsum(upper) / len(upper) if upper else 0.0

    def epoch_s(self, images: int) -> float:
        """Seconds of an epoch: the time of an update, times the updates that `images` take; infinite without a rate."""
        if self.images_per_s is None:
            return math.inf
        return self.batch_size / self.images_per_s.value * math.ceil(images / self.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeStop:
    """The end of a search."""

    code: StopCode
    chosen: int
    """0 where nothing fits."""
    left: float | None = None
    """Of `throughput`: by what share another size may still be faster, at the upper end of its 95 % interval."""

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search: `chosen` is the fastest of those tried, and no answer."""
        return self.code == "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeReport:
    """A search: its probes in order, and what came of it."""

    origin: Origin
    model: str
    device: str
    image_size: int | None
    """Pixels a side; None for batches of one's own."""
    precision: str
    strategy: StrategyName
    data: str
    """The folder that batches are loaded from; `loader` for loaders of one's own; empty for batches in memory."""
    workers: int | None
    """That load `data`."""
    dataset_images: int
    """By which an epoch is counted."""
    most: int
    """The largest size allowed."""
    memory_limit_bytes: int | None
    """None where only the device itself limits."""
    utilization_of: UtilizationOf
    probes: tuple[BatchSizeProbe, ...]
    stop: BatchSizeStop
    at_chosen: BatchSizeProbe
    """All probes of the chosen size together; measured after the search where it made none."""
    limit: LimitName
    findings: Bound | None = None
    """The verdict of `diagnose` on a loader of the chosen size."""
    no_findings: Remark | None = None
    """Why there is no verdict although batches are loaded."""
    schema: str = "loaderprobe/batch-size"
    schema_version: int = SCHEMA_VERSION

    @property
    def interrupted(self) -> bool:
        """True where Ctrl-C ended the search, or came before the loader was judged."""
        why = self.no_findings
        return self.stop.interrupted or (why is not None and why.code == "interrupted")
