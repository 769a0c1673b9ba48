"""What a plan is made for, from `bandwidth`, `run` and `trace`; and the report of `bandwidth`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.ladder import has_ended, kind_of, limit_of
from loaderprobe.analyze.plan.workload import (
    PlanWorkload,
    amplification_of,
    assumed_too,
    best_of,
    feed_of,
    known,
    measured_workload,
    requests,
    rises,
)
from loaderprobe.analyze.verdict.rates import worker_cost
from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, MetadataPhase
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.phases import BandwidthPhase, StorageCeiling, fastest
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.supply import Feed, PlanPart, PlanSupply, Quantity, SupplyLimit
from loaderprobe.records.thresholds import UNFAIR, WIDE_RANGE, WORTH
from loaderprobe.records.trace import TraceRank, TraceReport
from loaderprobe.records.verdict import Verdict

_NO_WORKERS = Remark(code="bandwidth_without_workers")


def workload_of_bandwidth(measured: BandwidthMeasurement, accelerator: str, rate: Quantity) -> PlanWorkload:
    """What the probe read, for accelerators of this name and rate. Raises BadValue where files are not images."""
    hint = "probe a folder of images, or plan from a sweep"
    if not measured.mean_size_bytes > 0:
        raise BadValue(f"the files of {measured.path} are empty", hint=hint)
    if measured.scratch or any(phase.block_bytes is not None for phase in measured.ladder):
        raise BadValue(f"bytes an image are not known: {measured.path} was read in blocks", hint=hint)
    refused: dict[PlanPart, Remark] = {"workers": _NO_WORKERS, "cores": _NO_WORKERS}
    supply, opens = _storage(measured), cold_opens(measured)
    storage, files = (None, None) if isinstance(supply, Remark) else supply
    if isinstance(supply, Remark):
        refused["measured_storage"] = supply
    elif isinstance(opens, Remark):
        refused["cold_opens"] = opens
    else:
        storage = _with_opens(supply[0], measured, opens)
    if storage is not None and measured.read_again:
        storage = replace(storage, notes=(*storage.notes, measured.read_again))
    if storage is not None and measured.by_ranks:
        storage = _read_by_ranks(storage, measured)
    source = f"{measured.files_used} of {measured.files_found} files"
    cut = tuple(note for note in measured.notes if note.code == "listing_cut")
    return PlanWorkload(
        accelerator=accelerator,
        compute=f"emulated:{accelerator}",
        rate=rate,
        file_bytes=known(measured.mean_size_bytes, "B", "measured", source),
        requests_per_file=requests([measured.mean_size_bytes], exact=False),
        amplification=amplification_of(measured.best.amplification if measured.best else None, "counted by the probe"),
        images=None if cut else known(measured.files_found, "images", "measured", "files found"),
        storage=storage,
        files=files,
        refused=refused,
        notes=cut if measured.images else (*cut, Remark(code="no_images")),
    )


def _with_opens(storage: PlanSupply, measured: BandwidthMeasurement, opens: MetadataPhase) -> PlanSupply:
    """The storage with cold opens/s as a limit beside the others."""
    rates = {phase.readers: phase.ops_per_s for phase in measured.operations("open")}
    rising, half = opens.readers == max(rates) and rises(rates), opens.ops_high - opens.ops_per_s
    limit = SupplyLimit(
        resource="opens",
        limit=known(opens.ops_per_s, "1/s", "measured", f"{opens.readers} readers that open", half=half),
        at_least=not opens.short and (opens.at_least or rising),
    )
    unsettled = opens.ops_high > (1 + WIDE_RANGE) * opens.ops_per_s
    doubts = {"opens_short": opens.short, "opens_unsettled": unsettled}
    notes = (*storage.notes, *(Remark(code=code) for code, holds in doubts.items() if holds))
    return replace(storage, limits=(*storage.limits, limit), notes=notes)


def cold_opens(measured: BandwidthMeasurement) -> MetadataPhase | Remark:
    """The fastest opens of cold names and inodes, or why there are none: warm ones say nothing of storage."""
    best, opens = measured.best_of("open"), measured.operations("open")
    if best is not None and best.metadata == "cold":
        return best
    if not opens:
        why = next((part.reason for part in measured.missing if part.name == "metadata"), None)
        return Remark(code="unavailable", facts=why.because) if why else Remark(code="opens_not_measured")
    if any(phase.metadata == "asked" for phase in opens):
        return Remark(code="opens_asked")
    if not any(phase.drops for phase in opens):
        return Remark(code="opens_from_memory")
    if any(phase.metadata == "unproved" for phase in opens):
        return Remark(code="opens_unproved")
    return Remark(code="opens_from_memory_after_drop")


def _storage(measured: BandwidthMeasurement) -> tuple[PlanSupply, SupplyLimit] | Remark:
    if measured.location.in_memory:
        return Remark(code="no_storage_behind_files")
    if measured.from_memory and measured.best and measured.best.cache == "cold":
        return Remark(code="ladder_from_memory")
    return best_of(measured.ladder, measured.mean_size_bytes)


def _read_by_ranks(storage: PlanSupply, measured: BandwidthMeasurement) -> PlanSupply:
    """With what the steps show of the storage's limit, and of the ranks."""
    step, best, ended = measured.best, fastest(measured.ladder), has_ended(measured)
    assert step and best, "a storage that was read"
    facts: Facts = {"clients": step.readers, "next": 2 * step.readers}
    notes = (*([] if ended else [Remark(code="clients_at_least", facts=facts)]), *_uneven(step))
    bandwidth, *others = storage.limits
    return replace(
        storage,
        source=f"{storage.source} in {best.ranks} rank{'s' * (best.ranks > 1)}",
        limits=(replace(bandwidth, at_least=not ended), *others),
        notes=(*storage.notes, *notes),
    )


