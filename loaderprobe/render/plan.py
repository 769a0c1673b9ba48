"""The storage plan as a page: what each storage feeds, what to buy, the test to sign; and the catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import PurePath
from typing import Any

from loaderprobe.records import values
from loaderprobe.records.files import is_url
from loaderprobe.records.options import PLAN
from loaderprobe.records.plan import (
    FIXED,
    OF_EACH,
    Amount,
    CatalogueEntry,
    InputName,
    LimitName,
    Need,
    NeedName,
    PlanReport,
)
from loaderprobe.records.remark import READ_AGAIN
from loaderprobe.records.supply import Asked, Label, PlanPart, PlanSupply, Quantity
from loaderprobe.records.thresholds import WIDE_RANGE
from loaderprobe.render.charts import Bar, Chart, ChartRow, How
from loaderprobe.render.document import Column, Command, Document, Item, Paragraph, Part, Section, Table, items, table
from loaderprobe.render.format import MISSING, counted, figure, first_upper, grouped, named, percent, rate, span
from loaderprobe.render.rows import as_columns
from loaderprobe.render.words import ENOUGH_MARK, enough, message, remark_words
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

PART: dict[PlanPart, str] = {
    "opens": "files opened",
    "cold_opens": "cold opens of the measured storage",
    "workers": "workers, and how slow a read may be",
}
NEED: dict[NeedName, str] = {
    "read_bytes": "read bandwidth",
    "opens": "files opened",
    "requests": "requests, 128 KiB",
    "read_time": "a file may take",
    "checkpoint": "checkpoint writes",
}
"""Others are called as they are named."""
INPUT: dict[InputName, str] = {
    "rate": "rate of one accelerator",
    "file_bytes": "bytes of a file",
    "amplification": "read over asked for",
    "images": "images in the set",
    "cpu_s": "CPU time of an image",
    "wait_s": "worker's wait for a file",
    "other_s": "other time of a worker",
    "utilization": "wanted utilization",
    "use": "use of a limit",
}
RANGE_FROM = 0.01
"""A range narrower than this share of its figure is not shown."""
_TONES = {"enough": "good", "not known": "warning", "not enough": "failed"}
"""By whether a limit lets a storage feed all that is planned for."""
_REACH = 1.3
"""The axis goes to so many times the accelerators that are planned for; a longer bar ends there."""


def plan_document(plan: PlanReport) -> Document:
    """What each storage feeds and what to buy; then the test to sign, and what the plan is computed from."""
    measured = next((supply for supply in plan.supplies if supply.label == "measured" and supply.limits), None)
    feeds_all = measured and (measured.feeds or 0.0) >= plan.asked.accelerators
    # An open of a cold name may be the limit of the measured storage; a request of an object has none.
    known = plan.source.kind == "bandwidth" and "cold_opens" not in plan.refused
    matter = plan.asked.images_per_file == 1 and not is_url(plan.source.data)
    doubts = {"the rates of this run hold": ""} if plan.source.doubts and plan.inputs["rate"].label != "given" else {}
    if measured and feeds_all:
        doubts |= {"names are cached": ": cold opens are not known"} if matter and not known else {}
        doubts |= {"more data come as fast": ": cached reads are not known"} if _cached(measured) else {}
    doubt = f" if {join_words([*doubts])}" if doubts else ""
    doubt += "".join(doubts.values()) if len(doubts) == 1 else ""
    answer = (f"Storage here feeds all {plan.asked.accelerators:,}" if feeds_all else f"Buy {_supplied(plan)}") + doubt
    return Document(
        title=_title(plan),
        headline="No plan for GPUs: this run trained on the CPU" if plan.source.on_cpu else answer,
        subline=f"{_supplied(plan)} {_terms(plan)}" if plan.source.on_cpu else _terms(plan),
        tone="warning" if plan.source.on_cpu else "good" if feeds_all and not doubt else "storage",
        unsure=plan.source.on_cpu or bool(doubt),
        sections=tuple(_sections(plan)),
    )


def _sections(plan: PlanReport) -> Iterator[Section]:
    if plan.source.on_cpu:
        how = "For GPUs: plan at their rate (loaderprobe explain accelerators has some), or from a run on a GPU"
        yield Section(parts=(Item(text=how), Command(text="loaderprobe plan RUN --kind mlperf-h100")), panel="main")
    yield Section(title=f"How many {_of_what(plan)[1]} each storage feeds", parts=tuple(_supplies(plan)), panel="main")
    yield Section(title="What they need" if plan.source.on_cpu else "What to buy", parts=(_needs(plan),), panel="main")
    yield Section(title="The rate", parts=tuple(_rate(plan)), panel="side")
    yield Section(title="Not known", parts=items(_not_known(plan)), panel="side")
    yield Section(title="The test to sign, on delivery", parts=tuple(_test(plan)))
    notes = ((supply.name, "; ".join(_supply_notes(supply, plan.asked))) for supply in plan.supplies)
    yield Section(title="Storages", parts=items(pair for pair in notes if pair[1]))
    yield Section(title="Caches", parts=tuple(_caches(plan)))
    inputs = [pair for pair in plan.inputs.items() if pair[0] != "rate"]  # which stands beside the answer
    yield Section(title="Computed from", parts=table(inputs, _INPUTS))
    said = tuple(Paragraph(text=remark_words(note)) for note in plan.notes)
    made = f"loaderprobe {plan.loaderprobe}, {plan.created_utc[:10]}. {_from_words(plan)}"
    yield Section(parts=(*said, Paragraph(text=f"{made} Formulas: loaderprobe explain plan.", tone="quiet")))


def _supplies(plan: PlanReport) -> Iterator[Part]:
    """A row a limit of each storage; the shortest bar is what gives out first."""
    rows = tuple(row for supply in plan.supplies for row in _supply_rows(plan, supply))
    if not rows:
        return
    least = any(limit.at_least for supply in plan.supplies for limit in supply.limits)
    words = {verdict: f"{mark} {verdict}" for verdict, mark in ENOUGH_MARK.items()}
    words["not known"] += " (≥ reached, maybe more)" * least
    yield Chart(
        rows=rows,
        high=_REACH * plan.asked.accelerators,
        unit=_of_what(plan)[1],
        level=f"planned: {plan.asked.accelerators:,}",
        names=tuple((tone, words[verdict]) for verdict, tone in _TONES.items()),
        ends="storage,feeds",
    )


def _cached(supply: PlanSupply) -> bool:
    """True of one that was measured with so few files that caches below it may have served them."""
    return any(note.code in READ_AGAIN for note in supply.notes)


def _supply_rows(plan: PlanReport, supply: PlanSupply) -> Iterator[ChartRow]:
    if supply.limits:
        yield ChartRow(label=supply.name, head=True)
    for limit in supply.limits:
        cached = limit.resource == "bandwidth" and _cached(supply)
        verdict = enough(limit.feeds, plan.asked.accelerators, at_least=limit.at_least, at_most=cached)
        least = "≥" if limit.at_least else ""
        how: How = "unsure" if cached else "measured" if limit.limit.label == "measured" else "specified"
        yield ChartRow(
            label=message(f"supply.{limit.resource}", {}),
            value=f"{least}{grouped(limit.feeds)} {ENOUGH_MARK[verdict]}",
            note=f"{least}{amount(limit.limit)}, {'maybe cached' if cached else _word(limit.limit.label)}",
            bars=(Bar(end=limit.feeds, tone=_TONES[verdict], how=how),),
            level=plan.asked.accelerators,
            level_how="specified",
        )


def _needs(plan: PlanReport) -> Table:
    counts = sorted({1, plan.asked.of_node, plan.asked.accelerators})
    lines = [_need_line(plan, need, counts) for need in plan.needs]
    seconds, images = plan.epochs.seconds, plan.inputs.get("images")
    if seconds is not None and images is not None:
        epochs = (amount(seconds, seconds.value * plan.asked.accelerators / count) for count in counts)
        lines.append((f"an epoch of {amount(images)}", *epochs, _word(seconds.weakest)))
    capacity = plan.need("capacity")
    files = f" (the files: {amount(capacity.at_utilization)})" if capacity else ""
    return Table(
        head=(_of_what(plan)[1], *(f"{count:,}" for count in counts), "label"),
        lines=tuple(lines),
        caption=f"Rates and capacity leave {percent(1 - plan.asked.use)} of the storage in reserve{files}; reads in "
        "flight, times, workers and cores leave none.",
    )


def _need_name(plan: PlanReport, name: NeedName) -> str:
    """`read bandwidth`; `capacity, 200 images`, since that is of this data set alone."""
    return f"{name}, {amount(plan.inputs['images'])}" if name == "capacity" else NEED.get(name, name.replace("_", " "))


def _need_line(plan: PlanReport, need: Need, counts: Sequence[int]) -> tuple[str, ...]:
    """With ` ±3 %` beside the label of a rate whose inputs were measured to no better than that."""
    planned, name, wanted = plan.asked.accelerators, need.name, need.at_utilization
    scales = [1.0 if name in FIXED else count if name in OF_EACH else count / planned for count in counts]
    label = _word(wanted.weakest) + (_spread(wanted) if wanted.unit in ("B/s", "1/s") else "")
    return (_need_name(plan, name), *(_plain(need.to_buy or wanted, scale) for scale in scales), label)


def _spread(quantity: Quantity, least: float = RANGE_FROM) -> str:
    """` ±61 %`; nothing where that is no more than `least`."""
    share = quantity.half / quantity.value
    return f" ±{percent(share)}" if share > least else ""


def _rate(plan: PlanReport) -> Iterator[Part]:
    rate = plan.inputs["rate"]
    how = "specified, not measured" if plan.acceptance.compute else rate.label
    yield Paragraph(text=f"{_ranged(rate)} {_of_what(plan)[0]}, {how}: {rate.source}.")
    yield from (Paragraph(text=f"{first_upper(remark_words(doubt))}.", strong=True) for doubt in plan.source.doubts)
    if plan.pace is not None:
        yield Paragraph(text=f"{remark_words(plan.pace)}.")


def _not_known(plan: PlanReport) -> Iterator[tuple[str, str]]:
    """(what, why or what shows it), and what no plan knows."""
    yield from ((PART.get(part, part.replace("_", " ")), remark_words(why)) for part, why in plan.refused.items())
    if plan.source.kind in ("sweep", "run") and plan.need("opens"):
        yield "cold opens", "the test drops names"
    if plan.asked.checkpoint is None:
        yield "checkpoints", "--checkpoint 205MB:600"
    yield "never in a plan", "other jobs, failures and rebuilds; caches of the storage; listing of folders"


def _caches(plan: PlanReport) -> Iterator[Part]:
    asked, share = plan.asked, plan.epochs.cache_share
    if share is None:
        return
    kind, least = "pinned files", ""
    if asked.cache.kind == "page":
        kind, least = "page cache", "; with a shuffle over all images they answer at least"
    text = f"{format_bytes(asked.cache.bytes)} of {kind}, {percent(share)} of the set{least}"
    yield Item(subject=f"On each of {counted(asked.nodes, 'node')}", text=text)
    columns = (
        Column("epoch", lambda cached: str(cached.epoch)),
        Column("from caches", lambda cached: percent(cached.hits)),
        Column("from storage", lambda cached: format_rate(cached.read_bytes_per_s)),
    )
    yield from table(plan.epochs.cached, columns)


_FLAGS = {option.name: option.flags[0] for option in PLAN}
"""By what the source of a figure is called that was given."""
_INPUTS = (
    Column("figure", lambda pair: INPUT[pair[0]]),
    Column("value", lambda pair: _ranged(pair[1])),
    Column("label", lambda pair: _label(pair[1])),
    Column("source", lambda pair: _FLAGS.get(pair[1].source, pair[1].source)),
)


def need_columns(plan: PlanReport) -> dict[str, list[Any]]:
    """Columns by name, an entry for each need."""
    return as_columns(
        {
            "need": need.name,
            "unit": need.at_utilization.unit,
            "at_utilization": need.at_utilization.value,
            **values(need.at_utilization, "low", "high"),
            "at_most": need.at_most.value,
            "to_buy": need.to_buy and need.to_buy.value,
            "node": need.node and need.node.value,
            "label": _label(need.at_utilization),
        }
        for need in plan.needs
    )


def _supplied(plan: PlanReport, times: float = 1.0) -> str:
    """`1.56 GB/s and 129,000 opens/s`, at so many times the rate; the bytes alone where opens are not known."""
    read, opens = plan.need("read_bytes"), plan.need("opens")
    assert read and read.to_buy
    bought = amount(read.to_buy, times * read.to_buy.value) + _spread(read.to_buy, WIDE_RANGE)
    return f"{bought} and {grouped(times * opens.to_buy.value)} opens/s" if opens and opens.to_buy else bought


def _terms(plan: PlanReport) -> str:
    """What the need depends on, and what it is at the own rate of a GPU whose pace is a benchmark's."""
    asked, recipe_need = plan.asked, ""
    if plan.pace is not None:
        recipe, as_fast = (plan.pace.facts[name] for name in ("recipe", "recipe_images_per_s"))
        recipe_need = f"; at the rate of {recipe}, {_supplied(plan, float(as_fast) / plan.inputs['rate'].value)}"
    layouts = {0: "parts of large files", 1: "whole files"}
    read = layouts.get(asked.images_per_file, f"shards of {asked.images_per_file:,} images")
    return (
        f"for {_accelerators(plan)} at {percent(asked.utilization)} of their rate, {percent(asked.use)} of a limit in "
        f"use; {read} read in random order, caches cold{recipe_need}"
    )


