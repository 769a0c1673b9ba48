"""Curves on two logarithmic axes as SVG, in the style of the bars of `charts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from loaderprobe.render.charts import FLOOR, HEIGHT, LEFT, RIGHT, TOP, svg_page, svg_text

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Of Okabe and Ito (2008)."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart: points that were measured, and what a law says; either may be empty."""

    name: str
    at: tuple[float, float]
    """Where its name stands."""
    color: str
    points: Points
    law: Points


def curve_chart(
    curves: Sequence[Curve], title: str, *, axes: tuple[str, str], wide: tuple[float, float], high: tuple[float, float]
) -> str:
    """SVG of the curves, points with dots on a line and laws dashed; `wide` and `high` are the ends of the axes.

    `axes` names what is along and what is up. Empty without curves.
    """
    if not curves:
        return ""

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (RIGHT - LEFT) * _share(x, wide),
            FLOOR - (FLOOR - TOP) * _share(y, high),
        )

    drawn = [svg_text(4, TOP - 9, axes[1]), svg_text((LEFT + RIGHT) / 2, HEIGHT - 8, axes[0], anchor="middle")]
    for tick in _ticks(*high):
        y = place(wide[0], tick)[1]
        drawn.append(f'<path class="{"axis" if tick == 1 else "grid"}" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        drawn.append(svg_text(LEFT - 5, y + 4, f"{tick:g}", anchor="end"))
    for tick in _ticks(*wide, every=(1,)):
        x = place(tick, high[0])[0]
        drawn.append(f'<path class="grid" d="M{x:.1f} {TOP}V{FLOOR}"/>')
        drawn.append(svg_text(x, FLOOR + 15, f"{tick:,.0f}", anchor="middle"))
    for curve in curves:
        drawn += _curve(curve, [place(*point) for point in curve.points], [place(*point) for point in curve.law])
    for curve in curves:
        drawn.append(svg_text(*place(*curve.at), curve.name, bold=True, halo=True, fill=curve.color))
    return svg_page(title, HEIGHT, drawn)


def _curve(curve: Curve, points: Points, law: Points) -> list[str]:
    drawn = [
        f'<path d="M{" ".join(f"{x:.1f} {y:.1f}" for x, y in some)}" fill="none" stroke="{curve.color}" {style}/>'
        for some, style in ((law, 'stroke-width="1" stroke-dasharray="4 3"'), (points, 'stroke-width="1.5"'))
        if some
    ]
    return drawn + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{curve.color}"/>' for x, y in points]


def _share(value: float, ends: tuple[float, float]) -> float:
    """Of the way from end to end; never beyond either."""
    low, high = (log10(end) for end in ends)
    return min(1.0, max(0.0, (log10(value) - low) / (high - low)))


def _ticks(low: float, high: float, every: tuple[int, ...] = (1, 2, 5)) -> list[float]:
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    found = [factor * 10.0**power for power in powers for factor in every]
    return [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
