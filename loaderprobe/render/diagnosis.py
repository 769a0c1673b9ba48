"""A report of one loader as a document: the first screen of a sweep, then its rates, functions and notes."""

from __future__ import annotations

from collections.abc import Iterator

from loaderprobe.analyze.answer import speedup_of
from loaderprobe.records.measurement import NO_STEP
from loaderprobe.records.report import ConfigurationRow, Detail, Report
from loaderprobe.records.resources import AMONG_RANKS, INPUTS, ONLY_WAITED, RESOURCE, ResourceName
from loaderprobe.records.thresholds import WORTH
from loaderprobe.records.verdict import Speedup
from loaderprobe.render.document import Cell, Document, Item, Line, Paragraph, Section, Shown, Table, Tags
from loaderprobe.render.figures import FIGURES
from loaderprobe.render.first import advice_parts, ladder_section, limits_training, next_sections
from loaderprobe.render.format import MISSING, counted, factor, figure, interval, noun, percent, workers_words
from loaderprobe.render.panels import ranks_section
from loaderprobe.render.wording import resources_of, state_word, verdict_tone
from loaderprobe.render.words import explanation, remark_words
from loaderprobe.units import format_duration, significant

_COSTS_ALL: tuple[str, ...] = ("same_samples", "same_batches")
"""Notes on what spoils the training itself, whatever its speed."""
_LONGEST_BAR = 5.0
"""Times the measured rate: what is faster has a bar of this length."""


def diagnosis_document(report: Report) -> Document:
    """The verdict and the ladder, what to change, how sure; then rates, ranks, functions, and what to know."""
    (row,), (detail,) = report.summary.configurations, report.details
    assert row.bound
    warnings = [f"Warning: {remark_words(note)}." for note in detail.notes if note.code in _COSTS_ALL]
    first = [advice for step in report.summary.next for advice in step.advice]
    others = [advice for advice in row.advice if advice not in first]
    return Document(
        title=setting(row, detail),
        headline=limits_training(row.bound, what=what_runs(row, alone="this loader")),
        subline=_subline(row, detail),
        tone=verdict_tone(row.bound),
        unsure=row.bound.side == "inconclusive",
        sections=(
            Section(
                title="Read first",
                panel="main",
                parts=tuple(Paragraph(text=warning, strong=True, tone="warning") for warning in warnings),
            ),
            ladder_section(report, [row], label=what_runs(row)),
            *next_sections(report),
            Section(title="How sure", panel="side", parts=tuple(_how_sure(row, detail))),
            Section(title="Not known", panel="side", parts=_unknown(row)),
            Section(title="Where the workers are, by function", parts=tuple(_functions(detail))),
            Section(title="Rates", name="rates", parts=tuple(_rates(report, row, detail))),
            ranks_section(report),
            Section(title="More advice", parts=tuple(advice_parts(others, detail.sample))),
            Section(title="Notes", parts=tuple(Item(text=words) for words in _notes(row, detail))),
        ),
    )


def trains(row: ConfigurationRow) -> bool:
    """False where the loader was judged alone."""
    return row.config.compute.kind != NO_STEP


def what_runs(row: ConfigurationRow, alone: str = "the loader") -> str:
    """What speed-ups are of."""
    return "training" if trains(row) else alone


def setting(row: ConfigurationRow, detail: Detail) -> str:
    """Workers, batch size and state of the files: `2 workers, 8 a batch, cold files`."""
    config = row.config
    loading = workers_words(config.loader.workers)
    if config.ranks > 1:
        loading = f"{config.ranks} ranks, each {loading}"
    files = {"cold": "cold files", "warm": "warm files", "as-found": "files as found"}[config.cache]
    were = row.verdict.files_were if row.verdict else None
    if state_word(config.cache, were):
        files = f"{were} files, although cold ones were asked for"
    if any(note.code == "reads_no_files" for note in detail.notes):
        files = "no files read"
    return f"{loading}, {config.compute.batch_size} a batch, {files}"


def _subline(row: ConfigurationRow, detail: Detail) -> str:
    """How fast it is, and what that is of compute alone."""
    assert row.verdict
    now, alone = f"{interval(row.images_per_s)} {detail.sample}s/s", row.verdict.rates_images_per_s.compute
    if not trains(row):
        return f"The loader alone delivers {now}."
    if not alone:
        return f"Training runs at {now}."
    share = percent(min(1.0, row.verdict.images_per_s.value / alone))
    return f"Training runs at {now}, {share} of compute alone ({figure(alone)})."


def _how_sure(row: ConfigurationRow, detail: Detail) -> Iterator[Shown]:
    """The rounds, how wide the rate's interval is, and why the verdict is what it is."""
    assert row.verdict
    rate, rounds, bound = row.verdict.images_per_s, row.verdict.complete_rounds, row.verdict.bound
    band = (rate.high - rate.low) / 2 / rate.value
    noise = f"rate ±{significant(100 * band, 2)} %" if rounds > 1 else "noise not known"
    clear = "one cause leads" if bound.firm else "causes alike" if bound.cause == "either" else "inconclusive"
    yield Paragraph(text=f"{clear}, {counted(rounds, 'round')}, {noise}", strong=True)
    yield Paragraph(text=explanation(bound, sample=detail.sample))


