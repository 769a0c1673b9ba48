"""A search for a batch size as a page and as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaderprobe.analyze.batch_size import by_size, within_noise
from loaderprobe.records import values
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport, LimitName
from loaderprobe.records.thresholds import ALIKE, WIDE
from loaderprobe.render.charts import Bar, Chart, ChartRow
from loaderprobe.render.document import Column, Document, Paragraph, Section, few, table, tags
from loaderprobe.render.format import counted, interval, percent
from loaderprobe.render.rows import as_columns, interval_cells
from loaderprobe.render.words import explanation, heading, message, remark_words
from loaderprobe.units import format_bytes, format_duration, join_words, significant

_SHOWN, _BRIEF = 30, 8
"""Loops of the paper's strategies, and rows in a terminal; the file has all of them."""
_TONES: dict[LimitName, str] = {"memory": "warning", "maximum": "change", "compute": "compute"}


def batch_size_document(report: BatchSizeReport) -> Document:
    """The size to use and its rate, what limits there, then a row a size, or a row a loop."""
    ours, sizes = report.strategy == "throughput", by_size(report.probes)
    word = "fastest" if report.stop.interrupted else "chosen"
    rows = tuple(_rate_row(report, probe, word) for probe in (sizes if ours else report.probes[-_SHOWN:]))
    names, ends = (("change", word), ("quiet", "others")), "batch size,images/s"
    rates = Chart(rows=rows, unit="images/s", names=names, brief=rows[-_BRIEF:], ends=ends)
    tried = table(sizes, _of_sizes(report)) if ours else table([*enumerate(report.probes, 1)][-_SHOWN:], _loops(report))
    limits = tuple(Paragraph(text=text) for text in _limits(report))
    unknown = "accuracy: another batch size may need another learning rate, and more epochs"
    notes = Paragraph(text=" ".join(_notes(report)), tone="quiet")
    use = f"{('Probably: use' if _unsure(report) else 'Use') if ours else f'{report.strategy} ends at'} batch"
    return Document(
        title=f"{report.model} in {report.precision} on {report.device}",
        headline="Interrupted: no answer yet" if report.stop.interrupted else f"{use} {report.stop.chosen}",
        subline=_condition(report),
        tone="warning" if report.stop.interrupted else _TONES.get(report.limit, "now"),
        unsure=_unsure(report),
        sections=(
            Section(title="Images/s by batch size", parts=(rates,), panel="main"),
            Section(title="What limits it", parts=limits, panel="side"),
            Section(title="How sure", parts=tags(_how_sure(report)), panel="side"),
            Section(title="Not known", parts=tags([unknown]), panel="side"),
            Section(title="Sizes that were tried" if ours else "Loops, in order", parts=(*tried, notes)),
        ),
    )


def _condition(report: BatchSizeReport) -> str:
    first, chosen, sizes = report.probes[0], report.at_chosen, [probe for probe in by_size(report.probes) if probe.fits]
    said = f"fastest of {len(sizes)} tried: batch {chosen.batch_size}, " if report.stop.interrupted else ""
    said += f"{interval(chosen.images_per_s)} images/s" if chosen.fits else "does not fit"
    if first.images_per_s and chosen.images_per_s and first.batch_size != chosen.batch_size:
        times = chosen.images_per_s.value / first.images_per_s.value
        alike = 1 / (1 + ALIKE) < times < (1 + ALIKE)
        said += f", {'as fast as' if alike else f'{significant(times)} times the rate of'} batch {first.batch_size}"
    near = [str(size) for size in within_noise(sizes, chosen)]
    return f"{said}; within noise of it: batch {join_words(few(near))}" if near else said


def _limits(report: BatchSizeReport) -> Iterator[str]:
    facts = {
        "size": report.stop.chosen, "limit": report.memory_limit_bytes, "probes": len(report.probes),
        "wall": min((probe.batch_size for probe in report.probes if not probe.fits), default=0),
        "left": report.stop.left or 0.0, "strategy": report.strategy,
    }  # fmt: skip
    if report.findings:
        yield f"{heading(report.findings)} at batch {report.stop.chosen}: {explanation(report.findings)}"
    elif report.no_findings:
        yield message("batch_limit.unknown", {**facts, "why": remark_words(report.no_findings)})
    if report.limit in _TONES and not report.stop.interrupted:
        yield message(f"batch_limit.{report.limit}", facts)
    yield message(f"search.{report.stop.code}", facts)


