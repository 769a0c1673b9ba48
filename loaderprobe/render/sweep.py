"""A sweep as a document, the first screen first; and its rows as flat columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from loaderprobe.analyze.answer import firm, measured, speedup_of
from loaderprobe.records.remark import Remark, each_once, subject_of
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import ResourceName
from loaderprobe.records.verdict import Forecast
from loaderprobe.render.document import (
    Cell,
    Column,
    Command,
    Document,
    Fold,
    Item,
    Line,
    Paragraph,
    Section,
    Shown,
    Table,
    further,
    items,
    table,
)
from loaderprobe.render.figures import (
    OF_LAYOUTS,
    TABLE,
    Figure,
    evidence_words,
    flat,
    reason_words,
    reasons,
    shown,
    words_of,
)
from loaderprobe.render.first import advice_parts, first_screen, headed, more_needs, sample_of, shown_first
from loaderprobe.render.format import MISSING, counted, figure, first_upper, rate
from loaderprobe.render.gpu import window_parts
from loaderprobe.render.groups import (
    NEXT,
    RowGroup,
    bound_words,
    detail_of,
    full_label,
    gain_words,
    groups,
    label,
    resources_of,
    then_of,
    tone,
    trains,
)
from loaderprobe.render.panels import (
    epoch_cells,
    epochs_section,
    panel_sections,
    ranks_section,
    scaling_section,
    short_run_cells,
    short_runs_section,
)
from loaderprobe.render.rows import Cell as Value
from loaderprobe.render.rows import as_columns
from loaderprobe.render.words import knee_words, remark_words, sentence, then_words
from loaderprobe.units import format_bytes, format_duration, join_words, significant

_ONE_RANK = remark_words(Remark(code="one_rank"))
"""No reader misses what one rank loses to others."""
_COLUMNS = {"images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "speedups"}
"""Figures of the table: also a terminal says why one is missing."""
_TABLE_NOTE = " ".join(
    [
        *(column.help for column in TABLE),
        "Speed-up if free: of training, if that resource cost nothing; est.: estimated. Serial: the training thread "
        f"loads. {MISSING}: not measured. How to read this: loaderprobe explain verdict.",
    ]
)


def sweep_document(report: Report) -> Document:
    """The first screen, then every configuration by device and cache state, then what it rests on."""
    found = groups(report)
    document = Document(
        title=title(report),
        sections=(
            *first_screen(report),
            Section(
                title="From a copy",
                parts=tuple(Paragraph(text=f"{remark_words(each)}.") for each in report.summary.staging),
            ),
            scaling_section(report),
            Section(title="Every configuration", parts=tuple(_before_table(report))),
            *(Section(title=group.title, parts=tuple(_of_group(report, group)), under=True) for group in found),
            *more_needs(report),
            *panel_sections(report),
            Section(title="Failed", parts=items(without_figures(report, "failed"))),
            Section(title="Skipped", parts=items(without_figures(report, "skipped"))),
            ranks_section(report),
            epochs_section(report),
            short_runs_section(report),
            Section(
                title="GPU timeline",
                name="timelines",
                parts=tuple(part for group in found for part in window_parts(report, group)),
            ),
            Section(title="Notes", parts=items(notes(report))),
            Section(title=f"Not measured ({MISSING})", parts=tuple(missing(report))),
            Section(title="Data", parts=further(table(report.summary.run.data, _DATA))),
            Section(title="Machine, versions and command", parts=further(_machine(report))),
        ),
    )
    return headed(report, shown_first(report), document)


def report_columns(report: Report) -> dict[str, list[Value]]:
    """The configurations as flat columns with units in their names; None where there is no figure."""
    rows = [flat(row) | epoch_cells(row) | short_run_cells(row) for row in report.summary.configurations]
    columns = as_columns(rows)
    # The reasons stand last, whatever GPU counters a single row brings.
    gone = columns.pop("unavailable", [])
    return {**columns, "unavailable": gone}


def counts(report: Report) -> str:
    """How many configurations ended on each side."""
    rows = report.summary.configurations
    sides = Counter[str](row.bound.side for row in rows if row.bound)
    states = Counter[str](row.status for row in rows)
    named = {"input": "input-bound", "compute": "compute-bound", "balanced": "balanced", "inconclusive": "inconclusive"}
    words = [f"{sides[side]} {text}" for side, text in named.items() if sides[side]]
    words += [f"{states[state]} {state}" for state in ("failed", "skipped") if states[state]]
    named_rows = "measured configuration" if len(measured(rows)) == len(rows) else "configuration"
    return f"{counted(len(rows), named_rows)}: {join_words(words)}."


def _before_table(report: Report) -> Iterator[Shown]:
    yield Paragraph(text=" ".join((counts(report), *skipped_files(report))), tone="quiet")
    if not report.summary.run.complete:
        yield Paragraph(text=not_complete(report), tone="warning")
    yield Paragraph(text=_TABLE_NOTE, tone="quiet", further=True)


def not_complete(report: Report) -> str:
    """How many configurations are pending, and the command that continues: a page may be read anywhere."""
    run = report.summary.run
    pending = counted(run.pending, "configuration")
    command = "loaderprobe sweep --resume RUN"
    return f"Not complete: {pending} not measured yet; {command} continues, where RUN is the path of {run.name}."


def _of_group(report: Report, group: RowGroup) -> Iterator[Shown | Fold]:
    if alone := group.ceiling_images_per_s:
        how = "specified, not measured" if group.emulated else "measured"
        yield Paragraph(text=f"Compute alone: {rate(alone)} images/s ({how}).", further=True)
    more = OF_LAYOUTS if len({row.config.layout for row in group.rows}) > 1 else ()
    columns = (*TABLE, *more)
    head = ("configuration", *(column.head for column in columns), "bound", "speed-up if free → then limited by")
    yield Table(head=head, lines=tuple(_line(report, row, group, columns) for row in group.rows))
    yield from (Paragraph(text=column.help, tone="quiet", further=True) for column in more)
    yield from _evidence(report, group)
    yield from further(items(_knees(report, group)))


def _knees(report: Report, group: RowGroup) -> list[tuple[str, str]]:
    """(of what, sentence) for the knees of the group: one for each set of rows that differ in workers only."""
    rows = {row.key: row for row in group.rows}
    found = [
        (next((rows[key] for key in reversed(knee.keys) if key in rows), None), knee) for knee in report.summary.knees
    ]
    return [(f"Knee of {label(row, group.rows, workers=False)}", knee_words(knee)) for row, knee in found if row]


def _line(report: Report, row: ConfigurationRow, group: RowGroup, columns: Sequence[Figure]) -> Line:
    return (
        label(row, group.rows),
        *(shown(row, column.column) for column in columns),
        Cell(text=bound_words(row), tone=tone(row)),
        gain_words(row, then_of(report, row)),
    )


def missing(report: Report) -> list[Item]:
    """Why figures do not exist, each reason once; a terminal has those of the table, and damaged files."""
    found: dict[str, dict[str, list[ConfigurationRow]]] = {}
    rows, gpu_reason = measured(report.summary.configurations), report.summary.environment.gpu_reason
    for row in rows:
        for at, reason in reasons(row).items():
            if reason != _ONE_RANK:
                found.setdefault(reason, {}).setdefault(at, []).append(row)
    made = list(items(_damaged(report)))
    for reason, places in found.items():
        touched = list({row.key: row for affected in places.values() for row in affected}.values())
        figures = join_words(list(dict.fromkeys(map(words_of, places))))
        subject = f"{figures} ({_which(touched, rows, report)})"
        made.append(Item(subject=subject, text=reason, further=not _COLUMNS.intersection(places)))
    if gpu_reason and remark_words(gpu_reason) not in found:
        made.append(Item(subject="GPU", text=remark_words(gpu_reason), further=True))
    return sorted(made, key=lambda item: item.further)


def _which(some: Sequence[ConfigurationRow], rows: Sequence[ConfigurationRow], report: Report) -> str:
    if len(some) == 1:
        return full_label(some[0], report)
    return "all" if len(some) == len(rows) else counted(len(some), "configuration")


def without_figures(report: Report, status: str) -> list[tuple[str, str]]:
    """(label, reason) for each configuration that failed or was skipped."""
    rows = [row for row in report.summary.configurations if row.status == status]
    return [(full_label(row, report), reason_words(row)) for row in rows]


def notes(report: Report) -> list[tuple[str, str]]:
    """(where, note) for each different note on a data set, and that a measurement left."""
    rows = measured(report.summary.configurations)
    left = [(note, row) for row in rows if (detail := detail_of(report, row)) for note in each_once(detail.notes)]
    found: dict[Hashable, list[ConfigurationRow]] = {}
    for note, row in left:
        found.setdefault(subject_of(note), []).append(row)
    said = each_once(note for note, _ in left)
    of_data = [note for note in report.summary.run.notes if "data" in note.facts]
    return [
        *((str(note.facts["data"]), remark_words(note)) for note in of_data),
        *((_which(found[subject_of(note)], rows, report), remark_words(note)) for note in said),
    ]


_MOST_SKIPPED = 3
"""Of the skipped files of a data set, so many are named beside the answer."""


def skipped_files(report: Report) -> list[str]:
    """`photos: 2 of 500 files skipped: a.jpg: damaged: truncated; notes.txt: not an image`, by data set."""
    found = []
    for data in report.summary.run.data:
        named = data.skipped[:_MOST_SKIPPED]
        more, stored = data.skipped_count - len(named), len(data.skipped) - len(named)
        where = "in summary.json" if stored == more else f"the next {stored} of them in summary.json"
        if data.skipped_count:
            of = f"{data.label}: {data.skipped_count} of {counted(data.images_found + data.skipped_count, 'file')}"
            found.append(f"{of} skipped: {'; '.join([*named, *([f'{more} more, {where}'] if more else [])])}.")
    return found


_LOST = {
    "files": "the description of its data is missing, and so is advice on where to keep them",
    "ceilings": "what the storage can deliver is not known",
    "prefilled": "what a full buffer does to short benchmarks is estimated",
    "epochs": "its epochs are missing",
}
"""What is missing without a damaged file, by its folder; a result that is damaged has a failed row."""


def _damaged(report: Report) -> list[tuple[str, str]]:
    """(file, what is wrong, and what is missing without it)."""
    found = [(damaged, _LOST.get(damaged.file.partition("/")[0])) for damaged in report.summary.run.damaged]
    return [(damaged.file, f"it {damaged.reason}; {lost}") for damaged, lost in found if lost]


def title(report: Report) -> str:
    """Data, storage, machine, day."""
    run, machine = report.summary.run, report.summary.environment
    configs = [row.config for row in report.summary.configurations]
    names = list(dict.fromkeys(config.resolution.removesuffix(f" {config.layout}") for config in configs))
    data = (join_words(names) if len(names) < 3 else f"{names[0]} to {names[-1]}") if names else "no data"
    layouts = list(dict.fromkeys(config.layout for config in configs))
    data += f" as {join_words(layouts)}" if layouts[1:] else ""
    made = " (generated)" if run.data and all(data_set.generated for data_set in run.data) else ""
    places = dict.fromkeys(
        f"{place.filesystem} ({join_words(place.devices) or place.kind})" for place in machine.storage
    )
    storage = f" on {join_words(list(places))}" if places else ""
    gpus = join_words(list(dict.fromkeys(gpu.name for gpu in machine.gpus))) or "no GPU"
    return f"{data}{made}{storage}, {machine.cores_available:g} cores, {gpus}, {run.created_utc[:10]}"


def environment_facts(report: Report) -> list[tuple[str, str]]:
    """(what, which) for the machine, its software and the storage under the data."""
    machine = report.summary.environment
    no_gpu = remark_words(machine.gpu_reason) if machine.gpu_reason else "no reason recorded"
    gpus = [
        f"{gpu.name}{f', {format_bytes(gpu.memory_bytes)}' if gpu.memory_bytes else ''}"
        f"{f', driver {gpu.driver}' if gpu.driver else ''}"
        for gpu in machine.gpus
    ]
    shared = machine.shared_memory_bytes
    known = [
        ("CPU", f"{machine.cpu_model}, {machine.cores_available:g} of {machine.cores_total} cores available"),
        ("Memory", format_bytes(machine.memory_bytes)),
        ("Shared memory", "not known" if shared is None else f"{format_bytes(shared)} in /dev/shm"),
        ("GPU", join_words(gpus) or f"none: {no_gpu}"),
        ("Kernel", machine.kernel),
        ("Python", machine.python),
        ("torch", machine.torch or "not installed"),
        ("torchvision", machine.torchvision or "not installed"),
        ("loaderprobe", machine.loaderprobe),
    ]
    for place in machine.storage:
        devices = f", device {join_words(place.devices)}" if place.devices else ", block device not visible"
        ahead = "" if place.read_ahead_bytes is None else f", read-ahead {place.read_ahead_bytes / 1024:.0f} KiB"
        said = "".join(f"; {remark_words(note)}" for note in place.notes)
        where = f"{place.filesystem} ({place.kind}) on {place.mount}, {place.source}"
        known.append(("Storage", f"{place.path}: {where}{devices}{ahead}{said}"))
    return known


def _evidence(report: Report, group: RowGroup) -> Iterator[Fold]:
    for row in group.rows:
        if row.bound:
            yield Fold(
                subject=label(row, group.rows),
                verdict=Cell(text=bound_words(row), tone=tone(row)),
                text=sentence(row.bound),
                said=not firm(row),
                parts=(
                    *proof(report, row),
                    *table(row.forecasts, _FORECAST, caption="Forecasts of training after one change"),
                    *advice_parts(row.advice, sample_of(report)),
                    *_made(report, row),
                ),
            )


def proof(report: Report, row: ConfigurationRow) -> Iterator[Shown]:
    """The speed-ups of a row, and what else its verdict follows from."""
    yield Table(
        caption=f"Speed-up of {'training' if trains(row) else 'the loader'} if a resource were free",
        head=("Resource", "Speed-up", "95 % interval", "How", "Then limits"),
        lines=tuple(_speedup_line(report, row, name) for name in resources_of(row)),
    )
    evidence = [found for found in row.bound.evidence if not found.metric.startswith("speedups.")] if row.bound else []
    yield from table(evidence, _EVIDENCE, caption="What else the verdict follows from")
    if row.verdict and row.verdict.gpu:
        said = (
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else significant(value)}"
            for name, value in row.verdict.gpu.items()
        )
        yield Paragraph(text=f"GPU: {', '.join(said)}.", further=True)


_EVIDENCE = (
    Column("Metric", evidence_words),
    Column("Value", lambda found: figure(found.value)),
    Column("Threshold", lambda found: figure(found.threshold)),
    Column("Unit", lambda found: found.unit),
)


def _speedup_line(report: Report, row: ConfigurationRow, name: ResourceName) -> Line:
    speedup = speedup_of(row, name)
    if speedup is None:
        why = reasons(row)
        return name, MISSING, "", why.get(f"speedups.{name}", why.get("speedups", "not measured")), ""
    then = then_of(report, row)
    between = f"{significant(speedup.low)} to {significant(speedup.high)}" if speedup.high > speedup.low else ""
    return name, f"{significant(speedup.value)}x", between, speedup.how, NEXT[then[name]] if name in then else MISSING


def _after(forecast: Forecast) -> str:
    if forecast.images_per_s:
        return then_words(forecast.bottleneck) if forecast.bottleneck else MISSING
    return f"no forecast: {remark_words(forecast.refused) if forecast.refused else ''}"


_FORECAST = (
    Column("Change", lambda forecast: forecast.changed.replace("_", " ")),
    Column("To", lambda forecast: forecast.to),
    Column("images/s", lambda forecast: rate(found.value) if (found := forecast.images_per_s) else MISSING),
    Column(
        "Range", lambda forecast: f"{rate(found.low)} to {rate(found.high)}" if (found := forecast.images_per_s) else ""
    ),
    Column("Then", _after),
)


def _made(report: Report, row: ConfigurationRow) -> Iterator[Paragraph]:
    if detail := detail_of(report, row):
        text = (
            f"{detail.compute_device}; {detail.compute_source}. First batch after "
            f"{format_duration(detail.first_batch_s)}, not part of any rate. Prediction: "
            f"{shown(row, 'predicted_images_per_s')} images/s."
        )
        remarks = (*([detail.ablations] if detail.ablations else []), *detail.notes)
        said = (f"{first_upper(remark_words(remark))}." for remark in remarks)
        yield Paragraph(text=" ".join((text, *said)), tone="quiet")


_DATA = (
    Column("data", lambda data: data.label),
    Column("path", lambda data: data.root),
    Column(
        "images used",
        lambda data: f"{data.images_used} of {data.images_found}{', generated' if data.generated else ''}",
    ),
    Column("mean size", lambda data: format_bytes(data.mean_size_bytes)),
)


def _machine(report: Report) -> Iterator[Shown]:
    run = report.summary.run
    when = run.created_utc.replace("T", " ").replace("Z", " UTC")
    yield Command(text=run.command)
    yield Paragraph(
        text=f"loaderprobe {run.name}; its configurations took {format_duration(run.wall_s)}. {when}", tone="quiet"
    )
    yield from items(environment_facts(report))
