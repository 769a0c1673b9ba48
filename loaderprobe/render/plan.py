"""The storage plan as a page: the answer and the test first, then what they rest on; and as JSON with its schema."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import msgspec

from loaderprobe.records.options import PLAN
from loaderprobe.records.plan import (
    Amount,
    CacheSize,
    CatalogueEntry,
    LedgerEntry,
    Lever,
    Need,
    PlanPart,
    PlanReport,
    PlanSupply,
    Quantity,
    SupplyResource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Interval
from loaderprobe.render import plan_words as words
from loaderprobe.render.charts import BLUE, GREEN, GREY, RED, Axis, Plot, Points, named_rows, shortened
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.plan_words import LIMIT_WORDS, PART, amount, grouped, lock_step_parts, storage_name, usable
from loaderprobe.render.plan_words import TITLE as LOCK_STEP
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.sweep import EVIDENCE
from loaderprobe.render.wording import MISSING, counted, first_upper, percent
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

# The charts of a storage plan: the need, the limits, the ladder, caches. Each with its finding and its figures.

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
        "epochs": [_epochs_exhibit(plan), _sizes(plan)],
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


def _by_bandwidth(plan: PlanReport) -> list[PlanSupply]:
    return [each for each in plan.rulers if each.limits]


def _shares(plan: PlanReport) -> Iterator[Exhibit]:
    drawn = shares_chart(plan, "The need over what may be used of each limit")
    if drawn:
        first = [
            f"{LIMIT_WORDS[each.first_limit]} of {storage_name(each)}"
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


def _epochs_exhibit(plan: PlanReport) -> Exhibit:
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
        (
            _percent(size.share),
            _percent(size.lru),
            _range(size.page),
            _percent(size.pinned),
        )
        for size in sizes[2::2]
    )
    return Exhibit(
        title=f"Half of the set in the page cache answers {_range(half.page)} of the reads, pinned "
        f"{_percent(half.pinned)}",
        text=f"On {counted(plan.asked.nodes, 'node')}, once it has filled. Page cache: as Linux keeps files, by "
        "measurement, with its range (loaderprobe explain plan). Pinned: a fixed part of the files stays. LRU: the "
        "least recently used files leave.",
        figures=(("Hits against the size of a cache", cache_chart(plan, "Hits by the size of a cache")),),
        table=Table(
            head=("of the set in the cache", "LRU", "page cache", "pinned"), lines=lines, right=frozenset(range(4))
        ),
    )


def _range(hits: Interval) -> str:
    low, high = _percent(hits.low), _percent(hits.high)
    return low if low == high else f"{low} to {high}"


def _percent(value: float) -> str:
    return percent(value) if value else "0 %"


def _short(name: str) -> str:
    return shortened(name, 24)


def need_chart(plan: PlanReport, name: str, title: str) -> str:
    """SVG of one need against accelerators, on logarithmic axes, with what storages give as horizontal lines."""
    need = plan.need("read_bytes" if name == "read_bytes" else "opens")
    assert need and need.to_buy
    count = plan.asked.accelerators
    lines = {"need": (need.at_utilization, "", "below right"), "to buy": (need.to_buy, DASHED, "above left")}
    resource: SupplyResource = "bandwidth" if name == "read_bytes" else "opens"
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
    for value, said, color in sorted(levels, reverse=True):
        plot.level(value, said, color)
    for line, (each, _, side) in lines.items():
        plot.dots([(count, each.value)], BLUE, radius=4)
        plot.name(count, each.value, f"{line} {amount(each)}", side)
    return plot.svg()


def _levels(supplies: Iterable[PlanSupply], resource: SupplyResource, color: str) -> list[tuple[float, str, str]]:
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


# The test of a delivered storage in words: what to type where, and what it must reach.

LAUNCHER = "--rdzv-backend c10d --rdzv-endpoint HEAD:29500 --rdzv-id 7"
"""What starts processes on several nodes together (`explain ranks`)."""


def delivery_command(plan: PlanReport) -> str:
    """What to type on the node of the delivered system, or on each of them."""
    test = plan.acceptance
    if test.nodes == 1:
        return f"loaderprobe bandwidth PATH --readers {test.readers}"
    ranks = _ranks(plan)
    return (
        f"torchrun --nnodes {test.nodes} --nproc-per-node {ranks} {LAUNCHER} -m loaderprobe bandwidth PATH "
        f"--ranks {test.nodes}x{ranks} --readers {_readers(plan)}"
    )


def delivery_words(plan: PlanReport) -> str:
    """Where to type it, and what it must reach."""
    test = plan.acceptance
    if test.nodes == 1:
        return f"on the node, at least {_figures(test.bytes_per_s, test.files_per_s)}, cold"
    nodes = plan.asked.accelerators / min(plan.asked.per_node, plan.asked.accelerators)
    files = None if test.files_per_s is None else test.files_per_s * nodes
    figures = _figures(test.bytes_per_s * nodes, files)
    return f"started on each of {test.nodes:,} nodes, all together at least {figures}, cold"


def read_words(plan: PlanReport) -> str:
    """Where its readers come from, and what to read and to compare."""
    several = plan.acceptance.nodes > 1
    head = " HEAD: the name of the first node; all nodes mount PATH." if several else ""
    line = "the line of all ranks" if several else "the line with that number of readers"
    return (
        f"{_readers_words(plan)}. PATH: images of the planned size on the delivered storage, more than its caches hold."
        f"{head} Compare MB/s and files/s of {line}; its cache must be cold. These are bytes that readers get, without "
        "a, what storage reads besides."
    )


def _figures(bytes_per_s: float, files_per_s: float | None) -> str:
    files = "" if files_per_s is None else f" and {grouped(files_per_s)} files/s"
    return f"{format_rate(bytes_per_s)} delivered{files}"


def _ranks(plan: PlanReport) -> int:
    """On each of several nodes, a rank for each accelerator; all nodes have as many."""
    return -(-plan.asked.accelerators // plan.acceptance.nodes)


def _readers(plan: PlanReport) -> int:
    """Of one of those ranks."""
    test = plan.acceptance
    return test.workers or -(-test.readers // min(plan.asked.per_node, plan.asked.accelerators))


def _readers_words(plan: PlanReport) -> str:
    test, per_node = plan.acceptance, min(plan.asked.per_node, plan.asked.accelerators)
    several = test.nodes > 1
    count = f"{counted(_readers(plan), 'reader')} a rank" if several else counted(test.readers, "reader")
    if test.readers_from == "assumed":
        return f"{count}: assumed; more may be needed"
    if test.readers_from == "reads_in_flight":
        return f"{count}: the reads in flight of one {'accelerator' if several else 'node'}"
    if several:
        return f"{count}: the workers of one accelerator"
    return f"{count}: {counted(test.workers or 1, 'worker')} for each of {counted(per_node, 'accelerator')}"


# What a storage plan leaves out: what this one cannot say, and what none covers.

NOT_COVERED = (
    ("Writes", "logs and staging, and several checkpoints at once"),
    (
        "Metadata",
        "calls besides opening and listing: ImageFolder asks only for the size of open files, others may ask more",
    ),
    ("Memory of processes", "what training and each worker import comes on top of the batches"),
    ("Others", "other jobs on the same storage, failures, rebuilds: the unused share of a limit is for them"),
    ("Several clients", "what was measured was measured from one machine"),
    ("Caches of the storage", "they answer reads that a larger data set would send to its disks"),
    ("Start of an epoch", "buffers fill at the storage's limit: a longer wait for the first batch, and no higher need"),
    ("Utilization to expect", "it cannot be predicted for a storage that was not measured"),
)
COLD_OPENS = (
    "Cold opens",
    "sweep and run drop only file data before a read; cached directory entries make opens look cheap: bandwidth PATH "
    "--drop-caches measures opens/s cold",
)


def not_said(plan: PlanReport) -> dict[PlanPart, Remark]:
    """What is refused, but for what the answer says already."""
    return {part: why for part, why in plan.refused.items() if part != "lock_step" or plan.asked.simulate_ranks is None}


def not_covered(plan: PlanReport) -> tuple[tuple[str, str], ...]:
    """What no plan covers; and cold opens, of which a bandwidth result says itself what it measured."""
    return NOT_COVERED if plan.source.kind == "bandwidth" else (*NOT_COVERED, COLD_OPENS)


def need_columns(plan: PlanReport) -> dict[str, list[object]]:
    """Columns by name, an entry for each need."""

    def value(quantity: Quantity | None) -> float | None:
        return None if quantity is None else quantity.value

    return {
        "need": [need.name for need in plan.needs],
        "unit": [need.at_utilization.unit for need in plan.needs],
        "at_utilization": [need.at_utilization.value for need in plan.needs],
        "low": [need.at_utilization.low for need in plan.needs],
        "high": [need.at_utilization.high for need in plan.needs],
        "at_most": [need.at_most.value for need in plan.needs],
        "to_buy": [value(need.to_buy) for need in plan.needs],
        "node": [value(need.node) for need in plan.needs],
        "label": [words.label(need.at_utilization) for need in plan.needs],
    }


def plan_document(plan: PlanReport) -> Document:
    """The page."""
    return Document(
        title=words.title(plan),
        sections=tuple(section for section in _sections(plan) if section.parts),
    )


def _sections(plan: PlanReport) -> Iterator[Section]:
    test = Item(subject="Test on delivery", text=delivery_words(plan))
    first = tuple(Paragraph(text=sentence, strong=True) for sentence in words.answer(plan))
    emulated = [Paragraph(text=_emulated_words(plan), tone="warning")]
    yield Section(
        parts=(*first, *(emulated if plan.acceptance.compute else []), test, Command(text=delivery_command(plan)))
    )
    yield Section(title=f"What {plan.asked.accelerators:,} accelerators need", name="needs", parts=(_needs(plan),))
    yield Section(title="What storage gives", name="supplies", parts=tuple(_supplies(plan)))
    yield Section(title="Epochs and caches", name="epochs", parts=tuple(_epochs(plan)))
    late = words.late_words(plan)
    yield Section(title="Stragglers", parts=(Paragraph(text=f"{first_upper(late)}."),) if late else ())
    in_step = () if plan.lock_step is None else tuple(lock_step_parts(plan.lock_step))
    yield Section(title=LOCK_STEP, name="lock_step", parts=in_step)
    yield Section(title="What lowers the need", parts=tuple(_levers(plan)))
    yield Section(title="Inputs and assumptions", parts=tuple(_ledger(plan)))
    yield Section(title="The test on delivery, to sign", parts=tuple(_test(plan)))
    yield Section(title="Method", parts=tuple(_method(plan)))
    refused = [Item(subject=PART[part], text=remark_words(why)) for part, why in not_said(plan).items()]
    uncovered = [Item(subject=subject, text=text) for subject, text in not_covered(plan)]
    yield Section(title="Not known", parts=(*refused, *uncovered))
    notes = tuple(Paragraph(text=remark_words(note)) for note in plan.notes)
    made = f"loaderprobe {plan.loaderprobe}, {plan.created_utc[:10]}. {words.from_words(plan)}"
    yield Section(parts=(*notes, Paragraph(text=made)))


def _emulated_words(plan: PlanReport) -> str:
    """That the rate is specified; where it is a benchmark's pace, also what a training asks for."""
    said = "Emulated: the accelerators' rate is specified, not measured."
    rate, read = next(each.quantity for each in plan.ledger if each.name == "rate"), plan.need("read_bytes")
    if plan.pace is None or read is None:
        return said
    recipe, as_fast = (plan.pace.facts[name] for name in ("recipe", "recipe_images_per_s"))
    need = read.at_utilization.value * float(as_fast) / rate.value
    buy = f"{format_rate(need)}, and {format_rate(need / plan.asked.use)} to buy"
    return f"{said} {remark_words(plan.pace)}. With {recipe} the need is {buy}."


