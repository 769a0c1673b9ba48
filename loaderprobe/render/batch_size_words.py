"""What a search for a batch size found, in sentences."""

from __future__ import annotations

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport, StopCode
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.verdict_words import explanation, heading
from loaderprobe.render.wording import counted, interval, percent
from loaderprobe.units import format_bytes, significant

ACCURACY = (
    "Throughput is not accuracy: another batch size may need another learning rate, and more epochs to the same "
    "accuracy."
)
BUSY_WORDS = {"gpu": "GPU busy", "cores": "cores busy"}
FASTER = 1.02
"""Two rates are called different from here on."""
VARIED = 0.1
"""Half an interval that is a larger share of the rate is warned of."""
_STOPS: dict[StopCode, str] = {
    "no_candidate_better": "At 95 %, no other size that fits is faster by more than 2 %.",
    "probes_spent": (
        "After {probes} probes another size may still be faster by up to {left}: the rates vary too much. Measure "
        "again when the machine is idle, or with more --iterations."
    ),
    "converged": "The search converged: {alike} in five loops.",
    "at_maximum": "The search reached the largest size allowed.",
    "at_minimum": "The search reached the smallest size.",
    "loops_spent": "The search used its 100 loops and did not converge.",
    "out_of_memory": "The search ended where memory did: batch {wall} does not fit.",
    "nothing_fits": "Not even one image fits.",
    "interrupted": "The search was interrupted: this is the fastest size so far.",
}
_ALIKE = {
    "gpu-usage": "the size moved by 5 or less",
    "epoch-time": "the improvement moved by 0.05 or less",
    "throughput": "",
}


def title_words(found: BatchSizeReport) -> str:
    """`resnet18: batch 64 trains fastest, 205 ±6 images/s on ...`; of the paper's strategies, where they end."""
    said = "trains fastest" if found.strategy == "throughput" else f"is where {found.strategy} ends"
    return f"{found.model}: batch {found.stop.chosen} {said}, {rate_words(found.at_chosen)} on {found.device}"


def answer_words(found: BatchSizeReport) -> str:
    """The size, its rate beside that of the first size, and why the search ended."""
    first, chosen = found.probes[0], found.at_chosen
    beside = ""
    if first.images_per_s and chosen.images_per_s and first.batch_size != chosen.batch_size:
        times = chosen.images_per_s.value / first.images_per_s.value
        beside = f", {significant(times)} times the rate of batch {first.batch_size}"
        if 1 / FASTER < times < FASTER:
            beside = f", as fast as batch {first.batch_size}"
    use = "Use batch" if found.strategy == "throughput" else f"{found.strategy} chooses batch"
    return f"{use} {found.stop.chosen}: {rate_words(chosen)}{beside}. {stop_words(found)}"


def stop_words(found: BatchSizeReport) -> str:
    """Why the search ended, as a sentence."""
    return _STOPS[found.stop.code].format(
        probes=len(found.probes),
        left=percent(found.stop.left or 0.0),
        alike=_ALIKE[found.strategy],
        wall=smallest_unfit(found),
    )


def limit_words(found: BatchSizeReport) -> str:
    """What keeps the rate from rising at the chosen size."""
    said = [_judged_words(found)] if found.data else []
    size = found.stop.chosen
    if found.limit == "memory":
        limit = f" into {format_bytes(found.memory_limit_bytes)}" if found.memory_limit_bytes else ""
        said.append(
            f"Memory limits: the rate still rises at batch {size}, but {smallest_unfit(found)} does not fit{limit}."
        )
    if found.limit == "maximum":
        said.append(f"--max limits: the rate still rises at batch {size}. Try a larger --max.")
    if found.limit == "compute":
        said.append(
            f"Compute limits at batch {size}, by construction: the batch stays in memory, so no loader can limit. With "
            "DATA, batches are loaded, and the input is judged, too."
        )
    return " ".join(said)


def _judged_words(found: BatchSizeReport) -> str:
    """The verdict on the loader at the chosen size, or why there is none."""
    size = found.stop.chosen
    if found.findings is None:
        why = f": {remark_words(found.no_findings)}" if found.no_findings else ""
        return f"What limits training at batch {size} is not known{why}."
    return f"{heading(found.findings)} at batch {size}: {explanation([found.findings])}"


def doubt_words(found: BatchSizeReport) -> str:
    """A warning where the steps of the chosen size differ much; else empty."""
    rate = found.at_chosen.images_per_s
    if rate is None or rate.high - rate.low <= 2 * VARIED * rate.value:
        return ""
    return (
        "The rate varies much from step to step: something else may have used the machine. Measure again when it is "
        "idle, or with more --iterations."
    )


def smallest_unfit(found: BatchSizeReport) -> int:
    """The smallest size that does not fit; 0 where all do."""
    return min((each.batch_size for each in found.probes if not each.fits), default=0)


def rate_words(probe: BatchSizeProbe) -> str:
    """`205 ±6 images/s`."""
    return f"{interval(probe.images_per_s)} images/s" if probe.fits else "does not fit"


def setting_words(found: BatchSizeReport) -> str:
    """On what the copy was trained, how, and within which memory."""
    data = "random images" if found.image_size else "the samples of one batch, repeated,"
    where = f"{data} in memory"
    if found.data:
        loader = "the serial loader" if not found.workers else counted(found.workers, "worker")
        where = f"batches from {found.data}, loaded by {loader}; files were read as they were found"
        if found.workers is None:
            where = "batches of a loader"
    size = f" of {found.image_size} x {found.image_size} pixels" if found.image_size and not found.data else ""
    limit = f"; memory limit {format_bytes(found.memory_limit_bytes)}" if found.memory_limit_bytes else ""
    return f"A copy of the model was trained in {found.precision} on {where}{size}{limit}."