def _uneven(step: BandwidthPhase) -> Sequence[Remark]:
    """Accelerators in step wait for the slowest rank."""
    slow = step.slowest
    if slow is None or step.fairness >= UNFAIR or not step.long_enough:
        return ()
    facts: Facts = {
        "rank": str(slow.rank), "host": slow.host, "share": step.fairness, "bytes_per_s": step.in_step_bw_bytes,
    }  # fmt: skip
    return (Remark(code="ranks_uneven", facts=facts),)


def workload_of_run(
    measurement: Measurement, verdict: Verdict, ceiling: StorageCeiling | None, *,
    samples: int | None, other: tuple[str, Quantity] | None, given: Quantity | None,
) -> PlanWorkload:  # fmt: skip
    """The figures of a user's own loader, over a data set of so many `samples`; `other` as in a sweep.

    `given` stands in where bytes an image are not known. Raises BadValue without it, and where the rate of compute is
    not known.
    """
    of_files, from_storage = _of_files(measurement), _from_storage(measurement, verdict)
    # Of large files that are read in parts, what a sample has of them.
    size, source = measurement.sample_bytes, "what a sample has of large files"
    of_sample = known(size, "B", "measured", source) if measurement.access == "parts" and size else None
    file_bytes = of_files or of_sample or from_storage or given
    if file_bytes is None:
        raise BadValue(f"bytes an image are not known: {_why(measurement, verdict)}", hint="add --mean-size, as 115kB")
    as_read = file_bytes is from_storage and given is None
    workload = measured_workload(
        measurement,
        verdict,
        ceiling,
        other,
        file_bytes=file_bytes,
        requests_per_file=requests([file_bytes.value], exact=False),
        amplification=known(1.0, "x", "measured", "part of the bytes")
        if as_read
        else amplification_of(verdict.read_amplification, "counted in the run"),
        images=None if samples is None else known(samples, "images", "measured", "samples of the data set"),
    )
    codes = {"bytes_as_read": as_read, "samples_as_images": not measurement.images}
    notes = [Remark(code=code) for code, holds in codes.items() if holds]
    # Also of samples that are always new, a file each is opened only where batches have shown it.
    in_parts = measurement.access == "parts" or (measurement.access == "fresh" and of_files is None)
    return replace(
        workload,
        accelerator=other[0] if other else measurement.compute.device,
        images_an_open=0 if in_parts else 1,
        notes=(*workload.notes, *notes),
    )


def _of_files(measurement: Measurement) -> Quantity | None:
    """From the sizes of the files that the batches of each segment opened."""
    fed = [s for s in measurement.segments if s.delivered_bytes and s.without is None and s.activity != "alone"]
    if not fed:
        return None
    size = interval([(s.delivered_bytes or 0) / (s.steps * s.batch_size) for s in fed])
    batches = sum(s.steps for s in fed)
    return known(size.value, "B", "measured", f"the files of {batches} batches", half=size.high - size.value)


def _from_storage(measurement: Measurement, verdict: Verdict) -> Quantity | None:
    """From the bytes that workers read, where nothing came from memory."""
    base = measurement.config.mode
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