def _needs(plan: PlanReport) -> Table:
    node = min(plan.asked.per_node, plan.asked.accelerators)
    head = (
        "",
        f"at {percent(plan.asked.utilization)}",
        "at 100 %",
        "to buy",
        f"node of {node}, {percent(plan.asked.utilization)}",
        "label",
    )
    return Table(head=head, lines=tuple(_need_line(need) for need in plan.needs), right=frozenset({1, 2, 3, 4}))


def _need_line(need: Need) -> tuple[str, ...]:
    cells = [
        MISSING if each is None else words.plain(each)
        for each in (need.at_utilization, need.at_most, need.to_buy, need.node)
    ]
    return words.NEED[need.name], cells[0] + words.spread(need.at_utilization), *cells[1:], need.at_utilization.weakest


def _supplies(plan: PlanReport) -> Iterator[Part]:
    lines = [line for supply in plan.supplies for line in _supply_lines(supply)]
    if lines:
        head = ("storage", "resource", "limit", "need", "feeds", "label")
        yield Table(head=head, lines=tuple(lines), right=frozenset({2, 3, 4}))
    for supply in plan.supplies:
        notes = words.supply_notes(supply, plan.asked.nodes)
        if notes:
            yield Item(subject=supply.name, text="; ".join(notes))


def _supply_lines(supply: PlanSupply) -> Iterator[tuple[str, ...]]:
    for place, limit in enumerate(supply.limits):
        least = ">= " if limit.at_least else ""
        yield (
            "" if place else supply.name,
            words.LIMIT_WORDS[limit.resource],
            f"{least}{words.amount(limit.limit)}",
            words.amount(limit.need),
            f"{least}{words.grouped(limit.feeds)}",
            limit.limit.label,
        )


