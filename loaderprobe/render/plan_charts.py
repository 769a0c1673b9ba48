"""The charts of a storage plan: the need, the limits, the ladder, caches. Each with its finding and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loaderprobe.records.plan import PlanReport, Resource, Supply
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import BLUE, GREEN, GREY, RED, Axis, Plot, Points, named_rows, shortened
from loaderprobe.render.document import Exhibit, Table
from loaderprobe.render.plan_words import RESOURCE, amount, grouped, storage_name, usable
from loaderprobe.render.wording import MISSING, counted, percent
from loaderprobe.units import format_duration, format_rate, join_words, significant

HEIGHT, NEED_HEIGHT = 250, 290
MOST_STORAGES = 4
"""Of more, the lines would cover each other; the table has all of them."""
BEYOND = 8
"""The need is drawn up to so many times the accelerators that are planned for."""
SHOWN_EPOCHS = (1, 2, 3, 5, 10, 20)
STEPS = (-3, -2, -1, 0, 1, 2)
"""Powers of two around the accelerators that are planned for."""
DASHED = "6 4"
DOTTED = "2 3"


def plan_exhibits(plan: PlanReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the plan that they belong to."""
    found = {
        "needs": [_need(plan)],
        "supplies": [*_shares(plan), *_ramp(plan)],
        "epochs": [_epochs(plan), _sizes(plan)],
    }
    return {name: tuple(each) for name, each in found.items()}


def _need(plan: PlanReport) -> Exhibit:
    need = {name: plan.need(name) for name in ("read_bytes", "opens")}
    read, opens = need["read_bytes"], need["opens"]
    assert read and opens and read.to_buy and opens.to_buy
    count = plan.asked.accelerators
    lines = tuple(
        (
            f"{number:,}",
            *(amount(each, each.value * number / count) for each in (read.at_utilization, read.to_buy)),
            *(grouped(each.value * number / count) for each in (opens.at_utilization, opens.to_buy)),
        )
        for number in dict.fromkeys(max(1, round(count * 2.0**step)) for step in STEPS)
    )
    return Exhibit(
        title=_need_title(plan),
        text=f"Both axes are logarithmic. Solid: the need at {percent(plan.asked.utilization)} of the accelerators' "
        f"rate; dashed: what to buy, so that {percent(plan.asked.use)} of a limit is in use. Horizontal: what a "
        f"storage gives.{_rulers(plan)}",
        figures=(
            ("Read bandwidth against accelerators", need_chart(plan, "read_bytes", "Read bandwidth")),
            ("Files opened against accelerators", need_chart(plan, "opens", "Files opened")),
        ),
        table=Table(
            head=("accelerators", "bandwidth", "to buy", "opens/s", "to buy"),
            lines=lines,
            right=frozenset(range(5)),
        ),
    )


def _need_title(plan: PlanReport) -> str:
    count = plan.asked.accelerators
    supply = next((each for each in plan.supplies if each.feeds is not None and each.label == "measured"), None)
    if supply is None or supply.feeds is None:
        return f"The need of {count:,} accelerators grows with their number"
    if supply.feeds >= count:
        return f"The storage measured here is enough for {count:,} accelerators"
    times = significant(count / supply.feeds, 2)
    least = "up to " if supply.at_least else ""
    return f"{count:,} accelerators ask for {least}{times} times what the storage measured here can feed"


def _rulers(plan: PlanReport) -> str:
    if not plan.rulers:
        return ""
    levels = join_words([f"{each.name} {amount(each.limits[0].limit)}" for each in _by_bandwidth(plan)])
    return (
        f" For comparison, what NVIDIA asks of storage for 32 nodes of 8: {levels}; its tables presume caches "
        f"({plan.rulers[0].source}, read {plan.rulers[0].read_on})."
    )


def _by_bandwidth(plan: PlanReport) -> list[Supply]:
    return [each for each in plan.rulers if each.limits]