def _title(plan: PlanReport) -> str:
    """What is planned, and for which data: `Storage plan for 64 x mlperf-h100, 500x375 (images of 108 kB)`."""
    asked, size, name = plan.asked, amount(plan.inputs["file_bytes"]), PurePath(plan.source.data).name
    grown = ""
    if asked.growth != 1:
        # A part of an accelerator counted as one; the rounding is that of a product with a decimal fraction.
        grown = f" ({math.floor(round(asked.accelerators / asked.growth, 6)):,} now, times {asked.growth:g} for growth)"
    data = f"{name} (images of {size})" if name else f"images of {size}"
    return f"Storage plan for {_accelerators(plan)}{grown}, {data}"


def _of_what(plan: PlanReport) -> tuple[str, str]:
    """(one, several) of what storage is planned for."""
    return ("a machine", "machines") if plan.source.on_cpu else ("an accelerator", "accelerators")


def _accelerators(plan: PlanReport) -> str:
    name, count = plan.source.accelerator, plan.asked.accelerators
    return f"{counted(count, 'machine')} training on the CPU" if plan.source.on_cpu else named(name, f"{count:,}")


_AMOUNTS: dict[str, Callable[[float], str]] = {
    "B/s": format_rate,
    "B": format_bytes,
    "s": format_duration,
    "1/s": lambda number: f"{grouped(number)}/s",
    "": percent,
    "images/s": lambda number: f"{rate(number)} images/s",
    "images": lambda number: f"{number:,.0f} images",  # a count that also stands in the sentence on an epoch
    "x": lambda number: f"{significant(number)} x",
    "reads": partial(figure, figures=2),
    "workers": "{:,.0f}".format,
    "cores": partial(figure, figures=2),
}
"""By unit; those of what a row or a sentence names are left out."""


