"""The chart kit: SVG written out. A report of 200 configurations has hundreds of charts, and none may need a browser, a
script or a request.

A chart is a `Plot` with one or two `Axis`, on which a few calls draw; its names find their own places. Each is 348
units wide and scales with the page, so that its text has about 10 pixels on a phone. Colours are from those of Okabe
and Ito (2008) and of Tol (2021), which people with any colour vision can separate; a letter or a name stands beside
each, for paper without colour. Ink, lines and paper are those of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from math import ceil, floor, hypot, log
from textwrap import wrap

from loaderprobe.records.resources import RESOURCES
from loaderprobe.render.format import percent, visible

TONES = {
    **{resource.name: resource.color for resource in RESOURCES if resource.is_cause},
    "either": "#D9C800", "balanced": "#56B4E9", "inconclusive": "#9A9A9A",
    "skipped": "#9A9A9A", "failed": "#D93A45", "good": "#009E73", "warning": "#E69F00", "quiet": "#9A9A9A",
}  # fmt: skip
"""Colours of verdicts, and of other texts, by tone: of charts, maps and pages."""
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8F95"
COLORS = (BLUE, RED, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
"""Of lines that differ by their order alone."""
WIDTH, HEIGHT = 348, 210
LEFT, RIGHT, TOP = 46, 340, 40
_EDGE = 4
_UNDER = 42
"""Units below the axis: its figures and its name."""
_BAR, _STEP, _NAMED_STEP = 20, 30, 32
"""Units of a bar, from one to the next, and where its name stands over it."""
_LONGEST = 18
"""Characters of a name left of its bar."""
_LEAST_LETTER = 12
"""Units of the narrowest part of a bar that gets its letter."""
_WIDEST, _LEAST_BAR = 48.0, 0.4
_LINE, _CHARACTER = 15, 6.2
"""Units from one line of text to the next, and of a character on average."""
_TITLE, _TITLE_CHARS = 13, 50
"""Size of a title, and its characters in one line; a little more are a little smaller."""
_SLACK = 1.15
_MOST_TICKS = 9
_DARK = 0.55
"""Cells that are darker than this have white text."""
_INK = "currentColor"
_CEILING = 'class="rule dashed"'
_HALO = 'paint-order="stroke" stroke="var(--card)" stroke-width="4" stroke-linejoin="round"'
"""Behind figures, so that no line crosses them."""
_SIDES = {
    "above": (0, -9, "middle"), "below": (0, 17, "middle"), "above left": (-4, -9, "end"), "above right": (4, -9, ""),
    "right": (9, 4, ""), "left": (-9, 4, "end"), "below right": (6, 17, ""), "below left": (-6, 17, "end"),
    "far below right": (6, 30, ""), "far below left": (-6, 30, "end"),
}  # fmt: skip
"""Where a name may stand beside its point: units to the right, units down, how it is aligned."""

Points = Sequence[tuple[float, float]]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis, linear or logarithmic."""

    name: str
    """What is along it, with its unit."""
    low: float = 0.0
    high: float
    base: int = 0
    """Of a logarithmic axis, 2 or 10; 0 where it is linear."""
    shares: bool = False
    """0 to 1 is shown as 0 to 100 %."""
    marks: tuple[tuple[float, str], ...] | None = None
    """(value, what stands there); without them round figures."""
    lines: bool = False
    """With marks along the x axis: each has a line."""

    def share(self, value: float) -> float:
        """Of the way from end to end; never beyond either."""
        if self.base:
            low, high, value = log(self.low), log(self.high), log(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """(value, its figure)."""
        if self.marks is not None:
            return self.marks
        if self.shares:
            return tuple((value, percent(value)) for value in (0.0, 0.25, 0.5, 0.75, 1.0))
        values = _log_ticks(self.low, self.high, self.base) if self.base else ticks(self.high)
        return tuple((value, self._figure(value)) for value in values)

    def _figure(self, value: float) -> str:
        if self.high >= 1e4 and self.base != 2:
            for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
                if value >= size:
                    return f"{value / size:g}{letter}"
        return f"{value:,.10g}"


def ticks(top: float) -> tuple[float, ...]:
    """Round figures from 0 on, up to five."""
    rough = top / 4
    power = 10.0 ** floor(log(rough, 10) + 1e-12)
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    return tuple(round(step * number, 12) for number in range(int(top / step) + 1))


def _log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of the base; on a short axis, figures between them; on a long one, every second or third."""
    powers = range(floor(log(low, base) - 1e-9), ceil(log(high, base) + 1e-9) + 1)
    some: list[float] = []
    for factors in ((1.0,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)) if base == 10 else ((1.0,),):
        every = [factor * float(base) ** power for power in powers for factor in factors]
        some = [tick for tick in every if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(some) > 2:
            break
    return some[:: max(1, ceil(len(some) / _MOST_TICKS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """Words, and where they may stand, the best place first: (x, y, how they are aligned)."""

    words: str
    places: tuple[tuple[float, float, str], ...]
    bold: bool = True
    color: str = _INK
    cost: float = 2
    """Of each place more than of the one before it."""

    def box(self, place: tuple[float, float, str]) -> Box:
        x, y, anchor = place
        wide = _CHARACTER * len(self.words)
        left = x - {"": 0.0, "middle": wide / 2, "end": wide}[anchor]
        return left, y - 10, left + wide, y + 3


class Plot:
    """A chart that is being drawn: what is drawn first lies below, names over everything.

    Values are those of the axes. Without `y` it has rows, `row` or `named_row`, from the top down.
    """

    def __init__(
        self,
        title: str,
        x: Axis,
        y: Axis | None = None,
        *,
        height: float = HEIGHT,
        left: float = LEFT,
        top: float = TOP,
    ) -> None:
        self.left, self.top, self.floor = left, top, height - _UNDER
        self._title, self._x, self._y = title, x, y
        self._height = height if x.name else height - _LINE
        self._drawn: list[str] = []
        self._names: list[_Name] = []
        self._samples: list[tuple[float, float]] = []
        """Points on lines, which names keep free of."""
        self._taken: list[Box] = []
        """Where words stand already."""
        self._draw_axes()

    def x(self, value: float) -> float:
        """Units from the left."""
        return self.left + (RIGHT - self.left) * self._x.share(value)

    def y(self, value: float) -> float:
        """Units from the top."""
        assert self._y
        return self.floor - (self.floor - self.top) * self._y.share(value)

    def add(self, drawn: str) -> None:
        """SVG of one's own."""
        self._drawn.append(drawn)

    def line(self, points: Points, color: str, *, dash: str = "", width: float = 2) -> None:
        """From point to point; `dash` as in SVG."""
        at = [(self.x(x), self.y(y)) for x, y in points]
        style = f' stroke-dasharray="{dash}"' if dash else ""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        self.add(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="{width:g}"{style}/>')
        for one, two in pairwise(at):
            self._sample(one, two)

    def dots(self, points: Points, color: str, *, shape: str = "full", radius: float = 2.5) -> None:
        """Points: `full`, `open`, or an open `diamond`."""
        for x, y in ((self.x(x), self.y(y)) for x, y in points):
            if shape == "diamond":
                path = f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"
                self.add(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
            else:
                style = f'fill="{color}"' if shape == "full" else f'fill="none" stroke="{color}" stroke-width="2"'
                self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {style}/>')
            # A name over a point hides it: worse than one over a line.
            self._samples += [(x, y)] * 8

    def spans(self, spans: Iterable[tuple[float, float, float]], color: str = "") -> None:
        """Intervals: at x, from low to high; none where they are the same."""
        style = f'fill="none" stroke="{color}" stroke-width="1.5"' if color else 'class="rule"'
        for at, low, high in spans:
            if high > low:
                x, foot, head = self.x(at), self.y(low), self.y(high)
                self.add(f'<path {style} d="M{x:.1f} {foot:.1f}V{head:.1f}m-4 0h8M{x - 4:.1f} {foot:.1f}h8"/>')
                self._sample((x, foot), (x, head))

    def band(self, points: Sequence[tuple[float, float, float]], color: str) -> None:
        """The area between two lines: at x, from low to high."""
        there = "L".join(f"{self.x(x):.1f} {self.y(low):.1f}" for x, low, _ in points)
        back = "L".join(f"{self.x(x):.1f} {self.y(high):.1f}" for x, _, high in reversed(points))
        self.add(f'<path d="M{there}L{back}z" fill="{color}" fill-opacity="0.3"/>')

    def beyond(self, first: float, last: float, words: str = "") -> None:
        """A shaded part of the x axis, with what it is."""
        x, to_x = self.x(first), self.x(last)
        size = f'width="{to_x - x:.1f}" height="{self.floor - self.top:.1f}"'
        self.add(f'<rect x="{x:.1f}" y="{self.top:.1f}" {size} fill="{GREY}" fill-opacity="0.18"/>')
        places = ((to_x - 5, self.floor - 7, "end"), (to_x - 5, self.top + 13, "end"), (x + 5, self.top + 13, ""))
        if words:
            self._names.append(_Name(words=words, places=places, bold=False))

    def bars(self, values: Sequence[float], colors: Sequence[str]) -> None:
        """One for each unit of the x axis. Those of one colour are one path, since there may be a thousand."""
        slot = (RIGHT - self.left) / len(values)
        width = max(_LEAST_BAR, min(_WIDEST, slot * (0.62 if len(values) < 16 else 0.8)))
        each = sorted(zip(colors, range(len(values)), values, strict=True), key=lambda bar: colors.index(bar[0]))
        for color, some in groupby(each, key=lambda bar: bar[0]):
            path = "".join(
                f"M{self.left + slot * (place + 0.5) - width / 2:.1f} {self.floor:g}"
                f"V{min(self.y(value), self.floor - 0.5):.1f}h{width:.1f}V{self.floor:g}z"
                for _, place, value in some
            )
            self.add(f'<path d="{path}" fill="{color}"/>')

    def level(self, value: float, words: str, color: str = "") -> None:
        """A horizontal line across the chart with its name, as that of a ceiling."""
        y = self.y(value)
        style = f'fill="none" stroke="{color}" stroke-width="1.5" stroke-dasharray="2 3"'
        self.add(f'<path {style if color else _CEILING} d="M{self.left:g} {y:.1f}H{RIGHT}"/>')
        self._sample((self.left, y), (RIGHT, y))
        ends = ((self.left + 4, ""), (RIGHT - 2, "end"))
        places = tuple((x, y + down, anchor) for down in (-5, 14, -18, 27) for x, anchor in ends)
        # On the other side of its line it might be taken for the name of the next.
        self._names.append(_Name(words=visible(words), places=places, bold=False, cost=15))

    def upright(self, value: float, color: str, *, dash: str = "4 4") -> None:
        x = self.x(value)
        self.add(
            f'<path d="M{x:.1f} {self.top:g}V{self.floor:g}" fill="none" stroke="{color}" stroke-dasharray="{dash}"/>'
        )
        self._sample((x, self.top), (x, self.floor))

    def name(self, x: float, y: float, words: str, side: str = "above", *, color: str = _INK) -> None:
        """Words beside a point, on this side of it or, where something is in the way, on another."""
        at_x, at_y = self.x(x), self.y(y)
        sides = [_SIDES[side], *(each for name, each in _SIDES.items() if name != side)]
        places = tuple((at_x + right, at_y + down, anchor) for right, down, anchor in sides)
        self._names.append(_Name(words=visible(words), places=places, color=color))

    def figure(self, x: float, y: float, words: str, *, beside: float | None = None) -> None:
        """The figure of a bar that ends at y: over it, or at its foot where it ends close to a ceiling, `beside`."""
        at_x, at_y = self.x(x), self.y(y)
        over, foot = (at_x, at_y - 6, "middle"), (at_x, self.floor - 7, "middle")
        near = beside is not None and abs(at_y - self.y(beside)) < _LINE
        self._names.append(_Name(words=visible(words), places=(foot, over) if near else (over, foot)))

    def row(self, number: int, name: str, sizes: Sequence[float], parts: Sequence[Shade], text: str) -> None:
        """A horizontal bar of these parts with its name at its left and a text at its end."""
        y = self.top + _STEP * number + (_STEP - _BAR) / 2
        self.add(svg_text(self.left - 6, y + 14, shortened(name, _LONGEST), anchor="end"))
        at = 0.0
        for part, size in zip(parts, sizes, strict=True):
            x, to_x = self.x(at), self.x(at + size)
            place = f'x="{x:.1f}" y="{y:.1f}" width="{to_x - x:.1f}" height="{_BAR}"'
            if to_x - x >= 0.2:
                self.add(f'<rect class="part" {place} fill="{part.color}"/>')
            if to_x - x >= _LEAST_LETTER:
                self.add(svg_text((x + to_x) / 2, y + 14, part.letter, anchor="middle", bold=True, fill=part.ink))
            at += size
        self.add(svg_text(self.x(at) + 5, y + 14, text, bold=True))

    def named_row(self, number: int, name: str, *, bold: bool = False) -> float:
        """The name of a row, which stands over it; gives the middle of the row below the name, in units."""
        y = self.top + _NAMED_STEP * number
        self._names.append(_Name(words=visible(name), places=((_EDGE, y + 12, ""),), bold=bold))
        return y + 22

    def stretch(self, one: float, other: float, y: float, color: str, *, thick: float) -> None:
        """A horizontal bar between two values, at so many units from the top."""
        x, to_x = sorted((self.x(one), self.x(other)))
        place = f'x="{x:.1f}" y="{y - thick / 2:.1f}" width="{max(1.0, to_x - x):.1f}" height="{thick:g}"'
        self.add(f'<rect {place} fill="{color}"/>')

    def mark(self, x: float, y: float, color: str, *, full: bool, said: str) -> None:
        """A point at so many units from the top; `said` is shown where a pointer rests on it."""
        fill = color if full else "none"
        self.add(
            f'<circle cx="{self.x(x):.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{color}" stroke-width="2">'
            f"<title>{escape(visible(said))}</title></circle>"
        )

    def beside(self, ends: tuple[float, float], y: float, words: str, *, side: str = "right") -> None:
        """Words `right` or `left` of a horizontal bar, or `over` it where its name is short; else elsewhere."""
        left, right = sorted(map(self.x, ends))
        places = {"right": (right + 7, y + 4, ""), "left": (left - 7, y + 4, "end"), "over": (RIGHT, y - 10, "end")}
        inside = {"right": (right - 5, y + 4, "end"), "left": (left + 5, y + 4, ""), "over": places["left"]}
        some = (
            (places[side], inside[side])
            if side != "over"
            else tuple(places[each] for each in ("over", "right", "left"))
        )
        self._names.append(_Name(words=visible(words), places=some))

    def svg(self) -> str:
        return svg_page(self._title, self._height, [*self._drawn, *self._placed()])

    def _draw_axes(self) -> None:
        if self._y:
            self.add(svg_text(4, self.top - 9, self._y.name))
            for value, words in self._y.ticks():
                y = self.y(value)
                self.add(f'<path class="grid" d="M{self.left:g} {y:.1f}H{RIGHT}"/>')
                self.add(svg_text(self.left - 5, y + 4, words, anchor="end"))
                self._taken.append((0.0, y - 6, self.left - 5, y + 5))
        upright = not self._y and self.left > _EDGE
        end = f"V{self.top:g}" if upright else f"H{RIGHT}"
        self.add(f'<path class="axis" d="M{self.left:g} {self.floor:g}{end}"/>')
        marks = self._x.ticks()
        wide = _CHARACTER * max((len(words) for _, words in marks), default=0) + 4
        # Of figures that would lie upon each other every second, or third.
        between = (RIGHT - self.left) / max(1, len(marks) - (self._x.marks is None))
        step = 1 if self._x.lines else max(1, ceil(wide / between))
        for value, words in marks[::step]:
            x = self.x(value)
            if self._x.marks is None or self._x.lines:
                self.add(f'<path class="grid" d="M{x:.1f} {self.top:g}V{self.floor:g}"/>')
            half = _CHARACTER * len(words) / 2
            self.add(svg_text(min(max(x, half), WIDTH - half), self.floor + 15, words, anchor="middle"))
        self.add(svg_text((self.left + RIGHT) / 2, self._height - 8, self._x.name, anchor="middle"))

    def _sample(self, one: tuple[float, float], two: tuple[float, float]) -> None:
        count = max(1, round(hypot(two[0] - one[0], two[1] - one[1]) / 4))
        self._samples += [
            (one[0] + (two[0] - one[0]) * part / count, one[1] + (two[1] - one[1]) * part / count)
            for part in range(count + 1)
        ]

    def _placed(self) -> Iterator[str]:
        """Each name at the first of its places where it covers least."""
        for name in self._names:
            costs = [self._cost(name.box(place)) + name.cost * rank for rank, place in enumerate(name.places)]
            x, y, anchor = name.places[costs.index(min(costs))]
            self._taken.append(name.box((x, y, anchor)))
            yield svg_text(x, y, name.words, anchor=anchor, bold=name.bold, halo=True, fill=name.color)

    def _cost(self, box: Box) -> float:
        """Of words in this box: lines that they cross, less than other words, less than what is cut at the edge."""
        left, top, right, bottom = box
        crossed = sum(left - 1 < x < right + 1 and top < y < bottom for x, y in self._samples)
        covered = sum(
            max(0.0, min(right, other[2]) - max(left, other[0])) * max(0.0, min(bottom, other[3]) - max(top, other[1]))
            for other in self._taken
        )
        outside = max(0.0, 2 - left) + max(0.0, right - WIDTH) + 4 * max(0.0, self.top - 14 - top)
        return crossed + covered + 10 * (outside + 4 * max(0.0, bottom - self.floor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One bar of a chart over workers, or over something else."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    text: str
    color: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """How one part of a whole is shown: by colour, and by a letter for those who see or print none."""

    letter: str
    name: str
    color: str
    ink: str
    """Of the letter."""


def column_chart(
    columns: Sequence[Column],
    title: str,
    unit: str,
    top: float,
    ceiling: tuple[float, str] | None = None,
    *,
    axis: str = "workers",
) -> str:
    """SVG of bars over numbers of workers, with intervals and a dashed ceiling with its label; empty without bars.

    `axis` is what the bars stand over. `top` is the upper end of the scale, shared among the charts that are compared.
    """
    if not columns or top <= 0:
        return ""
    middles = [place + 0.5 for place in range(len(columns))]
    marks = tuple((at, each.name) for at, each in zip(middles, columns, strict=True))
    plot = Plot(title, Axis(name=axis, high=len(columns), marks=marks), Axis(name=unit, high=top))
    plot.bars([column.value for column in columns], [column.color for column in columns])
    plot.spans((at, each.low or 0.0, each.high or 0.0) for at, each in zip(middles, columns, strict=True))
    if ceiling:
        plot.level(*ceiling)
    for at, each in zip(middles, columns, strict=True):
        plot.figure(at, max(each.value, each.high or 0.0), each.text, beside=ceiling and ceiling[0])
    return plot.svg()


def stacked_chart(
    bars: Sequence[tuple[str, Sequence[float], str]], parts: Sequence[Shade], title: str, unit: str, top: float
) -> str:
    """SVG of a horizontal bar for each (name, its parts, text at its end), on a scale to `top`; empty without bars."""
    if not bars or top <= 0:
        return ""
    left = 12 + _CHARACTER * min(_LONGEST, max(len(name) for name, *_ in bars))
    above = TOP - 14
    plot = Plot(title, Axis(name=unit, high=top), height=above + _STEP * len(bars) + _UNDER, left=left, top=above)
    for number, (name, sizes, text) in enumerate(bars):
        plot.row(number, name, sizes, parts, text)
    return plot.svg()


def named_rows(title: str, x: Axis, count: int) -> Plot:
    """A chart of so many rows with their names over them."""
    return Plot(title, x, height=TOP - 14 + _NAMED_STEP * count + _UNDER, left=_EDGE, top=TOP - 14)


def rank_chart(
    title: str, unit: str, values: Sequence[float], colors: Sequence[str], *, height: float = HEIGHT, axis: str = ""
) -> Plot:
    """A chart with a bar for each rank, of which the first and the last are named."""
    last = len(values) - 1
    marks = tuple((rank + 0.5, f"rank {rank}") for rank in sorted({0, last}))
    x = Axis(name=axis, high=len(values), marks=marks)
    plot = Plot(title, x, Axis(name=unit, high=1.25 * max(values) or 1.0), height=height)
    plot.bars(values, colors)
    return plot


def shortened(name: str, most: int) -> str:
    """A name of at most so many characters, cut at its end where it is longer."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def svg_text(
    x: float, y: float, words: str, *, anchor: str = "", bold: bool = False, halo: bool = False, fill: str = _INK
) -> str:
    """Words at a place; `halo` keeps lines behind them from crossing them."""
    options = f' text-anchor="{anchor}"' if anchor else ""
    options += ' font-weight="600"' if bold else ""
    options += f" {_HALO}" if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{options}>{escape(visible(words))}</text>'


def svg_page(title: str, height: float, drawn: Sequence[str]) -> str:
    """The chart under its title, which is also what is read out. A long one has several lines, over the chart."""
    fits = len(title) <= _SLACK * _TITLE_CHARS
    lines = [visible(title)] if fits else wrap(visible(title), _TITLE_CHARS)
    size = min(_TITLE, _TITLE * _TITLE_CHARS / len(title)) if title and fits else _TITLE
    above = _LINE * max(0, len(lines) - 1)
    head = "".join(
        f'<text x="{_EDGE}" y="{14 - above + _LINE * number}" font-size="{size:.3g}" font-weight="600" fill="{_INK}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    return (
        f'<svg viewBox="0 {-above} {WIDTH} {height + above:.0f}" role="img" aria-label="{escape(visible(title))}" '
        f'font-family="sans-serif" font-size="11">{head}{"".join(drawn)}</svg>'
    )


def heat_cell(
    said: str, texts: tuple[str, str], parts: Sequence[tuple[str, float]], *, wide: int = 62, framed: bool = False
) -> str:
    """SVG of a cell with two lines of text; `parts` that fill it lie below each other: (colour, opacity) of each."""
    high = 34
    part = high / len(parts)
    drawn = "".join(
        f'<rect y="{part * number:g}" width="{wide}" height="{part:g}" fill="{color}" fill-opacity="{opacity:.3f}" '
        f'stroke="{color}" stroke-width="0.5"/>'
        for number, (color, opacity) in enumerate(parts)
    )
    if framed:
        drawn += (
            f'<rect x="1" y="1" width="{wide - 2}" height="{high - 2}" fill="none" stroke="{_INK}" stroke-width="2"/>'
        )
    for number, words in enumerate(texts):
        dark = parts[min(number, len(parts) - 1)][1] > _DARK
        drawn += svg_text(wide / 2, 12 + 17 * number, words, anchor="middle", fill="#FFFFFF" if dark else _INK)
    return (
        f'<svg viewBox="0 0 {wide} {high}" style="width:{wide}px" font-family="sans-serif" font-size="11">'
        f"<title>{escape(visible(said))}</title>{drawn}</svg>"
    )


def heat_rows(label: str, rows: Iterable[tuple[str, Iterable[str]]], title: str = "") -> str:
    """A row of cells for each name. Cells that do not fit beside each other stand below; on a phone, below the name."""
    head = f'<div style="font-weight:600;margin-bottom:6px">{escape(visible(title))}</div>' if title else ""
    drawn = "".join(
        '<div style="display:flex;flex-wrap:wrap;gap:3px;margin-bottom:6px;font-size:12px">'
        f'<div style="flex:0 0 116px">{escape(visible(name))}</div>'
        f'<div style="flex:1 1 300px;display:flex;flex-wrap:wrap;gap:3px">{"".join(cells)}</div></div>'
        for name, cells in rows
    )
    return f'<div role="group" aria-label="{escape(visible(label))}">{head}{drawn}</div>'