def _epochs(plan: PlanReport) -> Iterator[Part]:
    for subject, text in words.epochs_words(plan):
        yield Item(subject=subject, text=text)
    if plan.epochs.shares:
        need = plan.need("read_bytes")
        assert need
        rate = need.at_utilization.value
        lines = tuple(
            (
                str(each.epoch),
                _share(each.cold_low, each.cold_high, percent),
                _share(each.cold_low * rate, each.cold_high * rate, format_rate),
            )
            for each in plan.epochs.shares
        )
        yield Table(head=("epoch", "from storage", "need"), lines=lines, right=frozenset({0, 1, 2}))


def _share(low: float, high: float, shown: Any) -> str:
    ends = shown(low), shown(high)
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _levers(plan: PlanReport) -> Iterator[Part]:
    for lever in plan.levers:
        if lever.name == "cache":
            for size in lever.caches:
                yield Item(subject=f"A cache on each node for {size.supply}", text=_cache(size, plan.asked.nodes))
            continue
        yield Item(subject=_lever_title(lever), text=_lever_text(lever, _open_ended(plan)))


def _lever_title(lever: Lever) -> str:
    shown = percent(lever.to) if lever.name == "utilization" else lever.to
    return words.LEVER[lever.name].format(shown)


def _open_ended(plan: PlanReport) -> set[str]:
    """Names of the storages that may feed more: what they feed is at least so many, and no limit of theirs is first."""
    return {each.name for each in plan.supplies if each.at_least}


