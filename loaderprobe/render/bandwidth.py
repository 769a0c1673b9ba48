"""The bandwidth ladder as text and as JSON."""

from __future__ import annotations

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loaderprobe.records.bandwidth import BandwidthLeg, BandwidthReport
from loaderprobe.render.page import Page
from loaderprobe.render.wording import counted, percent, rate
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

_FIXED_COLUMNS = 66
"""What the figures of a row take; the bar gets the rest."""

_CACHE_STYLES = {"cold": "green", "warm": "yellow", "mixed": "yellow", "unproved": "dim"}


def bandwidth_json(report: BandwidthReport) -> str:
    """The ladder, indented, ending with a newline. What could not be counted is null."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def render_bandwidth(report: BandwidthReport, width: int = 80, color: bool = False) -> str:
    """The ladder in `width` columns: what each number of readers gets, and what the best of them feeds."""
    page = Page(width=width, color=color)
    page.title(f"Storage under {report.path}")
    page.paragraph(_place(report))
    page.paragraph(_files(report))
    page.gap()
    if report.legs:
        page.add(_ladder(report.legs, width))
        page.gap()
        page.paragraph(_feeds(report), style="bold")
    else:
        page.paragraph("No step of the ladder was measured.")
    notes = _notes(report)
    if notes:
        page.heading("Notes")
    for subject, note in notes:
        page.item(subject, note)
    return page.text()


def _place(report: BandwidthReport) -> str:
    place = report.location
    devices = f", device {join_words(place.devices)}" if place.devices else ", no block device to see"
    return f"{place.filesystem} ({place.kind}) mounted on {place.mount} from {place.source}{devices}"


def _files(report: BandwidthReport) -> str:
    noun = "image" if report.images else "file"
    found = "scratch files written for this test" if report.scratch else f"{counted(report.files_found, noun)} found"
    return f"{found}, {report.files_used} used, {format_bytes(report.mean_size_bytes)} on average; random order"


def _ladder(legs: tuple[BandwidthLeg, ...], width: int) -> Padding:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("readers", "MB/s", "files/s", "p50", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cache", overflow="fold")
    table.add_column("", no_wrap=True)
    most = max(leg.bytes_per_s for leg in legs)
    cells = max(4, min(40, width - _FIXED_COLUMNS))
    for leg in legs:
        least = ">=" if leg.probe_bound else ""
        table.add_row(
            str(leg.readers),
            Text(f"{least}{significant(leg.bytes_per_s / 1e6)}", style="bold"),
            f"{least}{rate(leg.files_per_s)}",
            format_duration(leg.latency_p50_s),
            format_duration(leg.latency_p99_s),
            Text(_proof(leg), style=_CACHE_STYLES.get(leg.cache, "")),
            Text(_bar(leg.bytes_per_s / most if most else 0.0, cells), style="cyan"),
        )
    return Padding(table, (0, 0, 0, 2))


def _proof(leg: BandwidthLeg) -> str:
    """The cache state and what proves it: the share of the bytes that came from storage."""
    if leg.storage_bytes is None or not leg.delivered_bytes:
        return leg.cache
    return f"{leg.cache}, {percent(leg.storage_bytes / leg.delivered_bytes)}"


def _bar(share: float, cells: int) -> str:
    """A bar of eighths of a cell."""
    eighths = max(1, round(share * cells * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _feeds(report: BandwidthReport) -> str:
    best = max(report.legs, key=lambda leg: leg.bytes_per_s)
    least = "at least " if best.probe_bound else ""
    delivers = f"{format_rate(best.bytes_per_s)} with {counted(best.readers, 'reader')}"
    if best.cache == "warm":
        delivers += ", from memory (the page cache), not from the device"
    if not report.images:
        return f"Delivers {least}{delivers}: {rate(best.files_per_s)} files/s of this size."
    return f"Feeds {least}{rate(best.files_per_s)} images/s of this size: {delivers}."


def _notes(report: BandwidthReport) -> list[tuple[str, str]]:
    notes = [("All", note) for note in (*report.notes, *report.location.notes)]
    notes += [(counted(leg.readers, "reader"), leg.note) for leg in report.legs if leg.note]
    if any(leg.storage_bytes is not None for leg in report.legs):
        notes.append(("cache", "the share of the bytes handed over that came from storage; cold is 90 % or more"))
    if any(leg.cache == "unproved" for leg in report.legs):
        notes.append(("unproved", "nothing counts what storage delivers here, so cached files cannot be ruled out"))
    if any(leg.probe_bound for leg in report.legs):
        notes.append((">=", "the probe's own CPU use may be the limit, so storage delivers at least this"))
    return notes
