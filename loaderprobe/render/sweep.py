"""A sweep as a document, the first screen first; and its rows as flat columns."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from loaderprobe.analyze.answer import firm, measured, speedup_of
from loaderprobe.records.remark import Remark, each_once, subject_of
from loaderprobe.records.report import ConfigurationRow, DataInfo, Detail, Report
from loaderprobe.records.resources import ResourceName
from loaderprobe.render.document import (
    Cell,
    Command,
    Document,
    Fold,
    Line,
    Paragraph,
    Section,
    Shown,
    Table,
    further,
    items,
)
from loaderprobe.render.figures import TABLE, evidence_words, flat, reason_words, reasons, shown, words_of
from loaderprobe.render.first import advice_parts, first_screen, headline, more_needs, sample_of, shown_first
from loaderprobe.render.format import MISSING, counted, factor, figure, first_upper, rate
from loaderprobe.render.gpu import profiled, step_parts, window_parts
from loaderprobe.render.groups import NEXT, RowGroup, detail_of, full_label, gain_words, groups, then_of
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
from loaderprobe.render.wording import bound_words, label, resources_of, tone
from loaderprobe.render.words import knee_words, remark_words, sentence, then_words
from loaderprobe.units import format_bytes, format_duration, join_words, significant

HOW_TO_READ = (
    "A verdict is an experiment, not a threshold on a share of the step time. An ablation makes one resource free, "
    "one at a time. Storage 1.9x means that training would be 1.9 times as fast if reading files cost nothing. The "
    "resource with the largest speed-up is the limit. If no speed-up reaches 5 %, the configuration is balanced. If "
    "two speed-ups are about the same, both resources are named. If training differs from its prediction by more "
    "than the noise band, the verdict is inconclusive. Measured: the loader ran with that resource free. Estimated "
    "(est.): computed from what the workers spent their time on. Serial: num_workers=0, the training thread loads. "
    "Cold: files come from storage, not from memory. Knee: the fewest workers that are enough."
)
EMULATED_NOTE = "Emulated accelerator: its throughput is specified, not measured."
CPU_NOTE = "Training ran on a CPU: nothing follows for a GPU."
GROUP_HEAD = ("configuration", *(column.head for column in TABLE), "bound", "speed-up if free → then limited by")
_ONE_RANK = remark_words(Remark(code="one_rank"))
"""No reader misses what one rank loses to others."""
_COLUMNS = ("images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "speedups")
"""Figures of the table: also a terminal says why one is missing."""
_TABLE_NOTE = " ".join(
    [
        *(column.help for column in TABLE),
        "Speed-up if free: of training, if that resource cost nothing; est.: estimated.",
        f"{MISSING}: not measured.",
    ]
)


def sweep_document(report: Report) -> Document:
    """The first screen, then every configuration by device and cache state, then what it rests on."""
    found = groups(report)
    answer = headline(report, shown_first(report))
    shown_missing, other_missing = missing(report, _COLUMNS)
    return Document(
        title=title(report),
        headline=answer.text,
        subline=answer.subline,
        tone=answer.tone,
        unsure=answer.unsure,
        sections=(
            *first_screen(report),
            *([scaling] if (scaling := scaling_section(report)).parts else []),
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
            Section(
                title="Timeline of the steps",
                name="steps",
                parts=tuple(part for group in found for part in step_parts(report, group)),
            ),
            Section(title="Notes", parts=items(notes(report))),
            Section(title=f"Not measured ({MISSING})", parts=(*items(shown_missing), *further(items(other_missing)))),
            Section(title="Data", parts=further([_data(report)])),
            Section(title="Machine, versions and command", parts=further(_machine(report))),
            Section(title="How to read this", parts=further([Paragraph(text=HOW_TO_READ)])),
        ),
    )


def report_columns(report: Report) -> dict[str, list[Value]]:
    """The configurations as flat columns with units in their names; None where there is no figure."""
    rows = [flat(row) | epoch_cells(row) | short_run_cells(row) for row in report.summary.configurations]
    columns = as_columns(rows)
    # The reasons stand last, whatever GPU counters a single row brings.
    gone = columns.pop("unavailable", [])
    return {**columns, "unavailable": gone}


# Every configuration, and what is missing.


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
    rows = report.summary.configurations
    yield Paragraph(text=" ".join((counts(report), *skipped_files(report))), tone="quiet")
    if not report.summary.run.complete:
        yield Paragraph(text=not_complete(report), tone="warning")
    if any(row.emulated for row in rows):
        yield Paragraph(text=EMULATED_NOTE, tone="warning", further=True)
    if any(row.config.compute.kind == "cpu" for row in rows):
        yield Paragraph(text=CPU_NOTE, tone="warning", further=True)
    yield Paragraph(text=_TABLE_NOTE, tone="quiet", further=True)


def not_complete(report: Report) -> str:
    """How many configurations are pending, and the command that continues, from where the run's directory stands."""
    run = report.summary.run
    pending = counted(run.pending, "configuration")
    return f"Not complete: {pending} not measured yet; loaderprobe sweep --resume {shlex.quote(run.name)} continues."


