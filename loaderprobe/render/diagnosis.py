"""A report of one loader as a document: the first screen of a sweep, then its rates, functions and notes."""

from __future__ import annotations

from collections.abc import Iterator

from loaderprobe.analyze.answer import main_speedups, speedup_of
from loaderprobe.records.report import ConfigurationRow, Detail, Report
from loaderprobe.records.resources import AMONG_RANKS, INPUTS, ONLY_WAITED
from loaderprobe.records.thresholds import LEAST_OWN, WORTH
from loaderprobe.records.verdict import Verdict
from loaderprobe.render.charts import Bar, Chart, ChartRow
from loaderprobe.render.document import Column, Document, Paragraph, Part, Section, items, table, tags
from loaderprobe.render.figures import FIGURES, noise_words
from loaderprobe.render.first import SQUARES, advice_parts, ladder_section, limits_training, next_sections, sample_of
from loaderprobe.render.format import counted, figure, interval, noun, percent, span, workers_words
from loaderprobe.render.groups import FILES, resources_of, state_word, tone, trains
from loaderprobe.render.sweep import doubted, measured_on, proof, rank_parts
from loaderprobe.render.words import explanation, message, remark_words
from loaderprobe.units import format_duration, significant

_COSTS_ALL: tuple[str, ...] = ("same_samples", "same_batches")
"""Notes on what spoils the training itself, whatever its speed."""
_LONGEST_BAR = 15
"""Times the measured rate: what is faster has a bar of this length."""


def diagnosis_document(report: Report) -> Document:
    """The verdict and the ladder, what to change, how sure; then rates, ranks, functions, and what to know."""
    (row,) = report.configurations
    verdict, detail = row.verdict, row.detail
    assert verdict and detail
    warned = [f"Warning: {remark_words(note)}." for note in detail.notes if note.code in _COSTS_ALL]
    warnings = tuple(Paragraph(text=warning, strong=True, tone="warning") for warning in warned)
    notes = [note for note in detail.notes if note.code not in _COSTS_ALL]
    first = [advice for step in report.next for advice in step.advice]
    others = [advice for advice in row.advice if advice not in first]
    document = Document(
        title=f"{setting(row, detail)}{measured_on(report)}",
        headline=limits_training(verdict.bound, what=what_runs(row)),
        subline=_subline(row, verdict, detail),
        tone=tone(verdict.bound),
        unsure=verdict.bound.side == "inconclusive",
        sections=(
            Section(title="Read first", panel="main", parts=warnings),
            ladder_section(report, [row], label=what_runs(row)),
            Section(title="How sure", panel="side", parts=tuple(_how_sure(report, row, verdict, detail.sample))),
            *next_sections(report),
            Section(title="Not known", panel="side", parts=tags(_unknown(report, row))),
            Section(title="Where the workers are, by function", parts=_functions(detail)),
            Section(title="Rates", parts=tuple(_rates(report, row, verdict))),
            Section(title="What the verdict rests on", parts=tuple(proof(row))),
            Section(title="Ranks", parts=tuple(rank_parts(report))),
            Section(title="More advice", parts=tuple(advice_parts(others, detail.sample))),
            Section(title="Notes", parts=items(("", remark_words(note)) for note in notes)),
        ),
    )
    return doubted(report, document)


def what_runs(row: ConfigurationRow) -> str:
    """What speed-ups are of."""
    return "training" if trains(row) else "the loader"


def setting(row: ConfigurationRow, detail: Detail) -> str:
    """Workers, batch size and state of the files: `2 workers, 8 a batch, cold files`."""
    config = row.config
    ranks = f"{config.ranks} ranks, each " if config.ranks > 1 else ""
    files = FILES[config.cache]
    were = row.verdict.files_were if row.verdict else None
    if state_word(config.cache, were):
        files = f"{were} files, although cold ones were asked for"
    if any(note.code == "reads_no_files" for note in detail.notes):
        files = "no files read"
    return f"{ranks}{workers_words(config.loader.workers)}, {config.compute.batch_size} a batch, {files}"


def _subline(row: ConfigurationRow, verdict: Verdict, detail: Detail) -> str:
    now, share = f"{interval(verdict.images_per_s)} {detail.sample}s/s", verdict.accelerator_utilization
    if not trains(row):
        return f"The loader alone delivers {now}."
    if share is None:
        return f"Training runs at {now}."
    alone = figure(verdict.rates_images_per_s.compute)
    said = f"Training runs at {now}, {percent(share)} of compute alone ({alone}){noise_words([share])}."
    held_up = any(note.code == "steps_held_up" for note in detail.notes)
    return f"{said}{' Steps take longer beside the loader: see Notes.' * held_up}"


