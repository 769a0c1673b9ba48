"""The bandwidth report for a terminal, the answer first, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from rich.text import Text

from loaderprobe.records.bandwidth import BandwidthPhase, BandwidthReport, PhaseName
from loaderprobe.render import bandwidth_words as words
from loaderprobe.render.page import Page
from loaderprobe.render.wording import MISSING, percent
from loaderprobe.units import significant

_ALONE: tuple[PhaseName, ...] = ("direct", "sequential")
"""The phases below the ladder. The paced one is evidence of the kind of device: its rate means nothing."""
_INDENT = "  "
_LEAST_BAR = 6
_LONGEST_BAR = 40
_CACHE_STYLES = {"cold": "green", "warm": "yellow", "mixed": "yellow", "unproved": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of the table: a head, a cell and a style for each phase, all in one width."""

    heads: Sequence[str]
    cells: Sequence[str]
    styles: Sequence[str]
    left: bool = False
    gap: int = 2
    """Blanks before it."""

    @property
    def width(self) -> int:
        """Of the widest head or cell, and of the blanks before it."""
        return self.gap + max(len(text) for text in (*self.heads, *self.cells))

    def fitted(self, text: str) -> str:
        """`text` in the width of the column."""
        room = self.width - self.gap
        return " " * self.gap + (text.ljust(room) if self.left else text.rjust(room))


