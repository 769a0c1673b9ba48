"""The chart kit: a chart is rows of marks on one axis. Five marks: bar, whisker, dot, level, letter.

Each writer draws the same rows in its way. Colours are from those of Okabe and Ito (2008) and of Tol (2021), which
people with any colour vision can separate. What is measured is solid, what is estimated hatched, what may be nothing an
outline, so that nothing is lost without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, inf, log10

from loaderprobe.records.resources import RESOURCES
from loaderprobe.render.document import Bar, Chart, ChartRow, How

TONES: dict[str, str] = {
    **{resource.name: resource.color for resource in RESOURCES},
    "either": "#D9C800", "balanced": "#56B4E9", "inconclusive": "#9A9A9A",
    "skipped": "#9A9A9A", "failed": "#D93A45", "good": "#009E73", "warning": "#E69F00", "quiet": "#9A9A9A",
    "change": "#0072B2", "now": "currentColor", "cores": "#56B4E9", "rest": "#F0E442",
}  # fmt: skip
"""Colours of verdicts, and of other texts and marks, by tone. now: the ink of the page, light or dark."""
STYLES: dict[str, str] = {
    **{resource.name: resource.style for resource in RESOURCES if resource.is_cause},
    "either": "yellow", "balanced": "cyan", "inconclusive": "dim", "failed": "bold red", "skipped": "dim",
    "quiet": "dim", "strong": "bold", "warning": "yellow", "good": "green", "change": "blue",
}  # fmt: skip
"""The same in a terminal."""
MARKS: dict[How, tuple[str, str, str]] = {
    "measured": ("█", "measured", "●"),
    "estimated": ("▒", "estimated", "◉"),
    "specified": ("▒", "specified", "○"),
    "unsure": ("░", "may be nothing", "○"),
}
"""By how a mark is known: its block in a terminal, what the legend says, and its dot in a terminal."""
BASE = "base"
"""The tone of a thin line: what is there already, before what a bar adds."""
_MOST_TICKS = 5


def tones_of(chart: Chart, rows: Sequence[ChartRow]) -> dict[str, str]:
    """What the tones in use in these rows stand for, by tone."""
    seen = {bar.tone for row in rows for bar in marks_of(row)}
    return {tone: words for tone, words in chart.names if tone in seen}


def marks_of(row: ChartRow) -> tuple[Bar, ...]:
    """Bars and dot."""
    return (*row.bars, row.point) if row.point else row.bars


def hows_of(rows: Sequence[ChartRow]) -> list[How]:
    """How the bars are known, where some are not measured."""
    return how_known(bar for row in rows for bar in row.bars if bar.tone != BASE)


def how_known(marks: Iterable[Bar]) -> list[How]:
    """In the order of the legend; nothing where all are measured."""
    seen = {mark.how for mark in marks}
    return [how for how in MARKS if how in seen] if seen != {"measured"} else []


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Round figures of a linear axis, up to five; none of one without length."""
    span = high - low
    if not 0 < span < inf:
        return ()
    power = 10.0 ** floor(log10(span / _MOST_TICKS) + 1e-12)
    step = next(size * power for size in (1, 2, 5, 10) if span / (size * power) <= _MOST_TICKS)
    first = -floor(-low / step + 1e-9)
    return tuple(round(step * number, 12) for number in range(first, floor(high / step + 1e-9) + 1))


def on_axis(chart: Chart, value: float) -> float:
    """Per cent of the axis; never beyond its ends."""
    if chart.high <= chart.low:
        return 0.0
    return 100 * min(1.0, max(0.0, (value - chart.low) / (chart.high - chart.low)))
