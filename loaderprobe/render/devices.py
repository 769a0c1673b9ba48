"""Devices compared: a page, its charts, JSON's derived figures, the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.devices import (
    LARGER,
    DeviceCause,
    DevicesReport,
    ExperimentName,
    GainName,
    Placement,
    PlacementFailure,
    PlacementResult,
    PlacementVerdict,
    WorkloadResult,
    WorkloadVerdict,
)
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import BLUE, TONES, Column, Shade, column_chart, stacked_chart
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.rows import as_columns, interval_cells, own_cells
from loaderprobe.render.wording import MISSING, first_upper, interval, percent
from loaderprobe.units import format_bytes, format_duration, join_words, significant

# Sentences about devices: which is fastest, why another is not, what would help, and why one has no figures.

TOO_WIDE = 2.0
"""Where the ends of a range are so many times apart, its middle says nothing."""
DATA_WORDS = {"mnist": "MNIST-like images", "images": "CIFAR-like images", "sine": "sine waves"}
CAUSE_WORDS: dict[DeviceCause, str] = {
    "gradients": "gradient exchange",
    "input": "input",
    "batch": "batch too small",
    "compute": "the device itself",
    "either": "either",
    "inconclusive": "inconclusive",
}
EXPERIMENT_WORDS: dict[ExperimentName, str] = {
    "gradients": "no gradient exchange",
    "input": "resident batch",
    "batch": f"{LARGER}x batch, no exchange",
    "larger": f"{LARGER}x batch",
}
HELP: dict[GainName, str] = {
    "gradients": "exchange gradients less often: add up those of several batches before each step (no_sync of "
    "DistributedDataParallel), or use a larger batch where it is faster. Both change what is learned",
    "batch": f"use a larger batch, if the model still learns as well; {LARGER} times was tried",
    "input": "load batches in workers (num_workers of DataLoader), or keep the samples on the device",
}


def shown_name(placement: Placement) -> str:
    """`cpu`, `2 x cuda`."""
    return placement.device if placement.ranks == 1 else f"{placement.ranks} x {placement.device}"


def subject(placement: Placement) -> str:
    """What trains, within a sentence: `one process on the CPU`, `2 GPUs`."""
    if placement.device == "cuda":
        return "one GPU" if placement.ranks == 1 else f"{placement.ranks} GPUs"
    return "one process on the CPU" if placement.ranks == 1 else f"{placement.ranks} ranks on the CPU"


def answer(verdict: WorkloadVerdict) -> str:
    """Which placement is fastest, what the others take, and why several devices are not faster."""
    model = verdict.workload.model
    first = next((each for each in verdict.placements if each.placement == verdict.fastest), None)
    if first is None:
        return f"{model}: no placement could be measured."
    sentences = [f"{model}: {_fastest(verdict, first)}."]
    # Where several were asked for, the question is why these are not faster.
    asked = [each for each in verdict.placements if each.placement.ranks > 1] or [first]
    for each in verdict.placements:
        if each is not first and each.placement not in verdict.close:
            sentences.append(_slower(each, first))
        if each in asked:
            sentences.append(why(each))
    return " ".join(sentences)


def _fastest(verdict: WorkloadVerdict, first: PlacementVerdict) -> str:
    epoch, named = format_duration(first.epoch_s.value), subject(first.placement)
    if verdict.close:
        names = [named, *map(subject, verdict.close)]
        low, high = first.epoch_s.low, first.epoch_s.high
        if high >= TOO_WIDE * low:
            return (
                f"rounds differ too much to compare {join_words(names)}: epochs of {named} take from "
                f"{format_duration(low)} to {format_duration(high)}. Measure again on an idle machine"
            )
        return f"{join_words(names)} do not differ beyond noise, about {epoch} an epoch"
    if len(verdict.placements) == 1:
        return f"{named} {_verb(first, 'takes')} {epoch} an epoch"
    return f"{named} {_verb(first, 'is')} fastest, {epoch} an epoch"


def _slower(each: PlacementVerdict, first: PlacementVerdict) -> str:
    times = significant(first.epoch_s.value / each.epoch_s.value, 2)
    who, epoch = subject(each.placement), format_duration(each.epoch_s.value)
    shared = " share its cores and" if each.placement.device == "cpu" and each.placement.ranks > 1 else ""
    return f"{first_upper(who)}{shared} {_verb(each, 'takes')} {epoch}, {times} times as fast."


def _verb(each: PlacementVerdict, of_one: str) -> str:
    """For the number of ranks."""
    return of_one if each.placement.ranks == 1 else {"is": "are", "takes": "take"}[of_one]


def why(each: PlacementVerdict) -> str:
    """Why a placement is not faster, with the figures of its experiments."""
    named = subject(each.placement)
    if each.cause == "gradients":
        share, larger = percent(each.parts.exchange / each.parts.whole), each.gain("larger")
        helps = larger is not None and larger.speedup.low > 1
        also = f" {LARGER} times the batch exchanges less often and is {_factor(each, 'larger')} as fast."
        return (
            f"Exchanging gradients takes {share} of a step; without it an epoch would take "
            f"{_epoch_without(each, 'gradients')}.{also if helps else ''}"
        )
    if each.cause == "input":
        share = percent(each.parts.input / each.parts.whole)
        return f"Input takes {share} of a step; without it an epoch would take {_epoch_without(each, 'input')}."
    if each.cause == "batch":
        faster = _factor(each, "larger") or _factor(each, "batch")
        return f"The batch is too small for {named}: {LARGER} times as large, samples pass {faster} as fast."
    if each.cause == "either":
        tried = [f"{EXPERIMENT_WORDS[name]} {_factor(each, name)}" for name in each.candidates]
        return f"What limits {named} has more than one answer: {join_words(tried)} as fast, alike within noise."
    if each.cause == "compute":
        return f"No experiment makes {named} faster: the device itself is the limit."
    return f"Why {named} {_verb(each, 'is')} not faster is inconclusive: no experiment stands out of the noise."


def _epoch_without(each: PlacementVerdict, name: ExperimentName) -> str:
    gain = each.gain(name)
    return format_duration(each.epoch_s.value / (gain.speedup.value if gain else 1.0))


def _factor(each: PlacementVerdict, name: ExperimentName) -> str:
    gain = each.gain(name)
    return f"{significant(gain.speedup.value, 2)} times" if gain else ""


def cause_words(each: PlacementVerdict) -> str:
    """`gradient exchange`; of `either`, both."""
    if each.cause == "either":
        return join_words([CAUSE_WORDS[name] for name in each.candidates], "or")
    return CAUSE_WORDS[each.cause]


def remedies(verdicts: Sequence[WorkloadVerdict]) -> tuple[tuple[str, str], ...]:
    """(the limit, what would help), once for each cause."""
    causes = {each.cause for verdict in verdicts for each in verdict.placements} | {
        name for verdict in verdicts for each in verdict.placements for name in each.candidates
    }
    return tuple((CAUSE_WORDS[name], f"{words}.") for name, words in HELP.items() if name in causes)


def gain_words(value: Interval) -> str:
    """`1.95 (1.90 to 2.00)`."""
    return f"{significant(value.value)} ({significant(value.low)} to {significant(value.high)})"


def failure_words(failure: PlacementFailure) -> str:
    """Which rank, what happened, how far it was, what to do."""
    rank = "a rank" if failure.rank is None else f"rank {failure.rank}"
    said = {
        "raised": f"{rank} raised {failure.reason}",
        "killed": f"{rank} was killed by {failure.signal}",
        "exited": f"{rank} ended by itself with exit code {failure.exit_code}",
        "hung": f"no rank got any further for {failure.waited_s:g} s"
        + (f"; {rank} is behind the others, which wait for it" if failure.rank is not None else ""),
        "launcher": "the launcher of the ranks failed",
    }[failure.kind]
    done = f" after {failure.segment} of {failure.segments} segments" if failure.segments else " while starting"
    hint = failure.hint or _HINTS.get(failure.kind, "")
    return f"{said},{done}." + (f" {first_upper(hint)}." if hint else "")


_HINTS = {
    "killed": "check dmesg for the out-of-memory killer, if it was not you",
    "hung": "raise --timeout if a step takes that long; below is where it is",
}


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
        **own_cells(workload, "model", "batch_size", "samples"),
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
            color=BLUE,
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
