"""Devices compared: a page, its charts, JSON's derived figures, the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.devices import (
    LARGER,
    DevicesReport,
    ExperimentName,
    PlacementResult,
    PlacementVerdict,
    WorkloadResult,
    WorkloadVerdict,
)
from loaderprobe.render.cells import as_columns, interval_cells
from loaderprobe.render.charts import READ_COLOR, TONES, Column, Shade, column_chart, stacked_chart
from loaderprobe.render.devices_words import (
    DATA_WORDS,
    EXPERIMENT_WORDS,
    answer,
    cause_words,
    failure_words,
    gain_words,
    remedies,
    shown_name,
)
from loaderprobe.render.document import Command, Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.wording import MISSING, interval, percent
from loaderprobe.units import format_bytes, join_words, significant

SECONDS_OF_ARTICLE = {
    "mlp": (34.8, 75.3),
    "lenet5": None,
    "lstm": None,
    "resnet152": (1211.9, 789.4),
}
"""Seconds in all on one GPU and on two, in the article of 2019 (Chainer); None where it says that two were slower."""
ARTICLE_HEAD = ("model", "1 GPU", "2 GPUs", "times as fast", "here", "times as fast")

Verdicts = Sequence[WorkloadVerdict]


def devices_document(found: DevicesReport, verdicts: Verdicts) -> Document:
    """The answer for each model, then its placements, the experiments, and what would help."""
    sections = [Section(parts=(*_answers(found, verdicts),))]
    for result, verdict in zip(found.results, verdicts, strict=True):
        sections.append(Section(title=_title(result), name=result.workload.model, parts=_parts(result, verdict)))
    if help_ := remedies(verdicts):
        sections.append(
            Section(title="What would help", parts=tuple(Item(subject=limit, text=text) for limit, text in help_))
        )
    if {each.workload.model for each in verdicts} >= set(SECONDS_OF_ARTICLE):
        sections.append(_article(verdicts))
    sections.append(Section(title="How it was measured", parts=tuple(_how(found))))
    return Document(title=_headline(found), sections=tuple(sections))


def devices_columns(found: DevicesReport, verdicts: Verdicts) -> dict[str, list[Any]]:
    """One row a model and placement; units in the names."""
    rows = [
        _row(result, each, next((v for v in verdict.placements if v.placement == each.placement), None))
        for result, verdict in zip(found.results, verdicts, strict=True)
        for each in result.placements
    ]
    return as_columns(rows)


def _headline(found: DevicesReport) -> str:
    models = join_words([each.workload.model for each in found.results]) or "no model"
    names = dict.fromkeys(shown_name(each.placement) for result in found.results for each in result.placements)
    return f"{models} on {join_words(list(names))}"


def _answers(found: DevicesReport, verdicts: Verdicts) -> list[Part]:
    parts: list[Part] = [Paragraph(text=answer(each), strong=True) for each in verdicts]
    failed = [each for result in found.results for each in result.placements if each.failure]
    if failed:
        parts.append(Paragraph(text=f"{len(failed)} of the placements failed, for the reasons below."))
    if found.interrupted:
        parts.append(Paragraph(text="Interrupted: what was measured before is shown.", strong=True))
    return parts


def _title(result: WorkloadResult) -> str:
    each = result.workload
    return (
        f"{each.model} on {DATA_WORDS[each.data]} of {'x'.join(map(str, each.shape))}, batch {each.batch_size}, "
        f"{each.samples} samples an epoch"
    )


def _parts(result: WorkloadResult, verdict: WorkloadVerdict) -> tuple[Part, ...]:
    parts: list[Part] = []
    if verdict.placements:
        parts += [_placements(verdict), *_experiments(verdict), *_not_tried(result)]
    for each in result.placements:
        if each.failure:
            parts.append(Item(subject=f"{shown_name(each.placement)} failed", text=failure_words(each.failure)))
            if each.failure.log:
                parts.append(Command(text="\n".join(each.failure.log)))
    return tuple(parts)


def _placements(verdict: WorkloadVerdict) -> Table:
    return Table(
        head=("on", "s an epoch", "samples/s", "speed-up", "efficiency", "limited by"),
        lines=tuple(
            (
                shown_name(each.placement),
                interval(each.epoch_s),
                interval(each.samples_per_s),
                MISSING if each.speedup is None else interval(each.speedup),
                percent(each.efficiency),
                cause_words(each),
            )
            for each in verdict.placements
        ),
        right=frozenset({1, 2, 3, 4}),
    )


def _experiments(verdict: WorkloadVerdict) -> list[Part]:
    """Speed-ups, one column a placement."""

    def cell(each: PlacementVerdict, name: ExperimentName) -> str:
        gain = each.gain(name)
        return gain_words(gain.speedup) if gain else MISSING

    made = [name for name in EXPERIMENT_WORDS if any(each.gain(name) for each in verdict.placements)]
    if not made:
        return []
    names = [shown_name(each.placement) for each in verdict.placements]
    lines = [(EXPERIMENT_WORDS[name], *(cell(each, name) for each in verdict.placements)) for name in made]
    right = frozenset(range(1, len(names) + 1))
    return [Table(head=("times as fast with", *names), lines=tuple(lines), right=right)]


def _not_tried(result: WorkloadResult) -> list[Part]:
    """Why there is no larger batch, where samples are too few."""
    each = result.workload
    if each.larger_batch:
        return []
    text = (
        f"No larger batch was tried: an epoch of {each.samples} samples has none of {LARGER * each.batch_size}. For "
        f"that, use --samples {LARGER * each.batch_size} or more."
    )
    return [Paragraph(text=text)]


def _article(verdicts: Verdicts) -> Section:
    """Its table of one GPU and two, beside one process and several here."""
    lines = []
    for verdict in verdicts:
        if verdict.workload.model not in SECONDS_OF_ARTICLE:
            continue
        theirs = SECONDS_OF_ARTICLE[verdict.workload.model]
        first = (significant(theirs[0], 5), significant(theirs[1], 5)) if theirs else (MISSING, MISSING)
        times = significant(theirs[0] / theirs[1]) if theirs else "below 1"
        ours = [each for each in verdict.placements if each.speedup]
        here = join_words([shown_name(each.placement) for each in ours]) or MISSING
        speedups = join_words([interval(each.speedup) for each in ours]) or MISSING
        lines.append((verdict.workload.model, *first, times, here, speedups))
    note = "Seconds in all, with Chainer on one GPU and on two (2019). Only the ratio can be compared."
    return Section(
        title="Beside the article that this repeats",
        parts=(Table(head=ARTICLE_HEAD, lines=tuple(lines), right=frozenset({1, 2, 3, 5})), Paragraph(text=note)),
    )


def _how(found: DevicesReport) -> list[Paragraph]:
    """What the figures are, in sentences."""
    results = [each for result in found.results for each in result.placements]
    texts = [
        "The batch is that of all ranks together, so each trains its share of it. Seconds an epoch follow from the "
        "steps that were timed. Speed-up: against one process of the same device. Resident batch: the same batch in "
        "every step, without loading. 4x batch, no exchange: against the usual batch without exchange."
    ]
    shared = [each for each in results if each.placement.device == "cpu" and each.placement.ranks > 1]
    if shared:
        texts.append(
            f"Ranks on the CPU share its {found.cores:g} cores, which one process has for itself. A speed-up of 1 is "
            "then an efficiency of 100 %."
        )
    exchanged = {each.gradient_bytes: each for each in results if each.backend}
    if exchanged:
        sizes = [f"{format_bytes(size)} ({each.backend})" for size, each in exchanged.items()]
        texts.append(f"Gradients that a rank exchanges in a step: {join_words(sizes)}.")
    return [Paragraph(text=each) for each in texts]


def _row(result: WorkloadResult, each: PlacementResult, verdict: PlacementVerdict | None) -> dict[str, Any]:
    workload = result.workload
    row: dict[str, Any] = {
        "model": workload.model,
        "batch_size": workload.batch_size,
        "samples": workload.samples,
        "on": each.placement.name,
        "ranks": each.placement.ranks,
        "device": each.device or "CPU",
        "threads": each.threads,
        "gradient_bytes": each.gradient_bytes,
        "failure": failure_words(each.failure) if each.failure else None,
        "limited_by": verdict and verdict.cause,
        "efficiency": verdict and verdict.efficiency,
    }
    for name in ("epoch_s", "samples_per_s", "step_ms", "speedup"):
        row |= interval_cells(name, getattr(verdict, name) if verdict else None)
    for name in ("exchange", "input", "compute"):
        row[f"{name}_ms"] = getattr(verdict.parts, name) if verdict else None
    for gain in EXPERIMENT_WORDS:
        made = verdict.gain(gain) if verdict else None
        row[f"speedup_{gain}"] = made and made.speedup.value
    return row


# Charts of devices: seconds an epoch, and the parts of a step.

PARTS = (
    Shade(letter="C", name="compute", color=TONES["compute"], ink="#FFFFFF"),
    Shade(letter="G", name="gradient exchange", color=TONES["transport"], ink="#000000"),
    Shade(letter="I", name="input", color=TONES["preprocessing"], ink="#000000"),
)
_ABOVE = 1.25
"""A scale ends so far above what it shows, that figures have their place."""


def devices_exhibits(verdicts: tuple[WorkloadVerdict, ...]) -> dict[str, tuple[Exhibit, ...]]:
    """Two charts for each model, in its section."""
    return {each.workload.model: (_exhibit(each),) for each in verdicts if each.placements}


def _exhibit(verdict: WorkloadVerdict) -> Exhibit:
    legend = "; ".join(f"{part.letter} {part.name}" for part in PARTS)
    return Exhibit(
        title="Seconds an epoch, and where a step goes",
        text=f"Left with 95 % intervals. Right: {legend}. Exchange and input are what a step gets shorter by without "
        "them; what hides behind compute is not counted.",
        figures=(
            ("Bars of seconds an epoch", _epochs(verdict)),
            ("Parts of a step", _steps(verdict)),
        ),
    )


def _epochs(verdict: WorkloadVerdict) -> str:
    placements = verdict.placements
    columns = [
        Column(
            name=shown_name(each.placement),
            value=each.epoch_s.value,
            low=each.epoch_s.low,
            high=each.epoch_s.high,
            text=f"{significant(each.epoch_s.value)} s",
            color=READ_COLOR,
        )
        for each in placements
    ]
    top = _ABOVE * max(each.epoch_s.high for each in placements)
    return column_chart(columns, "An epoch", "s", top, axis="")


def _steps(verdict: WorkloadVerdict) -> str:
    placements = verdict.placements
    bars = [
        (
            shown_name(each.placement),
            (each.parts.compute, each.parts.exchange, each.parts.input),
            f"{significant(each.parts.whole)} ms",
        )
        for each in placements
    ]
    return stacked_chart(bars, PARTS, "A step", "ms", _ABOVE * max(each.parts.whole for each in placements))