def sure_as_run(
    workload: PlanWorkload, row: ConfigurationRow, how_sure: Remark
) -> tuple[PlanWorkload, tuple[Remark, ...]]:
    """The workload, whose measured rate is no surer than the run; and why its figures are less firm than they look.

    That a run is not sure itself, and that training was faster than the rate of compute alone allows. A rate is known
    no better than that of training, unless it is sure that input is what makes that vary.
    """
    rate, trained = workload.rate, row.images_per_s
    not_sure = how_sure.facts["level"] == "low"
    doubts = [Remark(code="run_not_sure")] if not_sure else []
    if trained is None or rate.weakest != "measured":
        return workload, tuple(doubts)
    half, reached = rate.half, trained.times(1 / row.config.ranks)
    if not_sure or row.bound is None or row.bound.side != "input":
        half = max(half, rate.value * trained.half / trained.value)
    if reached.low > rate.high and reached.value > WORTH * rate.high:
        doubts.append(Remark(code="faster_than_alone", facts={"share": reached.value / rate.value}))
        half = max(half, reached.high - rate.value)
    if half > rate.half:
        least, source = max(0.0, rate.value - half), f"{rate.source}; as sure as training"
        workload = replace(workload, rate=replace(rate, low=least, high=rate.value + half, source=source))
    return workload, tuple(doubts)


_REFUSED: dict[PlanPart, Remark] = {
    "measured_storage": Remark(code="trace_without_storage"), "workers": Remark(code="trace_without_workers"),
    "cores": Remark(code="trace_without_workers"),
}  # fmt: skip


def workload_of_trace(
    report: TraceReport, *, other: tuple[str, Quantity] | None, file_bytes: Quantity, images: Quantity
) -> PlanWorkload:
    """One GPU of the recording with files of so many bytes; `other` is an accelerator by name and rate.

    Raises BadValue where the recording does not show how many images a step takes.
    """
    slowest = max(report.ranks, key=lambda rank: rank.step_s)
    name, rate = other or (slowest.gpu or "the recorded GPU", _recorded_rate(slowest))
    return PlanWorkload(
        accelerator=name,
        compute=f"emulated:{rate.value:.0f}" if other is None else f"emulated:{name}",
        rate=rate,
        file_bytes=file_bytes,
        requests_per_file=requests([file_bytes.value], exact=False),
        amplification=amplification_of(None, ""),
        images=images,
        refused=_REFUSED,
    )


def _recorded_rate(rank: TraceRank) -> Quantity:
    if not rank.batch_size:
        raise BadValue(
            f"{rank.path} does not show how many images a step takes",
            hint="loaderprobe trace FILE --batch-size 32 --out DIR, or plan with --kind IMAGES_PER_S",
        )
    source = (
        f"a recording: batch {rank.batch_size} in {1e3 * rank.fed_step_s:.3g} ms if input cost nothing, at most; as "
        f"recorded: {1e3 * rank.step_s:.3g} ms"
    )
    # Without a range: nothing may be faster, so one around it would exceed its own maximum.
    return assumed_too(known(rank.batch_size / rank.fed_step_s, "images/s", "measured", source))


def judge_bandwidth(
    measured: BandwidthMeasurement, accelerators: Mapping[str, float], origin: Origin
) -> BandwidthReport:
    """The report of a measurement; `accelerators` gives images/s by name."""
    fed, step, best = feeds(measured, accelerators), measured.best, fastest(measured.ladder)
    # Ranks in step get as many times what the slowest of the most ranks gets; of opens nothing is known there.
    in_step = step.in_step_bw_bytes / best.bw_bytes if step and best and measured.by_ranks else 0.0
    return BandwidthReport(
        **values(measured),
        origin=origin,
        limit=limit_of(measured),
        kind=kind_of(measured),
        feeds=fed,
        feeds_in_step=tuple(replace(feed, count=in_step * feed.count) for feed in fed) if measured.by_ranks else (),
    )


def feeds(measured: BandwidthMeasurement, accelerators: Mapping[str, float]) -> tuple[Feed, ...]:
    """What `plan` says of the same result, at its usual utilization and use; `accelerators` gives images/s by name.

    Empty for files that are no images.
    """
    if not measured.images:
        return ()
    try:
        workloads = [
            workload_of_bandwidth(measured, name, known(rate, "images/s", "given", name))
            for name, rate in accelerators.items()
        ]
    except BadValue:
        return ()  # read in blocks: the bytes of an image are not known
    return tuple(feed for workload in workloads if (feed := feed_of(workload)))
