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


def batch_size_document(found: BatchSizeReport) -> Document:
    """The size to use and its rate, what limits there, then a row a size, or a row a loop."""
    ours, sizes = found.strategy == "throughput", by_size(found.probes)
    word = "fastest" if found.stop.interrupted else "chosen"
    rows = tuple(_rate_row(found, probe, word) for probe in (sizes if ours else found.probes[-_SHOWN:]))
    names, ends = (("change", word), ("quiet", "others")), "batch size,images/s"
    rates = Chart(rows=rows, unit="images/s", names=names, brief=rows[-_BRIEF:], ends=ends)
    tried = table(sizes, _of_sizes(found)) if ours else table(list(enumerate(found.probes, 1))[-_SHOWN:], _loops(found))
    unknown = "accuracy: another batch size may need another learning rate, and more epochs"
    notes = Paragraph(text=" ".join(_notes(found)), tone="quiet")
    use = f"{('Probably: use' if _unsure(found) else 'Use') if ours else f'{found.strategy} ends at'} batch"
    return Document(
        title=f"{found.model} in {found.precision} on {found.device}",
        headline="Interrupted: no answer yet" if found.stop.interrupted else f"{use} {found.stop.chosen}",
        subline=_condition(found),
        tone="warning" if found.stop.interrupted else _TONES.get(found.limit, "now"),
        unsure=_unsure(found),
        sections=(
            Section(title="Images/s by batch size", parts=(rates,), panel="main"),
            Section(title="What limits it", parts=tuple(Paragraph(text=text) for text in _limits(found)), panel="side"),
            Section(title="How sure", parts=tags(_sure(found)), panel="side"),
            Section(title="Not known", parts=tags([unknown]), panel="side"),
            Section(title="Sizes that were tried" if ours else "Loops, in order", parts=(*tried, notes)),
        ),
    )


def _condition(found: BatchSizeReport) -> str:
    first, chosen, sizes = found.probes[0], found.at_chosen, [each for each in by_size(found.probes) if each.fits]
    said = f"fastest of {len(sizes)} tried: batch {chosen.batch_size}, " if found.stop.interrupted else ""
    said += f"{interval(chosen.images_per_s)} images/s" if chosen.fits else "does not fit"
    if first.images_per_s and chosen.images_per_s and first.batch_size != chosen.batch_size:
        times = chosen.images_per_s.value / first.images_per_s.value
        alike = 1 / (1 + ALIKE) < times < (1 + ALIKE)
        said += f", {'as fast as' if alike else f'{significant(times)} times the rate of'} batch {first.batch_size}"
    near = [str(size) for size in within_noise(sizes, chosen)]
    return f"{said}; within noise of it: batch {join_words(few(near))}" if near else said


def _limits(found: BatchSizeReport) -> Iterator[str]:
    facts = {
        "size": found.stop.chosen, "limit": found.memory_limit_bytes, "probes": len(found.probes),
        "wall": min((probe.batch_size for probe in found.probes if not probe.fits), default=0),
        "left": found.stop.left or 0.0, "strategy": found.strategy,
    }  # fmt: skip
    if found.findings:
        yield f"{heading(found.findings)} at batch {found.stop.chosen}: {explanation(found.findings)}"
    elif found.no_findings:
        yield message("batch_limit.unknown", {**facts, "why": remark_words(found.no_findings)})
    if found.limit in _TONES and not found.stop.interrupted:
        yield message(f"batch_limit.{found.limit}", facts)
    yield message(f"search.{found.stop.code}", facts)


def _varies(found: BatchSizeReport) -> bool:
    rate = found.at_chosen.images_per_s
    return rate is not None and rate.half > WIDE * rate.value


def _unsure(found: BatchSizeReport) -> bool:
    return _varies(found) or found.stop.code in ("probes_spent", "loops_spent", "interrupted")


