"""The report in a terminal: one table a device and cache state, then the sentences behind it."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.figures import shown
from loaderprobe.render.gpu import profiled
from loaderprobe.render.overview import (
    EMULATED_NOTE,
    Group,
    counts,
    groups,
    missing,
    notes,
    sentences,
    without_figures,
)
from loaderprobe.render.page import Page
from loaderprobe.render.recommend import advised, knees
from loaderprobe.render.wording import (
    MISSING,
    advice_words,
    bound_words,
    counted,
    factor,
    main_gains,
    speed,
    tone,
    variation,
)
from loaderprobe.units import format_duration

STYLES = {
    "compute": "green",
    "storage": "bold red",
    "preprocessing": "bold yellow",
    "transport": "bold magenta",
    "network": "bold red",
    "lock": "bold magenta",
    "wait": "bold magenta",
    "copy": "bold magenta",
    "host": "bold magenta",
    "cpu": "bold yellow",
    "either": "yellow",
    "balanced": "cyan",
    "inconclusive": "dim",
    "failed": "bold red",
    "skipped": "dim",
}

_BOUND_COLUMNS = 20
"""`input: preprocessing` is the longest verdict that still leaves room for its gains in 80 columns."""


_DATA_COLUMNS = 10
"""A resolution is never folded; a longer name may be."""


class TerminalReport:
    """Renders a report for a terminal of `width` columns; nothing runs over."""

    def render(self, report: Report, *, width: int = 80, color: bool = False) -> str:
        """The report as text that ends with a newline; ANSI colours only with `color`."""
        page = Page(width=width, color=color)
        self._head(page, report)
        for group in groups(report):
            self._group(page, report, group)
        self._trouble(page, report)
        self._footer(page, report)
        return page.text()

    def _head(self, page: Page, report: Report) -> None:
        run = report.summary.run
        page.title(f"loaderprobe: {run.name}")
        page.paragraph(counts(report))
        if not run.complete:
            pending = counted(run.pending, "configuration")
            page.paragraph(f"Not complete: {pending} still to be measured, with --resume.", style="yellow")

    def _group(self, page: Page, report: Report, group: Group) -> None:
        page.gap()
        page.paragraph(f"{group.title}; {group.ceiling}", style="bold")
        page.add(_table(group))
        page.gap()
        for subject, sentence in knees(report, group):
            page.item(f"Knee of {subject}", sentence)
        for labels, sentence in sentences(group.rows):
            page.item(labels, sentence)
        for subject, words in profiled(group):
            page.item(f"GPU of {subject}", words)
        for labels, advice in advised(group):
            page.item(f"Advice for {labels}", advice_words(advice))
            if advice.command:
                page.command(advice.command)

    def _trouble(self, page: Page, report: Report) -> None:
        sections = (
            ("Failed", without_figures(report, "failed")),
            ("Skipped", without_figures(report, "skipped")),
            ("Notes", notes(report)),
            (f"Not measured ({MISSING})", missing(report)),
        )
        for title, entries in sections:
            if entries:
                page.heading(title)
            for subject, text in entries:
                page.item(subject, text)

    def _footer(self, page: Page, report: Report) -> None:
        rows = report.summary.configurations
        page.gap()
        page.paragraph(
            "used: images/s as a share of what compute alone reaches. of max: disk reads as a share of what as many "
            "readers get from that disk. gain without: how many times faster "
            "training gets once the resource is taken away." + _estimated(rows),
            style="dim",
        )
        if any(row.emulated for row in rows):
            page.paragraph(EMULATED_NOTE, style="dim")
        page.paragraph(f"Measured in {format_duration(report.summary.run.wall_s)}.", style="dim")


def _estimated(rows: tuple[ConfigurationRow, ...]) -> str:
    estimated = any(gain.how == "estimated" for row in rows for _, gain in main_gains(row))
    return " est.: estimated from the workers' time, not performed." if estimated else ""


def _table(group: Group) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    longest = max(len(row.config.resolution) for row in group.rows)
    table.add_column("\ndata", overflow="fold", min_width=min(longest, _DATA_COLUMNS))
    table.add_column("\nworkers", justify="right", no_wrap=True)
    table.add_column("\nimages/s", justify="right", no_wrap=True)
    table.add_column("\nused", justify="right", no_wrap=True)
    table.add_column("disk\nMB/s", justify="right", no_wrap=True)
    table.add_column("of\nmax", justify="right", no_wrap=True)
    # A verdict that fits stays on one line, and the wordier gains wrap; only two candidates are too long for that.
    fits = max(len(bound_words(row)) for row in group.rows) <= _BOUND_COLUMNS
    table.add_column("\nbound", overflow="fold", no_wrap=fits)
    table.add_column("gain\nwithout", overflow="fold")
    before = ""
    for row in group.rows:
        table.add_row(*_cells(row, group, repeated=row.config.resolution == before))
        before = row.config.resolution
    return Padding(table, (0, 0, 0, 2))


def _cells(row: ConfigurationRow, group: Group, *, repeated: bool) -> list[Text]:
    style = STYLES.get(tone(row), "")
    extra = variation(row, group.rows)
    data = "" if repeated else row.config.resolution
    return [
        Text("\n".join(part for part in (data, extra) if part)),
        Text(str(row.config.loader.workers or "serial")),
        Text(speed(row), style="bold" if row.images_per_s else ""),
        Text(shown(row, "accelerator_utilization")),
        Text(shown(row, "disk_read_bytes_per_s")),
        Text(shown(row, "disk_ceiling_fraction")),
        Text(bound_words(row), style=style),
        Text(_gains(row)),
    ]


def _gains(row: ConfigurationRow) -> str:
    """The gains without what the verdict names, in its order; another resource is named."""
    named = (row.bound.candidates or (row.bound.cause,)) if row.bound else ()
    shown = [factor(gain) if name in named else f"{name} {factor(gain)}" for name, gain in main_gains(row)]
    return ", ".join(shown) or MISSING