def _shares(plan: PlanReport) -> Iterator[Exhibit]:
    drawn = shares_chart(plan, "The need over what may be used of each limit")
    if drawn:
        first = [
            f"{RESOURCE[each.first_limit]} of {storage_name(each)}"
            for each in plan.supplies
            if each.first_limit and not each.at_least
        ]
        yield Exhibit(
            title=f"First limit: {join_words(first)}" if first else "No limit was reached",
            text=f"From 1 to the right, a limit cannot feed {plan.asked.accelerators:,} accelerators with "
            f"{percent(plan.asked.use)} of it in use; to the left it can.",
            figures=(("The need over what may be used of each limit", drawn),),
        )


def _ramp(plan: PlanReport) -> Iterator[Exhibit]:
    drawn = (
        ("Files/s against readers", rate_ramp(plan, "Files/s")),
        ("Time of a file against readers", latency_ramp(plan, "Time of one file")),
    )
    figures = tuple((label, made) for label, made in drawn if made)
    if not figures:
        return
    best = max(plan.ramp, key=lambda step: step.files_per_s)
    who, readers, rate = working_points(plan)[-1]
    lines = tuple(
        (
            f"{step.readers:,}",
            grouped(step.files_per_s),
            format_rate(step.bytes_per_s),
            *(MISSING if each is None else format_duration(each) for each in (step.p50_s, step.p99_s)),
        )
        for step in plan.ramp
    )
    yield Exhibit(
        title=f"{counted(best.readers, 'reader')} got {grouped(best.files_per_s)} files/s here; "
        f"{who} ask{'s' if plan.asked.nodes == 1 else ''} for {grouped(rate)} with {readers:,} readers",
        text="The ladder of the storage measured here, from one machine. Diamonds: what the accelerators ask for, with "
        "as many readers as the test on delivery. Shaded: more readers than were measured, so nothing is known there.",
        figures=figures,
        table=Table(head=("readers", "files/s", "bandwidth", "median", "p99"), lines=lines, right=frozenset(range(5))),
    )


def _epochs(plan: PlanReport) -> Exhibit:
    curves, nodes = plan.curves.epochs, plan.asked.nodes
    second = next((curve.cold[1] for curve in curves if curve.nodes == nodes), 0.0)
    title = (
        f"With {nodes:,} nodes, {percent(second)} of epoch 2 is cold even if each node's cache holds the whole set"
        if nodes > 1
        else "One node whose cache holds the whole set reads it from storage once"
    )
    lines = tuple(
        (str(epoch), *(percent(curve.cold[epoch - 1]) if curve.cold[epoch - 1] else "0 %" for curve in curves))
        for epoch in SHOWN_EPOCHS
    )
    head = ("epoch", *(counted(curve.nodes, "node") for curve in curves))
    return Exhibit(
        title=title,
        text="One shuffle over all images: each node meets mostly images that other nodes read before.",
        figures=(("Cold reads by epoch", epochs_chart(plan, "Cold reads by epoch, all fits")),),
        table=Table(head=head, lines=lines, right=frozenset(range(len(head)))),
    )


