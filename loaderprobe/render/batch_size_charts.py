"""Rate, step time and utilization against the batch size, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport
from loaderprobe.render.batch_size_words import BUSY_WORDS, smallest_unfit
from loaderprobe.render.charts import BLUE, GREY, RED, Axis, Plot
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.wording import percent
from loaderprobe.units import significant

CHART_HEIGHT = 250
ABOVE = 1.2
"""A scale ends so far above what it shows, that the name of the chosen size has its place."""


def batch_size_exhibits(found: BatchSizeReport, sizes: Sequence[BatchSizeProbe]) -> dict[str, tuple[Exhibit, ...]]:
    """Three charts, or two without utilization, in the section of the sizes."""
    fitting = [each for each in sizes if each.fits]
    if len(fitting) < 2:
        return {}
    wall = smallest_unfit(found)
    busy = BUSY_WORDS[found.utilization_of]
    charts = [
        ("Images/s against batch size", _chart(fitting, found.stop.chosen, wall, "images/s", _rate, significant)),
        (
            "Step time against batch size",
            _chart(fitting, found.stop.chosen, wall, "ms a step", _step, lambda ms: f"{significant(ms)} ms"),
        ),
    ]
    read = [each for each in fitting if each.utilization is not None]
    if len(read) > 1:
        charts.append((f"{busy} against batch size", _chart(read, found.stop.chosen, wall, busy, _busy, percent)))
    text = (
        "Each point is a batch size, on a scale of doublings. Bars: 95 % intervals of the rate, and the middle half of "
    )
    text += "the steps. The chosen size is red."
    if wall:
        text += f" Dashed: batch {wall}, which does not fit."
    return {"sizes": (Exhibit(title="Rate, step time and utilization", text=text, figures=tuple(charts)),)}


Read = Callable[[BatchSizeProbe], tuple[float, float, float]]
"""(value, low, high)."""


def _rate(probe: BatchSizeProbe) -> tuple[float, float, float]:
    assert probe.images_per_s
    return probe.images_per_s.value, probe.images_per_s.low, probe.images_per_s.high


def _step(probe: BatchSizeProbe) -> tuple[float, float, float]:
    assert probe.step_ms
    return probe.step_ms.value, probe.step_ms.low, probe.step_ms.high


def _busy(probe: BatchSizeProbe) -> tuple[float, float, float]:
    busy = probe.utilization or 0.0
    return busy, busy, busy


def _chart(
    sizes: Sequence[BatchSizeProbe], chosen: int, wall: int, unit: str, read: Read, words: Callable[[float], str]
) -> str:
    points = {each.batch_size: read(each) for each in sizes}
    shares = read is _busy
    top = ABOVE * (1.0 if shares else max(high for _, _, high in points.values()))
    x = Axis(name="batch size", low=min(points) * 0.85, high=max(*points, wall) * 1.18, base=2)
    plot = Plot(unit, x, Axis(name="", high=top, shares=shares), height=CHART_HEIGHT)
    if wall:
        plot.upright(wall, GREY)
    line = [(size, value) for size, (value, _, _) in points.items()]
    plot.spans(((size, low, high) for size, (_, low, high) in points.items()), BLUE)
    plot.line(line, BLUE)
    plot.dots([each for each in line if each[0] != chosen], BLUE, radius=3)
    for size, value in line:
        if size == chosen:
            plot.dots([(size, value)], RED, radius=5)
            plot.name(size, value, f"batch {chosen}: {words(value)}", "above left")
    return plot.svg()
