"""The report in a terminal: one table for each device and cache state, then the sentences behind it."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.figures import shown
from loaderprobe.render.gpu import profiled
from loaderprobe.render.groups import Group, groups
from loaderprobe.render.overview import CPU_NOTE, EMULATED_NOTE, counts, missing, notes, sentences, without_figures
from loaderprobe.render.page import Page
from loaderprobe.render.recommend import advised, knees
from loaderprobe.render.wording import (
    MISSING,
    advice_words,
    bound_words,
    counted,
    factor,
    main_speedups,
    named_resources,
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
"""`input: preprocessing` is the longest verdict that fits beside the speed-ups in 80 columns."""


_DATA_COLUMNS = 10
"""A resolution is never folded; a longer name may be."""
_MOST_ADVICE = 3
"""Of a group; the report has the rest."""
_SHOWN = ("images_per_s", "accelerator_utilization", "disk_read_bytes_per_s", "disk_ceiling_fraction", "speedups")
"""Fields with a column in the table; the report lists the reasons for all others."""


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
        page.title(f"loaderprobe: {run.name}, measured in {format_duration(run.wall_s)}")
        page.paragraph(counts(report))
        if not run.complete:
            pending = counted(run.pending, "configuration")
            page.paragraph(f"Not complete: {pending} not measured yet; --resume continues.", style="yellow")

    def _group(self, page: Page, report: Report, group: Group) -> None:
        page.gap()
        page.paragraph(f"{group.title}; compute alone: {group.ceiling}", style="bold")
        page.add(_table(group))
        page.gap()
        for labels, sentence in sentences(group.rows):
            page.item(labels, sentence)
        for subject, words in knees(report, group):
            page.item(f"Knee of {subject}", words)
        for subject, words in profiled(group):
            page.item(f"GPU of {subject}", words)
        for labels, advice in advised(group)[:_MOST_ADVICE]:
            page.item(f"Advice for {labels}", advice_words(advice))
            if advice[0].command:
                page.command(advice[0].command)

    def _trouble(self, page: Page, report: Report) -> None:
        sections = (
            ("Failed", without_figures(report, "failed")),
            ("Skipped", without_figures(report, "skipped")),
            ("Notes", notes(report)),
            (f"Not measured ({MISSING})", missing(report, _SHOWN)),
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
            "used: training over compute alone of the same row. MB/s: read from storage. of max: MB/s over the "
            "storage's ceiling at this concurrency. speed-up if free: of training, if that resource cost nothing."
            + _estimated(rows),
            style="dim",
        )
        if any(row.emulated for row in rows):
            page.paragraph(EMULATED_NOTE, style="dim")
        if any(row.config.compute.kind == "cpu" for row in rows):
            page.paragraph(CPU_NOTE, style="dim")


def _estimated(rows: tuple[ConfigurationRow, ...]) -> str:
    estimated = any(speedup.how == "estimated" for row in rows for _, speedup in main_speedups(row))
    return " est.: estimated, not measured." if estimated else ""


def _table(group: Group) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    longest = max(len(row.config.resolution) for row in group.rows)
    table.add_column("\ndata", overflow="fold", min_width=min(longest, _DATA_COLUMNS))
    table.add_column("\nworkers", justify="right", no_wrap=True)
    table.add_column("\nimages/s", justify="right", no_wrap=True)
    table.add_column("\nused", justify="right", no_wrap=True)
    table.add_column("\nMB/s", justify="right", no_wrap=True)
    table.add_column("of\nmax", justify="right", no_wrap=True)
    # A verdict that fits stays on one line, and the speed-ups wrap; only two candidates are too long for that.
    fits = max(len(bound_words(row)) for row in group.rows) <= _BOUND_COLUMNS
    table.add_column("\nbound", overflow="fold", no_wrap=fits)
    table.add_column("speed-up\nif free", overflow="fold")
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
        Text(_speedups(row)),
    ]


def _speedups(row: ConfigurationRow) -> str:
    """The speed-ups of what the verdict names, in its order; another resource is named."""
    named = named_resources(row)
    shown = [factor(speedup) if name in named else f"{name} {factor(speedup)}" for name, speedup in main_speedups(row)]
    return ", ".join(shown) or MISSING
