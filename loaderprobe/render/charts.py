"""The charts of the report as SVG: bars over workers under a ceiling, and stacked bars. Written out, since a report of
200 configurations has hundreds of them and none may need a browser or a script.

Colours are from those of Okabe and Ito (2008) and of Tol (2021), which people with any colour vision can separate; a
letter stands beside each, for paper without colour. Ink, lines and paper are those of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from loaderprobe.records.resources import RESOURCES
from loaderprobe.render.wording import visible

TONES = {
    **{each.name: each.color for each in RESOURCES if each.is_cause},
    "either": "#D9C800", "balanced": "#56B4E9", "inconclusive": "#9A9A9A",
}  # fmt: skip
"""By tone of a verdict."""
READ_COLOR = "#0072B2"
WIDTH, HEIGHT = 348, 210
LEFT, RIGHT, TOP, FLOOR = 46, 340, 40, 168
_BAR, _STEP, _NAME = 20, 30, 70
"""Pixels of a stacked bar, from one to the next, and of its name."""
_LEAST_LETTER = 12
"""Pixels of the narrowest part of a bar that gets its letter."""
_WIDEST = 48
_UNDER_LABEL, _LINE = 5, 15
"""Pixels from the name of a ceiling to its line, and from one line of text to the next."""
_HIGH = 84
"""No figure stands higher over its bar than this."""
_TITLE, _LEAST_TITLE, _TITLE_CHARS = 13, 9, 50
"""Pixels of a title, of a long one at least, and the characters that fit in one line of the larger."""
_INK = "currentColor"
_HALO = 'paint-order="stroke" stroke="var(--card)" stroke-width="4" stroke-linejoin="round"'
"""Behind figures, so that no line crosses them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One bar of a chart over workers."""

    workers: str
    value: float
    low: float | None = None
    high: float | None = None
    text: str
    color: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of stretch within the bars of a stacked chart."""

    letter: str
    name: str
    color: str
    ink: str


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
    slot = (RIGHT - LEFT) / len(columns)
    parts = [*svg_grid(unit, top)]
    for place, each in enumerate(columns):
        parts += _column(each, LEFT + slot * (place + 0.5), min(_WIDEST, slot * 0.62), top)
    if ceiling:
        parts += _ceiling(ceiling[0], ceiling[1], top)
    # Figures over everything else.
    for place, each in enumerate(columns):
        at = svg_height(max(each.value, each.high or 0.0), top) - 6
        # Where the ceiling has its label, as near the top, the figure stands at the foot of its bar.
        beside = ceiling is not None and abs(at - svg_height(ceiling[0], top) + _UNDER_LABEL) < _LINE
        at = at if at > _HIGH and not beside else FLOOR - 7
        parts.append(svg_text(LEFT + slot * (place + 0.5), at, each.text, anchor="middle", bold=True, halo=True))
    parts.append(svg_text((LEFT + RIGHT) / 2, HEIGHT - 8, axis, anchor="middle"))
    return svg_page(title, HEIGHT, parts)


def stacked_chart(
    bars: Sequence[tuple[str, Sequence[float], str]], parts: Sequence[Part], title: str, unit: str, top: float
) -> str:
    """SVG of a horizontal bar for each (name, its parts, text at its end), on a scale to `top`; empty without bars."""
    if not bars or top <= 0:
        return ""
    floor_y = TOP + _STEP * len(bars)
    scale = (RIGHT - _NAME) / top
    drawn = [svg_line(_NAME, TOP - 4, _NAME, floor_y)]
    for number, (name, sizes, text) in enumerate(bars):
        y = TOP + _STEP * number + (_STEP - _BAR) / 2
        drawn.append(svg_text(_NAME - 6, y + 14, name, anchor="end"))
        drawn += _stack(sizes, parts, y, scale)
        drawn.append(svg_text(_NAME + sum(sizes) * scale + 5, y + 14, text, bold=True))
    for tick in ticks(top):
        drawn += [
            svg_line(_NAME + tick * scale, floor_y, _NAME + tick * scale, floor_y + 4),
            svg_text(_NAME + tick * scale, floor_y + 16, f"{tick:g}", anchor="middle"),
        ]
    drawn.append(svg_text(RIGHT, floor_y + 32, unit, anchor="end"))
    return svg_page(title, floor_y + 40, drawn)


