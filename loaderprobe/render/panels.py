"""Below the first screen: rates, worker time, reads beside what the storage gives; ranks, epochs, short benchmarks.

A chart for each device is a table that is drawn, its rows by data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loaderprobe.analyze.answer import best_ceiling, read_rate
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.ranks import RankRow, RanksView
from loaderprobe.records.report import ConfigurationRow, Report, Scaling
from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.studies import BufferEffect, EpochFigures, Epochs
from loaderprobe.records.thresholds import ALIKE, COLD_AT_LEAST
from loaderprobe.records.verdict import Interval, WorkerTime
from loaderprobe.render.charts import TONES
from loaderprobe.render.document import Bar, Chart, ChartRow, Paragraph, Part, Section, Shown, Table, further
from loaderprobe.render.format import MISSING, counted, figure, interval, megabytes_per_s, percent, rate
from loaderprobe.render.groups import RowGroup, detail_of, full_label, groups, letters_of, line_of, used_words
from loaderprobe.render.rows import Cell
from loaderprobe.render.wording import bound_words, loading, tone
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, significant

Drawn = Callable[[ConfigurationRow], ChartRow | None]
_ROOM = 1.05
"""A scale ends so far above what it shows."""


def _rows(group: RowGroup, drawn: Drawn) -> tuple[ChartRow, ...]:
    """The rows that have figures, by data set; an empty one for those that have none, with what became of it."""
    lines: dict[str, list[ConfigurationRow]] = {}
    for row in sorted(group.rows, key=lambda row: row.config.loader.workers):
        lines.setdefault(line_of(row, group.rows), []).append(row)
    found: list[ChartRow] = []
    for name in dict.fromkeys(line_of(row, group.rows) for row in group.rows):
        some = [drawn(row) or ChartRow(label=loading(row), note=_why_none(row)) for row in lines[name]]
        found += [ChartRow(label=name, head=True), *some]
    return tuple(found)


def _why_none(row: ConfigurationRow) -> str:
    return "not measured" if row.status == "measured" else row.status


def _chart(group: RowGroup, rows: tuple[ChartRow, ...], **options: object) -> Iterator[Part]:
    """One for a device; none where nothing has a figure."""
    ends = [bar.end for row in rows for bar in row.bars]
    ends += [end for row in rows for end in (*(row.interval or ()), *([row.level] if row.level else []))]
    if any(end > 0 for end in ends):
        yield Chart(rows=rows, high=_ROOM * max(ends), caption=group.title, further=True, **options)  # type: ignore[arg-type]  # fields of Chart


def rate_section(report: Report) -> Section:
    """Images/s by workers in the colour of what limits, under the rate of compute alone."""

    def drawn(row: ConfigurationRow) -> ChartRow | None:
        if not row.verdict:
            return None
        now = row.verdict.images_per_s
        used = used_words(row)
        return ChartRow(
            label=loading(row),
            value=interval(now),
            note=", ".join(
                [f"{letters_of(row)} {bound_words(row)}", *([f"{used} of alone"] if used != MISSING else [])]
            ),
            bars=(Bar(end=now.value, tone=_known_tone(row), letter=letters_of(row)),),
            interval=(now.low, now.high) if now.high > now.low else None,
            level=row.verdict.rates_images_per_s.compute,
            level_how="specified" if row.emulated else "measured",
        )

    parts = [
        part
        for group in groups(report)
        for part in _chart(group, _rows(group, drawn), unit="images/s", level="compute alone", ends="workers,images/s")
    ]
    return Section(title="Rates by workers", name="rates", parts=tuple(parts))


def _known_tone(row: ConfigurationRow) -> str:
    return tone(row) if tone(row) in TONES else "inconclusive"


PARTS: tuple[tuple[str, str, str], ...] = (
    ("preprocessing", RESOURCE["preprocessing"].letter, "decoding and augmentation (CPU)"),
    ("cores", "Q", "ready, no core free"),
    *((name, RESOURCE[name].letter, f"waiting: {RESOURCE[name].kinds or name}") for name in WAITED),
    ("unknown", RESOURCE["unknown"].letter, "waiting, not attributed"),
    ("rest", "O", "other: sending, waiting to send"),
)
"""Where the time of one image in a worker goes: (tone, letter, words)."""


def worker_section(report: Report) -> Section:
    """Where the time of one image goes in one worker, the loader running alone."""

    def drawn(row: ConfigurationRow) -> ChartRow | None:
        spent = per_image(row)
        if spent is None:
            return None
        bars, begin = [], 0.0
        for (name, letter, _), seconds in zip(PARTS, spent, strict=True):
            bars.append(Bar(begin=begin, end=begin + seconds * 1e3, tone=name, letter=letter))
            begin += seconds * 1e3
        most = max(range(len(PARTS)), key=lambda place: spent[place])
        share = f"{percent(spent[most] / sum(spent))} {PARTS[most][2].partition(' (')[0]}"
        return ChartRow(label=loading(row), value=figure(begin), note=share, bars=tuple(bars))

    names = tuple((name, f"{letter} {words}") for name, letter, words in PARTS)
    parts = [
        part
        for group in groups(report)
        for part in _chart(group, _rows(group, drawn), unit="ms an image", names=names, ends="workers,ms an image")
    ]
    note = Paragraph(
        text="One image in one worker, the loader running alone. With the serial loader, the worker is the training "
        "thread.",
        tone="quiet",
        further=True,
    )
    return Section(title="Where worker time goes", name="workers", parts=(*parts, *([note] if parts else [])))


def per_image(row: ConfigurationRow) -> tuple[float, ...] | None:
    """Seconds of one image in one worker by `PARTS`, which sum to workers over images/s of the loader alone."""
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


def read_section(report: Report) -> Section:
    """MB/s read from storage while training, under the most that the storage alone gave."""

    def drawn(row: ConfigurationRow) -> ChartRow | None:
        read, best = read_rate(row), best_ceiling(report, row)
        if read is None:
            return None
        least = ">= " if best and best.at_least else ""
        of = (
            f"{percent(read / best.read_bytes_per_s)} of {least}{megabytes_per_s(best.read_bytes_per_s)}"
            if best
            else ""
        )
        return ChartRow(
            label=loading(row),
            value=megabytes_per_s(read),
            note=of,
            bars=(Bar(end=read / 1e6, tone="storage"),),
            level=best.read_bytes_per_s / 1e6 if best else None,
            level_how="at least" if best and best.at_least else "measured",
        )

    parts = [
        part
        for group in groups(report)
        for part in _chart(group, _rows(group, drawn), unit="MB/s", level="storage alone", ends="workers,MB/s")
    ]
    return Section(title="Read rate against what the storage gives", name="reads", parts=tuple(parts))


# What each model gains on each device, with each number of ranks.

SCALING_HEAD = ("model", "on", "workers", "images/s", "speed-up", "efficiency", "over CPU", "limited by")
SCALING_RIGHT = frozenset(range(2, 7))
SCALING_NOTE = (
    "Speed-up: over the fewest ranks of the same model and device. Efficiency: that, over how many times the "
    "accelerators there are; ranks on a CPU share its cores, so there it is that over nodes. Each rank trains a whole "
    "batch in a step."
)
NOISE = " (noise)"
"""Beside a speed-up whose range holds 1."""


def scaling_section(report: Report) -> Section:
    """A line for each model, device and number of ranks; empty where nothing compares. One model needs no column."""
    rows = {row.key: row for row in report.summary.configurations}
    pairs = [(scaling, rows[scaling.configuration]) for scaling in report.summary.scaling]
    apart = [name for name in ("resolution", "cache") if len({OPTIONS[name].of(row.config) for _, row in pairs}) > 1]
    lines = [_scaling_line(scaling, row, apart) for scaling, row in pairs]
    columns = [{line[place] for line in lines} for place in range(len(SCALING_HEAD))]
    shown = [
        place
        for place, name in enumerate(SCALING_HEAD)
        if columns[place] != {MISSING} and (len(columns[place]) > 1 or name not in ("model", "workers"))
    ]
    table = Table(
        head=tuple(SCALING_HEAD[place] for place in shown),
        lines=tuple(tuple(line[place] for place in shown) for line in lines),
        right=frozenset(number for number, place in enumerate(shown) if place in SCALING_RIGHT),
    )
    parts = (table, Paragraph(text=SCALING_NOTE, tone="quiet", further=True)) if lines else ()
    return Section(title="Models, devices and ranks", parts=parts, panel="main")


def _scaling_line(scaling: Scaling, row: ConfigurationRow, apart: list[str]) -> tuple[str, ...]:
    config = row.config
    over = f" on {counted(config.nodes, 'node')}" if config.nodes > 1 else ""
    return (
        ", ".join([config.compute.model, *(str(OPTIONS[name].of(config)) for name in apart)]),
        f"{f'{config.ranks} x ' if config.ranks > 1 else ''}{config.compute.name}{over}",
        str(config.loader.workers or "serial"),
        f"{interval(row.images_per_s)}{too_noisy(row.images_per_s)}",
        _gained(scaling.speedup),
        percent(scaling.efficiency),
        _gained(scaling.over_cpu),
        bound_words(row),
    )


def too_noisy(value: Interval | None) -> str:
    """Beside a rate whose band is wider than itself."""
    return ", too noisy" if value and value.too_wide else ""


def _gained(speedup: Interval | None) -> str:
    return f"{interval(speedup)}{NOISE if speedup and speedup.low <= 1 <= speedup.high else ''}"


# The ranks of each configuration that has several.

RANKS_HEAD = ("rank", "host", "by itself, images/s", "own input, ms", "waiting for others, ms")
RANKS_CAPTION = (
    "By itself: what the loader of a rank delivers when it waits for no other. Own input and waiting for others: "
    "milliseconds of a step of the loader alone, in step. Waiting names no slow rank: who is ahead once keeps a full "
    "buffer."
)
_MOST_RANKS = 32


def ranks_section(report: Report) -> Section:
    """A chart of all ranks where they are uneven, and the table of a few of them."""
    parts: list[Shown] = []
    for row in report.summary.configurations:
        detail = detail_of(report, row)
        if detail and detail.ranks:
            name = full_label(row, report)
            parts += _rank_chart(detail.ranks, f"{detail.sample}s", name) if detail.ranks.uneven else []
            parts += further(_rank_table(detail.ranks, f"{detail.sample}s", name))
    return Section(title="Ranks", name="ranks", parts=tuple(parts))


def _rank_chart(view: RanksView, sample: str, caption: str) -> Iterator[Shown]:
    """What each rank loads by itself; none where that was not measured."""
    chosen = view.rows if len(view.rows) <= _MOST_RANKS else view.shown
    known = [(row, row.alone_images_per_s) for row in chosen if row.alone_images_per_s is not None]
    if known:
        rows = [
            ChartRow(
                label=_rank_name(row),
                value=figure(alone),
                note=row.role or "",
                bars=(Bar(end=alone, tone="imbalance"),),
            )
            for row, alone in known
        ]
        unit = f"{sample}/s by itself"
        yield Chart(rows=tuple(rows), high=_ROOM * max(alone for _, alone in known), unit=unit, caption=caption)


def _rank_name(row: RankRow) -> str:
    """`rank 1 (node7)`."""
    return f"rank {row.rank}{f' ({row.host})' if row.host else ''}"


def _rank_table(view: RanksView, sample: str, caption: str) -> Iterator[Shown]:
    """Its table, what the columns are, and how many ranks are not in it."""
    head = tuple(name.replace("images", sample) for name in RANKS_HEAD)
    yield Table(head=head, lines=tuple(map(_rank_line, view.shown)), right=frozenset({2, 3, 4}), caption=caption)
    yield Paragraph(text=RANKS_CAPTION)
    if count := len(view.rows) - len(view.shown):
        yield Paragraph(text=f"{count} other ranks are not in the table.")


def _rank_line(row: RankRow) -> tuple[str, ...]:
    role = f" ({row.role})" if row.role else ""
    alone = MISSING if row.alone_images_per_s is None else rate(row.alone_images_per_s)
    return f"{row.rank}{role}", row.host, alone, figure(row.input_s * 1e3), figure(row.waiting_s * 1e3)


# Whole epochs: rate and cold share of each.


def epochs_section(report: Report) -> Section:
    """A chart for each configuration whose epochs were asked for, and whether its set fits into memory."""
    parts: list[Part] = []
    for row in report.summary.configurations:
        if epochs := row.epochs:
            name = full_label(row, report)
            if epochs.reason:
                parts.append(Paragraph(text=f"{name}: not measured, {remark_words(epochs.reason)}."))
                continue
            rows = tuple(_epoch_row(number, epoch) for number, epoch in enumerate(epochs.epochs, 1))
            high = _ROOM * max(epoch.images_per_s for epoch in epochs.epochs)
            parts.append(Chart(rows=rows, high=high, unit="images/s", caption=name, ends="epoch,images/s"))
            parts.append(Paragraph(text=_fit_words(epochs), tone="quiet"))
    return Section(title="Epochs", name="epochs", parts=tuple(parts))


def _epoch_row(number: int, epoch: EpochFigures) -> ChartRow:
    share = epoch.cold_fraction
    warm = number == 1 and share is not None and share < COLD_AT_LEAST
    note = "" if share is None else f"{percent(share)} from storage{', so not cold' if warm else ''}"
    return ChartRow(
        label=f"epoch {number}", value=rate(epoch.images_per_s), note=note, bars=(Bar(end=epoch.images_per_s),)
    )


def _fit_words(epochs: Epochs) -> str:
    """Whether the set fits into memory."""
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


# Short benchmarks: how much too fast one is that begins with a full buffer.

SHOWN = (10, 20, 50, 100, 200)
"""Iterations of the table."""
SHORT_RUNS_NOTE = (
    "A benchmark starts a loader, and while its device warms up, the buffer fills. Its first iterations then cost the "
    "loader nothing: the table has the rate over the first iterations, over the steady rate, minus 1. For 2 %: the "
    "iterations that are enough (estimated). An estimate is the most there can be, k / (k - free batches)."
)


def short_runs_section(report: Report) -> Section:
    """A table for each device where a full buffer was measured, or was to be."""
    parts: list[Part] = []
    for group in groups(report):
        found = [(row, row.buffer) for row in group.rows if row.buffer]
        if any(effect.how == "measured" or effect.reason for _, effect in found):
            parts.append(
                Table(
                    head=("data", "workers", "prefetch", "batches", *map(str, SHOWN), "for 2 %", "how"),
                    lines=tuple(_short_run_line(row, effect) for row, effect in found),
                    right=frozenset(range(1, 5 + len(SHOWN))),
                    caption=group.title,
                )
            )
            missing = dict.fromkeys(remark_words(effect.reason) for _, effect in found if effect.reason)
            parts += [Paragraph(text=f"Not measured: {reason}.", tone="quiet") for reason in missing]
    parts += [Paragraph(text=SHORT_RUNS_NOTE, tone="quiet", further=True)] if parts else []
    return Section(title="Short benchmarks", name="short_runs", parts=tuple(parts))


def _short_run_line(row: ConfigurationRow, effect: BufferEffect) -> tuple[str, ...]:
    ratios = [_at(effect, count) for count in SHOWN]
    return (
        row.config.resolution,
        str(row.config.loader.workers),
        str(row.config.loader.prefetch_factor),
        str(effect.batches),
        *(MISSING if ratio is None else _excess(ratio, effect) for ratio in ratios),
        f"{effect.enough:,}",
        effect.how,
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


def _excess(over_steady: float, effect: BufferEffect) -> str:
    """`+19 %`; within 2 %, or within the noise band, it is none."""
    more, none = over_steady - 1, max(ALIKE, effect.noise)
    if abs(more) <= none:
        return f"±{significant(none * 100, 1)} %"
    return f"{'+' if more > 0 else '−'}{percent(abs(more))}"  # noqa: RUF001  # the sign, as typeset
