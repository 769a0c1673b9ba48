"""The steps of training as a timeline, where no profiler ran: serial, few and many workers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.gaps import TimelineView
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.gpu import MOST_VIEWS
from loaderprobe.render.groups import Group, detail_of
from loaderprobe.render.limits import line_of
from loaderprobe.render.timeline import common_length_ns, timeline_chart
from loaderprobe.render.wording import loading, percent
from loaderprobe.units import significant


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLines:
    """One data set on one device."""

    title: str
    emulated: bool
    views: tuple[tuple[str, str], ...]
    """(title, SVG) of up to three, on one axis of time."""
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def step_lines(report: Report, group: Group) -> tuple[StepLines, ...]:
    """One for each data set of a group without a profiler window."""
    found: dict[str, dict[int, tuple[ConfigurationRow, TimelineView]]] = {}
    for row in group.rows:
        detail = detail_of(report, row)
        if row.gpu_window is None and detail and detail.steps:
            some = found.setdefault(line_of(row, group.rows), {})
            some.setdefault(row.config.loader.workers, (row, detail.steps))
    return tuple(_lines(name, group, _few(some)) for name, some in found.items())


def _few(some: dict[int, tuple[ConfigurationRow, TimelineView]]) -> list[tuple[ConfigurationRow, TimelineView]]:
    """Fewest workers, most, and the one in the middle."""
    counts = sorted(some)
    chosen = sorted({counts[0], counts[(len(counts) - 1) // 2], counts[-1]})
    return [some[count] for count in chosen][:MOST_VIEWS]


def _lines(name: str, group: Group, drawn: Sequence[tuple[ConfigurationRow, TimelineView]]) -> StepLines:
    length_ns = common_length_ns([view for _, view in drawn])
    return StepLines(
        title=f"{group.title}: {name}",
        emulated=group.emulated,
        views=tuple(
            (title, timeline_chart(view, title, length_ns, of="step"))
            for row, view in drawn
            for title in [f"{name}, {loading(row)}: trains {percent(_busy(view))}"]
        ),
        head=("workers", "training", "waiting for input", "ms a step"),
        lines=tuple(_line(row, view) for row, view in drawn),
    )


def _line(row: ConfigurationRow, view: TimelineView) -> tuple[str, ...]:
    waiting = sum(end - begin for begin, end in view.gaps["input"]) / view.window_ns
    step_ms = view.window_ns / max(1, len(view.step_begin_ns)) / 1e6
    return str(row.config.loader.workers or "serial"), percent(_busy(view)), percent(waiting), significant(step_ms)


def _busy(view: TimelineView) -> float:
    return sum(end - begin for begin, end in view.busy) / view.window_ns
