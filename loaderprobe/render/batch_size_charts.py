"""Rate, step time and utilization against the batch size, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport
from loaderprobe.render.batch_size_words import BUSY_WORDS, smallest_unfit
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.plan_drawing import (
    BLUE,
    GREY,
    RED,
    data,
    log_axis,
    log_scale,
    names,
    share_axis,
    svg,
    unchecked,
)
from loaderprobe.render.wording import percent
from loaderprobe.units import significant

HEIGHT = 250
ABOVE = 1.2
"""A scale ends so far above what it shows, that the name of the chosen size has its place."""

Point = dict[str, Any]


@unchecked()
def batch_size_exhibits(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> dict[str, tuple[Exhibit, ...]]:
    """Three charts, or two without utilization, in the section of the sizes."""
    fitting = [each for each in sizes if each.fits]
    if len(fitting) < 2:
        return {}
    wall = smallest_unfit(found)
    busy = BUSY_WORDS[found.utilization_of]
    charts = [
        ("Images/s against batch size", _chart(fitting, found.stop.chosen, wall, "images/s", _rate_point)),
        ("Step time against batch size", _chart(fitting, found.stop.chosen, wall, "ms a step", _step_point)),
    ]
    read = [each for each in fitting if each.utilization is not None]
    if len(read) > 1:
        charts.append((f"{busy} against batch size", _chart(read, found.stop.chosen, wall, busy, _busy_point)))
    text = (
        "Each point is a batch size, on a scale of doublings. Bars: 95 % intervals of the rate, and the middle half of "
    )
    text += "the steps. The chosen size is red."
    if wall:
        text += f" Dashed: batch {wall}, which does not fit."
    return {"sizes": (Exhibit(title="Rate, step time and utilization", text=text, figures=tuple(charts)),)}


def _rate_point(probe: BatchSizeProbe) -> Point:
    assert probe.images_per_s
    rate = probe.images_per_s
    return {"y": rate.value, "low": rate.low, "high": rate.high, "text": significant(rate.value)}


def _step_point(probe: BatchSizeProbe) -> Point:
    assert probe.step_ms
    ms = probe.step_ms
    return {"y": ms.value, "low": ms.low, "high": ms.high, "text": f"{significant(ms.value)} ms"}


def _busy_point(probe: BatchSizeProbe) -> Point:
    busy = probe.utilization or 0.0
    return {"y": busy, "low": busy, "high": busy, "text": percent(busy)}


def _chart(
    sizes: Sequence[BatchSizeProbe], chosen: int, wall: int, unit: str, point: Callable[[BatchSizeProbe], Point]
) -> str:
    import altair as alt

    points = [{"x": each.batch_size, **point(each)} for each in sizes]
    ends = (points[0]["x"] * 0.85, max(points[-1]["x"], wall) * 1.18)
    share = point is _busy_point
    top = ABOVE if share else max(each["high"] for each in points) * ABOVE
    x = alt.X("x:Q", scale=log_scale(ends, 2), axis=log_axis("batch size", ends, 2))
    axis = share_axis("") if share else alt.Axis(title="", tickCount=5)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=axis)
    base = alt.Chart(data(points))
    best = [each for each in points if each["x"] == chosen]
    layers = [
        base.mark_rule(color=BLUE, strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_line(color=BLUE, strokeWidth=2).encode(x=x, y=y),
        base.mark_point(filled=True, size=36, color=BLUE, opacity=1).encode(x=x, y=y),
        alt.Chart(data(best)).mark_point(filled=True, size=90, color=RED, opacity=1).encode(x=x, y=y),
        *names([{**each, "text": f"batch {chosen}: {each['text']}"} for each in best], dx=0, dy=-14),
    ]
    if wall:
        rule = alt.Chart(data([{"x": wall}])).mark_rule(strokeDash=[4, 4], color=GREY)
        layers.append(rule.encode(x=alt.X("x:Q")))
    return svg(layers, unit, HEIGHT)
