"""A result of `bandwidth` as what a plan is made for: its files and its storage, but no accelerator and no worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.analyze.ladder import has_ended
from loaderprobe.analyze.plan.workload import MeasuredStorage, PlanWorkload, best_of, known, requests, scaled
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase, MetadataPhase
from loaderprobe.records.plan import PlanPart, Quantity
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import UNFAIR, WIDE_RANGE, WORTH

_NO_WORKERS = Remark(code="bandwidth_without_workers")


def workload_of_bandwidth(found: BandwidthMeasurement, accelerator: str, rate: Quantity) -> PlanWorkload:
    """What the probe read, for accelerators of this name and rate. Raises BadValue where files are not images."""
    _check_files(found)
    storage = _storage(found)
    refused: dict[PlanPart, Remark] = {"workers": _NO_WORKERS, "cores": _NO_WORKERS}
    opens = cold_opens(found)
    if isinstance(storage, Remark):
        refused["measured_storage"] = storage
    elif isinstance(opens, Remark):
        refused["cold_opens"] = opens
    else:
        storage = _with_opens(storage, found, opens)
    source = f"{found.files_used} of {found.files_found} files"
    workload = PlanWorkload(
        accelerator=accelerator,
        compute=f"emulated:{accelerator}",
        rate=rate,
        file_bytes=known(found.mean_size_bytes, "B", "measured", source),
        requests_per_file=requests([found.mean_size_bytes], exact=False),
        amplification=_amplification(found),
        images=known(found.files_found, "images", "measured", "files found"),
        storage=storage if isinstance(storage, MeasuredStorage) else None,
        refused=refused,
        notes=() if found.images else (Remark(code="no_images"),),
    )
    return _read_by_ranks(workload, found) if found.by_ranks else workload


def _check_files(found: BandwidthMeasurement) -> None:
    """Raises BadValue where a file is no image."""
    hint = "probe a folder of images, or plan from a sweep"
    if not found.mean_size_bytes > 0:
        raise BadValue(f"the files of {found.path} are empty", hint=hint)
    if found.scratch or any(phase.block_bytes is not None for phase in found.ladder):
        raise BadValue(f"bytes an image are not known: {found.path} was read in blocks", hint=hint)


def _with_opens(storage: MeasuredStorage, found: BandwidthMeasurement, opens: MetadataPhase) -> MeasuredStorage:
    """The storage with cold opens/s as a limit beside the others."""
    return replace(
        storage,
        opens_per_s=known(
            opens.ops_per_s, "1/s", "measured", f"{opens.readers} readers that open",
            half=opens.ops_high - opens.ops_per_s,
        ),
        opens_at_least=not opens.short and (opens.at_least or _opens_rise(found, opens)),
        notes=(*storage.notes, *_doubts(opens)),
    )  # fmt: skip


def cold_opens(found: BandwidthMeasurement) -> MetadataPhase | Remark:
    """The fastest opens of cold names and inodes, or why there are none: warm ones say nothing of storage."""
    best, opens = found.best_opens, found.operations("open")
    if best is not None and best.metadata == "cold":
        return best
    if not opens:
        why = next((part.reason for part in found.missing if part.name == "metadata"), None)
        return Remark(code="unavailable", facts=why.because) if why else Remark(code="opens_not_measured")
    if not any(phase.drops for phase in opens):
        return Remark(code="opens_from_memory")
    if any(phase.metadata == "unproved" for phase in opens):
        return Remark(code="opens_unproved")
    return Remark(code="opens_from_memory_after_drop")


def _doubts(opens: MetadataPhase) -> tuple[Remark, ...]:
    codes: dict[str, bool] = {
        "opens_short": opens.short,
        "opens_unsettled": opens.ops_high > (1 + WIDE_RANGE) * opens.ops_per_s,
    }
    return tuple(Remark(code=code) for code, holds in codes.items() if holds)


def _opens_rise(found: BandwidthMeasurement, best: MetadataPhase) -> bool:
    """True when the most readers that were tried gained over fewer."""
    rates = {phase.readers: phase.ops_per_s for phase in found.operations("open")}
    fewer = [rate for readers, rate in rates.items() if readers < best.readers]
    return best.readers == max(rates) and best.ops_per_s > WORTH * max(fewer, default=0.0)


def _storage(found: BandwidthMeasurement) -> MeasuredStorage | Remark:
    if found.location.in_memory:
        return Remark(code="no_storage_behind_files")
    if found.from_memory and found.best and found.best.cache == "cold":
        return Remark(code="ladder_from_memory")
    return best_of(found.ladder, found.mean_size_bytes)


def _amplification(found: BandwidthMeasurement) -> Quantity:
    best = found.best
    if best is None or best.amplification is None:
        return known(1.0, "x", "assumed", "bytes from storage were not counted")
    return known(best.amplification, "x", "measured", "counted by the probe")


# Of a bandwidth result of ranks: readers of the storage are counted, in whichever rank they are.


def _read_by_ranks(workload: PlanWorkload, found: BandwidthMeasurement) -> PlanWorkload:
    """With what the steps show of the storage's limit, and of the ranks."""
    storage, most = workload.storage, found.best
    if storage is None or most is None:
        return workload
    facts: dict[str, float | str] = {"clients": most.readers, "next": 2 * most.readers}
    ended = has_ended(found)
    notes = (*([] if ended else [Remark(code="clients_at_least", facts=facts)]), *_uneven(most))
    best = next(each for each in found.ladder if each.readers == storage.readers)
    source = f"{storage.source} in {best.ranks} rank{'s' * (best.ranks > 1)}"
    return replace(
        workload, storage=replace(storage, source=source, at_least=not ended, notes=(*storage.notes, *notes))
    )


def by_slowest(workload: PlanWorkload, found: BandwidthMeasurement) -> PlanWorkload:
    """The same with a storage that gives as many times what the slowest of the most ranks gets."""
    storage, most = workload.storage, found.best
    if storage is None or most is None:
        return workload
    best = next(each for each in found.ladder if each.readers == storage.readers)
    share = most.in_step_bw_bytes / best.bw_bytes
    slower = replace(
        storage,
        read_bytes_per_s=scaled(storage.read_bytes_per_s, share, "R x slowest"),
        files_per_s=scaled(storage.files_per_s, share, "R x slowest"),
    )
    return replace(workload, storage=slower)


def _uneven(most: BandwidthPhase) -> Sequence[Remark]:
    """Accelerators in step wait for the slowest rank."""
    slow = most.slowest
    if slow is None or most.fairness >= UNFAIR or not most.long_enough:
        return ()
    facts: dict[str, float | str] = {
        "rank": str(slow.rank), "host": slow.host, "share": most.fairness, "bytes_per_s": most.in_step_bw_bytes,
    }  # fmt: skip
    return (Remark(code="ranks_uneven", facts=facts),)
