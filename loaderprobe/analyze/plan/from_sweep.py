"""A workload from one measured configuration: of a sweep, whose files are known one by one, or of a result of `run`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.lock_step.batches import batches_of
from loaderprobe.analyze.plan.quantities import known, scaled
from loaderprobe.analyze.plan.storage import storage_of
from loaderprobe.analyze.plan.workload import MeasuredStorage, Stalls, Workload, requests
from loaderprobe.analyze.verdict.disk import NEAR_CEILING
from loaderprobe.analyze.verdict.rates import NS, rates_by_round, segments_of, step_images
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.plan import Quantity
from loaderprobe.records.plan_reason import PlanPart, PlanReason
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Verdict

WIDE = 1.96
"""Standard errors on either side of a mean that hold it with 95 % probability."""


def cold_and_fastest(rows: Sequence[ConfigurationRow]) -> ConfigurationRow:
    """The configuration to plan from: the fastest training, cold if there is one."""
    return max(rows, key=lambda row: (row.config.cache != "warm", row.images_per_s.value if row.images_per_s else 0.0))


def workload_of(
    measurement: Measurement,
    verdict: Verdict,
    files: FileSet,
    ceiling: StorageCeiling | None,
    other: tuple[str, Quantity] | None = None,
) -> Workload:
    """The figures of one configuration; `other` names an accelerator that is planned instead, and its rate.

    Raises BadValue where bytes an image or the rate of compute are not known.
    """
    if not files.mean_size_bytes > 0:
        raise BadValue(f"the files of {files.label} are empty: they need nothing of storage")
    read = FilesRead(
        file_bytes=_file_bytes(files),
        requests_per_file=requests(files.size_bytes, exact=True),
        amplification=amplification_of(verdict),
        images=known(files.images_found, "images", "measured", "files found"),
    )
    return measured_workload(measurement, verdict, read, ceiling, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """What is known of the files of images."""

    file_bytes: Quantity
    requests_per_file: Quantity
    amplification: Quantity
    images: Quantity | None
    """In the whole data set; None where it was not counted."""


def measured_workload(
    measurement: Measurement,
    verdict: Verdict,
    files: FilesRead,
    ceiling: StorageCeiling | None,
    other: tuple[str, Quantity] | None,
) -> Workload:
    """The same from files of which only figures are known. Raises BadValue where the rate of compute is not known."""
    refused: dict[PlanPart, PlanReason] = {}
    rate = other[1] if other else _rate(measurement, verdict)
    storage = storage_of(measurement, files.file_bytes.value, ceiling)
    if isinstance(storage, PlanReason):
        refused["measured_storage"] = storage
    own = storage if isinstance(storage, MeasuredStorage) else None
    times = _worker_times(measurement, verdict, own)
    if isinstance(times, PlanReason):
        refused |= {"workers": times, "cores": times}
    cpu_s, other_s, wait_s = (None, None, None) if isinstance(times, PlanReason) else times
    if cpu_s is not None and wait_s is None:
        refused["workers"] = PlanReason(code="file_wait_unknown")
    stalls = _stalls(measurement, rate.value)
    if other:
        refused["stragglers"] = PlanReason(code="steps_of_another")
    batches = batches_of(measurement, verdict)
    if isinstance(batches, PlanReason):
        refused["lock_step"] = batches
    emulated = measurement.compute.specified_images_per_s is not None
    found = Workload(
        accelerator=other[0] if other else measurement.config.compute.name.removeprefix("emulated:"),
        compute=f"emulated:{other[0]}" if other else measurement.config.compute.name if emulated else "",
        rate=rate,
        file_bytes=files.file_bytes,
        requests_per_file=files.requests_per_file,
        amplification=files.amplification,
        images=files.images,
        cpu_s=cpu_s,
        other_s=other_s,
        wait_s=wait_s,
        stalls=None if other else stalls,
        batches=None if isinstance(batches, PlanReason) else batches,
        storage=own,
        refused=refused,
    )
    return found if measurement.ranks == 1 else _of_one_rank(found, measurement.ranks, own=other is None)


def _of_one_rank(together: Workload, ranks: int, *, own: bool) -> Workload:
    """From rates of all ranks. `own`: of the device that they trained on."""
    if not own:
        return together
    return replace(
        together,
        rate=scaled(together.rate, 1 / ranks, f"rate of all / {ranks} ranks"),
        stalls=None,
        refused={**together.refused, "stragglers": PlanReason(code="steps_of_ranks")},
    )


def _rate(measurement: Measurement, verdict: Verdict) -> Quantity:
    compute = measurement.compute
    if compute.specified_images_per_s is not None:
        return known(compute.specified_images_per_s, "images/s", "given", compute.source or "emulated accelerator")
    rounds = [rate for rate in rates_by_round(measurement, "resident", "training").values() if math.isfinite(rate)]
    if not rounds or verdict.rates_images_per_s.compute is None:
        raise BadValue(
            "the rate of compute alone was not measured in this configuration",
            hint="name an accelerator: --kind mlperf-h100",
        )
    found = interval(rounds)
    number = "1 round" if len(rounds) == 1 else f"{len(rounds)} rounds"
    source = f"one batch that stays on the device, {number}"
    return known(found.value, "images/s", "measured", source, half=found.high - found.value)


def _file_bytes(files: FileSet) -> Quantity:
    """The mean size, with the error of a sample from a finite set."""
    used, found = len(files.size_bytes), max(files.images_found, len(files.size_bytes))
    half = 0.0
    if 1 < used < found:
        half = WIDE * statistics.stdev(files.size_bytes) / math.sqrt(used) * math.sqrt((found - used) / (found - 1))
    return known(files.mean_size_bytes, "B", "measured", f"{used} of {found} files", half=half)


def amplification_of(verdict: Verdict) -> Quantity:
    """Bytes from storage over bytes of the files; 1 is assumed where they were not counted."""
    if verdict.read_amplification is None:
        return known(1.0, "x", "assumed", "bytes from storage were not counted")
    return known(verdict.read_amplification, "x", "measured", "storage bytes over bytes delivered")


def _worker_times(
    measurement: Measurement, verdict: Verdict, storage: MeasuredStorage | None
) -> tuple[Quantity, Quantity, Quantity | None] | PlanReason:
    """(CPU, other, waiting for storage) of one image in a worker, in seconds; or why they are not known."""
    times, loader = verdict.worker_time, verdict.rates_images_per_s.loader
    if times is None or not loader:
        return PlanReason(code="no_worker_times")
    source = measurement.config.title()
    spent = max(measurement.config.loader.workers, 1) * measurement.ranks / loader
    other = max(0.0, spent - times.cpu_s - times.blocked_s - times.run_delay_s)
    return (
        known(times.cpu_s, "s", "measured", source),
        known(other, "s", "measured", source),
        _wait(measurement, verdict, storage),
    )


def _wait(measurement: Measurement, verdict: Verdict, storage: MeasuredStorage | None) -> Quantity | None:
    """Waiting for a file: with the fewest readers, up to what workers waited where the storage kept up."""
    assert verdict.worker_time is not None
    from_memory = verdict.files_were in ("warm", "partly warm") or measurement.config.cache == "warm"
    starved = (verdict.disk_ceiling_fraction or 0.0) >= NEAR_CEILING
    seen = [] if from_memory or starved else [verdict.worker_time.blocked_s]
    if storage is not None:
        seen.append(storage.file_s.low)
    if not seen:
        return None
    middle, half = (max(seen) + min(seen)) / 2, (max(seen) - min(seen)) / 2
    return known(middle, "s", "measured", "one file at low load", half=half)


def _stalls(measurement: Measurement, images_per_s: float) -> Stalls | None:
    """From the end of one step to the end of the next, beyond the time of compute alone."""
    late: list[float] = []
    step_s = step_images(measurement) / images_per_s
    for segment in segments_of(measurement, "baseline", "training"):
        late += [max(0.0, spent - step_s) for spent in _between(segment.finished_ns)]
    return Stalls(step_s=step_s, late_s=tuple(late)) if late else None


def _between(finished_ns: Sequence[int]) -> list[float]:
    return [(after - before) / NS for before, after in pairwise(finished_ns)]