def _unknown(row: ConfigurationRow) -> tuple[Tags, ...]:
    """The parts of the pipeline whose speed-up is not known."""
    said = [f"gain if {noun(name)} were free" for name in _without_speedup(row)]
    said += ["noise between rounds"] if row.verdict and row.verdict.complete_rounds < 2 else []
    return (Tags(texts=tuple(said)),) if said else ()


def _without_speedup(row: ConfigurationRow) -> list[str]:
    """What every loader has, or every training."""
    parts = [name for name in resources_of(row) if name not in (*ONLY_WAITED, *AMONG_RANKS)]
    return [name for name in parts if speedup_of(row, name) is None and (name != "compute" or trains(row))]


def _functions(detail: Detail) -> Iterator[Shown]:
    """The functions of the pipeline that take most time, and how that is known."""
    if not detail.functions:
        return
    yield Table(
        head=("function", "own", "total"),
        lines=tuple(
            (str(function.function), percent(function.own), percent(function.total)) for function in detail.functions
        ),
    )
    text = (
        f"Of {detail.looks} looks at the stacks of workers while they made batches. own: in the function itself, with "
        "the compiled code that it calls; total: with the functions that it calls, waits included. "
        f"Looking took {format_duration(detail.looks_cpu_s)} of CPU time."
    )
    yield Paragraph(text=text, tone="quiet")


# The rates of the table of figures, each beside the speed-up of training at that rate of the loader.

_LEADS_TO: dict[str, ResourceName] = {"loader": "compute", **{f"loader_without_{name}": name for name in INPUTS}}
"""The resource that is free where training runs at this rate."""


def _rates(report: Report, row: ConfigurationRow, detail: Detail) -> Iterator[Shown]:
    assert row.verdict
    now, listed = row.verdict.images_per_s.value, list(_listed(row))
    full = min(max(now, *(value for _, value, _ in listed)), _LONGEST_BAR * now)
    first = interval(row.images_per_s) if row.verdict.complete_rounds > 1 else figure(now)
    lines: list[Line] = [(*(Cell(text=text, tone="strong") for text in (what_runs(row, alone="loader"), first)), "")]
    lines += [(words, figure(value), _gain(row, speedup) if speedup else "") for words, value, speedup in listed]
    among = [(words, MISSING, _gain(row, speedup)) for words, speedup in _among_ranks(row)]
    bars = [min(1.0, value / full) for value in (now, *(value for _, value, _ in listed))]
    yield Table(
        head=("", f"{detail.sample}s/s", f"speed-up of {what_runs(row)}"),
        lines=(*lines, *among),
        bars=(*bars, *(0.0 for _ in among)),
    )
    yield Paragraph(text=" ".join(_measured_in(report, row)), tone="quiet")


def _listed(row: ConfigurationRow) -> Iterator[tuple[str, float, Speedup | None]]:
    """(words, rate, speed-up) of the known rates; of what workers only wait for, where that gains enough."""
    for rate in FIGURES:
        part, _, name = rate.at.partition(".")
        value = rate.get(row) if part == "rates_images_per_s" else None
        free = _LEADS_TO.get(name)
        speedup = speedup_of(row, free) if free else None
        if value is None or (name == "loader" and not trains(row)):
            continue
        if free not in ONLY_WAITED or (speedup and speedup.value > WORTH):
            yield rate.words, value, speedup


def _among_ranks(row: ConfigurationRow) -> Iterator[tuple[str, Speedup]]:
    """What only ranks lose to each other. Of a slow rank and of slow batches only what the verdict goes by."""
    assert row.bound
    shown = {
        "straggler": "straggler_speedup" in row.bound.reason.facts,
        "imbalance": row.bound.cause == "imbalance",
    }
    for name in AMONG_RANKS:
        speedup = speedup_of(row, name)
        if speedup and speedup.value > WORTH and shown.get(name, True):
            yield RESOURCE[name].if_free or f"if {noun(name)} were free", speedup


def _gain(row: ConfigurationRow, speedup: Speedup) -> str:
    known = row.verdict and row.verdict.complete_rounds > 1 and speedup.high - speedup.low >= 0.005 * speedup.value
    return factor(speedup) + (f" ({significant(speedup.low)} to {significant(speedup.high)})" if known else "")


def _measured_in(report: Report, row: ConfigurationRow) -> Iterator[str]:
    """How long it was measured, and what that took."""
    assert row.verdict
    rounds, instrument = row.verdict.complete_rounds, row.verdict.instrument_cpu_fraction
    yield f"Measured in {format_duration(report.summary.run.wall_s)}, {counted(rounds, 'round')}."
    if instrument is not None:
        yield f"Recording took {percent(instrument)} of the loader's CPU time."
    yield "Speed-ups are compared round by round, so they may differ from the ratio of two rates."
    if any(speedup and speedup.how == "estimated" for _, _, speedup in _listed(row)):
        yield "est.: estimated from the workers' times, not measured."


# What else is to know.


def _notes(row: ConfigurationRow, detail: Detail) -> Iterator[str]:
    """Remarks on what was measured, and why speed-ups are not known."""
    yield from (remark_words(note) for note in detail.notes if note.code not in _COSTS_ALL)
    for name in _without_speedup(row):
        if why := row.unavailable.get(f"speedups.{name}"):
            yield f"no speed-up is known for {noun(name)}: {remark_words(why)}"