def _of_group(report: Report, group: RowGroup) -> Iterator[Shown | Fold]:
    """A line a configuration, then the evidence of each to unfold, what is not firm in words, and what would help."""
    yield Paragraph(text=f"Compute alone: {group.ceiling}.", further=True)
    lines = tuple(_line(report, row, group) for row in group.rows)
    yield Table(head=GROUP_HEAD, lines=lines)
    yield from _evidence(report, group)
    yield from further(items(_knees(report, group)))
    yield from items((f"GPU of {subject}", words) for subject, words in profiled(group))


def _knees(report: Report, group: RowGroup) -> list[tuple[str, str]]:
    """(of what, sentence) for the knees of the group: one for each set of rows that differ in workers only."""
    rows = {row.key: row for row in group.rows}
    found = [
        (next((rows[key] for key in reversed(knee.keys) if key in rows), None), knee) for knee in report.summary.knees
    ]
    return [(f"Knee of {label(row, group.rows, workers=False)}", knee_words(knee)) for row, knee in found if row]


def _line(report: Report, row: ConfigurationRow, group: RowGroup) -> Line:
    return (
        label(row, group.rows),
        *(shown(row, column.column) for column in TABLE),
        Cell(text=bound_words(row), tone=tone(row)),
        gain_words(row, then_of(report, row)),
    )


