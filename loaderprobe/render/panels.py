"""The charts of a report, each with a table: rates, where worker time goes, reads beside what the storage gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.verdict import WorkerTime
from loaderprobe.render.charts import READ_COLOR, TONES, Column, Part, column_chart, stacked_chart
from loaderprobe.render.figures import reasons
from loaderprobe.render.groups import Group, groups, measured
from loaderprobe.render.limit_map import line_of
from loaderprobe.render.limits import letters_of, used_words
from loaderprobe.render.reads import best_ceiling, read_rate
from loaderprobe.render.wording import (
    MISSING,
    bound_words,
    figure,
    interval,
    loading,
    megabytes_per_s,
    percent,
    rate,
    tone,
)

PARTS = (
    Part(letter="D", name="decoding and augmentation (CPU)", color="#E69F00", ink="#000000"),
    Part(letter="Q", name="ready, no core free", color="#56B4E9", ink="#000000"),
    *(
        Part(letter=each.letter, name=f"waiting: {each.kinds or each.name}", color=each.color, ink=each.ink)
        for each in (RESOURCE[name] for name in WAITED)
    ),
    Part(letter="U", name="waiting, not attributed", color="#D9D9D9", ink="#000000"),
    Part(letter="O", name="other: sending, waiting to send", color="#F0E442", ink="#000000"),
)
"""Where the time of one image in a worker goes."""
_ABOVE = 1.16
"""A scale ends so far above what it shows, that labels have their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart and its figures as a table; `svg` is empty when there is nothing to draw, and `note` says why."""

    title: str
    svg: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Charts of one kind and device on one scale, a chart a data set."""

    device: str
    emulated: bool
    caption: str
    figures: tuple[Figure, ...]


Lines = dict[str, list[ConfigurationRow]]
"""Rows that differ in workers only, by the name of their line."""


def rate_panels(report: Report) -> tuple[Panel, ...]:
    """Images/s against workers with 95 % intervals, under the rate of compute alone."""
    found = groups(report)
    tops = {name: _highest([group for group in found if group.compute == name]) for name in {g.compute for g in found}}
    return tuple(
        _panel(
            group,
            "Bars: images/s with their 95 % intervals, and the letter of what limits. Dashed: compute "
            "alone, beside the fastest of them.",
            [_rates(name, rows, group, tops[group.compute]) for name, rows in _lines(group).items()],
        )
        for group in found
    )


def worker_panels(report: Report) -> tuple[Panel, ...]:
    """Where the time of one image goes in one worker, the loader running alone."""
    return tuple(
        _panel(
            group,
            "One image in one worker, the loader running alone: workers over images/s of the loader. With the serial "
            "loader, the worker is the training thread.",
            [_workers(name, rows, _longest(group)) for name, rows in _lines(group).items()],
        )
        for group in groups(report)
    )


def read_panels(report: Report) -> tuple[Panel, ...]:
    """MB/s read from storage while training, under the most that the storage alone gave."""
    top = max([_most_read(report, row) for row in report.summary.configurations], default=0.0)
    return tuple(
        _panel(
            group,
            "Bars: MB/s that the devices under the data delivered while training; the page cache does not count. "
            "Dashed: the most that the storage alone gave in this run.",
            [_reads(report, name, rows, top) for name, rows in _lines(group).items()],
        )
        for group in groups(report)
    )


def _panel(group: Group, caption: str, figures: Sequence[Figure]) -> Panel:
    return Panel(device=group.title, emulated=group.emulated, caption=caption, figures=tuple(figures))


def _lines(group: Group) -> Lines:
    found: Lines = {}
    for row in group.rows:
        found.setdefault(line_of(row, group.rows), []).append(row)
    return {name: sorted(rows, key=lambda row: row.config.loader.workers) for name, rows in found.items()}


def _highest(some: Sequence[Group]) -> float:
    rows = [row for group in some for row in group.rows]
    highest = [row.images_per_s.high for row in rows if row.images_per_s]
    return max([*highest, *(group.ceiling_images_per_s or 0.0 for group in some)], default=0.0) * _ABOVE


