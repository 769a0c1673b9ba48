"""The report in a terminal: the first page, then the best configuration of each data set and what else would help."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loaderprobe.records.report import Report
from loaderprobe.records.resources import RESOURCES
from loaderprobe.render.first_page import BEST_HEAD, BEST_RIGHT, DevicePart, FirstPage, change_of, first_page, of_ranks
from loaderprobe.render.forecast_words import worth_making
from loaderprobe.render.gpu import profiled
from loaderprobe.render.groups import Group, groups
from loaderprobe.render.limits import LimitMap, MapCell
from loaderprobe.render.needs import Needs
from loaderprobe.render.overview import counts, not_complete, sentences, skipped_files
from loaderprobe.render.page import Page
from loaderprobe.render.recommend import advised
from loaderprobe.render.sections import sections
from loaderprobe.render.verdicts import firm
from loaderprobe.render.wording import visible

STYLES = {
    **{each.name: each.style for each in RESOURCES if each.is_cause},
    "either": "yellow", "balanced": "cyan", "inconclusive": "dim", "failed": "bold red", "skipped": "dim",
}  # fmt: skip

_MOST_ADVICE = 1
"""Of a group, beside the change on the first screen; the report has the rest."""
_SHOWN = ("images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "speedups")
"""Fields with a column in the table; the report lists the reasons for all others."""
_GAP = 2
"""Blanks between the columns of the map."""
_DATA_COLUMNS = 20
"""A name that is no longer is not folded."""


def terminal_report(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The report as text of `width` columns that ends with a newline; ANSI colours only with `color`."""
    page, first = Page(width=width, color=color), first_page(report)
    _head(page, first, report)
    _details(page, first, report)
    _trouble(page, report)
    return page.text()


def _head(page: Page, first: FirstPage, report: Report) -> None:
    """The first screen."""
    page.title(first.title)
    for sentence in first.answer:
        page.paragraph(sentence, style="bold")
    page.paragraph(" ".join((counts(report), *skipped_files(report))), style="dim")
    run = report.summary.run
    if not run.complete:
        page.paragraph(not_complete(report), style="yellow")
    for part in first.devices:
        page.gap()
        page.paragraph(part.title, style="bold")
        for table in _map(part.map, page.width):
            page.add(table)
        if part.best:
            page.add(_best(part))
    if first.key:
        page.paragraph(f"{first.key}. {first.best_note}".rstrip(), style="dim")
    _do_next(page, first)
    for each in first.needs:
        page.gap()
        page.paragraph(each.title, style="bold")
        page.add(_needs(each))
        page.paragraph(each.note, style="dim")
    if first.unknown:
        page.paragraph(first.unknown, style="dim")


def _do_next(page: Page, first: FirstPage) -> None:
    if first.changes:
        page.heading("Do next")
    for number, change in enumerate(first.changes, start=1):
        page.item(f"{number}. {change.words}", "")


def _details(page: Page, first: FirstPage, report: Report) -> None:
    """What is inconclusive and why, what the GPU did, and what else would help."""
    entries = [entry for group in groups(report) for entry in _of_group(first, report, group)]
    if entries:
        page.gap()
    for subject, text in entries:
        page.item(subject, text)


def _trouble(page: Page, report: Report) -> None:
    for title, entries in sections(report, _SHOWN):
        if entries:
            page.heading(title)
        for subject, text in entries:
            page.item(subject, text)


def _of_group(first: FirstPage, report: Report, group: Group) -> list[tuple[str, str]]:
    ranks = of_ranks(report, group)
    device = f"{ranks}, {group.device}" if len(first.devices) > 1 else ""
    found = [(f"{labels}{ranks}", advice) for labels, advice in advised(report, group)]
    more = [
        (f"Advice for {labels}", change_of(labels, advice).words.removesuffix(f" (for {labels})"))
        for labels, advice in found
        if worth_making(advice[0]) and change_of(labels, advice) not in first.changes
    ]
    return [
        *((f"{labels}{device}", words) for labels, words in sentences([row for row in group.rows if not firm(row)])),
        *((f"GPU of {subject}", words) for subject, words in profiled(group)),
        *(more[:_MOST_ADVICE] if not group.cpu else []),
    ]


def _map(found: LimitMap, width: int) -> list[RenderableType]:
    """Rates and letters; as many tables as the width needs."""
    cells = [cell for _, line in found.lines for cell in line if cell]
    across = max([len(cell.text) for cell in cells] + [len(name) for name in found.workers]) + _GAP
    label = min(max(len("workers"), *(len(name) for name, _ in found.lines)), _DATA_COLUMNS)
    columns = max(1, (width - label - _GAP - 2) // across)
    return [_map_table(found, first, first + columns) for first in range(0, len(found.workers), columns)]


def _map_table(found: LimitMap, first: int, last: int) -> RenderableType:
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
    longest = max(len(name) for name, _ in found.lines)
    table.add_column("workers", overflow="fold", no_wrap=longest <= _DATA_COLUMNS, max_width=_DATA_COLUMNS)
    for name in found.workers[first:last]:
        table.add_column(name, justify="right", no_wrap=True)
    for name, cells in found.lines:
        table.add_row(Text(visible(name)), *(_map_cell(cell) for cell in cells[first:last]))
    return Padding(table, (0, 0, 0, 2))


def _map_cell(cell: MapCell | None) -> Text:
    if cell is None:
        return Text("")
    text = Text(cell.text)
    text.stylize(STYLES.get(cell.tone, ""), len(cell.text) - len(cell.letters))
    return text


def _needs(found: Needs) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for place, head in enumerate(found.head):
        table.add_column(head, justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    for line in found.lines:
        table.add_row(*(Text(visible(cell)) for cell in line))
    return Padding(table, (0, 0, 0, 2))


def _best(part: DevicePart) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for place, head in enumerate(BEST_HEAD):
        right = place in BEST_RIGHT
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for line in part.best:
        table.add_row(*(Text(visible(cell)) for cell in line))
    return Padding(table, (0, 0, 0, 2))