def missing(report: Report, columns: Sequence[str] = ()) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(what, why) for each different reason why a figure does not exist: first of `columns`, then of all others.

    `columns` are places in the summary. The first end with each damaged file without a row.
    """
    first, others = (_missing(report, columns, among) for among in (True, False))
    gpu_reason = report.summary.environment.gpu_reason
    no_gpu = remark_words(gpu_reason) if gpu_reason else ""
    if no_gpu and no_gpu not in [why for _, why in (*first, *others)]:
        others.append(("GPU", no_gpu))
    return first + _damaged(report), others


def _missing(report: Report, columns: Sequence[str], among: bool) -> list[tuple[str, str]]:
    """Of the figures that are among the columns, or are not."""
    found: dict[str, dict[str, list[ConfigurationRow]]] = {}
    rows = measured(report.summary.configurations)
    for row in rows:
        for at, reason in reasons(row).items():
            if reason != _ONE_RANK and (at in columns) is among:
                found.setdefault(reason, {}).setdefault(words_of(at), []).append(row)
    out = []
    for reason, fields in found.items():
        touched = list({row.key: row for affected in fields.values() for row in affected}.values())
        out.append((f"{join_words(list(fields))} ({_which(touched, rows, report)})", reason))
    return out


def _which(some: Sequence[ConfigurationRow], rows: Sequence[ConfigurationRow], report: Report) -> str:
    """The one configuration by name, else how many."""
    if len(some) == 1:
        return full_label(some[0], report)
    return "all" if len(some) == len(rows) else counted(len(some), "configuration")


def without_figures(report: Report, status: str) -> list[tuple[str, str]]:
    """(label, reason) for each configuration that failed or was skipped."""
    rows = [row for row in report.summary.configurations if row.status == status]
    return [(full_label(row, report), reason_words(row)) for row in rows]


def notes(report: Report) -> list[tuple[str, str]]:
    """(where, note) for each different note that a measurement left."""
    rows = measured(report.summary.configurations)
    left = [(note, row) for row in rows if (detail := detail_of(report, row)) for note in each_once(detail.notes)]
    found: dict[Hashable, list[ConfigurationRow]] = {}
    for note, row in left:
        found.setdefault(subject_of(note), []).append(row)
    said = each_once(note for note, _ in left)
    return [(_which(found[subject_of(note)], rows, report), remark_words(note)) for note in said]


_MOST_SKIPPED = 3
"""Of the skipped files of a data set, so many are named beside the answer."""


def skipped_files(report: Report) -> list[str]:
    """`photos: 2 of 500 files skipped: a.jpg: damaged: truncated; notes.txt: not an image`, by data set."""
    found = []
    for data in report.summary.run.data:
        named = data.skipped[:_MOST_SKIPPED]
        more = data.skipped_count - len(named)
        if data.skipped_count:
            of = f"{data.label}: {data.skipped_count} of {counted(data.images_found + data.skipped_count, 'file')}"
            found.append(f"{of} skipped: {'; '.join([*named, *([f'{more} more'] if more else [])])}.")
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
    names = list(dict.fromkeys(row.config.resolution for row in report.summary.configurations))
    data = (join_words(names) if len(names) < 3 else f"{names[0]} to {names[-1]}") if names else "no data"
    made = " (generated)" if run.data and all(data_set.generated for data_set in run.data) else ""
    places = dict.fromkeys(
        f"{place.filesystem} ({join_words(place.devices) or place.kind})" for place in machine.storage
    )
    storage = f" on {join_words(list(places))}" if places else ""
    gpus = join_words(list(dict.fromkeys(gpu.name for gpu in machine.gpus))) or "no GPU"
    return f"{data}{made}{storage}, {machine.cores_available:g} cores, {gpus}, {run.created_utc[:10]}"


def facts(report: Report) -> str:
    """The run, time, sizes of the images."""
    run = report.summary.run
    sizes = [f"{data.label} {significant(data.mean_size_bytes / 1e3)} kB" for data in run.data]
    mean = f"; {', '.join(sizes)} an image" if sizes else ""
    return f"loaderprobe {run.name}; its configurations took {format_duration(run.wall_s)}{mean}."


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


# What each verdict rests on.


def _evidence(report: Report, group: RowGroup) -> Iterator[Fold]:
    """What the verdict on each configuration rests on."""
    for row in group.rows:
        if row.bound:
            yield Fold(
                subject=label(row, group.rows),
                verdict=Cell(text=bound_words(row), tone=tone(row)),
                text=sentence(row.bound),
                said=not firm(row),
                parts=tuple(_proof(report, row)),
            )


def _proof(report: Report, row: ConfigurationRow) -> Iterator[Shown]:
    evidence = row.bound.evidence if row.bound else ()
    yield Table(
        caption="Evidence",
        head=("Metric", "Value", "Threshold", "Unit"),
        lines=tuple((evidence_words(each), figure(each.value), figure(each.threshold), each.unit) for each in evidence)
        or (("none recorded", "", "", ""),),
    )
    yield Table(
        caption="Speed-up of training if a resource were free",
        head=("Resource", "Speed-up", "95 % interval", "How", "Then limits"),
        lines=tuple(_speedup_line(report, row, name) for name in resources_of(row)),
    )
    if row.forecasts:
        yield Table(
            caption="Forecasts of training after one change",
            head=("Change", "To", "images/s", "Range", "Then"),
            lines=tuple(_forecast_lines(row)),
        )
    if row.verdict and row.verdict.gpu:
        said = (
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else significant(value)}"
            for name, value in row.verdict.gpu.items()
        )
        yield Paragraph(text=f"GPU: {', '.join(said)}.")
    yield from advice_parts(row.advice, sample_of(report))
    if detail := detail_of(report, row):
        yield from (Paragraph(text=each, tone="quiet") for each in _made(row, detail))


def _speedup_line(report: Report, row: ConfigurationRow, name: ResourceName) -> Line:
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
    return Table(head=("data", "path", "images used", "mean size", "skipped files"), lines=lines)


def _skipped(data: DataInfo) -> str:
    more = data.skipped_count - len(data.skipped)
    return "; ".join([*data.skipped, *([f"and {more} more"] if more else [])]) or "none"


def _machine(report: Report) -> Iterator[Shown]:
    run = report.summary.run
    yield Command(text=run.command)
    yield Paragraph(text=f"{facts(report)} {run.created_utc.replace('T', ' ').replace('Z', ' UTC')}", tone="quiet")
    yield from items(environment_facts(report))
