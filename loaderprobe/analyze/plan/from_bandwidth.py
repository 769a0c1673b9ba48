"""A workload from a bandwidth result: the files and the storage, but no accelerator and no worker."""

from __future__ import annotations

from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.storage import best_of
from loaderprobe.analyze.plan.workload import MeasuredStorage, Workload, requests
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.measurement import Missing
from loaderprobe.records.plan import Quantity

_NO_WORKERS = "a bandwidth result has no worker: plan from a sweep"


def workload_of_bandwidth(found: BandwidthReport, accelerator: str, rate: Quantity) -> Workload:
    """What the probe read, for accelerators of this name and rate. Raises BadValue where files are not images."""
    blocks = any(phase.block_bytes is not None for phase in found.ladder)
    if found.scratch or blocks or not found.mean_size_bytes > 0:
        raise BadValue(
            f"bytes an image are not known: {found.path} was read in blocks" if found.mean_size_bytes > 0
            else f"the files of {found.path} are empty",
            hint="probe a folder of images, or plan from a sweep",
        )  # fmt: skip
    storage = _storage(found)
    refused = [Missing(name=name, reason=_NO_WORKERS) for name in ("workers", "cores")]
    refused.append(Missing(name="steps", reason="a bandwidth result has no training steps"))
    if isinstance(storage, str):
        refused.append(Missing(name="measured storage", reason=storage))
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
        refused=tuple(refused),
        notes=() if found.images else ("the files are no images by their names; each is taken for one",),
    )


def _storage(found: BandwidthReport) -> MeasuredStorage | str:
    place = found.location
    if place.kind == "memory" or set(place.layers) == {"memory"}:
        return "the files were in memory, so no storage was measured"
    return best_of(found.ladder, found.mean_size_bytes)


def _amplification(found: BandwidthReport) -> Quantity:
    best = found.best
    if best is None or best.amplification is None:
        return known(1.0, "x", "assumed", "bytes from storage were not counted")
    return known(best.amplification, "x", "measured", "storage bytes over bytes delivered")
