"""What a sweep measures beside the verdicts: training from a full buffer, and whole epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records import check_at_least
from loaderprobe.records.config import LoaderSpec, RunConfig
from loaderprobe.records.measurement import Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import How

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
    """Of them, read from storage by the loader's own processes; None where reads are not counted."""

    def __post_init__(self) -> None:
        check_at_least("epoch", self, {"images": 1, "delivered_bytes": 0})
        if not self.wall_s > 0:
            raise BadValue("epoch: it took no time")

    @property
    def cold_fraction(self) -> float | None:
        """Storage gives whole pages, and so may give more than all bytes of the files."""
        known = self.storage_bytes is not None and self.delivered_bytes
        return min(1.0, (self.storage_bytes or 0) / self.delivered_bytes) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsMeasured:
    """The epochs of one configuration; each has an order of its own."""

    config: RunConfig
    set_bytes: int
    """Of the files that an epoch reads, in the whole pages that they take in memory."""
    memory_bytes: int | None
    """That the page cache may take, on this machine and in its cgroup, beside the processes; None: not known."""
    epochs: tuple[Epoch, ...] = ()
    reason: Remark | None = None
    """Why there are none."""

    def __post_init__(self) -> None:
        check_at_least("epochs", self, {"set_bytes": 0})


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
    reason: Remark | None = None
    """Why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """Training that begins with a full buffer, between two segments of steady training; raw values."""

    config: RunConfig
    steady: tuple[Segment, ...] = ()
    """Before and after it, from an empty buffer."""
    prefilled: Segment | None = None
    """The loader had made all batches that it makes ahead, and stood idle; None where `reason` says why."""
    reason: Remark | None = None
    """Why it was not measured."""


ITERATIONS = (10, 20, 50, 100, 200)
"""Of which the rates are shown, and estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRun:
    """The rate over the first iterations."""

    iterations: int
    over_steady: float
    """Over the steady rate: 1.19 is 19 % too fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferEffect:
    """How much too fast short benchmarks of one configuration are."""

    batches: int
    """That a full buffer holds: workers times the prefetch factor."""
    free: float
    """Batches that cost a short run nothing, by the model of `over_steady`."""
    how: How
    """Estimated: computed from the rates of the verdict and the number of batches."""
    runs: tuple[ShortRun, ...]
    most: float
    """Compute alone over the steady rate, which no run exceeds for long."""
    enough: int
    """Iterations from which on the rate is within 2 % of the steady one, estimated."""
    noise: float = 0.0
    """Of a measured effect: by what share the steady rates before and after it differ from their mean."""
    reason: Remark | None = None
    """Why it was not measured; None where it was, or was not asked for."""

    def after(self, iterations: int) -> float | None:
        """The rate over the first iterations, over the steady one; None where others were measured, and not these."""
        if self.how == "estimated":
            return over_steady(iterations, self.free, self.most)
        return next((run.over_steady for run in self.runs if run.iterations == iterations), None)


def free_batches(loader: LoaderSpec) -> float:
    """Batches that training from a full buffer need not wait for, on average.

    Those in the buffer. But its N workers stood idle: they begin together and end together, so that batches come in
    groups of N, and the last batch of a run waits for (N - 1) / 2 others of its group.
    """
    return loader.batches_ahead - max(0, loader.workers - 1) / 2


def over_steady(iterations: int, free: float, limit: float) -> float:
    """The rate over the first iterations from a full buffer, over the steady one.

    `free` batches cost nothing: once they are used up, k iterations take as long as k minus those take at the steady
    rate. Before, compute alone is the limit, which is `limit` times the steady rate. A simulation of DataLoader's
    schedule agrees within 6 % from two buffers on, where batch times vary by a tenth. Where they vary more, or workers
    and training share cores, less than that is free (measured: `loaderprobe explain sweep`), so this is the most.
    """
    paid = iterations - free
    return min(limit, iterations / paid) if paid > 0 else limit