def _lever_text(lever: Lever, open_ended: Collection[str]) -> str:
    fed = [
        f"{each.supply} at least {words.grouped(each.feeds)}"
        if each.supply in open_ended
        else f"{each.supply} {words.grouped(each.feeds)} ({words.LIMIT_WORDS[each.first_limit]} first)"
        for each in lever.feeds
        if each.feeds is not None and each.first_limit is not None
    ]
    need = f"need {words.amount(lever.read_bytes)} and {words.grouped(lever.opens.value)} opens/s"
    return f"{need}; feeds: {', '.join(fed)}" if fed else need


def _cache(size: CacheSize, nodes: int) -> str:
    need = f"with {percent(size.hits)} hits it feeds all of them"
    if size.pinned_bytes is None or size.page_bytes is None or size.page_bytes_low is None:
        return f"{need}; for its size add --images"
    slow = "" if nodes == 1 else f", which takes several epochs on {nodes:,} nodes"
    return (
        f"{need}: {format_bytes(size.pinned_bytes)} of files pinned beforehand, or "
        f"{_share(size.page_bytes_low, size.page_bytes, format_bytes)} of page cache once that has filled{slow}"
    )


def _ledger(plan: PlanReport) -> Iterator[Part]:
    lines = tuple(_ledger_line(entry) for entry in plan.ledger)
    yield Table(head=("figure", "value", "label", "source"), lines=lines, right=frozenset())
    for entry in plan.ledger:
        for scenario in entry.scenarios:
            first = plan.supplies[0] if plan.supplies else None
            fed = ""
            if first is not None and scenario.feeds is not None:
                fed = f"; {first.name} feeds {words.fed(scenario.feeds, first.at_least)}"
            yield Item(
                subject=f"With {percent(scenario.value)} of a limit in use",
                text=f"buy {format_rate(scenario.read_bytes_to_buy)}{fed}",
            )