def _rates(name: str, rows: Sequence[ConfigurationRow], group: Group, top: float) -> Figure:
    known = [(row, speed) for row in measured(rows) if (speed := row.images_per_s)]
    columns = [
        Column(
            workers=_count(row), value=speed.value, low=speed.low, high=speed.high,
            text=f"{rate(speed.value)} {letters_of(row)}", color=TONES.get(tone(row), TONES["inconclusive"]),
        )
        for row, speed in known
    ]  # fmt: skip
    best = max(known, key=lambda each: each[1].value, default=None)
    # As in the tables: what compute alone did in this very configuration, not the most that it did in any.
    alone = best[0].verdict.rates_images_per_s.compute if best and best[0].verdict else None
    origin = "specified" if group.emulated else "measured"
    ceiling = (alone, f"compute alone: {rate(alone)} ({origin})") if alone else None
    title = name
    if best:
        row, most = best
        # Noise may put training above compute alone, which it cannot outrun: then it is no share of it.
        share = f" of {rate(alone)}" if alone and alone >= most.value else ""
        title = f"{name}: {rate(most.value)}{share} images/s, {loading(row)}"
    return Figure(
        title=title,
        svg=column_chart(columns, title, "images/s", top, ceiling),
        head=("workers", "images/s", "of compute alone", "limit"),
        lines=tuple(
            (_count(row), interval(speed), used_words(row, beside_rate=True), bound_words(row)) for row, speed in known
        ),
        note=_note(rows, "images/s"),
    )


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


def _longest(group: Group) -> float:
    return max([sum(parts) for row in group.rows if (parts := per_image(row))], default=0.0) * 1e3 * _ABOVE


def _workers(name: str, rows: Sequence[ConfigurationRow], top: float) -> Figure:
    known = [(row, parts) for row in measured(rows) if (parts := per_image(row))]
    bars = [(loading(row), [part * 1e3 for part in parts], figure(sum(parts) * 1e3)) for row, parts in known]
    title = name
    if known:
        _, last = known[-1]
        largest = max(range(len(PARTS)), key=lambda place: last[place])
        share = percent(last[largest] / sum(last))
        title = f"{name}, {loading(known[-1][0])}: {share} {PARTS[largest].name.partition(' (')[0]}"
    used = [place for place in range(len(PARTS)) if any(parts[place] for _, parts in known)]
    return Figure(
        title=title,
        svg=stacked_chart(bars, PARTS, title, "ms an image in one worker", top),
        head=("workers", *(PARTS[place].name for place in used), "ms an image"),
        lines=tuple(
            (_count(row), *(figure(parts[place] * 1e3) for place in used), figure(sum(parts) * 1e3))
            for row, parts in known
        ),
        note=_note(rows, "worker time"),
    )


def _most_read(report: Report, row: ConfigurationRow) -> float:
    ceiling = best_ceiling(report, row)
    return max(read_rate(row) or 0.0, ceiling.read_bytes_per_s if ceiling else 0.0) / 1e6 * _ABOVE


def _reads(report: Report, name: str, rows: Sequence[ConfigurationRow], top: float) -> Figure:
    known = [(row, read) for row in measured(rows) if (read := read_rate(row)) is not None]
    columns = [
        Column(workers=_count(row), value=read / 1e6, text=megabytes_per_s(read), color=READ_COLOR)
        for row, read in known
    ]
    best = best_ceiling(report, rows[0])
    least = ">= " if best and best.at_least else ""
    ceiling, title = None, name
    most = f"{least}{megabytes_per_s(best.read_bytes_per_s)}" if best else MISSING
    if best:
        ceiling = (best.read_bytes_per_s / 1e6, f"storage alone: {most} ({best.readers} readers)")
    if known:
        read = max(read for _, read in known)
        share = f", {percent(read / best.read_bytes_per_s)} of what storage gives" if best else " read"
        title = f"{name}: {megabytes_per_s(read)} MB/s{share}"
    return Figure(
        title=title,
        svg=column_chart(columns, title, "MB/s read from storage", top, ceiling),
        head=("workers", "MB/s", "storage alone, MB/s"),
        lines=tuple((_count(row), megabytes_per_s(read), most) for row, read in known),
        note=_note(rows, "disk_read_bytes_per_s"),
    )


def _note(rows: Sequence[ConfigurationRow], field: str) -> str:
    """What is not drawn, and why."""
    gone = [f"{loading(row)}: {row.status}" for row in rows if row.status != "measured"]
    gone += [f"{loading(row)}: {reasons(row)[field]}" for row in measured(rows) if field in row.unavailable]
    return "; ".join(gone)


def _count(row: ConfigurationRow) -> str:
    return str(row.config.loader.workers or "serial")
