"""Whole epochs as training meets them: the first one cold, the others with what the page cache kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.checks import check_at_least
from loaderprobe.records.config import RunConfig
from loaderprobe.records.unavailable import Unavailable

Fit = Literal["fits", "fits in part", "does not fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch; raw values."""

    images: int
    """Timed. The first epoch is timed without the batches that were loaded before its clock began."""
    wall_s: float
    delivered_bytes: int
    """Of the files of all its images."""
    storage_bytes: int | None
    """Of them, read from storage by the loader's own processes; None where the file system does not count reads."""

    def __post_init__(self) -> None:
        check_at_least("epoch", self, {"images": 1, "delivered_bytes": 0})
        if not self.wall_s > 0:
            raise BadValue("epoch: it took no time")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsMeasured:
    """The epochs of one configuration; each has an order of its own."""

    config: RunConfig
    started_utc: str
    set_bytes: int
    """Of the files that an epoch reads, in the whole pages that they take in memory."""
    memory_bytes: int | None
    """That the page cache may take, on this machine and in its cgroup, beside the processes; None: not known."""
    resident_before: float | None
    """Share of the files in the page cache before the first epoch; None: not known."""
    epochs: tuple[Epoch, ...] = ()
    reason: Unavailable | None = None
    """Why there are none."""

    def __post_init__(self) -> None:
        check_at_least("epochs", self, {"set_bytes": 0, "resident_before": 0.0})
        if bool(self.epochs) == (self.reason is not None):
            raise BadValue("epochs were measured, or have a reason why not")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """What one epoch was like."""

    images_per_s: float
    cold_fraction: float | None
    """Share of its bytes that came from storage; None where that is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Rate and cold share by epoch, and whether the data set fits into memory."""

    epochs: tuple[EpochFigures, ...]
    set_bytes: int
    memory_bytes: int | None
    fit: Fit | None
    """None where the memory is not known."""
    whole_set_bytes: float
    """Of all images that were found, of which an epoch may read a sample."""
    reason: Unavailable | None = None
    """Why there are none."""
