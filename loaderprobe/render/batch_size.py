"""A search for a batch size as a page, as its charts, and as the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport, StopCode
from loaderprobe.render.document import Document, Exhibit, Paragraph, Section, Table
from loaderprobe.render.format import MISSING, counted, figure, interval, percent
from loaderprobe.render.plots import BLUE, GREY, RED, Axis, Plot
from loaderprobe.render.rows import as_columns, interval_cells, own_cells
from loaderprobe.render.words import explanation, heading, remark_words
from loaderprobe.units import format_bytes, format_duration, significant

# What a search for a batch size found, in sentences.

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
    return f"{heading(found.findings)} at batch {size}: {explanation(found.findings)}"


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
    return min((probe.batch_size for probe in found.probes if not probe.fits), default=0)


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


SHOWN = 30
"""Loops of the paper's strategies; the file has all of them."""


def batch_size_document(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> Document:
    """The answer, then what was tried; `sizes` are the probes of each size together, from the smallest on."""
    ours = found.strategy == "throughput"
    return Document(
        title=title_words(found),
        sections=(
            Section(
                parts=(
                    Paragraph(text=answer_words(found), strong=True),
                    Paragraph(text=limit_words(found), strong=True),
                    *([Paragraph(text=doubt_words(found), strong=True)] if doubt_words(found) else []),
                    Paragraph(text=ACCURACY),
                )
            ),
            Section(
                title="Sizes that were tried" if ours else "Loops, in order",
                name="sizes",
                parts=(_sizes(found, sizes) if ours else _loops(found), Paragraph(text=_notes(found))),
            ),
        ),
    )


def batch_size_columns(found: BatchSizeReport) -> dict[str, list[Any]]:
    """One row a probe, in order; units in the names."""
    return as_columns([_row(number, each, found) for number, each in enumerate(found.probes)])


def _row(number: int, probe: BatchSizeProbe, found: BatchSizeReport) -> dict[str, Any]:
    return {
        "probe": number,
        **own_cells(probe, "batch_size", "fits", "ran", "steps"),
        **interval_cells("images_per_s", probe.images_per_s),
        **interval_cells("step_ms", probe.step_ms),
        "utilization": probe.utilization,
        "usage_upper_half": probe.usage,
        "epoch_s": probe.epoch_s(found.dataset_images) if probe.images_per_s else None,
        **own_cells(probe, "memory_bytes", "wall_s"),
    }


def _sizes(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> Table:
    counts = [sum(probe.batch_size == size.batch_size for probe in found.probes) for size in sizes]
    return Table(
        head=("batch", "images/s", "step ms", BUSY_WORDS[found.utilization_of], "memory", "probes"),
        lines=tuple(
            (
                f"{size.batch_size}{' *' if size.batch_size == found.stop.chosen else ''}",
                _rate(size),
                figure(size.step_ms.value if size.step_ms else None),
                percent(size.utilization),
                format_bytes(size.memory_bytes) if size.memory_bytes else MISSING,
                str(count),
            )
            for size, count in zip(sizes, counts, strict=True)
        ),
        right=frozenset({0, 1, 2, 3, 4, 5}),
    )


def _loops(found: BatchSizeReport) -> Table:
    numbered = list(enumerate(found.probes, 1))[-SHOWN:]
    return Table(
        head=("loop", "batch", "images/s", "usage", "epoch", "improvement", "memory"),
        lines=tuple(
            (
                str(number),
                str(each.batch_size),
                _rate(each),
                percent(each.usage),
                format_duration(each.epoch_s(found.dataset_images)) if each.fits else MISSING,
                percent(found.improvement(each)) if each.fits else MISSING,
                format_bytes(each.memory_bytes) if each.memory_bytes else MISSING,
            )
            for number, each in numbered
        ),
        right=frozenset({0, 1, 2, 3, 4, 5, 6}),
    )


def _rate(probe: BatchSizeProbe) -> str:
    if probe.fits:
        return interval(probe.images_per_s)
    return "does not fit" if probe.ran else "not tried"


def _notes(found: BatchSizeReport) -> str:
    """What the columns mean, and what is missing in them."""
    notes = []
    if found.strategy == "throughput":
        notes.append(
            "*: chosen, the smallest that is sure to be within 2 % of the fastest. images/s: with its 95 % interval."
        )
    else:
        more = len(found.probes) - SHOWN
        notes.append(
            "usage: mean of the upper half of the readings. epoch and improvement: "
            f"of {found.dataset_images:,} images, against the first loop."
        )
        notes += [f"The first {more} loops are in probes.csv."] if more > 0 else []
    if found.utilization_of == "cores":
        notes.append("There is no GPU: busy is the CPU time of the training process over that of its cores.")
    if any(not probe.ran for probe in found.probes):
        notes.append("not tried: by the growth of memory so far it cannot fit.")
    gone = [probe.unavailable["utilization"] for probe in found.probes if "utilization" in probe.unavailable]
    if gone:
        notes.append(f"Utilization is missing: {remark_words(gone[0])}.")
    return " ".join((*notes, setting_words(found)))


# Rate, step time and utilization against the batch size, as SVG.

CHART_HEIGHT = 250
ABOVE = 1.2
"""A scale ends so far above what it shows, that the name of the chosen size has its place."""


def batch_size_exhibits(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> dict[str, tuple[Exhibit, ...]]:
    """Three charts, or two without utilization, in the section of the sizes."""
    fitting = [size for size in sizes if size.fits]
    if len(fitting) < 2:
        return {}
    wall = smallest_unfit(found)
    busy = BUSY_WORDS[found.utilization_of]
    charts = [
        (
            "Images/s against batch size",
            _chart(fitting, found.stop.chosen, wall, "images/s", _images_per_s, significant),
        ),
        (
            "Step time against batch size",
            _chart(fitting, found.stop.chosen, wall, "ms a step", _step, lambda ms: f"{significant(ms)} ms"),
        ),
    ]
    read = [each for each in fitting if each.utilization is not None]
    if len(read) > 1:
        charts.append((f"{busy} against batch size", _chart(read, found.stop.chosen, wall, busy, _busy, percent)))
    text = (
        "Each point is a batch size, on a scale of doublings. Bars: 95 % intervals of the rate, and the middle half of "
    )
    text += "the steps. The chosen size is red."
    if wall:
        text += f" Dashed: batch {wall}, which does not fit."
    return {"sizes": (Exhibit(title="Rate, step time and utilization", text=text, figures=tuple(charts)),)}


Read = Callable[[BatchSizeProbe], tuple[float, float, float]]
"""(value, low, high)."""


def _images_per_s(probe: BatchSizeProbe) -> tuple[float, float, float]:
    assert probe.images_per_s
    return probe.images_per_s.value, probe.images_per_s.low, probe.images_per_s.high


def _step(probe: BatchSizeProbe) -> tuple[float, float, float]:
    assert probe.step_ms
    return probe.step_ms.value, probe.step_ms.low, probe.step_ms.high


def _busy(probe: BatchSizeProbe) -> tuple[float, float, float]:
    busy = probe.utilization or 0.0
    return busy, busy, busy


def _chart(
    sizes: Sequence[BatchSizeProbe], chosen: int, wall: int, unit: str, read: Read, words: Callable[[float], str]
) -> str:
    points = {each.batch_size: read(each) for each in sizes}
    shares = read is _busy
    top = ABOVE * (1.0 if shares else max(high for _, _, high in points.values()))
    x = Axis(name="batch size", low=min(points) * 0.85, high=max(*points, wall) * 1.18, base=2)
    plot = Plot(unit, x, Axis(name="", high=top, shares=shares), height=CHART_HEIGHT)
    if wall:
        plot.upright(wall, GREY)
    line = [(size, value) for size, (value, _, _) in points.items()]
    plot.spans(((size, low, high) for size, (_, low, high) in points.items()), BLUE)
    plot.line(line, BLUE)
    plot.dots([each for each in line if each[0] != chosen], BLUE, radius=3)
    for size, value in line:
        if size == chosen:
            plot.dots([(size, value)], RED, radius=5)
            plot.name(size, value, f"batch {chosen}: {words(value)}", "above left")
    return plot.svg()
