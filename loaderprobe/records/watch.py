"""What was seen of a training that nothing changed, interval after interval."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.origin import SCHEMA_VERSION, Origin
from loaderprobe.records.verdict import Bound

WATCH_SCHEMA = "loaderprobe/watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedInterval:
    """Some seconds of training."""

    begin_s: float
    """Since the first batch."""
    seconds: float
    steps: int
    images_per_s: float
    """Over the steps alone: validation, checkpoints and pauses are left out."""
    input_wait_fraction: float
    worker_cpu_fraction: float | None
    """Of the workers' time while they make batches, as are the next two; None without a record of it."""
    worker_blocked_fraction: float | None
    """Neither computing nor waiting for a core: for storage, a network, a lock."""
    read_bytes_per_s: float | None
    """From storage, by the workers."""
    bound: Bound | None
    """Estimated; None where the interval has too few steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """A training, watched from its beginning to its end."""

    schema: str = WATCH_SCHEMA
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    loader: str
    """Class of its data set."""
    workers: int
    batch_size: int
    intervals: tuple[WatchedInterval, ...]
    bound: Bound | None
    """Over the last intervals together; None where there were too few steps."""
    on_gpu: bool
    """True where steps end later than the loop sees, so that no verdict follows."""
    overhead_s: float
    """CPU time of the training thread that watching took."""
