"""What `loaderprobe.diagnose` finds out about one loader."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.config import CacheState
from loaderprobe.records.verdict import Advice, Cause, Evidence, Gains, Interval, Rates, Side

DIAGNOSIS_SCHEMA = "loaderprobe/diagnosis"
# History of the diagnosis as a dict, which is an interface:
# 1  2026-11  first version
DIAGNOSIS_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The verdict on a user's own loader and step, with its evidence."""

    side: Side
    cause: Cause
    candidates: tuple[str, ...]
    """With cause `either`: the resources that cannot be told apart."""
    sentence: str
    sample: str
    """What is counted: `images`, or `samples` where batches hold no images."""
    workers: int
    batch_size: int
    prefetch_factor: int
    cache: CacheState
    """The state of the files in the configuration judged; `as-found` where the data set hides them."""
    rounds: int
    """In which the loader, and training on it, were measured."""
    with_step: bool
    """False when the loader alone was judged."""
    images_per_s: Interval
    """Of training, or of the loader where there is no step; in `sample` a second, as all rates here."""
    ceilings: Rates
    """What compute, the loader, and the loader without each resource reach; what the cores allow."""
    gains: Gains
    advice: tuple[Advice, ...]
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    unavailable: dict[str, str]
    """`gains.NAME` or `ceilings.NAME` to the reason, for every figure above that is None."""
    instrument_cpu_fraction: float | None
    """CPU time of the measuring itself, as a share of what a batch takes in its worker."""
    wall_s: float
    """Of the measurement, without learning which files there are."""
