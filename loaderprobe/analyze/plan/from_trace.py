"""A workload from a recording of a training: the rate of an accelerator whose input costs nothing, and no files."""

from __future__ import annotations

from loaderprobe.analyze.plan.quantities import assumed_too, known
from loaderprobe.analyze.plan.workload import Workload, requests
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import PlanPart, Quantity
from loaderprobe.records.remark import Remark
from loaderprobe.records.trace import TraceRank, TraceReport

_NO_WORKERS, _NO_STORAGE = Remark(code="trace_without_workers"), Remark(code="trace_without_storage")
_REFUSED: dict[PlanPart, Remark] = {
    "measured_storage": _NO_STORAGE,
    "workers": _NO_WORKERS,
    "cores": _NO_WORKERS,
    "stragglers": _NO_WORKERS,
    "lock_step": _NO_WORKERS,
}


def workload_of_trace(
    found: TraceReport, *, other: tuple[str, Quantity] | None, mean_size: float, size_source: str, images: Quantity
) -> Workload:
    """One GPU of the recording with files of `mean_size` bytes; `other` is an accelerator by name and rate.

    Raises BadValue where the recording does not show how many images a step takes.
    """
    slowest = max(found.ranks, key=lambda each: each.step_s)
    name, rate = other or (slowest.gpu or "the recorded GPU", _rate(slowest))
    return Workload(
        accelerator=name,
        compute=f"emulated:{rate.value:.0f}" if other is None else f"emulated:{name}",
        rate=rate,
        file_bytes=known(mean_size, "B", "given" if size_source == "mean_size" else "assumed", size_source),
        requests_per_file=requests([mean_size], exact=False),
        amplification=known(1.0, "x", "assumed", "bytes from storage were not counted"),
        images=images,
        refused=_REFUSED,
    )


def _rate(rank: TraceRank) -> Quantity:
    if not rank.batch_size:
        raise BadValue(
            f"{rank.path} does not show how many images a step takes",
            hint="loaderprobe trace FILE --batch-size 32 --out DIR, or plan with --kind IMAGES_PER_S",
        )
    free_s = next((each.step_s for each in rank.free if each.name == "input"), rank.step_s)
    source = (
        f"a recording: batch {rank.batch_size} in {1e3 * free_s:.3g} ms if input cost nothing, at most; as recorded: "
        f"{1e3 * rank.step_s:.3g} ms"
    )
    # Without a range: nothing may be faster, so one around it would exceed its own maximum.
    return assumed_too(known(rank.batch_size / free_s, "images/s", "measured", source))
