"""The charts of a storage plan as SVG: the need, the limits, the ladder, caches.

Each line and bar is named where it stands, and differs from the others by more than its colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from loaderprobe.records.plan import PlanReport, RampStep, Resource, Supply
from loaderprobe.render.plan_drawing import (
    BLUE,
    EDGE,
    GREY,
    INK,
    RED,
    data,
    log_axis,
    log_scale,
    named,
    names,
    share_axis,
    short,
    svg,
)
from loaderprobe.render.plan_words import amount, grouped, usable
from loaderprobe.render.wording import percent, visible
from loaderprobe.units import format_duration

HEIGHT, NEED_HEIGHT = 250, 290
MOST_STORAGES = 4
"""Of more, the lines would cover each other; the table has all of them."""
CLOSE_HITS = 0.1
"""Names of lines that are nearer are moved apart."""
BEYOND = 8
"""The need is drawn up to so many times the accelerators that are planned for."""
EARLY = 0.4
"""A share of the width: of a line that is crossed before it, the name stands at the right."""
ENOUGH = "#009E73"


def need_chart(plan: PlanReport, name: str, title: str) -> str:
    """SVG of one need against accelerators, on logarithmic axes, with what storages give as horizontal lines."""
    import altair as alt

    need = plan.need("read_bytes" if name == "read_bytes" else "opens")
    assert need and need.to_buy
    count = plan.asked.accelerators
    lines = {"need": need.at_utilization, "to buy": need.to_buy}
    resource: Resource = "bandwidth" if name == "read_bytes" else "opens"
    levels = [*_levels(plan.supplies[:MOST_STORAGES], resource, RED), *_levels(plan.rulers, resource, GREY)]
    for level in levels:
        # Where the line that rises is not: it crosses a low level early.
        level["right"] = level["y"] < need.to_buy.value / count * (count * BEYOND) ** EARLY
    most = max([lines["to buy"].value * BEYOND, *(level["y"] for level in levels)])
    y_domain = (lines["need"].value / count * 0.7, most * 2)
    x = alt.X("x:Q", scale=log_scale((1, count * BEYOND), 2), axis=log_axis("accelerators", (1, count * BEYOND), 2))
    unit = "bytes/s" if name == "read_bytes" else "files/s"
    y = alt.Y("y:Q", scale=log_scale(y_domain), axis=log_axis(unit, y_domain))
    ends = [
        {"x": at, "y": each.value * at / count, "line": line}
        for line, each in lines.items()
        for at in (1, count * BEYOND)
    ]
    dashes = alt.StrokeDash("line:N", legend=None, scale=alt.Scale(domain=[*lines], range=[[1, 0], [6, 4]]))
    here = [
        {"x": count, "y": each.value, "text": f"{line} {amount(each)}"} for line, each in lines.items()
    ]  # fmt: skip
    return svg(
        [
            alt.Chart(data(ends)).mark_line(color=BLUE, strokeWidth=2.5).encode(x=x, y=y, strokeDash=dashes),
            *named(levels, y_domain, NEED_HEIGHT),
            alt.Chart(data(here)).mark_point(filled=True, size=60, color=BLUE, opacity=1).encode(x=x, y=y),
            # Under the lines, where no other name stands.
            *names(here[1:], dx=10, dy=18, align="left"),
            *names(here[:1], dx=10, dy=26, align="left"),
        ],
        title,
        NEED_HEIGHT,
    )


def _levels(supplies: Iterable[Supply], resource: Resource, color: str) -> list[dict[str, Any]]:
    """The limit of each storage for this resource."""
    return [
        {"y": limit.limit.value, "text": f"{short(supply.name)} {amount(limit.limit)}", "color": color}
        for supply in supplies
        for limit in supply.limits
        if limit.resource == resource
    ]


def shares_chart(plan: PlanReport, title: str) -> str:
    """SVG of the need over what may be used of each limit: those to the right of 1 fall short, the others do not."""
    import altair as alt

    bars = _share_bars(plan)
    if not bars:
        return ""
    ratios = [float(str(bar["x"])) for bar in bars]
    # Beside each bar stands its figure.
    domain = (min(0.5, *ratios) / 8, max(2.0, *ratios) * 8)
    x = alt.X(
        "x:Q", scale=log_scale(domain), axis=log_axis("need, times what may be used of the limit", domain, shown="~g")
    )
    rows = alt.Y("row:N", sort=[str(bar["row"]) for bar in bars], axis=None)
    color = alt.Color("short:N", legend=None, scale=alt.Scale(domain=[True, False], range=[RED, ENOUGH]))
    base = alt.Chart(data(bars)).encode(y=rows)
    sides: dict[str, dict[str, Any]] = {
        "datum.x >= 1": {"dx": 4, "align": "left"},
        "datum.x < 1": {"dx": -4, "align": "right"},
    }
    ends = [
        base.transform_filter(where)
        .mark_text(dy=8, fontSize=11, fontWeight=600, color=INK, **side)
        .encode(x=x, text=alt.Text("text:N"))
        for where, side in sides.items()
    ]
    one = alt.Chart(data([{"x": 1.0}]))
    return svg(
        [
            base.mark_bar(height=11, yOffset=8).encode(x=x, x2=alt.X2Datum(1.0), color=color),
            one.mark_rule(color=INK, strokeWidth=1.5).encode(x=x),
            *(
                base.mark_text(**{"align": "left", "dy": -7, "fontSize": 11, "color": INK, **edge}).encode(
                    x=alt.value(2), text=alt.Text("name:N")
                )
                for edge in (EDGE, {})
            ),
            *ends,
        ],
        title,
        60 + 36 * len(bars),
    )


def _share_bars(plan: PlanReport) -> list[dict[str, Any]]:
    """A row for each limit of each storage."""
    count = plan.asked.accelerators
    return [
        {
            "row": f"{place}.{number}", "name": visible(f"{short(supply.name)}: {words}"), "x": count / limit.feeds,
            "text": f"feeds {'>= ' if limit.at_least else ''}{grouped(limit.feeds)}",
            "short": limit.feeds < count,
        }
        for place, supply in enumerate(plan.supplies)
        for number, (limit, words) in enumerate(usable(supply))
    ]  # fmt: skip


def rate_ramp(plan: PlanReport, title: str) -> str:
    """SVG of files/s against readers: the ladder, and what one node and all nodes ask for; beyond it is shaded."""
    ramp, opens = plan.ramp, plan.need("opens")
    if not ramp or opens is None or plan.asked.images_per_file > 1:
        return ""
    points = working_points(plan)
    values = [{"x": step.readers, "y": step.files_per_s} for step in ramp]
    ends = [values[-1] | {"text": f"measured {grouped(values[-1]['y'])}/s"}]
    asked = [{"x": readers, "y": rate, "text": f"{who} {grouped(rate)}/s"} for who, readers, rate in points]
    every = [*(value["y"] for value in values), *(rate for _, _, rate in points)]
    return _ramp(plan, [(values, [1, 0], RED)], ends, asked, (min(every) / 2, max(every) * 3), "files/s", title)


def latency_ramp(plan: PlanReport, title: str) -> str:
    """SVG of the time of one file against readers, median and 99th percentile, over the same readers."""
    found = [step for step in plan.ramp if step.p50_s and step.p99_s]
    if not found:
        return ""
    lines = [
        (_times(found, "p99_s"), [6, 4], RED),
        (_times(found, "p50_s"), [1, 0], BLUE),
    ]
    ends = [
        line[-1] | {"text": f"{name} {format_duration(line[-1]['y'] / 1e3)}"}
        for (line, _, _), name in zip(lines, ("p99", "median"), strict=True)
    ]
    every = [value["y"] for line, _, _ in lines for value in line]
    return _ramp(plan, lines, ends, [], (min(every) / 2, max(every) * 3), "ms for one file", title)


def _times(steps: Sequence[RampStep], field: str) -> list[dict[str, Any]]:
    return [{"x": step.readers, "y": getattr(step, field) * 1e3} for step in steps]


def working_points(plan: PlanReport) -> list[tuple[str, int, float]]:
    """(who, readers at once, files/s) of one node and of all nodes at the wanted utilization."""
    opens, nodes = plan.need("opens"), plan.asked.nodes
    assert opens and opens.node
    readers = plan.acceptance.readers
    one = ("one node", readers, opens.node.value)
    return [one] if nodes == 1 else [one, ("all nodes", readers * nodes, opens.at_utilization.value)]


def _ramp(
    plan: PlanReport,
    lines: Sequence[tuple[list[dict[str, Any]], list[int], str]],
    ends: list[dict[str, Any]],
    asked: list[dict[str, Any]],
    y_domain: tuple[float, float],
    unit: str,
    title: str,
) -> str:
    import altair as alt

    last = max(step.readers for step in plan.ramp)
    most = max([last, *(readers for _, readers, _ in working_points(plan))]) * 4
    x = alt.X("x:Q", scale=log_scale((1, most), 2), axis=log_axis("readers at once", (1, most), 2))
    y = alt.Y(
        "y:Q", scale=log_scale(y_domain), axis=log_axis(unit, y_domain, shown="~s" if unit == "files/s" else "~g")
    )
    beyond = alt.Chart(data([{"x": last, "end": most}]))
    layers: list[Any] = [
        beyond.mark_rect(color=GREY, opacity=0.18).encode(x=x, x2=alt.X2("end:Q")),
        beyond.mark_text(text="not measured", align="left", dx=4, fontSize=11, color=INK).encode(
            x=x, y=alt.value(HEIGHT - 78)
        ),
    ]
    for values, dash, color in lines:
        base = alt.Chart(data(values)).encode(x=x, y=y)
        layers += [
            base.mark_line(strokeWidth=2.5, strokeDash=dash, color=color),
            base.mark_point(filled=True, size=40, opacity=1, color=color),
        ]
    # The highest line's name over its end, the lowest one's under it.
    for end, dy in zip(ends, (16,) if len(ends) == 1 else (-8, 16), strict=True):
        layers += names([end], dx=6, dy=dy, align="left")
    if asked:
        marks = alt.Chart(data(asked)).mark_point(shape="diamond", size=90, strokeWidth=2, color=BLUE)
        layers += [marks.encode(x=x, y=y), *names(asked, dx=0, dy=-12)]
    return svg(layers, title, HEIGHT)


def epochs_chart(plan: PlanReport, title: str) -> str:
    """SVG of the share of reads that are cold, by epoch, where every node's cache holds the whole set."""
    import altair as alt

    curves = plan.curves.epochs
    values = [
        {"x": number, "y": cold, "nodes": str(curve.nodes)}
        for curve in curves
        for number, cold in enumerate(curve.cold, start=1)
    ]
    marks = [str(curve.nodes) for curve in curves]
    x = alt.X("x:Q", axis=alt.Axis(title="epoch", values=[1, 5, 10, 15, 20], grid=False))
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), axis=share_axis("reads that reach storage"))
    dash = alt.StrokeDash("nodes:N", legend=None, scale=alt.Scale(domain=marks, range=[[6, 4], [1, 0]]))
    color = alt.Color("nodes:N", legend=None, scale=alt.Scale(domain=marks, range=[BLUE, RED]))
    where = [
        {"x": at, "y": curve.cold[at - 1], "text": f"{curve.nodes:,} node{'s' if curve.nodes > 1 else ''}"}
        for curve, at in zip(curves, (3, 5), strict=True)
    ]
    line = alt.Chart(data(values)).mark_line(strokeWidth=2.5, point=False)
    return svg([line.encode(x=x, y=y, strokeDash=dash, color=color), *names(where, dx=5, dy=-9, align="left")],
               title, HEIGHT)  # fmt: skip


