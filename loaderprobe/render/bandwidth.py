"""The bandwidth report for a terminal, the answer first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from loaderprobe.records.bandwidth import BandwidthPhase, BandwidthReport, PhaseName
from loaderprobe.render import bandwidth_words as words
from loaderprobe.render import metadata_words
from loaderprobe.render.columns import Column, Table, aligned, column, half_interval
from loaderprobe.render.device_words import kind_words, limit_words
from loaderprobe.render.page import Page
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, percent
from loaderprobe.units import significant

_ALONE: tuple[PhaseName, ...] = ("direct", "sequential")
"""The phases below the ladder. The paced one is evidence of the kind of device: its rate means nothing."""
_INDENT = "  "
_LEAST_BAR = 6
_LONGEST_BAR = 40
_CACHE_STYLES = {"cold": "green", "warm": "yellow", "mixed": "yellow", "unproved": "dim"}


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
    page.item("Limit", limit_words(report.limit))
    if report.kind.kind != "unknown":
        page.item("Device", kind_words(report.kind))
    opens = metadata_words.opens_sentence(report)
    if opens:
        page.item("Opens", opens)


def _tables(page: Page, report: BandwidthReport, width: int) -> None:
    """The ladder, and below it, in the same columns, the phases that are made once or why they were not made."""
    phases = (*report.ladder, *(phase for name in _ALONE if (phase := report.phase(name))))
    table = Table(page, _layout(phases, report, width) if phases else ())
    reasons = {part.name: remark_words(part.reason) for part in report.missing}
    if report.ladder:
        page.gap()
    for number in range(len(report.ladder)):
        table.row(number)
    if report.metadata:
        page.gap()
        page.add(Text(_INDENT + metadata_words.TITLE, style="bold"))
        operations = Table(page, metadata_words.columns(report, width))
        for number in range(len({phase.readers for phase in report.metadata})):
            operations.row(number)
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
    if report.metadata:
        page.paragraph(metadata_words.legend(report), style="dim")


def _layout(phases: Sequence[BandwidthPhase], report: BandwidthReport, width: int) -> Sequence[Column]:
    """The columns that fit: narrower gaps, then no shares; a bar where it fits."""
    for gap, shares in ((2, True), (1, True), (1, False)):
        columns = _columns(phases, report, gap=gap, shares=shares)
        left = width - sum(column.width for column in columns) - 2
        if left >= 0:
            break
    if left >= _LEAST_BAR:
        columns.append(_bars(phases, min(_LONGEST_BAR, left)))
    return columns


def _columns(phases: Sequence[BandwidthPhase], report: BandwidthReport, *, gap: int, shares: bool) -> list[Column]:
    plain = [""] * len(phases)
    least = [">=" if phase.at_least else "" for phase in phases]
    rates = [
        f"{sign}{cell}" for sign, cell in zip(least, aligned(phase.bw_bytes / 1e6 for phase in phases), strict=True)
    ]
    pieces = [f"{sign}{significant(phase.files_per_s)}" for sign, phase in zip(least, phases, strict=True)]
    return [
        column("readers", [str(phase.readers) for phase in phases], plain, gap=2),
        column("MB/s", rates, ["bold" if phase == report.best else "" for phase in phases], gap=gap),
        column(
            "±95 %",
            [_spread(phase) for phase in phases],
            ["" if phase.settled else "yellow" for phase in phases],
            left=True,
        ),
        Column(heads=[f"{words.noun(phase, report)}s/s" for phase in phases], cells=pieces, styles=plain, gap=gap),
        column("p50 ms", aligned(_time_ms(phase, "50.000000") for phase in phases), plain, gap=gap),
        column("p99 ms", aligned(_time_ms(phase, "99.000000") for phase in phases), plain, gap=gap),
        column("cache", _caches(phases, shares), [_CACHE_STYLES[phase.cache] for phase in phases], left=True, gap=gap),
    ]


def _spread(phase: BandwidthPhase) -> str:
    """Half the interval, to the decimal place of the rate; `*` when it has not settled."""
    half = (phase.bw_high - phase.bw_bytes) / 1e6
    if half <= 0:
        return MISSING
    return f"{half_interval(phase.bw_bytes / 1e6, half)}{'' if phase.settled else '*'}"


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


def _bars(phases: Sequence[BandwidthPhase], cells: int) -> Column:
    most = max(phase.bw_bytes for phase in phases)
    bars = [_bar(phase.bw_bytes / most if most else 0.0, cells) for phase in phases]
    return column("", bars, ["cyan" if phase.cache == "cold" else "dim" for phase in phases], left=True, gap=2)


def _bar(share: float, cells: int) -> str:
    """A bar of eighths of a cell."""
    whole, rest = divmod(max(1, round(share * cells * 8)), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