def amount(quantity: Quantity, value: float | None = None) -> str:
    """A figure with its unit; `value` replaces the figure."""
    return _AMOUNTS[quantity.unit](quantity.value if value is None else value)


def _ranged(quantity: Quantity) -> str:
    """The figure, and its range where that is worth a word."""
    whole, ends = amount(quantity), span((quantity.low, quantity.high), partial(amount, quantity))
    narrow = quantity.high - quantity.low <= RANGE_FROM * abs(quantity.value) or ends == whole
    return whole if narrow else f"{whole} ({ends})"


def _plain(quantity: Quantity, scale: float = 1.0) -> str:
    """The figure; of a count a wide range instead of it, which need not have the figure in its middle."""
    if quantity.unit in ("reads", "workers", "cores") and quantity.high - quantity.low > RANGE_FROM * quantity.value:
        return span((scale * quantity.low, scale * quantity.high), _AMOUNTS[quantity.unit])
    return amount(quantity, scale * quantity.value)


def _label(quantity: Quantity) -> str:
    """`measured`, `derived from assumed`."""
    return _word(quantity.label) if quantity.label != "derived" else f"derived from {_word(quantity.weakest)}"


def _word(label: Label) -> str:
    """Also the rate of an emulated accelerator is `given`: by its name, which the reader may not have chosen."""
    return "specified" if label == "given" else label


