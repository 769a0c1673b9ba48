"""A workload from a bandwidth result: the files and the storage, but no accelerator and no worker."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.storage import best_of
from loaderprobe.analyze.plan.workload import MeasuredStorage, Workload, requests
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import RISING, BandwidthMeasurement, MetadataPhase
from loaderprobe.records.note import Note, PlanNote
from loaderprobe.records.plan import Quantity
from loaderprobe.records.plan_reason import PlanPart, PlanReason

WIDE = 0.25
"""Half an interval of opens/s that is wider than this share of them is worth a word."""
_NO_WORKERS = PlanReason(code="bandwidth_without_workers")


def workload_of_bandwidth(found: BandwidthMeasurement, accelerator: str, rate: Quantity) -> Workload:
    """What the probe read, for accelerators of this name and rate. Raises BadValue where files are not images."""
    _check_files(found)
    storage = _storage(found)
    refused: dict[PlanPart, PlanReason] = {
        "workers": _NO_WORKERS,
        "cores": _NO_WORKERS,
        "stragglers": PlanReason(code="bandwidth_without_steps"),
        "lock_step": PlanReason(code="bandwidth_without_batches"),
    }
    opens = cold_opens(found)
    if isinstance(storage, PlanReason):
        refused["measured_storage"] = storage
    elif isinstance(opens, PlanReason):
        refused["cold_opens"] = opens
    else:
        storage = _with_opens(storage, found, opens)
    source = f"{found.files_used} of {found.files_found} files"
    return Workload(
        accelerator=accelerator,
        compute=f"emulated:{accelerator}",
        rate=rate,
        file_bytes=known(found.mean_size_bytes, "B", "measured", source),
        requests_per_file=requests([found.mean_size_bytes], exact=False),
        amplification=_amplification(found),
        images=known(found.files_found, "images", "measured", "files found"),
        storage=storage if isinstance(storage, MeasuredStorage) else None,
        refused=refused,
        notes=() if found.images else (Note(code="no_images"),),
    )


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
        opens_at_least=not opens.short and (opens.at_least or _still_rising(found, opens)),
        notes=(*storage.notes, *_doubts(opens)),
    )  # fmt: skip


def cold_opens(found: BandwidthMeasurement) -> MetadataPhase | PlanReason:
    """The fastest opens of cold names and inodes, or why there are none: warm ones say nothing of storage."""
    best, opens = found.best_opens, found.operations("open")
    if best is not None and best.metadata == "cold":
        return best
    if not opens:
        why = next((part.reason for part in found.missing if part.name == "metadata"), None)
        return PlanReason(code="unavailable", facts=why.because) if why else PlanReason(code="opens_not_measured")
    if not any(phase.drops for phase in opens):
        return PlanReason(code="opens_from_memory")
    if any(phase.metadata == "unproved" for phase in opens):
        return PlanReason(code="opens_unproved")
    return PlanReason(code="opens_from_memory_after_drop")


def _doubts(opens: MetadataPhase) -> tuple[Note, ...]:
    codes: dict[PlanNote, bool] = {
        "opens_short": opens.short,
        "opens_unsettled": opens.ops_high > (1 + WIDE) * opens.ops_per_s,
    }
    return tuple(Note(code=code) for code, holds in codes.items() if holds)


def _still_rising(found: BandwidthMeasurement, best: MetadataPhase) -> bool:
    """True when the most readers that were tried gained over fewer."""
    rates = {phase.readers: phase.ops_per_s for phase in found.operations("open")}
    fewer = [rate for readers, rate in rates.items() if readers < best.readers]
    return best.readers == max(rates) and best.ops_per_s > RISING * max(fewer, default=0.0)


def _storage(found: BandwidthMeasurement) -> MeasuredStorage | PlanReason:
    if found.location.in_memory:
        return PlanReason(code="files_in_memory")
    if found.from_memory and found.best and found.best.cache == "cold":
        return PlanReason(code="ladder_from_memory")
    return best_of(found.ladder, found.mean_size_bytes)


def _amplification(found: BandwidthMeasurement) -> Quantity:
    best = found.best
    if best is None or best.amplification is None:
        return known(1.0, "x", "assumed", "bytes from storage were not counted")
    return known(best.amplification, "x", "measured", "storage bytes over bytes delivered")