def _ledger_line(entry: LedgerEntry) -> tuple[str, ...]:
    quantity = entry.quantity
    return words.LEDGER[entry.name], words.ranged(quantity), words.label(quantity), _source(quantity)


def _test(plan: PlanReport) -> Iterator[Part]:
    """What is promised, to be signed, and the commands that measure it."""
    test, node = plan.acceptance, min(plan.asked.per_node, plan.asked.accelerators)
    head = ("on delivery", "promised", "measured", "pass")
    lines = tuple((*promise, "", "") for promise in _promises(plan))
    yield Table(head=head, lines=lines, right=frozenset({1, 2}))
    yield Item(subject="Storage", text=delivery_words(plan))
    yield Command(text=delivery_command(plan))
    yield Paragraph(text=read_words(plan))
    if test.nodes > 1:
        yield Item(subject="One node alone", text=f"at least {_figures(test.bytes_per_s, test.files_per_s)}, cold")
        alone = f"torchrun --standalone --nproc-per-node {node} -m loaderprobe bandwidth PATH --ranks {node}"
        yield Command(text=f"{alone} --readers {_readers(plan)}")
    if test.files_per_s is not None:
        yield Item(subject="Opens of cold names, on one node, as root", text="the line of opens, which must be cold")
        yield Command(text=f"loaderprobe bandwidth PATH --readers {test.readers} --drop-caches")
    if any(need.name == "listing" for need in plan.needs):
        yield Item(subject="Listing", text=f"on {'each node at once' if test.nodes > 1 else 'the node'}, just mounted")
        yield Command(text=f"time seq {node} | xargs -P {node} -I_ find PATH >/dev/null")
    write = plan.asked.checkpoint
    yield Item(subject="A checkpoint", text="from one node, until it is on the storage")
    yield Command(text=f"dd if=/dev/zero of=PATH/checkpoint bs=1M count={math.ceil(write.bytes / 2**20)} conv=fsync")
    if test.compute and test.workers:
        ranks = f" --ranks {node}" if node > 1 else ""
        yield Item(
            subject=f"Training on each node, {counted(node, 'accelerator')}",
            text=f"it must reach {percent(plan.asked.utilization)} of their rate (`of alone` in the table of the best)",
        )
        yield Command(text=f"loaderprobe sweep PATH --workers {test.workers}{ranks} --compute {test.compute}")


def _promises(plan: PlanReport) -> Iterator[tuple[str, str]]:
    """(what, at least how much) of each line of the table to sign."""
    test, asked = plan.acceptance, plan.asked
    nodes = asked.accelerators / min(asked.per_node, asked.accelerators)
    places = [(f"all {test.nodes:,} nodes at once", nodes)] if test.nodes > 1 else []
    for place, times in (*places, ("one node", 1.0)):
        yield f"{place}, cold, bandwidth", f">= {format_rate(test.bytes_per_s * times)}"
        if test.files_per_s is not None:
            yield f"{place}, cold, files", f">= {grouped(test.files_per_s * times)}/s"
    if test.files_per_s is not None:
        yield "one node, opens after --drop-caches", f">= {grouped(test.files_per_s)}/s"
    if any(need.name == "listing" for need in plan.needs):
        yield "all folders listed, all nodes at once", f"<= {format_duration(asked.listing_s * asked.use)}"
    for name, what in (("capacity", "capacity"), ("checkpoint", "one node writes a checkpoint")):
        need = next((each for each in plan.needs if each.name == name), None)
        if need is not None and need.to_buy is not None:
            yield what, f">= {amount(need.to_buy)}"
    yield "training", f">= {percent(asked.utilization)} of alone"