def _supply_notes(supply: PlanSupply, asked: Asked) -> Iterator[str]:
    if supply.label == "measured" and supply.feeds is not None and asked.nodes > supply.nodes == 1:
        yield (
            f"from one machine, and counted as one storage for {asked.nodes:,} nodes; where each has its own, they "
            f"feed {grouped(supply.feeds * asked.nodes)}"
        )
    yield from map(remark_words, supply.notes)
    if supply.cache is not None:
        slow = "several" if asked.nodes > 1 else "one"
        yield message("part.enough_cache", {**values(supply.cache), "slow": slow})
        if supply.first_limit == "opens" and asked.images_per_file == 1:
            yield "shards need few opens: --layout shards:1251"
    flying = supply.reads_in_flight
    if flying is not None and supply.label != "measured":
        yield f"at its latency an accelerator needs {_plain(flying)} reads in flight, each by a worker of its own"
    if supply.read_on:
        yield f"{supply.source}, read {supply.read_on}"
    if supply.stale:
        yield "that was 12 months ago or longer: check it"


def _from_words(plan: PlanReport) -> str:
    source = plan.source
    others = f" (also in the run: {join_words(source.other_data)}; --data)" if source.other_data else ""
    # A plan is passed on: folders of the machine that measured say nothing to its readers.
    run = PurePath(source.path).name
    made = {"trace": f"the recording {run}, without its files", "bandwidth": f"bandwidth result {run}"}
    return f"From {made.get(source.kind, f'{source.configuration} of {run}')}{others}."


