"""The charts of the report: small multiples as SVG, made by Vega-Lite without a browser.

Colours are those of Okabe and Ito (2008), which people with any colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from loaderprobe.records.report import ConfigurationRow
from loaderprobe.render.groups import measured
from loaderprobe.render.wording import figure, loading, rate, variation, visible

WIDTH = 348
HEIGHT = 210
LINE_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STEP_COLORS = {
    "waiting for input": "#D55E00",
    "copy to the device": "#CC79A7",
    "training step": "#0072B2",
    "other": "#9A9A9A",
}
WORKER_COLORS = {
    "CPU: decode and augment": "#E69F00",
    "ready, no core free": "#56B4E9",
    "waiting: storage": "#D55E00",
    "waiting: network": "#0072B2",
    "waiting: lock": "#CC79A7",
    "waiting: sleep, pipe, memory": "#9A9A9A",
    "waiting, not attributed": "#D9D9D9",
}
_INK = "#3A3F45"
_GRID = "#E6E8EB"
_HALO: dict[str, Any] = {"stroke": "#FFFFFF", "strokeWidth": 4, "color": "#FFFFFF", "aria": False}


def line_colors(rows: Sequence[ConfigurationRow]) -> dict[str, str]:
    """Line name to colour: a line for each cache state, and for each batch size or loader where these vary."""
    names = dict.fromkeys(_line(row, rows) for row in rows)
    return dict(zip(names, cycle(LINE_COLORS), strict=False))


def throughput_chart(
    rows: Sequence[ConfigurationRow],
    title: str,
    colors: dict[str, str],
    ceiling: tuple[float, str] | None,
    top: float | None,
) -> str:
    """SVG of images/s against workers, with bars for the 95 % interval and the ceiling dashed; empty without data.

    `ceiling` is the rate and its label; `top` is the upper end of the scale, shared among charts.
    """
    values = [
        {
            "workers": _workers(row),
            "line": _line(row, rows),
            "y": row.images_per_s.value,
            "low": row.images_per_s.low,
            "high": row.images_per_s.high,
            "text": rate(row.images_per_s.value),
        }
        for row in measured(rows)
        if row.images_per_s
    ]
    return _lines(values, _order(rows), title, "images/s", colors, ceiling, top)


def disk_chart(rows: Sequence[ConfigurationRow], title: str, colors: dict[str, str], top: float | None) -> str:
    """SVG of the MB/s that the devices under the data read, against workers; empty without data."""
    values = [
        {
            "workers": _workers(row),
            "line": _line(row, rows),
            "y": read / 1e6,
            "low": None,
            "high": None,
            "text": figure(read / 1e6),
        }
        for row in measured(rows)
        if row.verdict and (read := row.verdict.disk_read_bytes_per_s) is not None
    ]
    return _lines(values, _order(rows), title, "MB/s read from storage", colors, None, top)


def step_chart(rows: Sequence[ConfigurationRow], title: str) -> str:
    """SVG of where the time of one step goes on the training thread, ms a batch, a bar a configuration."""

    def parts(row: ConfigurationRow) -> Sequence[float] | None:
        if row.verdict is None:
            return None
        spent = row.verdict.step_time
        return spent.wait_s, spent.copy_s, spent.step_s, spent.other_s

    return _bars(rows, parts, STEP_COLORS, title, "ms per batch")


def worker_chart(rows: Sequence[ConfigurationRow], title: str) -> str:
    """SVG of where the time of one image goes in one worker, ms an image, a bar a configuration."""

    def parts(row: ConfigurationRow) -> Sequence[float] | None:
        spent = row.verdict.worker_time if row.verdict else None
        if spent is None:
            return None
        waits = [spent.waits.get(name, 0.0) for name in ("storage", "network", "lock", "wait")]
        return spent.cpu_s, spent.run_delay_s, *waits, max(0.0, spent.blocked_s - sum(waits))

    return _bars(rows, parts, WORKER_COLORS, title, "ms per image in one worker")


def _line(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    return ", ".join(part for part in (f"{row.config.cache} files", variation(row, among)) if part)


def _workers(row: ConfigurationRow) -> str:
    return str(row.config.loader.workers or "serial")


def _order(rows: Sequence[ConfigurationRow]) -> list[str]:
    """The workers axis: every count that was asked for, measured or not, so that charts line up."""
    return ["serial" if count == 0 else str(count) for count in sorted({row.config.loader.workers for row in rows})]


def _lines(
    values: list[dict[str, Any]],
    order: list[str],
    title: str,
    unit: str,
    colors: dict[str, str],
    ceiling: tuple[float, str] | None,
    top: float | None,
) -> str:
    import altair as alt

    if not values:
        return ""
    _place_figures(values, order, ceiling[0] if ceiling else None, top)
    x = alt.X("workers:O", sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=0, title="workers"))
    scale = alt.Scale(domain=[0, top], nice=True) if top else alt.Scale(zero=True)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title=unit, tickCount=4, format="~f"))
    color = alt.Color("line:N", legend=None, scale=alt.Scale(domain=list(colors), range=list(colors.values())))
    base = alt.Chart(_data(values)).encode(x=x, color=color)
    text = base.encode(y=y, text="text:N")
    layers: list[Any] = [
        base.mark_line(strokeWidth=2).encode(y=y),
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_point(size=42, filled=True, opacity=1).encode(y=y),
        # A white edge first, so that lines behind a figure do not cross it.
        *(
            text.transform_filter(where).mark_text(dy=dy, fontSize=11, fontWeight=600, **edge)
            for where, dy in (("datum.place == 'over'", -11), ("datum.place == 'under'", 14))
            for edge in (_HALO, {})
        ),
    ]
    if ceiling:
        layers += _ceiling_layers(*ceiling)
    return _svg(alt.layer(*layers), title)


def _place_figures(
    values: list[dict[str, Any]], order: Sequence[str], ceiling: float | None, top: float | None
) -> None:
    """Set where each point's figure stands: `over`, `under` or nowhere, so that none covers another.

    One line shows all its figures. Of several lines only the right-hand ends do, the highest over its
    point, the lowest under its own; the table has the rest.
    """
    several = len({value["line"] for value in values}) > 1
    for value in values:
        # Close under the ceiling no figure fits above the point.
        crowded = ceiling is not None and value["y"] > 0.7 * ceiling
        value["place"] = "" if several else "under" if crowded else "over"
    if several:
        last = max((value["workers"] for value in values), key=order.index)
        ends = sorted((value for value in values if value["workers"] == last), key=lambda value: value["y"])
        scale = top or ends[-1]["y"]
        ends[-1]["place"] = "over"
        if len(ends) > 1 and (ends[0]["y"] > 0.2 * scale or ends[-1]["y"] - ends[0]["y"] > 0.2 * scale):
            ends[0]["place"] = "under" if ends[0]["y"] > 0.2 * scale else "over"


def _data(values: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Data(values=values)  # type: ignore[no-untyped-call]  # altair leaves this one without types


def _ceiling_layers(value: float, text: str) -> list[Any]:
    import altair as alt

    at = alt.Chart(_data([{"y": value, "text": text}]))
    return [
        at.mark_rule(strokeDash=[5, 4], color=_INK).encode(y="y:Q"),
        *(
            at.mark_text(align="left", dx=4, dy=-7, fontSize=11, **{"color": _INK, **edge}).encode(
                x=alt.value(0), y="y:Q", text="text:N"
            )
            for edge in (_HALO, {})
        ),
    ]


def _bars(
    rows: Sequence[ConfigurationRow],
    parts: Callable[[ConfigurationRow], Sequence[float] | None],
    colors: dict[str, str],
    title: str,
    unit: str,
) -> str:
    import altair as alt

    values, totals = [], []
    for row in measured(rows):
        spent = parts(row)
        if spent is None:
            continue
        name = _bar_name(row, rows)
        for position, (part, seconds) in enumerate(zip(colors, spent, strict=True)):
            values.append({"row": name, "part": part, "ms": seconds * 1e3, "position": position})
        totals.append({"row": name, "ms": sum(spent) * 1e3, "text": figure(sum(spent) * 1e3)})
    if not values:
        return ""
    order = [str(total["row"]) for total in totals]
    y = alt.Y("row:N", sort=order, axis=alt.Axis(title=None, ticks=False, domain=False, labelLimit=150))
    most = max(float(str(total["ms"])) for total in totals)
    x = alt.X(
        "ms:Q",
        stack="zero",
        scale=alt.Scale(domain=[0, most * 1.16], nice=False),
        axis=alt.Axis(title=unit, tickCount=4, format="~f"),
    )
    color = alt.Color("part:N", legend=None, scale=alt.Scale(domain=list(colors), range=list(colors.values())))
    bars = (
        alt.Chart(_data(values))
        .mark_bar(height={"band": 0.62})
        .encode(x=x, y=y, color=color, order=alt.Order("position:Q"))
    )
    ends = alt.Chart(_data(totals)).mark_text(align="left", dx=5, fontSize=11, fontWeight=600, color=_INK)
    height = 78 + 30 * len(order)
    return _svg(alt.layer(bars, ends.encode(x="ms:Q", y=y, text="text:N")), title, height)


def _bar_name(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    several = len({other.config.cache for other in among}) > 1
    return ", ".join(
        part for part in (loading(row), row.config.cache if several else "", variation(row, among)) if part
    )


def _svg(chart: Any, title: str, height: int = HEIGHT) -> str:
    """The chart as an SVG element that scales with the page; text in whatever sans-serif the reader has."""
    import altair as alt
    import vl_convert

    font = "sans-serif"
    styled = (
        chart.properties(
            width=WIDTH,
            height=height,
            title=alt.Title(visible(title), anchor="start", fontSize=13, fontWeight=600, color=_INK, offset=10),
            autosize=alt.AutoSizeParams(type="fit", contains="padding"),
            padding=4,
            background="transparent",
        )
        .configure(font=font)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK, titleColor=_INK, labelFontSize=11, titleFontSize=11, titleFontWeight="normal",
            gridColor=_GRID, domainColor="#9AA0A6", tickColor="#9AA0A6",
        )
        .configure_axisX(grid=False)
    )  # fmt: skip
    svg: str = vl_convert.vegalite_to_svg(styled.to_dict())
    return svg