def _method(plan: PlanReport) -> Iterator[Part]:
    """How the figures come about, a line each."""
    asked = plan.asked
    write = asked.checkpoint
    growth = f"; growth of {asked.growth:g} is in the number of accelerators" if asked.growth > 1 else ""
    yield Item(
        text=f"Needs: accelerators x rate x {percent(asked.utilization)} x bytes of an image, an open for each{growth}"
    )
    yield Item(text=f"To buy: the need over {percent(asked.use)}, the share of a limit that is used")
    yield Item(
        text="Supplies: measured here, given, or published; the smallest limit over the need of one accelerator counts"
    )
    yield Item(
        text=f"Checkpoints: {format_bytes(write.bytes)} every {format_duration(write.every_s)}, and training stands "
        f"still for at most {percent(write.share)} of that ({'given' if write.given else 'assumed'}; --checkpoint)"
    )
    yield Item(
        text="Each: of one accelerator. A file may take so long on average with that many workers; full queues hide "
        "one stall so long"
    )
    yield Item(
        text=f"Listed: each accelerator's process lists all folders before the first step, in "
        f"{format_duration(asked.listing_s)} together ({'given' if asked.listing_given else 'assumed'}; --listing)"
    )
    yield Item(
        text="±, where shown: 95 %, from measured inputs only, for the whole row. Label: of the weakest input, u and r "
        "aside, from measured over given and published to assumed"
    )
    read = plan.need("read_bytes")
    assert read and read.node
    bits = format_rate(8 * read.node.value / asked.use).replace("B/s", "b/s")
    yield Item(text=f"Network of a node: {bits} for its reads, with that headroom. Capacity: of one copy of this set")


def _source(quantity: Quantity) -> str:
    """Where a quantity comes from; one that was given, from its option."""
    return _FLAGS.get(quantity.source, quantity.source) if quantity.label == "given" else quantity.source


_FLAGS = {each.name: each.flags[0] for each in PLAN}


# The storage plan as sections of a report's page.

_NAME = "plan"


def with_plan(
    document: Document, charts: Mapping[str, Sequence[Exhibit]], plan: PlanReport | Remark, command: str
) -> tuple[Document, dict[str, Sequence[Exhibit]]]:
    """A report and its charts with the planner's half: the plan, or why there is none.

    `command` asks for another plan.
    """
    place = next(number for number, section in enumerate(document.sections) if section.name == EVIDENCE)
    planned = _without(plan, command) if isinstance(plan, Remark) else _planned(plan, command)
    drawn = {} if isinstance(plan, Remark) else {_named(name): each for name, each in plan_exhibits(plan).items()}
    sections = (*document.sections[:place], *planned, *document.sections[place:])
    return replace(document, sections=sections), {**charts, **drawn}


def _named(name: str) -> str:
    """Of a section of the plan: the report has some of the same name."""
    return f"{_NAME}_{name}" if name else ""


def _without(why: Remark, command: str) -> tuple[Section, ...]:
    then = " Name one to plan for it:" if why.code == "only_a_cpu" else ""
    words = Paragraph(text=f"No plan: {remark_words(why)}.{then}")
    return (Section(title="Storage plan", name=_NAME, parts=(words, Command(text=command))),)


def _planned(plan: PlanReport, command: str) -> tuple[Section, ...]:
    page = plan_document(plan)
    first, *rest = page.sections
    asked: tuple[Part, ...] = (Paragraph(text=_chosen_words(plan), tone="quiet"), Command(text=command))
    return (
        Section(title=page.title, name=_NAME, parts=(*first.parts, *asked)),
        *(replace(section, name=_named(section.name), under=True) for section in rest),
    )