LAUNCHER = "--rdzv-backend c10d --rdzv-endpoint HEAD:29500 --rdzv-id 7"
"""What starts processes on several nodes together (`explain ranks`)."""


def _test(plan: PlanReport) -> Iterator[Part]:
    test, asked = plan.acceptance, plan.asked
    several = [f"{test.nodes:,} nodes at once"] if test.nodes > 1 else []
    head = ("cold files", *several, "one node", "measured", "pass")
    lines = tuple((what, *promised[1 - len(several) :], "", "") for what, *promised in _promises(plan))
    read = plan.inputs["amplification"]
    bandwidth = f"Bandwidth is what readers get; storage reads {amount(read)} that, which is what to buy."
    yield Table(head=head, lines=lines, caption=bandwidth if read.value > 1 else "")
    origin = {"workers": "its workers", "reads_in_flight": "by the reads in flight", "assumed": "assumed"}
    readers_per_rank = -(-test.readers // asked.of_node)
    readers = f"{counted(readers_per_rank, 'reader')} {_of_what(plan)[0]}: {origin[test.readers_from]}"
    if several:
        # A rank for each accelerator, as many on all nodes.
        ranks = -(-asked.accelerators // test.nodes)
        launch = f"torchrun --nnodes {test.nodes} --nproc-per-node {ranks} {LAUNCHER} -m loaderprobe bandwidth PATH"
        yield Item(subject=several[0], text=f"on each; {readers}")
        yield Command(text=f"{launch} --ranks {test.nodes}x{ranks} --readers {readers_per_rank}")
    yield Item(subject="One node", text=f"as root, so that names are cold too{'' if several else f'; {readers}'}")
    yield Command(text=f"loaderprobe bandwidth PATH --readers {test.readers} --drop-caches")
    if asked.checkpoint is not None:
        blocks = math.ceil(asked.checkpoint.bytes / 2**20)
        yield Item(subject="A checkpoint", text="from one node, until it is on the storage")
        yield Command(text=f"dd if=/dev/zero of=PATH/checkpoint bs=1M count={blocks} conv=fsync")
    if test.compute and test.workers:
        of_node = f" --ranks {asked.of_node}" if asked.of_node > 1 else ""
        yield Item(subject="Training", text="on each node; the column of alone")
        yield Command(text=f"loaderprobe sweep PATH --workers {test.workers}{of_node} --compute {test.compute}")
    head_words = " HEAD: the first node." if several else ""
    yield Paragraph(text=f"PATH: images of that size, more than storage caches.{head_words}")


def _promises(plan: PlanReport) -> Iterator[tuple[str, str, str]]:
    """(what, of all nodes, of one node) of each line of the table to sign."""
    test, asked = plan.acceptance, plan.asked
    nodes = asked.accelerators / asked.of_node
    yield "bandwidth", f"≥{format_rate(test.bytes_per_s * nodes)}", f"≥{format_rate(test.bytes_per_s)}"
    if test.files_per_s is not None:
        files_per_s = f"≥{grouped(test.files_per_s)}/s"
        yield "files", f"≥{grouped(test.files_per_s * nodes)}/s", files_per_s
        yield "opens of cold names", MISSING, files_per_s
    bought = {need.name: f"≥{amount(need.to_buy)}" for need in plan.needs if need.to_buy is not None}
    if "capacity" in bought:
        yield _need_name(plan, "capacity"), bought["capacity"], bought["capacity"] if test.nodes == 1 else MISSING
    if "checkpoint" in bought:
        yield "writing a checkpoint", MISSING, bought["checkpoint"]
    yield "training, of its rate alone", MISSING, f"≥{percent(asked.utilization)}"


_ONE = {"TiB": "TiB", "prefixes": "prefix", "units": "unit", "IOPS": "bought IOPS"}


def catalogue_document(entries: Sequence[CatalogueEntry], today: date) -> Document:
    """Every entry with its limits, its source and the day on which that was read."""
    published = "Limits as published, not measured by loaderprobe: at most that, unless marked ≥."
    return Document(
        title="Storage catalogue",
        sections=(
            Section(parts=table(entries, _ENTRY, caption=published)),
            Section(title="Sources", parts=items((entry.name, _entry_source(entry, today)) for entry in entries)),
            Section(parts=(Paragraph(text="Use: --storage fsx-lustre-250:24TiB, s3-standard:16, efs-elastic."),)),
        ),
    )


def _limit(entry: CatalogueEntry, name: LimitName) -> str:
    """`4.19 GB/s`, `≥5,500 a prefix`, `125 MB/s to 1.00 GB/s a TiB`, `52.4 MB/s a TiB, at most 3.22 GB/s`."""
    amount: Amount | None = getattr(entry, name)
    tiers = [tier.read_bytes_per_s_per_unit for tier in entry.tiers if name == "read_bytes_per_s"]
    figures = tiers or ([amount.per_unit or amount.base] if amount else [])
    if not figures:
        return MISSING
    shown = format_rate if name == "read_bytes_per_s" else "{:,.0f}".format
    per_unit = f" a {_ONE.get(entry.unit, entry.unit)}" if tiers or (amount and amount.per_unit) else ""
    maximum = f", at most {shown(amount.at_most)}" if amount and amount.at_most else ""
    return f"{'≥' if name in entry.at_least else ''}{span(figures, shown)}{per_unit}{maximum}"


def _clients(entry: CatalogueEntry) -> str:
    rates = [rate for rate in (*(tier.client_bytes_per_s for tier in entry.tiers), entry.client_bytes_per_s) if rate]
    return span(rates, format_rate) if rates else MISSING


_ENTRY = (
    Column("storage", lambda entry: f"{entry.name}-TIER" if entry.tiers else entry.name),
    Column("read bandwidth", partial(_limit, name="read_bytes_per_s")),
    Column("opens/s", partial(_limit, name="opens_per_s")),
    Column("requests/s", partial(_limit, name="requests_per_s")),
    Column("a read takes", lambda entry: span(entry.latency_s, format_duration) if entry.latency_s else MISSING),
    Column("a client", _clients),
)


def _entry_source(entry: CatalogueEntry, today: date) -> str:
    tiers = f"TIER is {join_words([tier.name for tier in entry.tiers], 'or')}" if entry.tiers else ""
    stale = "12 months ago or longer: check it" if entry.stale(today) else ""
    second_hand = f"second hand: {entry.second_hand}" if entry.second_hand else ""
    return "; ".join(filter(None, (f"{entry.source}, read {entry.read_on}", tiers, stale, second_hand, entry.note)))
