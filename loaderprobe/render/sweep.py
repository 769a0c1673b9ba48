"""A sweep as a document, the first screen first; and its rows as flat columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Any

from loaderprobe.analyze.answer import firm, measured, resumed, speedup_of
from loaderprobe.records import by_key, values
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.remark import Remark, each_once, subject_of
from loaderprobe.records.report import ConfigurationRow, RankRow, Report
from loaderprobe.records.resources import RESOURCE, WAITED, ResourceName
from loaderprobe.records.studies import ITERATIONS, BufferEffect, EpochFigures, Epochs
from loaderprobe.records.thresholds import ALIKE, COLD_AT_LEAST, WORTH
from loaderprobe.records.verdict import Forecast, Interval, Verdict
from loaderprobe.render.charts import Bar, Chart, ChartRow, stacked
from loaderprobe.render.document import (
    Cell,
    Column,
    Command,
    Document,
    Fold,
    Item,
    Paragraph,
    Part,
    Section,
    Table,
    further,
    items,
    table,
)
from loaderprobe.render.figures import COUNTERS, EVIDENCE, OF_LAYOUTS, TABLE, flat, noise_words, reasons, words_of
from loaderprobe.render.first import MEASURE_AGAIN, advice_parts, first_screen, headed, needs_sections, sample_of
from loaderprobe.render.format import (
    MISSING,
    counted,
    figure,
    first_upper,
    interval,
    megabytes_per_s,
    percent,
    rate,
    span,
    times,
)
from loaderprobe.render.gpu import window_parts
from loaderprobe.render.groups import (
    RowGroup,
    bound_words,
    full_label,
    gain_words,
    groups,
    label,
    letters_of,
    loading,
    next_limit,
    resources_of,
    several,
    tone,
    trains,
)
from loaderprobe.render.rows import Value, as_columns
from loaderprobe.render.words import knee_words, location_words, message, remark_words, sentence
from loaderprobe.units import format_bytes, format_duration, join_words, significant

_ONE_RANK = remark_words(Remark(code="one_rank"))
"""No reader misses what one rank loses to others."""
_COLUMNS = {"images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "speedups"}
"""Figures of the table: also a terminal says why one is missing."""
_TABLE_NOTE = (
    f"{' '.join(column.help for column in TABLE)} Speed-up if free: of training, if that resource cost nothing; est.: "
    f"estimated. Serial: the training thread loads. {MISSING}: not measured. How to read this: loaderprobe explain "
    "verdict."
)


def sweep_document(report: Report) -> Document:
    """The first screen, then every configuration by device and cache state, then what it rests on."""
    by_device, every = groups(report), report.configurations
    failed = ((full_label(row, every), reasons(row).get("*", "")) for row in every if row.status == "failed")
    copies = tuple(Paragraph(text=f"{remark_words(remark)}.") for remark in report.staging)
    document = Document(
        title=title(report),
        sections=(
            *first_screen(report),
            Section(title="From a copy", parts=copies),
            Section(title="Models, devices and ranks", parts=tuple(_scaling(report)), panel="main"),
            Section(title="Every configuration", parts=tuple(_before_table(report))),
            *(Section(title=group.title, parts=tuple(_of_group(report, group)), level=3) for group in by_device),
            *needs_sections(report)[1:],
            *panel_sections(report),
            Section(title="Failed", parts=items(failed)),
            Section(title="Ranks", parts=tuple(rank_parts(report))),
            Section(title="Epochs", parts=tuple(_epochs(report))),
            Section(title="Short benchmarks", parts=tuple(_short_runs(report))),
            Section(title="GPU timeline", parts=tuple(part for group in by_device for part in window_parts(group))),
            Section(title="Notes", parts=items(notes(report))),
            Section(title=f"Not measured ({MISSING})", parts=tuple(missing(report))),
            Section(title="Data", parts=further(table(report.run.data, _DATA))),
            Section(title="Machine, versions and command", parts=further(_machine(report))),
        ),
    )
    return doubted(report, headed(report, document))


def doubted(report: Report, document: Document) -> Document:
    """With a title that says so where a verdict is firm on too little, such as one round."""
    if document.tone in ("inconclusive", "failed") or report.how_sure.facts["level"] != "low":
        return document
    again = "Measure again. " * any(step.remark and step.remark.code in MEASURE_AGAIN for step in report.next[:1])
    return replace(document, headline=f"{again}Probably: {document.headline}", unsure=True)


def report_columns(report: Report) -> dict[str, list[Value]]:
    """The configurations as flat columns with units in their names; None where there is no figure."""
    rows = report.configurations
    columns = as_columns([flat(row) | epoch_cells(row) | short_run_cells(row) for row in rows])
    # The reasons stand last, whatever GPU counters a single row brings.
    said = ("; ".join(f"{at}: {reason}" for at, reason in reasons(row).items()) for row in rows)
    columns["unavailable"] = [text or None for text in said]
    return columns


_ENDS = {"input": "input-bound", "compute": "compute-bound", "skipped": "not measured yet"}


def counts(report: Report) -> str:
    """How many configurations ended on each side."""
    rows = report.configurations
    ends = Counter[str](row.bound.side if row.bound else row.status for row in rows)
    order = ("input", "compute", "balanced", "inconclusive", "failed", "skipped")
    words = [f"{ends[end]} {_ENDS.get(end, end)}" for end in order if ends[end]]
    named_rows = "measured configuration" if len(measured(rows)) == len(rows) else "configuration"
    return f"{counted(len(rows), named_rows)}: {join_words(words)}."


def _before_table(report: Report) -> Iterator[Part]:
    yield Paragraph(text=" ".join((counts(report), *skipped_files(report))), tone="quiet")
    run = report.run
    if not run.complete:
        pending = counted(run.pending, "configuration")
        where = f"To measure the rest: {resumed(run) or f'loaderprobe sweep --resume {quote(run.name)}'}"
        yield Paragraph(text=f"Not complete: {pending} not measured yet. {where}", tone="warning")
    yield Paragraph(text=_TABLE_NOTE, tone="quiet", further=True)


def _of_group(report: Report, group: RowGroup) -> Iterator[Part]:
    if alone := group.alone_images_per_s:
        how = "specified, not measured" if group.emulated else "measured"
        yield Paragraph(text=f"Compute alone: {span(alone, rate)} images/s ({how}).", further=True)
    more = OF_LAYOUTS if several("layout", group.rows) else ()
    columns = (
        Column("configuration", lambda row: label(row, group.rows)),
        *(Column(figure.head, figure.shown) for figure in (*TABLE, *more)),
        Column("bound", _bound),
        Column("speed-up if free → then limited by", gain_words),
    )
    yield from table(group.rows, columns)
    yield from (Paragraph(text=figure.help, tone="quiet", further=True) for figure in more)
    if noise := noise_words(row.verdict.accelerator_utilization for row in group.rows if row.verdict):
        yield Paragraph(text=f"Of alone{noise}.", tone="quiet")
    yield from _evidence(report, group)
    rows = {row.key: row for row in group.rows}
    for knee in report.knees:
        # Of a set of rows that differ in workers only.
        if row := next((rows[key] for key in reversed(knee.keys) if key in rows), None):
            subject = f"Knee of {label(row, group.rows, workers=False)}"
            yield Item(subject=subject, text=knee_words(knee), further=True)


def _bound(row: ConfigurationRow) -> Cell:
    bound = row.bound or row.status
    return Cell(text=bound_words(bound), tone=tone(bound))


def missing(report: Report) -> list[Item]:
    """Why figures do not exist, each reason once; a terminal has those of the table, and damaged files."""
    rows = measured(report.configurations)
    gone = [(reason, at, row) for row in rows for at, reason in reasons(row).items() if reason != _ONE_RANK]
    made = [
        Item(subject=damaged.file, text=f"it {damaged.reason}; {lost}")
        for damaged in report.run.damaged
        if (lost := _LOST.get(damaged.file.partition("/")[0]))
    ]
    for reason, absent in by_key(gone, lambda figure: figure[0]).items():
        figures = join_words(list(dict.fromkeys(words_of(at) for _, at, _ in absent)))
        subject = f"{figures} ({_rows_of(list({row.key: row for *_, row in absent}.values()), report)})"
        made.append(Item(subject=subject, text=reason, further=_COLUMNS.isdisjoint(at for _, at, _ in absent)))
    return sorted(made, key=lambda item: item.further)


def _rows_of(rows: Sequence[ConfigurationRow], report: Report) -> str:
    if len(rows) == 1:
        return full_label(rows[0], report.configurations)
    return "all" if len(rows) == len(measured(report.configurations)) else counted(len(rows), "configuration")


def notes(report: Report) -> list[tuple[str, str]]:
    """(where, note) for each different note on the run or a data set, and that a measurement left."""
    left = [(note, row) for row in measured(report.configurations) for note in each_once(row.notes)]
    by_subject = by_key(left, lambda pair: subject_of(pair[0]))
    said = each_once(note for note, _ in left)
    return [
        *((str(note.facts.get("data", "")), remark_words(note)) for note in report.run.notes),
        *((_rows_of([row for _, row in by_subject[subject_of(note)]], report), remark_words(note)) for note in said),
    ]


_MOST_SKIPPED = 3
"""Of the skipped files of a data set, so many are named beside the answer."""


def skipped_files(report: Report) -> Iterator[str]:
    """`photos: 2 of 500 files skipped: a.jpg: damaged: truncated; notes.txt: not an image`, by data set."""
    for data in report.run.data:
        named = data.skipped[:_MOST_SKIPPED]
        more, stored = data.skipped_count - len(named), len(data.skipped) - len(named)
        where = "in summary.json" if stored == more else f"the next {stored} of them in summary.json"
        if data.skipped_count:
            of = f"{data.label}: {data.skipped_count} of {counted(data.images_found + data.skipped_count, 'file')}"
            yield f"{of} skipped: {'; '.join([*named, *([f'{more} more, {where}'] if more else [])])}."


_LOST = {
    "files": "the description of its data is missing, and so is advice on where to keep them",
    "ceilings": "what the storage can deliver is not known",
    "prefilled": "what a full buffer does to short benchmarks is estimated",
    "epochs": "its epochs are missing",
}
"""What is missing without a damaged file, by its folder; a result that is damaged has a failed row."""


def title(report: Report) -> str:
    """Data, storage, machine, day."""
    run = report.run
    configs = [row.config for row in report.configurations]
    names = list(dict.fromkeys(config.resolution.removesuffix(f" {config.layout}") for config in configs))
    data = (join_words(names) if len(names) < 3 else f"{names[0]} to {names[-1]}") if names else "no data"
    layouts = list(dict.fromkeys(config.layout for config in configs))
    data += f" as {join_words(layouts)}" if layouts[1:] else ""
    made = " (generated)" if run.data and all(data_set.generated for data_set in run.data) else ""
    return f"{data}{made}{measured_on(report)}"


def measured_on(report: Report) -> str:
    """Storage, machine, day."""
    run, machine = report.run, report.environment
    here = ((location, ", on this machine" * location.is_here) for location in machine.storage)
    places = [f"{location.filesystem} ({join_words(location.devices) or location.kind}{on})" for location, on in here]
    storage = f" on {join_words(list(dict.fromkeys(places)))}" if places else ""
    gpus = join_words(list(dict.fromkeys(gpu.name for gpu in machine.gpus))) or "no GPU"
    return f"{storage}, {machine.cores_available:g} cores, {gpus}, {run.created_utc[:10]}"


def _machine(report: Report) -> Iterator[Part]:
    """How the run was made; the machine, its software and the storage under the data."""
    run, machine = report.run, report.environment
    when = run.created_utc.replace("T", " ").replace("+00:00", " UTC")
    took = f"loaderprobe {run.name}; its configurations took {format_duration(run.wall_s)}. {when}"
    yield Command(text=run.command)
    yield Paragraph(text=took, tone="quiet")
    no_gpu = remark_words(machine.gpu_reason) if machine.gpu_reason else "no reason recorded"
    gpus = [
        f"{gpu.name}{f', {format_bytes(gpu.memory_bytes)}' if gpu.memory_bytes else ''}"
        f"{f', driver {gpu.driver}' if gpu.driver else ''}"
        for gpu in machine.gpus
    ]
    shared, parts = machine.shared_memory_bytes, ("Kernel", "Python", "torch", "torchvision", "loaderprobe")
    known = (
        ("CPU", f"{machine.cpu_model}, {machine.cores_available:g} of {machine.cores_total} cores available"),
        ("Memory", format_bytes(machine.memory_bytes)),
        ("Shared memory", "not known" if shared is None else f"{format_bytes(shared)} in /dev/shm"),
        ("GPU", join_words(gpus) or f"none: {no_gpu}"),
        *((name, getattr(machine, name.lower()) or "not installed") for name in parts),
    )
    yield from items(known)
    for location in machine.storage:
        said = "; ".join([location_words(location), *map(remark_words, location.notes)])
        yield Item(subject="Storage", text=f"{location.path}: {said}")


def _evidence(report: Report, group: RowGroup) -> Iterator[Fold]:
    for row in group.rows:
        if row.bound:
            yield Fold(
                subject=label(row, group.rows),
                verdict=_bound(row),
                text=sentence(row.bound),
                said=not firm(row),
                parts=(
                    *proof(row),
                    *table(row.forecasts, _FORECAST, caption="Forecasts of training after one change"),
                    *advice_parts(row.advice, sample_of(report)),
                    *_device_words(row),
                ),
            )


def proof(row: ConfigurationRow) -> Iterator[Part]:
    """The speed-ups of a row, and what else its verdict follows from."""
    yield Table(
        caption=f"Speed-up of {'training' if trains(row) else 'the loader'} if a resource were free",
        head=("Resource", "Speed-up", "95 % interval", "How", "Then limits"),
        lines=tuple(_speedup_line(row, name) for name in resources_of(row)),
    )
    evidence = [item for item in row.bound.evidence if not item.metric.startswith("speedups.")] if row.bound else []
    yield from table(evidence, EVIDENCE, caption="What else the verdict follows from")
    if row.verdict and row.verdict.gpu:
        lines = tuple((counter.words, counter.shown(row)) for counter in COUNTERS if counter.get(row) is not None)
        yield Table(caption="The GPU while it trained", head=("Figure", "Value"), lines=lines)
    if row.detail and row.detail.ablations:
        yield Paragraph(text=f"{first_upper(remark_words(row.detail.ablations))}.", tone="quiet")


def _speedup_line(row: ConfigurationRow, name: ResourceName) -> tuple[str, ...]:
    speedup = speedup_of(row, name)
    if speedup is None:
        why = reasons(row)
        return name, MISSING, "", why.get(f"speedups.{name}", why.get("speedups", "not measured")), ""
    between = f"{significant(speedup.low)} to {significant(speedup.high)}" if speedup.high > speedup.low else ""
    return name, times(speedup), between, speedup.how, next_limit(row, name) or MISSING


def _after(forecast: Forecast) -> str:
    if forecast.images_per_s:
        return message("part.limit", {"then": forecast.bottleneck}) if forecast.bottleneck else MISSING
    return f"no forecast: {remark_words(forecast.refused) if forecast.refused else ''}"


_FORECAST = (
    Column("Change", lambda forecast: forecast.changed.replace("_", " ")),
    Column("To", lambda forecast: forecast.to),
    Column("images/s", lambda forecast: rate(speed.value) if (speed := forecast.images_per_s) else MISSING),
    Column("Range", lambda forecast: span((speed.low, speed.high), rate) if (speed := forecast.images_per_s) else ""),
    Column("Then", _after),
)


def _device_words(row: ConfigurationRow) -> Iterator[Paragraph]:
    detail = row.detail
    if detail and row.verdict:
        text = (
            f"{detail.compute_device}; {detail.compute_source}. First batch after "
            f"{format_duration(detail.first_batch_s)}, not part of any rate. Prediction: "
            f"{figure(row.verdict.predicted_images_per_s)} images/s."
        )
        yield Paragraph(text=text, tone="quiet")


_DATA = (
    Column("data", lambda data: data.label),
    Column("path", lambda data: data.root),
    Column("images used", lambda data: f"{data.images_used} of {data.images_found}{', generated' * data.generated}"),
    Column("mean size", lambda data: format_bytes(data.mean_size_bytes)),
)


def panel_sections(report: Report) -> Iterator[Section]:
    """Charts of one figure by workers, for each device."""
    yield _panel(report, "Rates by workers", "images/s", _rate, level="compute alone")
    names = tuple((name, f"{letter} {words}") for name, letter, words in TIME_OF_WORKER)
    yield _panel(report, "Where worker time goes, the loader alone", "ms an image", _worker_time, names=names)
    title = "Read rate against what the storage gives"
    yield _panel(report, title, "MB/s", partial(_read_rate, report), level="storage alone")


def _panel(
    report: Report, title: str, unit: str, draw: Callable[[ConfigurationRow, Verdict], ChartRow | None], **chart: Any
) -> Section:
    """A chart for each device that has a figure, its rows by data set; `draw` gives None where there is none."""
    parts: list[Part] = []
    for group in groups(report):
        chart_rows: list[ChartRow] = []
        for line, rows in group.lines.items():
            chart_rows.append(ChartRow(label=line, head=True))
            for row in rows:
                chart_row = draw(row, row.verdict) if row.verdict else None
                empty = ChartRow(note="failed" if row.status == "failed" else "not measured")
                chart_rows.append(replace(chart_row or empty, label=loading(row)))
        if any(bar.end for row in chart_rows for bar in row.bars):
            parts.append(Chart(rows=tuple(chart_rows), caption=group.title, unit=unit, ends=f"workers,{unit}", **chart))
    return Section(title=title, parts=further(parts))


def _rate(row: ConfigurationRow, verdict: Verdict) -> ChartRow:
    now, used, bound = verdict.images_per_s, verdict.accelerator_utilization, verdict.bound
    limits = f"{letters_of(bound)} {bound_words(bound)}"
    return ChartRow(
        value=interval(now),
        note=limits if used is None else f"{limits}, {percent(used)} of alone",
        bars=(Bar(end=now.value, tone=tone(bound), letter=letters_of(bound)),),
        interval=(now.low, now.high),
        level=verdict.rates_images_per_s.compute,
        level_how="specified" if row.emulated else "measured",
    )


TIME_OF_WORKER: tuple[tuple[str, str, str], ...] = (
    ("preprocessing", RESOURCE["preprocessing"].letter, "decoding and augmentation (CPU)"),
    ("cores", "Q", "ready, no core free"),
    *((name, RESOURCE[name].letter, f"waiting: {RESOURCE[name].kinds or name}") for name in WAITED),
    ("unknown", RESOURCE["unknown"].letter, "waiting, not attributed"),
    ("rest", "O", "other: sending, waiting to send"),
)
"""Where the time of one image in a worker goes: (tone, letter, words)."""


def _worker_time(row: ConfigurationRow, verdict: Verdict) -> ChartRow | None:
    """One image in one worker: in all, workers over images/s of the loader alone."""
    time, loader = verdict.worker_time, verdict.rates_images_per_s.loader
    if time is None or not loader:
        return None
    whole = row.config.readers / loader
    waits = [time.waits.get(name, 0.0) for name in WAITED]
    known = [time.cpu_s, time.run_delay_s, *waits, max(0.0, time.blocked_s - sum(waits))]
    # The parts are means over all rounds, the rate is the median of them: parts of more than all of it are scaled.
    scale = min(1.0, whole / sum(known)) if sum(known) else 1.0
    scaled = [part * scale for part in known]
    spent = [*scaled, max(0.0, whole - sum(scaled))]
    parts = zip(TIME_OF_WORKER, (1e3 * seconds for seconds in spent), strict=True)
    bars = stacked((name, letter, length) for (name, letter, _words), length in parts)
    longest = max(range(len(spent)), key=lambda index: spent[index])
    share = f"{percent(spent[longest] / sum(spent))} {TIME_OF_WORKER[longest][2].partition(' (')[0]}"
    return ChartRow(value=figure(bars[-1].end), note=share, bars=bars)


_LEAST_READ = 1_000
"""Bytes/s: less is not drawn."""


def _read_rate(report: Report, row: ConfigurationRow, verdict: Verdict) -> ChartRow | None:
    read = verdict.disk_read_bytes_per_s
    if read is None:
        return None
    # The most that the storage gave over the same files, at any concurrency.
    supplies = (need.supply for need in report.needs if need.data == row.config.resolution and need.supply)
    best = None if row.config.cache == "warm" else next(supplies, None)
    least = "≥" if best and best.at_least else ""
    limit = best and best.limit.value
    return ChartRow(
        value=megabytes_per_s(read),
        note=f"{percent(read / limit)} of {least}{megabytes_per_s(limit)}" if limit else "",
        bars=(Bar(end=read / 1e6, tone="storage"),) if read >= _LEAST_READ else (),
        level=limit / 1e6 if limit else None,
        level_how="at least" if least else "measured",
    )


def _scaling(report: Report) -> Iterator[Part]:
    """A line for each model, device and number of ranks; empty where nothing compares. One model needs no column."""
    scalings = {scaling.configuration: scaling for scaling in report.scaling}
    rows = [row for row in report.configurations if row.key in scalings]
    varied = [name for name in ("resolution", "cache") if several(name, rows)]
    named = ["model", *varied] if varied or several("model", rows) else []
    columns = (
        Column("model", lambda row: ", ".join(str(OPTIONS[name].of(row.config)) for name in named)),
        Column("on", _device),
        Column("workers", lambda row: str(row.config.loader.workers or "serial") if several("workers", rows) else ""),
        Column("images/s", lambda row: f"{interval(row.images_per_s)}{', too noisy' * row.images_per_s.too_wide}"),
        Column("speed-up", lambda row: _gained(scalings[row.key].speedup)),
        Column("efficiency", lambda row: percent(share) if (share := scalings[row.key].efficiency) else ""),
        Column("over CPU", lambda row: _gained(scalings[row.key].over_cpu)),
        Column("limited by", lambda row: bound_words(row.bound)),
    )
    if rows:
        yield from table(rows, columns)
        note = "Speed-up: over the fewest ranks of the same model and device; loaderprobe explain ranks."
        yield Paragraph(text=note, tone="quiet", further=True)


def _device(row: ConfigurationRow) -> str:
    config = row.config
    over = f" on {counted(config.nodes, 'node')}" if config.nodes > 1 else ""
    return f"{f'{config.ranks} x ' if config.ranks > 1 else ''}{config.compute.name}{over}"


def _gained(speedup: Interval | None) -> str:
    """With a word where its range holds 1."""
    if speedup is None:
        return ""
    return f"{interval(speedup)}{' (noise)' if speedup.low <= 1 <= speedup.high else ''}"


_MOST_UNEVEN, _MOST_ALIKE = 32, 8
"""Ranks that are shown: where one is slow, and else."""


def rank_parts(report: Report) -> Iterator[Part]:
    """What each rank loads by itself, the slowest first; of many, the slowest beside the median and the fastest.

    A terminal has those that are uneven.
    """
    every = report.configurations
    for row in every:
        detail = row.detail
        if detail and (ranks := detail.ranks):
            gains = (speedup_of(row, "imbalance"), speedup_of(row, "straggler"))
            uneven = any(gain is not None and gain.value > WORTH for gain in gains)
            rest = [rank for rank in ranks if not rank.role]
            left_out = rest[(_MOST_UNEVEN if uneven else _MOST_ALIKE) - len(ranks) + len(rest) :]
            chosen = [rank for rank in ranks if rank not in left_out]
            unit, caption = f"{detail.sample}s/s by itself", full_label(row, every)
            chart = Chart(rows=tuple(map(_rank_row, chosen)), unit=unit, caption=caption, ends=f"rank,{unit}")
            others = f"{counted(len(left_out), 'other rank')} not shown. " if left_out else ""
            note = "By itself: waiting for no other rank. Input, waits for others: a step of the loader alone, in step."
            parts = (chart, Paragraph(text=f"{others}{note}", tone="quiet"))
            yield from parts if uneven else further(parts)


def _rank_row(row: RankRow) -> ChartRow:
    alone = row.alone_images_per_s
    role = f"{row.role}, " if row.role else ""
    return ChartRow(
        label=f"rank {row.rank}{f' ({row.host})' if row.host else ''}",
        value=MISSING if alone is None else rate(alone),
        note=f"{role}input {figure(row.input_s * 1e3)}, waits {figure(row.waiting_s * 1e3)} ms",
        bars=(Bar(end=alone, tone="imbalance"),) if alone else (),
    )


def _epochs(report: Report) -> Iterator[Part]:
    """A chart for each configuration whose epochs were asked for, and whether its set fits into memory."""
    every = report.configurations
    for row in every:
        if row.epochs and row.epochs.reason:
            why = remark_words(row.epochs.reason)
            yield Paragraph(text=f"{full_label(row, every)}: not measured, {why}.")
        elif row.epochs:
            rows = tuple(_epoch_row(number, epoch) for number, epoch in enumerate(row.epochs.epochs, 1))
            yield Chart(rows=rows, unit="images/s", caption=full_label(row, every), ends="epoch,images/s")
            yield Paragraph(text=_fit_words(row.epochs), tone="quiet")


def _epoch_row(number: int, epoch: EpochFigures) -> ChartRow:
    share = epoch.cold_fraction
    warm = number == 1 and share is not None and share < COLD_AT_LEAST
    note = "" if share is None else f"{percent(share)} from storage{', so not cold' if warm else ''}"
    return ChartRow(
        label=f"epoch {number}", value=rate(epoch.images_per_s), note=note, bars=(Bar(end=epoch.images_per_s),)
    )


def _fit_words(epochs: Epochs) -> str:
    if epochs.memory_bytes is None or epochs.fit is None:
        return "How much memory files may take is not known here."
    memory, whole = epochs.memory_bytes, epochs.whole_set_bytes
    part = f" ({percent(memory / epochs.set_bytes)})" if epochs.fit != "fits" else ""
    words = f"The set of {format_bytes(epochs.set_bytes)} {epochs.fit}{part}: files may take {format_bytes(memory)}."
    if whole <= 1.01 * epochs.set_bytes:
        return words
    if memory >= whole:
        return f"{words} All images found, {format_bytes(whole)}, fit as well."
    return (
        f"{words} Of all images found, {format_bytes(whole)}, at least {percent(1 - memory / whole)} comes from "
        "storage in every epoch (estimated)."
    )


def epoch_cells(row: ConfigurationRow) -> dict[str, Value]:
    """Columns of a flat table; none for a row whose epochs were not asked for."""
    if row.epochs is None:
        return {}
    cells: dict[str, Value] = {}
    for number, epoch in enumerate(row.epochs.epochs, 1):
        cells |= {f"epoch_{number}_{name}": value for name, value in values(epoch).items()}
    memory = {"epoch_set_bytes": row.epochs.set_bytes, "file_memory_bytes": row.epochs.memory_bytes}
    return cells | memory | {"set_in_memory": row.epochs.fit}


def _short_runs(report: Report) -> Iterator[Part]:
    """A table for each device where a full buffer was measured, or was to be."""
    known = ((group, [(row, row.buffer) for row in group.rows if row.buffer]) for group in groups(report))
    tables = [(group, runs) for group, runs in known if any(run.how == "measured" or run.reason for _, run in runs)]
    for group, runs in tables:
        yield from table(runs, _SHORT_RUNS, caption=group.title)
        missing = dict.fromkeys(remark_words(run.reason) for _, run in runs if run.reason)
        yield from (Paragraph(text=f"Not measured: {reason}.", tone="quiet") for reason in missing)
    if tables:
        note = (
            "The rate over the first iterations, over the steady rate, minus 1, where the buffer was full before; for "
            "2 %: the iterations that are enough (estimated). loaderprobe explain sweep."
        )
        yield Paragraph(text=note, tone="quiet", further=True)


def _excess(pair: tuple[ConfigurationRow, BufferEffect], iterations: int) -> str:
    """`+19 %`; within 2 %, or within the noise band, it is none."""
    effect, over_steady = pair[1], pair[1].after(iterations)
    if over_steady is None:
        return ""
    more, none = over_steady - 1, max(ALIKE, effect.noise)
    if abs(more) <= none:
        return f"±{significant(none * 100, 1)} %"
    return f"{'+' if more > 0 else '−'}{percent(abs(more))}"  # noqa: RUF001  # the sign, as typeset


_SHORT_RUNS = (
    Column("data", lambda pair: pair[0].config.resolution),
    Column("workers", lambda pair: str(pair[0].config.loader.workers)),
    Column("prefetch", lambda pair: str(pair[0].config.loader.prefetch_factor)),
    Column("batches", lambda pair: str(pair[1].batches)),
    *(Column(str(count), partial(_excess, iterations=count)) for count in ITERATIONS),
    Column("for 2 %", lambda pair: f"{pair[1].enough:,}"),
    Column("how", lambda pair: pair[1].how),
)


def short_run_cells(row: ConfigurationRow) -> dict[str, Value]:
    """Columns of a flat table; none for a row without a buffer."""
    effect = row.buffer
    if effect is None:
        return {}
    cells: dict[str, Value] = {"buffered_batches": effect.batches}
    cells |= {f"rate_over_steady_after_{count}_iterations": effect.after(count) for count in ITERATIONS}
    return cells | {"rate_over_steady_how": effect.how, "iterations_within_2_percent": effect.enough}
