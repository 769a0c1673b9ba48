"""A watched training as a line, as a document with a chart, and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.diagnosis import WatchedInterval, WatchReport
from loaderprobe.render.document import Document, Exhibit, Paragraph, Part, Section, Table
from loaderprobe.render.format import MISSING, counted, percent, workers_words
from loaderprobe.render.plots import BLUE, RED, Axis, Plot, Points
from loaderprobe.render.words import heading, sentence
from loaderprobe.units import format_bytes, format_duration, significant

SHOWN = 30
"""Rows of the table: of more, the first and the last."""
ESTIMATED = (
    "Training was only watched, so every verdict here is estimated from waits and the workers' clocks. Without --watch "
    "it comes from an experiment."
)

ON_GPU = "Steps run on a GPU, where they end later than the loop sees: waiting is shown, but no verdict follows."


def watched_line(interval: WatchedInterval) -> str:
    """What is said while training goes on."""
    said = f": {heading(interval.bound)} (estimated)" if interval.bound else ""
    return (
        f"{format_duration(interval.begin_s + interval.seconds)}: {significant(interval.images_per_s)} images/s, waits "
        f"{percent(interval.input_wait_fraction)} for input{said}"
    )


def not_kept(error: Exception) -> str:
    """What is said where an interval could not be judged or kept."""
    return f"the last interval is not kept: {error or type(error).__name__}"


def watch_document(found: WatchReport) -> Document:
    """The verdict first, then the course of training."""
    loading = workers_words(found.workers)
    steps = sum(interval.steps for interval in found.intervals)
    first: list[Part] = [Paragraph(text=_answer(found), strong=True), Paragraph(text=ESTIMATED)]
    first.append(
        Paragraph(
            text=f"{found.loader}, {loading}, batches of {found.batch_size}, {counted(steps, 'step')}. Watching took "
            f"{found.overhead_s:.2g} s of the training thread's CPU time."
        )
    )
    title = f"Watched: {heading(found.bound)} (estimated)" if found.bound else "Watched: no verdict"
    return Document(
        title=title,
        sections=(
            Section(parts=tuple(first)),
            Section(title="Over time", name="time", parts=(_table(found.intervals),)),
        ),
    )


def watch_columns(found: WatchReport) -> dict[str, list[Any]]:
    """One row an interval."""
    names = (
        "begin_s", "seconds", "steps", "images_per_s", "input_wait_fraction", "worker_cpu_fraction",
        "worker_blocked_fraction", "read_bytes_per_s",
    )  # fmt: skip
    columns: dict[str, list[Any]] = {name: [getattr(interval, name) for interval in found.intervals] for name in names}
    columns["side"] = [interval.bound.side if interval.bound else None for interval in found.intervals]
    columns["cause"] = [interval.bound.cause if interval.bound else None for interval in found.intervals]
    return columns


def watch_exhibits(found: WatchReport) -> dict[str, tuple[Exhibit, ...]]:
    """Rate and waiting over time, from two intervals on."""
    if len(found.intervals) < 2:
        return {}
    rates = [(interval.begin_s + interval.seconds, interval.images_per_s) for interval in found.intervals]
    waits = [(interval.begin_s + interval.seconds, interval.input_wait_fraction) for interval in found.intervals]
    return {
        "time": (
            Exhibit(
                title=_course(found.intervals),
                text="A point an interval.",
                figures=(
                    (
                        "Images/s over time",
                        _course_chart(
                            "Rate of training", rates, Axis(name="images/s", high=1.1 * max(r for _, r in rates)), BLUE
                        ),
                    ),
                    (
                        "Waiting for input over time",
                        _course_chart(
                            "Waiting for input", waits, Axis(name="share of a step", high=1, shares=True), RED
                        ),
                    ),
                ),
            ),
        )
    }


def _answer(found: WatchReport) -> str:
    if found.bound:
        return sentence(found.bound)
    return ON_GPU if found.on_gpu else "There were too few training steps for a verdict."


def _course(intervals: Sequence[WatchedInterval]) -> str:
    rates = [interval.images_per_s for interval in intervals]
    return f"Training ran at {significant(min(rates))} to {significant(max(rates))} images/s"


def _table(intervals: Sequence[WatchedInterval]) -> Table:
    half = SHOWN // 2
    shown = intervals if len(intervals) <= SHOWN else (*intervals[:half], *intervals[-half:])
    return Table(
        head=("until", "images/s", "input wait", "workers compute", "workers wait", "read", "limit"),
        lines=tuple(
            (
                format_duration(each.begin_s + each.seconds),
                significant(each.images_per_s),
                percent(each.input_wait_fraction),
                percent(each.worker_cpu_fraction),
                percent(each.worker_blocked_fraction),
                MISSING if each.read_bytes_per_s is None else f"{format_bytes(each.read_bytes_per_s)}/s",
                each.bound.cause if each.bound else MISSING,
            )
            for each in shown
        ),
        right=frozenset(range(1, 6)),
    )


def _course_chart(title: str, points: Points, y: Axis, color: str) -> str:
    plot = Plot(title, Axis(name="seconds", high=points[-1][0]), y)
    plot.line(points, color)
    plot.dots(points, color)
    return plot.svg()
