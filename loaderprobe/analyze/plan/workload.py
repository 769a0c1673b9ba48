"""What a plan starts from: the figures of one accelerator, one file and one read, each with its label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.lock_step.price import Batches
from loaderprobe.analyze.plan.quantities import known
from loaderprobe.records.plan import PlanPart, Quantity, RampStep
from loaderprobe.records.remark import Remark

REQUEST_BYTES = 128 * 1024
"""What the kernel's read-ahead asks storage for at a time (read_ahead_kb of most Linux systems)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStorage:
    """The storage that the run itself measured, at the best step of its ladder."""

    name: str
    source: str
    read_bytes_per_s: Quantity
    """Read from storage, read-ahead included."""
    files_per_s: Quantity
    file_s: Quantity
    """Seconds to open and read one file; `low` with one reader or the fewest, `value` at the best step."""
    readers: int
    at_least: bool
    opens_per_s: Quantity | None = None
    """Of cold names and inodes; None where that was not measured: reads open files whose inodes are in memory."""
    opens_at_least: bool = False
    notes: tuple[Remark, ...] = ()
    ramp: tuple[RampStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Single steps of one accelerator: how much later each ended than compute alone would have ended it."""

    step_s: float
    """Of compute alone."""
    late_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One accelerator and its data. None is what the run does not tell; `refused` says why."""

    accelerator: str
    compute: str
    """For `sweep --compute`; empty where the accelerator is a real one."""
    rate: Quantity
    """Images/s of one accelerator alone."""
    file_bytes: Quantity
    """Bytes of one image's file."""
    requests_per_file: Quantity
    amplification: Quantity
    """Storage bytes over bytes asked for."""
    images: Quantity | None
    """In the whole data set."""
    cpu_s: Quantity | None = None
    """CPU time of one image in a worker."""
    other_s: Quantity | None = None
    """Time of a worker that is neither CPU nor storage."""
    wait_s: Quantity | None = None
    """Waiting for one image's file in a worker."""
    stalls: Stalls | None = None
    batches: Batches | None = None
    """Of the loader, one by one."""
    storage: MeasuredStorage | None = None
    same_files: bool = True
    """False when the planned files have another size than those the storage was measured with."""
    refused: Mapping[PlanPart, Remark] = field(default_factory=dict)
    notes: tuple[Remark, ...] = ()

    def refusing(self, part: PlanPart, why: Remark) -> Workload:
        """The same, with a part of the plan refused."""
        return replace(self, refused={**self.refused, part: why})

    def changed(self, *, images: float | None = None, file_bytes: float | None = None) -> Workload:
        """The same on another data set, as options give it."""
        found = self
        if images is not None:
            found = replace(found, images=known(images, "images", "given", "images"))
        if file_bytes is not None:
            found = replace(
                found,
                file_bytes=known(file_bytes, "B", "given", "mean_size"),
                requests_per_file=requests([file_bytes], exact=False),
                same_files=False,
            )
        return found


def requests(sizes: Sequence[float], *, exact: bool) -> Quantity:
    """Read requests of one file, on average; not `exact` where only the mean size is known."""
    mean = sum(max(1, math.ceil(size / REQUEST_BYTES)) for size in sizes) / len(sizes)
    source = "sizes of the files" if exact else "the mean size"
    return known(mean, "requests", "assumed", f"{source}, requests of {REQUEST_BYTES // 1024} KiB")