def _varies(report: BatchSizeReport) -> bool:
    return (rate := report.at_chosen.images_per_s) is not None and rate.half > WIDE * rate.value


def _unsure(report: BatchSizeReport) -> bool:
    return _varies(report) or report.stop.code in ("probes_spent", "loops_spent", "interrupted")


def _how_sure(report: BatchSizeReport) -> Iterator[str]:
    yield f"{counted(len(report.probes), 'short training')} (probes), bars with 95 % intervals"
    if report.strategy == "throughput" and not report.stop.interrupted:
        yield f"chosen: the smallest that {'may' if _unsure(report) else 'is sure to'} be within 2 % of the fastest"
    if _varies(report):
        yield "the rate varies much from step to step: measure again on an idle machine, or with more --iterations"


def _rate_row(report: BatchSizeReport, probe: BatchSizeProbe, word: str) -> ChartRow:
    rate, chosen = probe.images_per_s, probe.batch_size == report.stop.chosen
    return ChartRow(
        label=f"batch {probe.batch_size}{f', {word}' if chosen else ''}",
        value=interval(rate) if probe.fits else "does not fit" if probe.ran else "not tried",
        note=f"{significant(probe.step_ms.value)} ms a step" if probe.step_ms else "",
        bars=(Bar(end=rate.value, tone="change" if chosen else "quiet"),) if rate else (),
        interval=(rate.low, rate.high) if rate else None,
    )


def batch_size_columns(report: BatchSizeReport) -> dict[str, list[Any]]:
    """One row a probe, in order; units in the names."""
    return as_columns(
        {
            "probe": number,
            **values(probe, "batch_size", "fits", "ran", "steps"),
            **interval_cells("images_per_s", probe.images_per_s),
            **interval_cells("step_ms", probe.step_ms),
            "utilization": probe.utilization,
            "usage_upper_half": probe.usage,
            "epoch_s": probe.epoch_s(report.dataset_images) if probe.images_per_s else None,
            **values(probe, "memory_bytes", "wall_s"),
        }
        for number, probe in enumerate(report.probes)
    )


def _of_sizes(report: BatchSizeReport) -> tuple[Column, ...]:
    return (
        Column("batch", lambda size: str(size.batch_size)),
        Column("GPU busy" if report.utilization_of == "gpu" else "cores busy", lambda size: percent(size.utilization)),
        Column("memory", _memory),
        Column("probes", lambda size: str(sum(probe.batch_size == size.batch_size for probe in report.probes))),
    )


def _loops(report: BatchSizeReport) -> tuple[Column, ...]:
    images, first = report.dataset_images, report.probes[0]
    return (
        Column("loop", lambda loop: str(loop[0])),
        Column("batch", lambda loop: str(loop[1].batch_size)),
        Column("usage", lambda loop: percent(loop[1].usage)),
        Column("epoch", lambda loop: format_duration(loop[1].epoch_s(images)) if loop[1].fits else ""),
        Column(
            "improvement",
            lambda loop: percent(1 - loop[1].epoch_s(images) / first.epoch_s(images)) if loop[1].fits else "",
        ),
        Column("memory", lambda loop: _memory(loop[1])),
    )


def _memory(probe: BatchSizeProbe) -> str:
    return format_bytes(probe.memory_bytes) if probe.memory_bytes else ""


def _notes(report: BatchSizeReport) -> Iterator[str]:
    if report.strategy != "throughput":
        yield "usage: mean of the upper half of the readings."
        yield f"epoch and improvement: of {report.dataset_images:,} images, against the first loop."
        if (more := len(report.probes) - _SHOWN) > 0:
            yield f"The first {more} loops are in probes.csv."
    if report.utilization_of == "cores":
        yield "There is no GPU: busy is the CPU time of the training process over that of its cores."
    if any(not probe.ran for probe in report.probes):
        yield "not tried: by the growth of memory so far it cannot fit."
    gone = [probe.unavailable["utilization"] for probe in report.probes if "utilization" in probe.unavailable]
    if gone:
        yield f"Utilization is missing: {remark_words(gone[0])}."
    facts = {
        "on": "memory" if not report.data else "loader" if report.workers is None else "folder",
        "precision": report.precision, "pixels": report.image_size, "data": report.data, "workers": report.workers,
        "limit": report.memory_limit_bytes,
    }  # fmt: skip
    yield message("part.model", facts)