def _sure(found: BatchSizeReport) -> Iterator[str]:
    yield f"{counted(len(found.probes), 'short training')} (probes), bars with 95 % intervals"
    if found.strategy == "throughput" and not found.stop.interrupted:
        yield f"chosen: the smallest that {'may' if _unsure(found) else 'is sure to'} be within 2 % of the fastest"
    if _varies(found):
        yield "the rate varies much from step to step: measure again on an idle machine, or with more --iterations"


def _rate_row(found: BatchSizeReport, probe: BatchSizeProbe, word: str) -> ChartRow:
    rate, chosen = probe.images_per_s, probe.batch_size == found.stop.chosen
    return ChartRow(
        label=f"batch {probe.batch_size}{f', {word}' if chosen else ''}",
        value=interval(rate) if probe.fits else "does not fit" if probe.ran else "not tried",
        note=f"{significant(probe.step_ms.value)} ms a step" if probe.step_ms else "",
        bars=(Bar(end=rate.value, tone="change" if chosen else "quiet"),) if rate else (),
        interval=(rate.low, rate.high) if rate else None,
    )


def batch_size_columns(found: BatchSizeReport) -> dict[str, list[Any]]:
    """One row a probe, in order; units in the names."""
    return as_columns(
        {
            "probe": number,
            **values(probe, "batch_size", "fits", "ran", "steps"),
            **interval_cells("images_per_s", probe.images_per_s),
            **interval_cells("step_ms", probe.step_ms),
            "utilization": probe.utilization,
            "usage_upper_half": probe.usage,
            "epoch_s": probe.epoch_s(found.dataset_images) if probe.images_per_s else None,
            **values(probe, "memory_bytes", "wall_s"),
        }
        for number, probe in enumerate(found.probes)
    )


def _of_sizes(found: BatchSizeReport) -> tuple[Column, ...]:
    return (
        Column("batch", lambda size: str(size.batch_size)),
        Column("GPU busy" if found.utilization_of == "gpu" else "cores busy", lambda size: percent(size.utilization)),
        Column("memory", _memory),
        Column("probes", lambda size: str(sum(probe.batch_size == size.batch_size for probe in found.probes))),
    )


def _loops(found: BatchSizeReport) -> tuple[Column, ...]:
    images = found.dataset_images
    return (
        Column("loop", lambda loop: str(loop[0])),
        Column("batch", lambda loop: str(loop[1].batch_size)),
        Column("usage", lambda loop: percent(loop[1].usage)),
        Column("epoch", lambda loop: format_duration(loop[1].epoch_s(images)) if loop[1].fits else ""),
        Column(
            "improvement",
            lambda loop: percent(1 - loop[1].epoch_s(images) / found.probes[0].epoch_s(images)) if loop[1].fits else "",
        ),
        Column("memory", lambda loop: _memory(loop[1])),
    )


def _memory(probe: BatchSizeProbe) -> str:
    return format_bytes(probe.memory_bytes) if probe.memory_bytes else ""


def _notes(found: BatchSizeReport) -> Iterator[str]:
    if found.strategy != "throughput":
        yield "usage: mean of the upper half of the readings."
        yield f"epoch and improvement: of {found.dataset_images:,} images, against the first loop."
        if (more := len(found.probes) - _SHOWN) > 0:
            yield f"The first {more} loops are in probes.csv."
    if found.utilization_of == "cores":
        yield "There is no GPU: busy is the CPU time of the training process over that of its cores."
    if any(not probe.ran for probe in found.probes):
        yield "not tried: by the growth of memory so far it cannot fit."
    gone = [probe.unavailable["utilization"] for probe in found.probes if "utilization" in probe.unavailable]
    if gone:
        yield f"Utilization is missing: {remark_words(gone[0])}."
    facts = {
        "on": "memory" if not found.data else "loader" if found.workers is None else "folder",
        "precision": found.precision, "pixels": found.image_size, "data": found.data, "workers": found.workers,
        "limit": found.memory_limit_bytes,
    }  # fmt: skip
    yield message("part.model", facts)
