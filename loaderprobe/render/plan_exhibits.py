"""The exhibits of a storage plan's page: each a finding, charts, and the same figures as a table."""

from __future__ import annotations

from collections.abc import Iterator

from loaderprobe.records.plan import PlanReport, Supply
from loaderprobe.records.verdict import Interval
from loaderprobe.render import plan_charts as charts
from loaderprobe.render.document import Table
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.plan_drawing import unchecked
from loaderprobe.render.plan_words import RESOURCE, amount, grouped, storage_name
from loaderprobe.render.wording import MISSING, counted, percent
from loaderprobe.units import format_duration, format_rate, join_words, significant

SHOWN_EPOCHS = (1, 2, 3, 5, 10, 20)
STEPS = (-3, -2, -1, 0, 1, 2)
"""Powers of two around the accelerators that are planned for."""


@unchecked()
def exhibits(plan: PlanReport) -> dict[str, tuple[Exhibit, ...]]:
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
            ("Read bandwidth against accelerators", charts.need_chart(plan, "read_bytes", "Read bandwidth")),
            ("Files opened against accelerators", charts.need_chart(plan, "opens", "Files opened")),
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
    drawn = charts.shares_chart(plan, "The need over what may be used of each limit")
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
        ("Files/s against readers", charts.rate_ramp(plan, "Files/s")),
        ("Time of a file against readers", charts.latency_ramp(plan, "Time of one file")),
    )
    figures = tuple((label, made) for label, made in drawn if made)
    if not figures:
        return
    best = max(plan.ramp, key=lambda step: step.files_per_s)
    who, readers, rate = charts.working_points(plan)[-1]
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
        figures=(("Cold reads by epoch", charts.epochs_chart(plan, "Cold reads by epoch, all fits")),),
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
        figures=(("Hits against the size of a cache", charts.cache_chart(plan, "Hits by the size of a cache")),),
        table=Table(
            head=("of the set in the cache", "LRU", "page cache", "pinned"), lines=lines, right=frozenset(range(4))
        ),
    )


def _range(hits: Interval) -> str:
    low, high = _share(hits.low), _share(hits.high)
    return low if low == high else f"{low} to {high}"


def _share(value: float) -> str:
    return percent(value) if value else "0 %"
