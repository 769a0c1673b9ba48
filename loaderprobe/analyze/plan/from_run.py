"""A workload from a result of `run`: bytes an image follow from the batches, since no list of files is kept."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.plan.from_sweep import FilesRead, amplification_of, measured_workload
from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.workload import Workload, requests
from loaderprobe.analyze.verdict.rates import segments_of, worker_cost
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.note import Note, PlanNote
from loaderprobe.records.plan import Quantity
from loaderprobe.records.verdict import Verdict


def workload_of_run(
    measurement: Measurement, verdict: Verdict, ceiling: StorageCeiling | None, *,
    samples: int | None, other: tuple[str, Quantity] | None, mean_size: float | None,
) -> Workload:  # fmt: skip
    """The figures of a user's own loader, over a data set of so many `samples`; `other` as in a sweep.

    `mean_size` stands in where bytes an image are not known. Raises BadValue without it, and where the rate of
    compute is not known.
    """
    by_files, from_storage = _of_files(measurement), _from_storage(measurement, verdict)
    given = None if mean_size is None else known(mean_size, "B", "given", "mean_size")
    file_bytes = by_files or from_storage or given
    if file_bytes is None:
        raise BadValue(f"bytes an image are not known: {_why(measurement, verdict)}", hint="add --mean-size, as 115kB")
    as_read = file_bytes is from_storage and given is None
    read = FilesRead(
        file_bytes=file_bytes,
        requests_per_file=requests([file_bytes.value], exact=False),
        amplification=known(1.0, "x", "measured", "part of the bytes") if as_read else amplification_of(verdict),
        images=None if samples is None else known(samples, "images", "measured", "samples of the data set"),
    )
    found = measured_workload(measurement, verdict, read, ceiling, other)
    codes: dict[PlanNote, bool] = {"bytes_as_read": as_read, "samples_as_images": not measurement.images}
    notes = [Note(code=code) for code, holds in codes.items() if holds]
    return replace(found, accelerator=other[0] if other else measurement.compute.device, notes=(*found.notes, *notes))


def _of_files(measurement: Measurement) -> Quantity | None:
    """From the sizes of the files that the batches of each segment opened."""
    fed = [s for s in measurement.segments if s.delivered_bytes and s.without is None and s.activity != "alone"]
    if not fed:
        return None
    found = interval([(s.delivered_bytes or 0) / (s.steps * s.batch_size) for s in fed])
    batches = sum(s.steps for s in fed)
    return known(found.value, "B", "measured", f"the files of {batches} batches", half=found.high - found.value)


def _from_storage(measurement: Measurement, verdict: Verdict) -> Quantity | None:
    """From the bytes that workers read, where nothing came from memory."""
    base = base_mode(measurement)
    cost = worker_cost(measurement.worker_batches, segments_of(measurement, base, "loader_only"))
    if measurement.access not in ("parts", "fresh") or verdict.files_were != "cold" or cost is None:
        return None
    return known(cost.read_bytes / cost.images, "B", "measured", "bytes from storage, what is read ahead included")


def _why(measurement: Measurement, verdict: Verdict) -> str:
    if measurement.access in ("files", "none"):
        return "the data set hides its files"
    if not measurement.storage_counts_reads:
        return "its storage counts no bytes"
    return f"its files were {verdict.files_were}, not cold" if verdict.files_were else "nothing shows what was read"