def _sizes(plan: PlanReport) -> Exhibit:
    sizes = plan.curves.sizes
    half = sizes[len(sizes) // 2]
    lines = tuple(
        (_share(size.share), _share(size.lru), _range(size.page), _share(size.pinned)) for size in sizes[2::2]
    )
    return Exhibit(
        title=f"Half of the set in the page cache answers {_range(half.page)} of the reads, pinned "
        f"{_share(half.pinned)}",
        text=f"On {counted(plan.asked.nodes, 'node')}, once it has filled. Page cache: as Linux keeps files, by "
        "measurement, with its range (loaderprobe explain plan). Pinned: a fixed part of the files stays. LRU: the "
        "least recently used files leave.",
        figures=(("Hits against the size of a cache", cache_chart(plan, "Hits by the size of a cache")),),
        table=Table(
            head=("of the set in the cache", "LRU", "page cache", "pinned"), lines=lines, right=frozenset(range(4))
        ),
    )


def _range(hits: Interval) -> str:
    low, high = _share(hits.low), _share(hits.high)
    return low if low == high else f"{low} to {high}"


def _share(value: float) -> str:
    return percent(value) if value else "0 %"


def _short(name: str) -> str:
    return shortened(name, 24)


def need_chart(plan: PlanReport, name: str, title: str) -> str:
    """SVG of one need against accelerators, on logarithmic axes, with what storages give as horizontal lines."""
    need = plan.need("read_bytes" if name == "read_bytes" else "opens")
    assert need and need.to_buy
    count = plan.asked.accelerators
    lines = {"need": (need.at_utilization, "", "below right"), "to buy": (need.to_buy, DASHED, "above left")}
    resource: Resource = "bandwidth" if name == "read_bytes" else "opens"
    levels = [*_levels(plan.supplies[:MOST_STORAGES], resource, RED), *_levels(plan.rulers, resource, GREY)]
    most = max([need.to_buy.value * BEYOND, *(value for value, _, _ in levels)])
    least = min([need.at_utilization.value / count, *(value for value, _, _ in levels)])
    plot = Plot(
        title,
        Axis(name="accelerators", low=1, high=count * BEYOND, base=2),
        Axis(name="bytes/s" if name == "read_bytes" else "files/s", low=least * 0.7, high=most * 2, base=10),
        height=NEED_HEIGHT,
    )
    for each, dash, _ in lines.values():
        plot.line([(at, each.value * at / count) for at in (1, count * BEYOND)], BLUE, dash=dash, width=2.5)
    # The highest first: its name stands over it, whatever is below.
    for value, words, color in sorted(levels, reverse=True):
        plot.level(value, words, color)
    for line, (each, _, side) in lines.items():
        plot.dots([(count, each.value)], BLUE, radius=4)
        plot.name(count, each.value, f"{line} {amount(each)}", side)
    return plot.svg()


def _levels(supplies: Iterable[Supply], resource: Resource, color: str) -> list[tuple[float, str, str]]:
    """(limit of each storage for this resource, its name, its colour)."""
    return [
        (limit.limit.value, f"{_short(supply.name)} {amount(limit.limit)}", color)
        for supply in supplies
        for limit in supply.limits
        if limit.resource == resource
    ]


def shares_chart(plan: PlanReport, title: str) -> str:
    """SVG of the need over what may be used of each limit: those to the right of 1 fall short, the others do not."""
    count = plan.asked.accelerators
    bars = [
        (
            f"{_short(supply.name)}: {words}",
            count / limit.feeds,
            f"feeds {'>= ' if limit.at_least else ''}{grouped(limit.feeds)}",
        )
        for supply in plan.supplies
        for limit, words in usable(supply)
    ]
    if not bars:
        return ""
    ratios = [ratio for _, ratio, _ in bars]
    low, high = min(1.0, *ratios), max(1.0, *ratios)
    # Beside each bar stands its figure.
    margin = min(1e4, max(8.0, (high / low) ** (0.8 if low < 1 < high else 0.45)))
    ends = (low / (margin if low < 1 else 2), high * (margin if high > 1 else 2))
    x = Axis(name="need, times what may be used of the limit", low=ends[0], high=ends[1], base=10)
    plot = named_rows(title, x, len(bars))
    for number, (name, ratio, text) in enumerate(bars):
        middle = plot.named_row(number, name)
        plot.stretch(1.0, ratio, middle, RED if ratio > 1 else GREEN, thick=11)
        plot.beside((1.0, ratio), middle, text, side="right" if ratio >= 1 else "left")
    plot.upright(1.0, "currentColor", dash="")
    return plot.svg()


def rate_ramp(plan: PlanReport, title: str) -> str:
    """SVG of files/s against readers: the ladder, and what one node and all nodes ask for; beyond it is shaded."""
    ramp, opens = plan.ramp, plan.need("opens")
    if not ramp or opens is None or plan.asked.images_per_file > 1:
        return ""
    asked = working_points(plan)
    values = [(float(step.readers), step.files_per_s) for step in ramp]
    plot = _ladder(plan, title, "files/s", [*(rate for _, rate in values), *(rate for _, _, rate in asked)])
    plot.line(values, RED, width=2.5)
    plot.dots(values, RED, radius=3)
    plot.dots([(readers, rate) for _, readers, rate in asked], BLUE, shape="diamond")
    plot.name(*values[-1], f"measured {grouped(values[-1][1])}/s", "below right")
    for who, readers, rate in asked:
        plot.name(readers, rate, f"{who} {grouped(rate)}/s")
    return plot.svg()


def latency_ramp(plan: PlanReport, title: str) -> str:
    """SVG of the time of one file against readers, median and 99th percentile, over the same readers."""
    lines: dict[str, tuple[Points, str, str, str]] = {
        "p99": ([(step.readers, step.p99_s * 1e3) for step in plan.ramp if step.p99_s], DASHED, RED, "above right"),
        "median": ([(step.readers, step.p50_s * 1e3) for step in plan.ramp if step.p50_s], "", BLUE, "below right"),
    }
    if not all(points for points, *_ in lines.values()):
        return ""
    plot = _ladder(plan, title, "ms for one file", [ms for points, *_ in lines.values() for _, ms in points])
    for name, (points, dash, color, side) in lines.items():
        plot.line(points, color, dash=dash, width=2.5)
        plot.dots(points, color, radius=3)
        plot.name(*points[-1], f"{name} {format_duration(points[-1][1] / 1e3)}", side)
    return plot.svg()


def _ladder(plan: PlanReport, title: str, unit: str, values: list[float]) -> Plot:
    """Axes for these values against readers, shaded where no step was measured."""
    last = max(step.readers for step in plan.ramp)
    most = max([last, *(readers for _, readers, _ in working_points(plan))]) * 4
    plot = Plot(
        title,
        Axis(name="readers at once", low=1, high=most, base=2),
        Axis(name=unit, low=min(values) / 2, high=max(values) * 3, base=10),
        height=HEIGHT,
    )
    plot.beyond(last, most, "not measured")
    return plot


def working_points(plan: PlanReport) -> list[tuple[str, int, float]]:
    """(who, readers at once, files/s) of one node and of all nodes at the wanted utilization."""
    opens, nodes = plan.need("opens"), plan.asked.nodes
    assert opens and opens.node
    readers = plan.acceptance.readers
    one = ("one node", readers, opens.node.value)
    return [one] if nodes == 1 else [one, ("all nodes", readers * nodes, opens.at_utilization.value)]


def epochs_chart(plan: PlanReport, title: str) -> str:
    """SVG of the share of reads that are cold, by epoch, where every node's cache holds the whole set."""
    curves = plan.curves.epochs
    last = max(len(curve.cold) for curve in curves)
    marks = tuple((float(epoch), str(epoch)) for epoch in (1, 5, 10, 15, 20) if epoch <= last)
    plot = Plot(
        title,
        Axis(name="epoch", low=0, high=last, marks=marks),
        Axis(name="reads that reach storage", high=1, shares=True),
        height=HEIGHT,
    )
    for curve, color, dash, at in zip(curves, (BLUE, RED), (DASHED, ""), (3, 5), strict=False):
        plot.line(list(enumerate(curve.cold, start=1)), color, dash=dash, width=2.5)
        plot.name(at, curve.cold[at - 1], f"{curve.nodes:,} node{'s' if curve.nodes > 1 else ''}", "above right")
    return plot.svg()


def cache_chart(plan: PlanReport, title: str) -> str:
    """SVG of hits against the share of the set that a node's cache holds; the hits that storages need as lines."""
    sizes = plan.curves.sizes
    plot = Plot(
        title,
        Axis(name="share of the set in the cache of a node", high=1, shares=True),
        Axis(name="reads that it answers", high=1, shares=True),
        height=HEIGHT,
    )
    half = sizes[len(sizes) // 2]
    plot.band([(size.share, size.page.low, size.page.high) for size in sizes], GREY)
    plot.line([(size.share, size.pinned) for size in sizes], BLUE, dash=DASHED, width=2.5)
    plot.line([(size.share, size.lru) for size in sizes], GREY, dash=DOTTED)
    plot.line([(size.share, size.page.value) for size in sizes], RED, width=2.5)
    for lever in plan.levers:
        for size in lever.caches[:MOST_STORAGES]:
            plot.level(size.hits, f"for {_short(size.supply)} {percent(size.hits)}", GREY)
    plot.name(half.share, half.pinned, f"pinned {percent(half.pinned)}", "above left")
    plot.name(half.share, half.page.value, f"page cache {percent(half.page.value)}", "below right")
    plot.name(half.share, half.lru, f"LRU {percent(half.lru)}", "far below right")
    return plot.svg()
