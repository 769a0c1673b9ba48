"""A search for a batch size as a page, and as the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport
from loaderprobe.render.batch_size_words import (
    ACCURACY,
    BUSY_WORDS,
    answer_words,
    doubt_words,
    limit_words,
    setting_words,
    title_words,
)
from loaderprobe.render.cells import as_columns, interval_cells
from loaderprobe.render.document import Document, Paragraph, Section, Table
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, figure, interval, percent
from loaderprobe.units import format_bytes, format_duration

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
        "batch_size": probe.batch_size,
        "fits": probe.fits,
        "ran": probe.ran,
        "steps": probe.steps,
        **interval_cells("images_per_s", probe.images_per_s),
        **interval_cells("step_ms", probe.step_ms),
        "utilization": probe.utilization,
        "usage_upper_half": probe.usage,
        "epoch_s": probe.epoch_s(found.dataset_images) if probe.images_per_s else None,
        "memory_bytes": probe.memory_bytes,
        "wall_s": probe.wall_s,
    }


def _sizes(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> Table:
    counts = [sum(each.batch_size == size.batch_size for each in found.probes) for size in sizes]
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
    if any(not each.ran for each in found.probes):
        notes.append("not tried: by the growth of memory so far it cannot fit.")
    gone = [each.unavailable["utilization"] for each in found.probes if "utilization" in each.unavailable]
    if gone:
        notes.append(f"Utilization is missing: {remark_words(gone[0])}.")
    return " ".join((*notes, setting_words(found)))
