"""A chart is a table whose figures are also drawn: rows of marks on one axis.

There are five marks: bar, whisker, dot, level, letter. Each writer draws the same rows in its way, or gives their
figures alone. Colours are from those of Okabe and Ito (2008) and of Tol (2021), which people with any colour vision can
separate. What is measured is solid, what is estimated hatched, what is not sure an outline, so that nothing is lost
without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, isnan, log10
from typing import Literal, TypeVar

from loaderprobe.records.resources import RESOURCES
from loaderprobe.render.document import Part

T = TypeVar("T")
How = Literal["measured", "estimated", "specified", "unsure"]
"""Of a mark: solid, hatched, or in outline. unsure: its interval holds no gain, or its row is inconclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of a chart's row, in the unit of the axis."""

    end: float
    begin: float = 0.0
    tone: str = "now"
    how: How = "measured"
    letter: str = ""
    """In it, where it is wide enough."""


def first_and_last(items: Sequence[T], limit: int) -> Sequence[T]:
    """All of them; of more than `most`, the first and the last."""
    return items if len(items) <= limit else (*items[: limit // 2], *items[-(limit // 2) :])


def stacked(parts: Iterable[tuple[str, str, float]]) -> tuple[Bar, ...]:
    """(tone, letter, length) of each, one behind the other."""
    bars, begin = [], 0.0
    for tone, letter, length in parts:
        bars.append(Bar(begin=begin, end=begin + length, tone=tone, letter=letter))
        begin += length
    return tuple(bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartRow:
    """A line of a chart: its name, marks on the axis, and the figure that they show.

    What is no number has no mark; what is infinite ends with the axis.
    """

    label: str = ""
    value: str = ""
    note: str = ""
    """After the figure: what it depends on, or how sure it is."""
    bars: tuple[Bar, ...] = ()
    interval: tuple[float, float] | None = None
    """A whisker from end to end; one that passes the end of the axis has no cap there."""
    point: Bar | None = None
    """A dot at its end, hollow unless it is measured."""
    level: float | None = None
    """A mark across the row, that joins those above and below it: a ceiling, or where there is no gain."""
    level_how: How | Literal["at least"] = "measured"
    """Dashed unless it is measured."""
    strong: bool = True
    """False of a figure that is no more than an estimate, or may be nothing."""
    head: bool = False
    """True of a name over the rows that follow, without marks."""

    def __post_init__(self) -> None:
        bars = tuple(bar for bar in self.bars if not isnan(bar.begin) and not isnan(bar.end))
        object.__setattr__(self, "bars", bars)
        if self.point and isnan(self.point.end):
            object.__setattr__(self, "point", None)
        if self.level is not None and isnan(self.level):
            object.__setattr__(self, "level", None)
        if self.interval and not self.interval[1] > self.interval[0]:
            object.__setattr__(self, "interval", None)


_ROOM = 1.05
"""An axis ends so far above what it shows."""
_LONGEST_WHISKER = 1.3
"""Times the longest bar, or below the least mark by this factor: beyond it, a whisker passes the end of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Part):
    """Rows of marks on one axis from `low` to `high`, linear, with a legend of the marks that are in use."""

    rows: tuple[ChartRow, ...]
    high: float = 0.0
    """0 for a little more than the marks take, whiskers by their larger part."""
    low: float = 0.0
    """Or less, where marks are lower."""
    unit: str = ""
    """Below the axis; without it there are no ticks."""
    caption: str = ""
    level: str = ""
    """What the marks across the rows stand for."""
    names: tuple[tuple[str, str], ...] = ()
    """(tone, what it stands for), for the legend."""
    brief: tuple[ChartRow, ...] = ()
    """The rows that a terminal has in place of all; empty where it has all."""
    ends: str = ","
    """What a label, and a figure, say: heads of the columns where the chart is a table, with a comma."""

    def __post_init__(self) -> None:
        whiskers = [row.interval for row in self.rows if row.interval]
        every = (mark for row in self.rows for mark in (row.level, row.point and row.point.end))
        marks = [mark for mark in every if mark and isfinite(mark)]
        least = min(marks, default=0.0) / _LONGEST_WHISKER
        object.__setattr__(self, "low", min([self.low, *marks, *(max(begin, least) for begin, _ in whiskers)]))
        if not 0 < self.high < inf:
            lengths = (bar.end for row in self.rows for bar in row.bars if isfinite(bar.end))
            bare = (row.interval[1] for row in self.rows if row.interval and not (row.bars or row.point))
            longest = max([self.low, *marks, *lengths, *filter(isfinite, bare)])
            ends = [min(end, _LONGEST_WHISKER * longest) for _, end in whiskers]
            object.__setattr__(self, "high", self.low + (_ROOM * (max([longest, *ends]) - self.low) or 1.0))

    def on_axis(self, value: float) -> float:
        """Per cent of the axis; never beyond its ends."""
        return 100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


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
    "quiet": "dim", "warning": "yellow", "good": "green", "change": "blue",
}  # fmt: skip
"""The same in a terminal."""
MARKS: dict[How, tuple[str, str, str]] = {
    "measured": ("█", "measured", "◆"),
    "estimated": ("▒", "estimated", "◈"),
    "specified": ("▒", "specified", "◇"),
    "unsure": ("░", "not sure", "◇"),
}
"""By how a mark is known: its block in a terminal, what the legend says, and its dot in a terminal."""


def whiskers(rows: Sequence[ChartRow]) -> str:
    """What whiskers stand for: one without a mark in it is no interval but all that is possible; empty without any."""
    ranges = [row for row in rows if row.interval]
    return "" if not ranges else "95 % interval" if all(row.bars or row.point for row in ranges) else "possible range"


BASE = "base"
"""The tone of a thin line: what is there already, before what a bar adds."""
_MOST_TICKS = 5


def tones_of(chart: Chart, rows: Sequence[ChartRow]) -> dict[str, str]:
    """What the tones in use in these rows stand for, by tone."""
    tones = {mark.tone for row in rows for mark in (*row.bars, row.point) if mark}
    return {tone: words for tone, words in chart.names if tone in tones}


def how_known(marks: Iterable[Bar]) -> list[How]:
    """How marks are known, in the order of the legend; nothing where all are measured."""
    known_as = {mark.how for mark in marks if mark.tone != BASE}
    return [how for how in MARKS if how in known_as] if known_as != {"measured"} else []


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Round figures of a linear axis, up to five."""
    span = high - low
    power = 10.0 ** floor(log10(span / _MOST_TICKS) + 1e-12)
    step = next(size * power for size in (1, 2, 5, 10) if span / (size * power) <= _MOST_TICKS)
    first = -floor(-low / step + 1e-9)
    return tuple(round(step * number, 12) for number in range(first, floor(high / step + 1e-9) + 1))
