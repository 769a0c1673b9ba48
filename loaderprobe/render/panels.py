"""Below the first screen: rates, worker time, reads beside what the storage gives; ranks, epochs, short benchmarks.

A chart for each device is a table that is drawn, its rows by data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from loaderprobe.analyze.answer import best_ceiling, read_rate
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.ranks import RankRow, RanksView
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.studies import BufferEffect, EpochFigures, Epochs
from loaderprobe.records.thresholds import ALIKE, COLD_AT_LEAST
from loaderprobe.records.verdict import Interval, WorkerTime
from loaderprobe.render.charts import TONES
from loaderprobe.render.document import (
    Bar,
    Chart,
    ChartRow,
    Column,
    Paragraph,
    Part,
    Section,
    Shown,
    further,
    table,
)
from loaderprobe.render.format import MISSING, counted, figure, interval, megabytes_per_s, percent, rate
from loaderprobe.render.groups import (
    RowGroup,
    bound_words,
    detail_of,
    full_label,
    groups,
    letters_of,
    line_of,
    loading,
    tone,
    used_words,
)
from loaderprobe.render.rows import Cell
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A chart of one figure by workers, for each device."""

    title: str
    name: str
    unit: str
    row: Callable[[Report, ConfigurationRow], ChartRow | None]
    """None where there is no figure."""
    level: str = ""
    names: tuple[tuple[str, str], ...] = ()
    note: str = ""


def panel_sections(report: Report) -> Iterator[Section]:
    """All panels; those without a figure are empty."""
    for panel in PANELS:
        charts = [chart for group in groups(report) if (chart := _chart(report, panel, group))]
        note = [Paragraph(text=panel.note, tone="quiet")] if charts and panel.note else []
        yield Section(title=panel.title, name=panel.name, parts=further([*charts, *note]))


def _chart(report: Report, panel: Panel, group: RowGroup) -> Chart | None:
    """The rows by data set, with what became of those that have no figure; None where nothing has one."""
    lines: dict[str, list[ConfigurationRow]] = {line_of(row, group.rows): [] for row in group.rows}
    for row in sorted(group.rows, key=lambda row: row.config.loader.workers):
        lines[line_of(row, group.rows)].append(row)
    found: list[ChartRow] = []
    for name, rows in lines.items():
        found += [ChartRow(label=name, head=True), *(panel.row(report, row) or _empty(row) for row in rows)]
    if not any(bar.end for row in found for bar in row.bars):
        return None
    return Chart(
        rows=tuple(found), caption=group.title, unit=panel.unit, level=panel.level, names=panel.names,
        ends=f"workers,{panel.unit}",
    )  # fmt: skip


def _empty(row: ConfigurationRow) -> ChartRow:
    return ChartRow(label=loading(row), note="not measured" if row.status == "measured" else row.status)