def cache_chart(plan: PlanReport, title: str) -> str:
    """SVG of hits against the share of the set that a node's cache holds; the hits that storages need as lines."""
    import altair as alt

    sizes = plan.curves.sizes
    values = [{"x": size.share, "lru": size.lru, "pinned": size.pinned, **asdict(size.page)} for size in sizes]
    base = alt.Chart(data(values)).encode(x=alt.X("x:Q", axis=share_axis("share of the set in the cache of a node")))
    y = {"axis": share_axis("reads that it answers"), "scale": alt.Scale(domain=[0, 1])}
    needed = [
        {
            "y": size.hits,
            "text": f"for {short(size.supply)} {percent(size.hits)}",
            "color": GREY,
            "right": size.hits < 0.5,
        }
        for lever in plan.levers
        for size in lever.caches[:MOST_STORAGES]
    ]
    half = sizes[len(sizes) // 2]
    where = [
        {"x": half.share, "y": half.pinned, "text": f"pinned {percent(half.pinned)}"},
        {"x": half.share, "y": half.page.value, "text": f"page cache {percent(half.page.value)}"},
        {"x": half.share, "y": half.lru, "text": f"LRU {percent(half.lru)}"},
    ]
    return svg(
        [
            base.mark_area(color=GREY, opacity=0.3).encode(y=alt.Y("low:Q", **y), y2=alt.Y2("high:Q")),
            base.mark_line(color=BLUE, strokeDash=[6, 4], strokeWidth=2.5).encode(y=alt.Y("pinned:Q", **y)),
            base.mark_line(color=GREY, strokeDash=[2, 3], strokeWidth=2).encode(y=alt.Y("lru:Q", **y)),
            base.mark_line(color=RED, strokeWidth=2.5).encode(y=alt.Y("value:Q", **y)),
            *named(needed, (0, 1), HEIGHT, log=False),
            *names(where[:1], dx=-6, dy=-8, align="right"),
            *names(where[1:2], dx=6, dy=12, align="left"),
            *names(where[2:], dx=6, dy=12 if half.page.value - half.lru > CLOSE_HITS else 26, align="left"),
        ],
        title,
        HEIGHT,
    )