def _chosen_words(plan: PlanReport) -> str:
    """What a plan that was not asked for is of."""
    images = next((entry.quantity for entry in plan.ledger if entry.name == "images"), None)
    many = ""
    if images is not None:
        why = "as in ImageNet, because the run's data set is generated" if images.label == "assumed" else "as found"
        many = f"; {images.value:,.0f} images, {why}"
    return (
        f"Chosen for this report: {plan.asked.accelerators} accelerators of the run's fastest kind, "
        f"{plan.asked.per_node} in a node{many}; the storage that the run measured, and no cache. "
        "To plan for something else:"
    )


# The catalogue of storage kinds as a page.

_ONE = {"TiB": "TiB", "prefixes": "prefix", "units": "unit", "IOPS": "bought IOPS"}
_HEAD = ("storage", "read bandwidth", "opens/s", "requests/s", "a read takes", "a client")


def catalogue_document(entries: Iterable[CatalogueEntry], today: date) -> Document:
    """Every entry with its limits, its source and the day on which that was read."""
    chosen = tuple(entries)
    return Document(
        title="Storage catalogue",
        sections=(
            Section(
                parts=(
                    Paragraph(text="Limits as published, not measured by loaderprobe: at most that, unless marked >=."),
                    Table(head=_HEAD, lines=tuple(_line(each) for each in chosen), right=frozenset()),
                )
            ),
            Section(
                title="Sources",
                parts=tuple(Item(subject=each.name, text=_entry_source(each, today)) for each in chosen),
            ),
            Section(parts=(Paragraph(text="Use: --storage fsx-lustre-250:24TiB, s3-standard:16, efs-elastic."),)),
        ),
    )


def catalogue_json(entries: Iterable[CatalogueEntry]) -> str:
    """The entries, indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(tuple(entries)), indent=2).decode() + "\n"


def _line(entry: CatalogueEntry) -> tuple[str, ...]:
    return (
        f"{entry.name}-TIER" if entry.tiers else entry.name,
        _bandwidth(entry),
        _operations(entry, entry.opens_per_s, "opens_per_s" in entry.at_least),
        _operations(entry, entry.requests_per_s, "requests_per_s" in entry.at_least),
        MISSING if entry.latency_s is None else " to ".join(dict.fromkeys(map(format_duration, entry.latency_s))),
        _clients(entry),
    )


def _bandwidth(entry: CatalogueEntry) -> str:
    if entry.tiers:
        rates = [tier.read_bytes_per_s_per_unit for tier in entry.tiers]
        return f"{format_rate(min(rates))} to {format_rate(max(rates))} a {_one(entry)}"
    amount = entry.read_bytes_per_s
    return MISSING if amount is None else _amount(entry, amount, format_rate(amount.per_unit or amount.base))


def _operations(entry: CatalogueEntry, amount: Amount | None, at_least: bool) -> str:
    if amount is None:
        return MISSING
    return f"{'>= ' if at_least else ''}{_amount(entry, amount, f'{amount.per_unit or amount.base:,.0f}')}"


def _amount(entry: CatalogueEntry, amount: Amount, shown: str) -> str:
    return f"{shown} a {_one(entry)}" if amount.per_unit else shown


def _clients(entry: CatalogueEntry) -> str:
    rates = [tier.client_bytes_per_s for tier in entry.tiers if tier.client_bytes_per_s]
    rates = rates or ([entry.client_bytes_per_s] if entry.client_bytes_per_s else [])
    return " to ".join(dict.fromkeys(format_rate(rate) for rate in (min(rates), max(rates)))) if rates else MISSING


def _one(entry: CatalogueEntry) -> str:
    return _ONE.get(entry.unit, entry.unit)


def _entry_source(entry: CatalogueEntry, today: date) -> str:
    parts = [f"{entry.source}, read {entry.read_on}"]
    if entry.tiers:
        parts.append(f"TIER is {join_words([tier.name for tier in entry.tiers], 'or')}")
    if entry.stale(today):
        parts.append("12 months ago or longer: check it")
    if entry.second_hand:
        parts.append(f"second hand: {entry.second_hand}")
    if entry.note:
        parts.append(entry.note)
    return "; ".join(parts)