def _rate(_: Report, row: ConfigurationRow) -> ChartRow | None:
    if not row.verdict:
        return None
    now, used = row.verdict.images_per_s, used_words(row)
    limits = f"{letters_of(row)} {bound_words(row)}"
    return ChartRow(
        label=loading(row),
        value=interval(now),
        note=limits if used == MISSING else f"{limits}, {used} of alone",
        bars=(Bar(end=now.value, tone=tone(row) if tone(row) in TONES else "inconclusive", letter=letters_of(row)),),
        interval=(now.low, now.high),
        level=row.verdict.rates_images_per_s.compute,
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


def _worker_time(_: Report, row: ConfigurationRow) -> ChartRow | None:
    spent = per_image(row)
    if spent is None:
        return None
    bars, begin = [], 0.0
    for (name, letter, _words), seconds in zip(TIME_OF_WORKER, spent, strict=True):
        bars.append(Bar(begin=begin, end=begin + seconds * 1e3, tone=name, letter=letter))
        begin += seconds * 1e3
    most = max(range(len(spent)), key=lambda place: spent[place])
    share = f"{percent(spent[most] / sum(spent))} {TIME_OF_WORKER[most][2].partition(' (')[0]}"
    return ChartRow(label=loading(row), value=figure(begin), note=share, bars=tuple(bars))


def per_image(row: ConfigurationRow) -> tuple[float, ...] | None:
    """Seconds of one image in one worker by `TIME_OF_WORKER`: workers over images/s of the loader alone, in all."""
    spent, loader = (row.verdict.worker_time, row.verdict.rates_images_per_s.loader) if row.verdict else (None, None)
    if spent is None or not loader:
        return None
    whole = row.config.readers / loader
    known = _known_parts(spent)
    # The parts are means over all rounds, the rate is the median of them: parts of more than all of it are scaled.
    scale = min(1.0, whole / sum(known)) if sum(known) else 1.0
    scaled = [part * scale for part in known]
    return (*scaled, max(0.0, whole - sum(scaled)))


def _known_parts(spent: WorkerTime) -> list[float]:
    waits = [spent.waits.get(name, 0.0) for name in WAITED]
    return [spent.cpu_s, spent.run_delay_s, *waits, max(0.0, spent.blocked_s - sum(waits))]


_LEAST_READ = 1_000
"""Bytes/s: less is written as nothing, and is not drawn."""


def _read(report: Report, row: ConfigurationRow) -> ChartRow | None:
    read, best = read_rate(row), best_ceiling(report, row)
    if read is None or read < _LEAST_READ:
        return None
    drawn = ChartRow(
        label=loading(row), value=megabytes_per_s(read), bars=(Bar(end=read / 1e6, tone="storage"),)
    )  # fmt: skip
    if best is None:
        return drawn
    most = f"{'>= ' if best.at_least else ''}{megabytes_per_s(best.read_bytes_per_s)}"
    return replace(
        drawn,
        note=f"{percent(read / best.read_bytes_per_s)} of {most}",
        level=best.read_bytes_per_s / 1e6,
        level_how="at least" if best.at_least else "measured",
    )


PANELS = (
    Panel(title="Rates by workers", name="rates", unit="images/s", row=_rate, level="compute alone"),
    Panel(
        title="Where worker time goes",
        name="workers",
        unit="ms an image",
        row=_worker_time,
        names=tuple((name, f"{letter} {words}") for name, letter, words in TIME_OF_WORKER),
        note="One image in one worker, the loader alone. The worker of the serial loader is the training thread.",
    ),
    Panel(
        title="Read rate against what the storage gives", name="reads", unit="MB/s", row=_read, level="storage alone"
    ),
)


SCALING_NOTE = "Speed-up: over the fewest ranks of the same model and device; loaderprobe explain ranks."


def scaling_section(report: Report) -> Section:
    """A line for each model, device and number of ranks; empty where nothing compares. One model needs no column."""
    found = {scaling.configuration: scaling for scaling in report.summary.scaling}
    rows = [row for row in report.summary.configurations if row.key in found]
    apart = [name for name in ("resolution", "cache") if len({OPTIONS[name].of(row.config) for row in rows}) > 1]
    models, loading = ({OPTIONS[name].of(row.config) for row in rows} for name in ("model", "workers"))

    def model(row: ConfigurationRow) -> str:
        named = [row.config.compute.model] if len(models) > 1 or apart else []
        return ", ".join([*named, *(str(OPTIONS[name].of(row.config)) for name in apart)])

    columns = (
        Column("model", model),
        Column("on", _on),
        Column("workers", lambda row: str(row.config.loader.workers or "serial") if len(loading) > 1 else ""),
        Column("images/s", lambda row: f"{interval(row.images_per_s)}{too_noisy(row.images_per_s)}"),
        Column("speed-up", lambda row: _gained(found[row.key].speedup)),
        Column("efficiency", lambda row: percent(share) if (share := found[row.key].efficiency) else ""),
        Column("over CPU", lambda row: _gained(found[row.key].over_cpu)),
        Column("limited by", bound_words),
    )
    note = further([Paragraph(text=SCALING_NOTE, tone="quiet")]) if rows else ()
    return Section(title="Models, devices and ranks", parts=(*table(rows, columns), *note), panel="main")


def _on(row: ConfigurationRow) -> str:
    config = row.config
    over = f" on {counted(config.nodes, 'node')}" if config.nodes > 1 else ""
    return f"{f'{config.ranks} x ' if config.ranks > 1 else ''}{config.compute.name}{over}"


def too_noisy(value: Interval | None) -> str:
    """Beside a rate whose band is wider than itself."""
    return ", too noisy" if value and value.too_wide else ""


def _gained(speedup: Interval | None) -> str:
    """With a word where its range holds 1."""
    if speedup is None:
        return ""
    return f"{interval(speedup)}{' (noise)' if speedup.low <= 1 <= speedup.high else ''}"


_MOST_RANKS = 32


def ranks_section(report: Report) -> Section:
    """What each rank loads by itself; a terminal has those that are uneven."""
    parts: list[Shown] = []
    for row in report.summary.configurations:
        detail = detail_of(report, row)
        if detail and detail.ranks:
            chart = _rank_chart(detail.ranks, f"{detail.sample}s", full_label(row, report))
            parts += chart if detail.ranks.uneven else further(chart)
    return Section(title="Ranks", name="ranks", parts=tuple(parts))


def _rank_chart(view: RanksView, sample: str, caption: str) -> list[Shown]:
    """Of few ranks all; of more those that are slow, and some beside them."""
    chosen = view.rows if view.uneven and len(view.rows) <= _MOST_RANKS else view.shown
    unit = f"{sample}/s by itself"
    chart = Chart(rows=tuple(map(_rank_row, chosen)), unit=unit, caption=caption, ends=f"rank,{unit}")
    count = len(view.rows) - len(chosen)
    others = f"{counted(count, 'other rank')} not shown. " if count else ""
    note = "By itself: waiting for no other rank. Input, waits for others: a step of the loader alone, in step."
    return [chart, Paragraph(text=f"{others}{note}", tone="quiet")]


def _rank_row(row: RankRow) -> ChartRow:
    alone = row.alone_images_per_s
    role = f"{row.role}, " if row.role else ""
    return ChartRow(
        label=f"rank {row.rank}{f' ({row.host})' if row.host else ''}",
        value=MISSING if alone is None else rate(alone),
        note=f"{role}input {figure(row.input_s * 1e3)}, waits {figure(row.waiting_s * 1e3)} ms",
        bars=(Bar(end=alone, tone="imbalance"),) if alone else (),
    )


def epochs_section(report: Report) -> Section:
    """A chart for each configuration whose epochs were asked for, and whether its set fits into memory."""
    parts: list[Part] = []
    for row in report.summary.configurations:
        if row.epochs and row.epochs.reason:
            why = remark_words(row.epochs.reason)
            parts.append(Paragraph(text=f"{full_label(row, report)}: not measured, {why}."))
        elif row.epochs:
            rows = tuple(_epoch_row(number, epoch) for number, epoch in enumerate(row.epochs.epochs, 1))
            parts.append(
                Chart(
                    rows=rows,
                    unit="images/s",
                    caption=full_label(row, report),
                    ends="epoch,images/s",
                )
            )
            parts.append(Paragraph(text=_fit_words(row.epochs), tone="quiet"))
    return Section(title="Epochs", name="epochs", parts=tuple(parts))


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


def epoch_cells(row: ConfigurationRow) -> dict[str, Cell]:
    """Columns of a flat table; none for a row whose epochs were not asked for."""
    if row.epochs is None:
        return {}
    cells: dict[str, Cell] = {}
    for number, epoch in enumerate(row.epochs.epochs, 1):
        cells |= {
            f"epoch_{number}_images_per_s": epoch.images_per_s,
            f"epoch_{number}_cold_fraction": epoch.cold_fraction,
        }
    memory = {"epoch_set_bytes": row.epochs.set_bytes, "file_memory_bytes": row.epochs.memory_bytes}
    return cells | memory | {"set_in_memory": row.epochs.fit}


SHOWN = (10, 20, 50, 100, 200)
"""Iterations of the table."""
SHORT_RUNS_NOTE = (
    "The rate over the first iterations, over the steady rate, minus 1, where the buffer was full before; for 2 %: the "
    "iterations that are enough (estimated). loaderprobe explain sweep."
)


def short_runs_section(report: Report) -> Section:
    """A table for each device where a full buffer was measured, or was to be."""
    parts: list[Shown] = []
    for group in groups(report):
        found = [(row, row.buffer) for row in group.rows if row.buffer]
        if any(effect.how == "measured" or effect.reason for _, effect in found):
            parts += table(found, _SHORT_RUNS, caption=group.title)
            missing = dict.fromkeys(remark_words(effect.reason) for _, effect in found if effect.reason)
            parts += [Paragraph(text=f"Not measured: {reason}.", tone="quiet") for reason in missing]
    parts += further([Paragraph(text=SHORT_RUNS_NOTE, tone="quiet")]) if parts else ()
    return Section(title="Short benchmarks", name="short_runs", parts=tuple(parts))


def _excess(pair: tuple[ConfigurationRow, BufferEffect], iterations: int) -> str:
    """`+19 %`; within 2 %, or within the noise band, it is none."""
    effect, over_steady = pair[1], _at(pair[1], iterations)
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
    *(Column(str(count), partial(_excess, iterations=count)) for count in SHOWN),
    Column("for 2 %", lambda pair: f"{pair[1].enough:,}"),
    Column("how", lambda pair: pair[1].how),
)


def short_run_cells(row: ConfigurationRow) -> dict[str, Cell]:
    """Columns of a flat table; none for a row without a buffer."""
    effect = row.buffer
    if effect is None:
        return {}
    cells: dict[str, Cell] = {"buffered_batches": effect.batches}
    cells |= {f"rate_over_steady_after_{count}_iterations": _at(effect, count) for count in SHOWN}
    return cells | {"rate_over_steady_how": effect.how, "iterations_within_2_percent": effect.enough}


def _at(effect: BufferEffect, iterations: int) -> float | None:
    """As measured where it was, as estimated where all is."""
    return effect.predicted(iterations) if effect.how == "estimated" else effect.measured(iterations)
