"""What `loaderprobe.diagnose` finds out about one loader."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.config import CacheState
from loaderprobe.records.note import Note
from loaderprobe.records.origin import SCHEMA_VERSION, Origin
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import Advice, Cause, Evidence, FilesWere, Interval, Rates, Reason, Side, Speedups

DIAGNOSIS_SCHEMA = "loaderprobe/diagnosis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The verdict on a user's own loader and step, with its evidence."""

    schema: str = DIAGNOSIS_SCHEMA
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    side: Side
    cause: Cause
    candidates: tuple[str, ...]
    """With cause `either`: the resources whose speed-ups do not differ."""
    reason: Reason
    sentence: str
    """The reason in words."""
    sample: str
    """What is counted: `images`, or `samples` where batches hold no images."""
    ranks: int = 1
    """Processes that trained in step; rates are those of all of them together."""
    workers: int
    """Of one rank, as is the batch size."""
    batch_size: int
    prefetch_factor: int
    cache: CacheState
    """The state of the files that was asked for; `as-found` where the data set hides them."""
    files_were: FilesWere | None
    """What the reads showed; None where nothing shows it, or no file is read."""
    first_epoch_images_per_s: float | None
    """Of the loader alone while the data set had not made its samples yet; None where later epochs are as slow."""
    later_epochs_images_per_s: float | None
    """Of the loader alone once it had, or its files were warm; None where that was not measured."""
    rounds: int
    """In which the loader, and training on it, were measured."""
    with_step: bool
    """False when the loader alone was judged."""
    images_per_s: Interval
    """Of training, or of the loader where there is no step; in `sample` a second, as all rates here."""
    ceilings: Rates
    """What compute, the loader, and the loader without each resource reach; what the cores allow."""
    speedups: Speedups
    advice: tuple[Advice, ...]
    evidence: tuple[Evidence, ...]
    notes: tuple[Note, ...]
    unavailable: dict[str, Unavailable]
    """`speedups.NAME` or `ceilings.NAME` to the reason, for every figure above that is None."""
    instrument_cpu_fraction: float | None
    """CPU time of the measuring itself, as a share of what a batch takes in its worker."""
    wall_s: float
    """Of the measurement, without learning which files there are."""
