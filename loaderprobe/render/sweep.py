"""A sweep as a document, the first page first; its charts; and its rows as flat columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from loaderprobe.analyze.answer import advised, best_of, firm, main_speedups, speedup_of
from loaderprobe.records.report import ConfigurationRow, DataInfo, Detail, NextStep, Report
from loaderprobe.render.document import (
    Cell,
    Command,
    Document,
    Exhibit,
    Fold,
    Item,
    Line,
    Paragraph,
    Section,
    Shown,
    Table,
    further,
    items,
)
from loaderprobe.render.figures import evidence_words, flat, reasons, shown
from loaderprobe.render.first_page import (
    ESTIMATED_NOTE,
    HOW_TO_READ,
    environment_facts,
    facts,
    first_screen,
    joint_label,
    knees,
    missing,
    notes,
    sentences,
    title,
    to_do,
    without_figures,
)
from loaderprobe.render.format import MISSING, factor, figure, first_upper, rate
from loaderprobe.render.gpu import profiled, step_exhibits, window_exhibits, window_parts
from loaderprobe.render.groups import NEXT, RowGroup, detail_of, gain_words, groups, then_of
from loaderprobe.render.panels import (
    epoch_cells,
    epoch_exhibits,
    epoch_sentences,
    rank_exhibits,
    rank_parts,
    rank_sentences,
    rate_exhibits,
    read_exhibits,
    short_run_cells,
    short_run_exhibits,
    short_run_sentences,
    worker_exhibits,
)
from loaderprobe.render.rows import Cell as Value
from loaderprobe.render.rows import as_columns
from loaderprobe.render.wording import bound_words, label, resources_of, speed, tone
from loaderprobe.render.words import advice_words, remark_words, sentence, then_words
from loaderprobe.units import format_bytes, format_duration, significant

EVIDENCE = "evidence"
"""The section before which a plan stands."""
GROUP_HEAD = (
    "configuration", "images/s", "of alone", "MB/s", "of max", "input wait", "bound",
    "speed-up if free → then limited by",
)  # fmt: skip
_MOST_ADVICE = 1
"""Of a group in a terminal, beside the change on the first screen."""
_COLUMNS = ("images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "speedups")
"""Figures on the first screen: also a terminal says why one is missing."""
_TABLE_NOTE = (
    "± is half the 95 % interval. Of alone: training over compute alone of the same row; more than 100 % is noise. "
    "MB/s: read from storage. Of max: MB/s over what the storage itself gave with as many readers; that is measured "
    "where storage may be the limit, and for the most workers. Input wait: share of time the training thread waits for "
    f"a batch. Speed-up if free: of training, if that resource cost nothing. {MISSING}: not measured."
)
"""Of a group, below its heading."""


def sweep_document(report: Report) -> Document:
    """The first page, then every configuration by device and cache state, then what it rests on."""
    found = groups(report)
    shown_missing, other_missing = missing(report, _COLUMNS)
    rows = report.summary.configurations
    estimated = any(speedup.how == "estimated" for row in rows for _, speedup in main_speedups(row))
    return Document(
        title=title(report),
        sections=(
            *first_screen(report),
            Section(title="Rates against workers", name="rates"),
            Section(title="Where worker time goes", name="workers"),
            Section(title="Read rate against what the storage gives", name="reads"),
            Section(
                title="Every configuration",
                parts=further([Paragraph(text=_TABLE_NOTE + (ESTIMATED_NOTE if estimated else ""), tone="quiet")]),
            ),
            *(Section(title=group.title, parts=tuple(_of_group(report, group)), under=True) for group in found),
            Section(title="Failed", parts=items(without_figures(report, "failed"))),
            Section(title="Skipped", parts=items(without_figures(report, "skipped"))),
            Section(title="Ranks", name="ranks", parts=(*items(rank_sentences(report)), *rank_parts(report))),
            Section(title="Epochs", name="epochs", parts=items(epoch_sentences(report))),
            Section(title="Short benchmarks", name="short_runs", parts=items(short_run_sentences(report))),
            Section(
                title="GPU timeline",
                name="timelines",
                parts=tuple(part for group in found for part in window_parts(group)),
            ),
            Section(title="Timeline of the steps", name="steps"),
            Section(title="Evidence", name=EVIDENCE),
            *(Section(title=group.title, parts=tuple(_evidence(report, group)), under=True) for group in found),
            Section(title="Notes", parts=items(notes(report))),
            Section(title=f"Not measured ({MISSING})", parts=(*items(shown_missing), *further(items(other_missing)))),
            Section(title="Data", parts=further([_data(report)])),
            Section(title="Machine, versions and command", parts=further(_machine(report))),
            Section(title="How to read this", parts=further([Paragraph(text=HOW_TO_READ)])),
        ),
    )


def sweep_exhibits(report: Report) -> dict[str, tuple[Exhibit, ...]]:
    """The charts, by the name of the section that they belong to."""
    found = groups(report)
    drawn = {
        "rates": rate_exhibits(report),
        "workers": worker_exhibits(report),
        "reads": read_exhibits(report),
        "ranks": rank_exhibits(report),
        "epochs": epoch_exhibits(report),
        "short_runs": short_run_exhibits(report),
        "timelines": (window_exhibit for group in found for window_exhibit in window_exhibits(report, group)),
        "steps": (step_exhibit for group in found for step_exhibit in step_exhibits(report, group)),
    }
    return {name: tuple(_said_once(each)) for name, each in drawn.items()}


def _said_once(exhibits: Iterable[Exhibit]) -> Iterator[Exhibit]:
    """What charts of one kind are is said of the first."""
    said: set[str] = set()
    for exhibit in exhibits:
        yield replace(exhibit, text="", legend=()) if exhibit.text in said else exhibit
        said.add(exhibit.text)


def report_columns(report: Report) -> dict[str, list[Value]]:
    """The configurations as flat columns with units in their names; None where there is no figure."""
    rows = [flat(row) | epoch_cells(row) | short_run_cells(row) for row in report.summary.configurations]
    columns = as_columns(rows)
    # The reasons stand last, whatever GPU counters a single row brings.
    gone = columns.pop("unavailable", [])
    return {**columns, "unavailable": gone}


def _of_group(report: Report, group: RowGroup) -> Iterator[Shown]:
    """A line a configuration, then the verdicts in sentences, and what would help."""
    yield Paragraph(text=f"Compute alone: {group.ceiling}.", further=True)
    lines = tuple(_line(report, row, group) for row in group.rows)
    yield Table(head=GROUP_HEAD, lines=lines, right=frozenset(range(1, 6)), further=True)
    yield from items(sentences([row for row in group.rows if not firm(row)], group.rows))
    yield from further(items(sentences([row for row in group.rows if firm(row)], group.rows)))
    yield from further(items((f"Knee of {subject}", words) for subject, words in knees(report, group)))
    yield from items((f"GPU of {subject}", words) for subject, words in profiled(group))
    left = 0 if group.cpu else _MOST_ADVICE
    given = {pair for step in report.summary.next for pair in _changed(step)}
    labels = {row.key: joint_label([row], group.rows) for row in group.rows}
    for step in advised(best_of(report, group.rows)):
        new = any(each.surely_gains for each in step.advice) and not given.issuperset(_changed(step))
        hidden = not (new and left)
        left -= not hidden
        for key, advice in zip(step.configurations, step.advice, strict=True):
            subject = f"Advice for {labels[key]}"
            yield from to_do(Item(subject=subject, text=advice_words(advice), further=hidden), step.command)


def _changed(step: NextStep) -> list[tuple[str, str]]:
    """Each configuration with what is to be done to it."""
    return [(key, each.action.code) for key, each in zip(step.configurations, step.advice, strict=False)]


def _line(report: Report, row: ConfigurationRow, group: RowGroup) -> Line:
    return (
        label(row, group.rows),
        speed(row),
        shown(row, "accelerator_utilization"),
        shown(row, "disk_read_bytes_per_s"),
        shown(row, "disk_ceiling_fraction"),
        shown(row, "input_wait_fraction"),
        Cell(text=bound_words(row), tone=tone(row)),
        gain_words(row, then_of(report, row)),
    )


def _evidence(report: Report, group: RowGroup) -> Iterator[Fold]:
    """What the verdict on each configuration rests on."""
    for row in group.rows:
        if row.bound:
            yield Fold(
                subject=label(row, group.rows),
                verdict=Cell(text=bound_words(row), tone=tone(row)),
                text=sentence(row.bound),
                parts=tuple(_proof(report, row)),
            )


def _proof(report: Report, row: ConfigurationRow) -> Iterator[Shown]:
    evidence = row.bound.evidence if row.bound else ()
    yield Table(
        caption="Evidence",
        head=("Metric", "Value", "Threshold", "Unit"),
        lines=tuple((evidence_words(each), figure(each.value), figure(each.threshold), each.unit) for each in evidence)
        or (("none recorded", "", "", ""),),
        right=frozenset({1, 2}),
    )
    yield Table(
        caption="Speed-up of training if a resource were free",
        head=("Resource", "Speed-up", "95 % interval", "How", "Then limits"),
        lines=tuple(_speedup_line(report, row, name) for name in resources_of(row)),
        right=frozenset({1, 2}),
    )
    if row.forecasts:
        yield Table(
            caption="Forecasts of training after one change",
            head=("Change", "To", "images/s", "Range", "Then"),
            lines=tuple(_forecast_lines(row)),
            right=frozenset({2, 3}),
        )
    if row.verdict and row.verdict.gpu:
        said = (
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else significant(value)}"
            for name, value in row.verdict.gpu.items()
        )
        yield Paragraph(text=f"GPU: {', '.join(said)}.")
    for advice in row.advice:
        yield from to_do(Item(text=advice_words(advice)), advice.command)
    if detail := detail_of(report, row):
        yield from (Paragraph(text=each, tone="quiet") for each in _made(row, detail))


def _speedup_line(report: Report, row: ConfigurationRow, name: str) -> Line:
    speedup = speedup_of(row, name)
    if speedup is None:
        why = reasons(row)
        return name, MISSING, "", why.get(f"speedups.{name}", why.get("speedups", "not measured")), ""
    then = then_of(report, row)
    between = f"{significant(speedup.low)} to {significant(speedup.high)}"
    return name, factor(speedup), between, speedup.how, NEXT[then[name]] if name in then else MISSING


def _forecast_lines(row: ConfigurationRow) -> Iterator[Line]:
    for forecast in row.forecasts:
        changed = forecast.changed.replace("_", " ")
        if found := forecast.images_per_s:
            then = then_words(forecast.bottleneck) if forecast.bottleneck else MISSING
            yield changed, forecast.to, rate(found.value), f"{rate(found.low)} to {rate(found.high)}", then
        else:
            refused = remark_words(forecast.refused) if forecast.refused else ""
            yield changed, forecast.to, MISSING, "", f"no forecast: {refused}"


def _made(row: ConfigurationRow, detail: Detail) -> Iterator[str]:
    yield (
        f"{detail.compute_device}; {detail.compute_source}. First batch after "
        f"{format_duration(detail.first_batch_s)}, not part of any rate. Prediction: "
        f"{shown(row, 'predicted_images_per_s')} images/s."
    )
    if detail.ablations:
        yield f"{first_upper(remark_words(detail.ablations))}."
    yield from map(remark_words, detail.notes)


def _data(report: Report) -> Table:
    lines = tuple(
        (
            data.label,
            data.root,
            f"{data.images_used} of {data.images_found}{', generated' if data.generated else ''}",
            format_bytes(data.mean_size_bytes),
            _skipped(data),
        )
        for data in report.summary.run.data
    )
    return Table(
        head=("data", "path", "images used", "mean size", "skipped files"), lines=lines, right=frozenset({2, 3})
    )


def _skipped(data: DataInfo) -> str:
    more = data.skipped_count - len(data.skipped)
    return "; ".join([*data.skipped, *([f"and {more} more"] if more else [])]) or "none"


def _machine(report: Report) -> Iterator[Shown]:
    run = report.summary.run
    yield Command(text=run.command)
    yield Paragraph(text=f"{facts(report)} {run.created_utc.replace('T', ' ').replace('Z', ' UTC')}", tone="quiet")
    yield from items(environment_facts(report))