def _how_sure(report: Report, row: ConfigurationRow, verdict: Verdict, sample: str) -> Iterator[Part]:
    rate, rounds, bound = verdict.images_per_s, verdict.complete_rounds, verdict.bound
    noise = f"rate ±{percent(rate.half / rate.value)}" if rounds > 1 else "noise between rounds not known"
    clear = "one cause leads" if bound.firm else "causes alike" if bound.cause == "either" else "inconclusive"
    if bound.firm and rounds > 1:
        for _, lead in main_speedups(row)[:1]:
            ends = (lead.value,) if lead.at_most else (lead.low, lead.high)
            clear += f" ({'at most ' * lead.at_most}{span(ends, lambda end: significant(end, 2))}x)"
    level = str(report.how_sure.facts["level"])
    yield Paragraph(text=f"{SQUARES[level]} {level}, {clear}, {counted(rounds, 'round')}, {noise}", strong=True)
    yield Paragraph(text=explanation(bound, sample=sample))


def _unknown(report: Report, row: ConfigurationRow) -> Iterator[str]:
    """The speed-ups that every loader has, or every training, and this one has not; and what is of no single loader."""
    for name in resources_of(row):
        usual = name not in (*ONLY_WAITED, *AMONG_RANKS) and (name != "compute" or trains(row))
        if usual and speedup_of(row, name) is None:
            yield f"gain if {noun(name)} were free"
    if row.verdict and row.verdict.complete_rounds < 2:
        yield "noise between rounds"
    yield from map(remark_words, report.not_known)
    yield "what more accelerators need (loaderprobe plan)"


def _functions(detail: Detail) -> tuple[Part, ...]:
    looks = f"Of {detail.looks} looks at the stacks of workers while they made batches"
    own_help = f"own: in the function itself, with the compiled code that it calls, from {percent(LEAST_OWN)}"
    others = round(1 - sum(function.own for function in detail.functions), 3)
    own_help += f"; {percent(others)} is in functions that are not shown" if others > 0 else ""
    total = f"total: with what it calls, and waits; looking took {format_duration(detail.looks_cpu_s)} of CPU time"
    columns = (
        Column("function", lambda function: str(function.function), looks),
        Column("own", lambda function: percent(function.own), own_help),
        Column("total", lambda function: percent(function.total), total),
    )
    return table(detail.functions, columns)


def _rates(report: Report, row: ConfigurationRow, verdict: Verdict) -> Iterator[Part]:
    """Each rate of the table of figures; of what workers only wait for, where that gains enough."""
    now, unit = verdict.images_per_s, f"{sample_of(report)}s/s"
    speedups = {name: speedup_of(row, name) for name in ONLY_WAITED}
    few = [f"loader_without.{name}" for name, gain in speedups.items() if not gain or gain.value <= WORTH]
    few += [] if trains(row) else ["loader"]
    rows = [ChartRow(label=what_runs(row), value=interval(now), bars=(Bar(end=now.value),))]
    for entry in FIGURES:
        part, _, name = entry.at.partition(".")
        value = entry.get(row) if part == "rates_images_per_s" and name not in few else None
        if value is not None:
            rows.append(ChartRow(label=entry.words, value=figure(value), bars=(Bar(end=value, tone="quiet"),)))
    longest = max(bar.end for chart_row in rows for bar in chart_row.bars)
    yield Chart(rows=tuple(rows), high=min(longest, _LONGEST_BAR * now.value), unit=unit, ends=f",{unit}")
    yield Paragraph(text=" ".join(_measured_in(report, verdict)), tone="quiet")


def _measured_in(report: Report, verdict: Verdict) -> Iterator[str]:
    rounds, instrument = verdict.complete_rounds, verdict.instrument_cpu_fraction
    yield f"Measured in {format_duration(report.run.wall_s)}, {counted(rounds, 'round')}."
    if instrument is not None:
        yield f"Recording took {percent(instrument)} of the loader's CPU time."
    for evidence in verdict.bound.evidence:
        if evidence.metric == "prediction_error" and evidence.threshold and evidence.value > evidence.threshold:
            yield message("part.above_prediction", {"share": 1 + evidence.value})
    rates = verdict.rates_images_per_s
    if rates.cpu_limit and any((rates.loader_without[name] or 0.0) > rates.cpu_limit for name in INPUTS):
        yield message("part.beyond_cores", {})