def bandwidth_json(report: BandwidthReport) -> str:
    """The report, indented, ending with a newline. What could not be counted is null."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def render_bandwidth(report: BandwidthReport, width: int = 80, color: bool = False) -> str:
    """The report in `width` columns: the answer, then what each number of readers gets, then what to know of it."""
    page = Page(width=width, color=color)
    page.title(f"Storage under {report.path}")
    page.paragraph(words.place(report))
    page.paragraph(words.files(report))
    if report.interrupted:
        page.paragraph(words.interrupted(report), style="yellow")
    page.gap()
    _answer(page, report)
    _tables(page, report, width)
    notes = words.notes(report)
    if notes:
        page.heading("Notes")
    for subject, note in notes:
        page.item(subject, note)
    page.gap()
    page.paragraph(words.made(report), style="dim")
    return page.text()


def _answer(page: Page, report: BandwidthReport) -> None:
    best = report.best
    if best is None:
        page.paragraph("No step of the ladder was measured.", style="bold")
        return
    page.paragraph(words.answer(report, best), style="bold")
    if words.in_memory(report, best) and report.limit.by != "memory":
        return  # the sentences would be about memory
    page.item("Limit", report.limit.sentence)
    page.item("Device", report.kind.sentence)


def _tables(page: Page, report: BandwidthReport, width: int) -> None:
    """The ladder, and below it, in the same columns, the phases that are made once or why they were not made."""
    phases = (*report.ladder, *(phase for name in _ALONE if (phase := report.phase(name))))
    table = _Table(page, _layout(phases, report, width) if phases else ())
    reasons = {part.name: part.reason for part in report.missing}
    if report.ladder:
        page.gap()
    for number in range(len(report.ladder)):
        table.row(number)
    for name in _ALONE:
        phase = report.phase(name)
        if phase:
            page.gap()
            page.add(Text(_INDENT + words.title(name, phase), style="bold"))
            table.row(phases.index(phase))
        elif name in reasons:
            page.gap()
            page.item(words.title(name), f"not measured, {reasons[name]}")
    if phases:
        page.gap()
        page.paragraph(words.legend(report, phases), style="dim")


class _Table:
    """Puts rows on a page, and the heads above them where they are not those of the row before."""

    def __init__(self, page: Page, columns: Sequence[_Column]) -> None:
        self._page = page
        self._columns = columns
        self._heads: list[str] = []

    def row(self, number: int) -> None:
        heads = [column.heads[number] for column in self._columns]
        if heads != self._heads:
            self._page.add(_line(self._columns, heads, ["dim"] * len(heads)))
        self._heads = heads
        cells = [column.cells[number] for column in self._columns]
        self._page.add(_line(self._columns, cells, [column.styles[number] for column in self._columns]))


def _line(columns: Sequence[_Column], cells: Sequence[str], styles: Sequence[str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for column, cell, style in zip(columns, cells, styles, strict=True):
        line.append(column.fitted(cell), style)
    return line


def _layout(phases: Sequence[BandwidthPhase], report: BandwidthReport, width: int) -> Sequence[_Column]:
    """The columns that fit: narrower gaps, then no shares; a bar where it fits."""
    for gap, shares in ((2, True), (1, True), (1, False)):
        columns = _columns(phases, report, gap=gap, shares=shares)
        left = width - sum(column.width for column in columns) - 2
        if left >= 0:
            break
    if left >= _LEAST_BAR:
        columns.append(_bars(phases, min(_LONGEST_BAR, left)))
    return columns


def _columns(phases: Sequence[BandwidthPhase], report: BandwidthReport, *, gap: int, shares: bool) -> list[_Column]:
    plain = [""] * len(phases)
    least = [">=" if phase.at_least else "" for phase in phases]
    rates = [
        f"{sign}{cell}" for sign, cell in zip(least, _aligned(phase.bw_bytes / 1e6 for phase in phases), strict=True)
    ]
    pieces = [f"{sign}{significant(phase.files_per_s)}" for sign, phase in zip(least, phases, strict=True)]
    return [
        _column("readers", [str(phase.readers) for phase in phases], plain, gap=2),
        _column("MB/s", rates, ["bold" if phase == report.best else "" for phase in phases], gap=gap),
        _column(
            "±95 %",
            [_spread(phase) for phase in phases],
            ["" if phase.settled else "yellow" for phase in phases],
            left=True,
        ),
        _Column(heads=[f"{words.noun(phase, report)}s/s" for phase in phases], cells=pieces, styles=plain, gap=gap),
        _column("p50 ms", _aligned(_time_ms(phase, "50.000000") for phase in phases), plain, gap=gap),
        _column("p99 ms", _aligned(_time_ms(phase, "99.000000") for phase in phases), plain, gap=gap),
        _column("cache", _caches(phases, shares), [_CACHE_STYLES[phase.cache] for phase in phases], left=True, gap=gap),
    ]


def _column(head: str, cells: Sequence[str], styles: Sequence[str], *, left: bool = False, gap: int = 1) -> _Column:
    return _Column(heads=[head] * len(cells), cells=cells, styles=styles, left=left, gap=gap)


def _aligned(values: Iterable[float]) -> list[str]:
    """Three figures each, with blanks behind so that the decimal points stand below each other."""
    shown = [significant(value) for value in values]
    longest = max(len(text.partition(".")[1] + text.partition(".")[2]) for text in shown)
    return [text + " " * (longest - len(text.partition(".")[1] + text.partition(".")[2])) for text in shown]


def _spread(phase: BandwidthPhase) -> str:
    """Half the interval, to the decimal place of the rate; `*` when it has not settled."""
    half = (phase.bw_high - phase.bw_bytes) / 1e6
    if half <= 0:
        return MISSING
    decimals = len(significant(phase.bw_bytes / 1e6).partition(".")[2])
    text = f"{half:.{decimals}f}"
    return f"±{text if float(text) else significant(half, 1)}{'' if phase.settled else '*'}"


def _time_ms(phase: BandwidthPhase, percentile: str) -> float:
    return (phase.file_ns or phase.clat_ns).percentile[percentile] / 1e6


def _caches(phases: Sequence[BandwidthPhase], shares: bool) -> list[str]:
    """The label and, in a column of its own, the share of the bytes that came from storage."""
    if not shares:
        return [phase.cache for phase in phases]
    counted = ["" if phase.cold_fraction is None else percent(phase.cold_fraction) for phase in phases]
    label = max(len(phase.cache) for phase in phases if phase.cold_fraction is not None) if any(counted) else 0
    share = max(len(text) for text in counted)
    return [
        f"{phase.cache.ljust(label)} {text.rjust(share)}" if text else phase.cache
        for phase, text in zip(phases, counted, strict=True)
    ]


def _bars(phases: Sequence[BandwidthPhase], cells: int) -> _Column:
    most = max(phase.bw_bytes for phase in phases)
    bars = [_bar(phase.bw_bytes / most if most else 0.0, cells) for phase in phases]
    return _column("", bars, ["cyan" if phase.cache == "cold" else "dim" for phase in phases], left=True, gap=2)


def _bar(share: float, cells: int) -> str:
    """A bar of eighths of a cell."""
    whole, rest = divmod(max(1, round(share * cells * 8)), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
