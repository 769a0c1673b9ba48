"""What the charts of a storage plan are drawn with: logarithmic axes, lines with names, one style."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from loaderprobe.render.charts import shortened
from loaderprobe.render.wording import visible

WIDTH = 348
BLUE, RED, GREY = "#0072B2", "#D55E00", "#8A8F95"
# The style sheet of the plan replaces these three where the page is dark.
INK, GRID, HALO = "#3A3F45", "#E6E8EB", "#FFFFFF"
EDGE: dict[str, Any] = {"stroke": HALO, "strokeWidth": 4, "color": HALO, "aria": False}
_LINE_PX = 14
"""Between the names of two lines."""
_AXES_PX = 96
"""Height of title and axes, about."""
_MOST_TICKS = 9
_LONGEST_NAME = 24


def short(name: str) -> str:
    """The name of a storage, cut where it is long."""
    return shortened(name, _LONGEST_NAME)


def data(values: Sequence[dict[str, Any]]) -> Any:
    """Values of a chart."""
    import altair as alt

    return alt.Data(values=[*values])  # type: ignore[no-untyped-call]  # altair leaves this one without types


def log_scale(domain: tuple[float, float], base: int = 10) -> Any:
    """A logarithmic scale from end to end."""
    import altair as alt

    return alt.Scale(type="log", base=base, domain=[*domain], nice=False)


def log_axis(title: str, domain: tuple[float, float], base: int = 10, shown: str = "~s") -> Any:
    """Ticks at powers of the base, at 2 and 5 of them where these are few, fewer where they are many."""
    import altair as alt

    first, last = (math.log(end, base) for end in domain)
    powers = range(math.floor(first), math.floor(last + 1e-9) + 1)
    between = (1, 2, 5) if base == 10 and last - first < 2 else (1,)
    every = [factor * float(base) ** power for power in powers for factor in between]
    ticks = [tick for tick in every if domain[0] * (1 - 1e-9) <= tick <= domain[1] * (1 + 1e-9)]
    step = max(1, math.ceil(len(ticks) / _MOST_TICKS))
    return alt.Axis(title=title, values=ticks[::step], format=shown if base == 10 else ",d")


def share_axis(title: str) -> Any:
    """From 0 to 100 %."""
    import altair as alt

    return alt.Axis(title=title, format=".0%", values=[0, 0.25, 0.5, 0.75, 1])


def names(values: Sequence[dict[str, Any]], *, dx: int, dy: int, align: str = "center") -> list[Any]:
    """The text of each value at its x and y, with an edge first, so that lines behind it do not cross it."""
    import altair as alt

    shown = [{**value, "text": visible(str(value["text"]))} for value in values]
    base = alt.Chart(data(shown)).encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    marks = {"dx": dx, "dy": dy, "align": align, "fontSize": 11, "fontWeight": 600, "limit": WIDTH - 90}
    return [base.mark_text(**{**marks, "color": INK, **edge}) for edge in (EDGE, {})]


def named(levels: Sequence[dict[str, Any]], domain: tuple[float, float], height: int, *, log: bool = True) -> list[Any]:
    """Horizontal lines at `y` of a `color`, each with its text at its left or `right` end; close ones move apart."""
    made: list[Any] = []
    for right in (False, True):
        side = sorted((level for level in levels if level["right"] == right), key=lambda level: float(level["y"]))
        places = apart([float(level["y"]) for level in side], domain, height, log=log)
        for level, at in zip(side, places, strict=True):
            made += _named(level, at, right=right)
    return made


def _named(level: dict[str, Any], at: float, *, right: bool) -> list[Any]:
    import altair as alt

    text = alt.Chart(data([{"y": at, "text": visible(str(level["text"]))}]))
    marks = {"align": "right" if right else "left", "dx": -4 if right else 4, "dy": -6, "fontSize": 11}
    # Of a channel that is given as text altair takes a hundredth of a second to find the class.
    x, y = alt.value("width") if right else alt.value(0), alt.Y("y:Q")
    line = alt.Chart(data([{"y": level["y"]}]))
    return [
        line.mark_rule(strokeDash=[2, 3], strokeWidth=1.5, color=level["color"]).encode(y=y),
        *(
            text.mark_text(**{**marks, "limit": WIDTH - 70, "color": INK, **edge}).encode(
                x=x, y=y, text=alt.Text("text:N")
            )
            for edge in (EDGE, {})
        ),
    ]


def apart(levels: Sequence[float], domain: tuple[float, float], height: int, *, log: bool = True) -> list[float]:
    """Where the names of these levels stand, from the lowest to the highest: at their line, or over the one below."""

    def place(value: float) -> float:
        return math.log(value) if log else value

    low, high = (place(end) for end in domain)
    least = (high - low) * _LINE_PX / (height - _AXES_PX)
    places = [place(level) for level in levels]
    for below, above in pairwise(range(len(places))):
        places[above] = max(places[above], places[below] + least)
    return [math.exp(each) if log else each for each in places]


@contextmanager
def unchecked() -> Iterator[None]:
    """Do not check what is drawn against the schema of Vega-Lite, which takes longer than drawing it."""
    from altair.utils import schemapi

    with schemapi.debug_mode(False):
        yield


def svg(layers: Sequence[Any], title: str, height: int) -> str:
    """The layers as one SVG element that scales with the page."""
    import altair as alt
    import vl_convert
    from altair.utils import schemapi

    axis = alt.AxisConfig(
        labelColor=INK, titleColor=INK, labelFontSize=11, titleFontSize=11, titleFontWeight="normal",
        gridColor=GRID, domainColor="#9AA0A6", tickColor="#9AA0A6",
    )  # fmt: skip
    # Given at once: each of altair's methods copies the whole chart.
    styled = alt.layer(
        *layers,
        width=WIDTH,
        height=height,
        title=alt.Title(visible(title), anchor="start", fontSize=13, fontWeight=600, color=INK, offset=10),
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        padding=4,
        background="transparent",
        config=alt.Config(font="sans-serif", view=alt.ViewConfig(stroke=None), axis=axis),
    )
    made: str = vl_convert.vegalite_to_svg(styled.to_dict(validate=schemapi.DEBUG_MODE))
    # Only a file of its own needs the namespaces.
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", made, count=2)