def ticks(top: float) -> tuple[float, ...]:
    """Round figures from 0 on, up to five."""
    rough = top / 4
    power = 10.0 ** floor(log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    return tuple(round(step * number, 12) for number in range(int(top / step) + 1))


def svg_height(value: float, top: float) -> float:
    """The y of a value; never above the drawing."""
    return FLOOR - min(1.0, value / top) * (FLOOR - TOP)


def svg_grid(unit: str, top: float) -> list[str]:
    """Lines at round figures up to the top of the scale, and its unit."""
    drawn = [svg_text(4, TOP - 9, unit)]
    for tick in ticks(top):
        y = svg_height(tick, top)
        drawn.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        if y > TOP + 4:
            drawn.append(svg_text(LEFT - 5, y + 4, f"{tick:g}", anchor="end"))
    return drawn


def _column(each: Column, middle: float, width: float, top: float) -> list[str]:
    y = svg_height(each.value, top)
    height = max(FLOOR - y, 0.5)
    drawn = [
        f'<rect x="{middle - width / 2:.1f}" y="{FLOOR - height:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{each.color}"/>',
        svg_text(middle, FLOOR + 15, each.workers, anchor="middle"),
    ]
    if each.low is not None and each.high is not None and each.high > each.low:
        low, high = svg_height(each.low, top), svg_height(each.high, top)
        drawn.append(f'<path class="rule" d="M{middle:.1f} {low:.1f}V{high:.1f}m-4 0h8M{middle - 4:.1f} {low:.1f}h8"/>')
    return drawn


def _ceiling(value: float, text: str, top: float) -> list[str]:
    y = svg_height(value, top)
    return [
        f'<path class="rule dashed" d="M{LEFT} {y:.1f}H{RIGHT}"/>',
        svg_text(LEFT + 4, y - _UNDER_LABEL, text, halo=True),
    ]


def _stack(sizes: Sequence[float], parts: Sequence[Part], y: float, scale: float) -> list[str]:
    drawn, x = [], float(_NAME)
    for part, size in zip(parts, sizes, strict=True):
        width = size * scale
        if width >= 0.2:
            drawn.append(
                f'<rect class="part" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" fill="{part.color}"/>'
            )
        if width >= _LEAST_LETTER:
            drawn.append(svg_text(x + width / 2, y + 14, part.letter, anchor="middle", bold=True, fill=part.ink))
        x += width
    return drawn


def shortened(name: str, most: int) -> str:
    """A name of at most so many characters, cut at its end where it is longer."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def svg_line(x: float, y: float, to_x: float, to_y: float) -> str:
    """A part of an axis."""
    return f'<path class="axis" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def svg_text(
    x: float, y: float, words: str, *, anchor: str = "", bold: bool = False, halo: bool = False, fill: str = _INK
) -> str:
    """Words at a place; `halo` keeps lines behind them from crossing them."""
    options = f' text-anchor="{anchor}"' if anchor else ""
    options += ' font-weight="600"' if bold else ""
    options += f" {_HALO}" if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{options}>{escape(visible(words))}</text>'


def svg_page(title: str, height: float, drawn: Sequence[str]) -> str:
    """Hidden from screen readers: a table beside it has its figures."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" aria-hidden="true" font-family="sans-serif" font-size="11">'
        f'<text x="4" y="14" font-size="{_title_size(title)}" font-weight="600" fill="{_INK}">{escape(visible(title))}'
        f"</text>{''.join(drawn)}</svg>"
    )


def _title_size(title: str) -> str:
    """Smaller for a title that would be cut at the edge."""
    return f"{min(_TITLE, max(_LEAST_TITLE, _TITLE * _TITLE_CHARS / max(len(title), 1))):.3g}"
