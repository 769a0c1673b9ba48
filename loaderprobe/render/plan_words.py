"""What a storage plan says in words: its headline, figures with their units, what is to be known of a storage."""

from __future__ import annotations

from pathlib import PurePath

from loaderprobe.records.plan import (
    Asked,
    CacheSize,
    InputName,
    NeedName,
    PlanPart,
    PlanReport,
    PlanSupply,
    Quantity,
    SupplyResource,
)
from loaderprobe.render.format import counted, figure, grouped, percent, rate
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

PART: dict[PlanPart, str] = {
    "measured_storage": "measured storage",
    "cold_opens": "cold opens of the measured storage",
    "workers": "workers, and how slow a read may be",
    "cores": "cores",
    "reads_in_flight": "reads in flight",
}
NEED: dict[NeedName, str] = {
    "read_bytes": "read bandwidth",
    "opens": "files opened",
    "requests": "requests, 128 KiB",
    "reads_in_flight": "reads in flight",
    "read_time": "a file may take",
    "capacity": "capacity",
    "checkpoint": "checkpoint writes",
    "workers": "workers",
    "cores": "cores",
}
LIMIT_WORDS: dict[SupplyResource, str] = {
    "bandwidth": "bandwidth",
    "opens": "opens/s",
    "requests": "requests/s",
    "client": "client's share",
    "nic": "node's network",
}
INPUT: dict[InputName, str] = {
    "rate": "rate of one accelerator",
    "file_bytes": "bytes of a file",
    "amplification": "read over asked for",
    "images": "images in the set",
    "cpu_s": "CPU time of an image",
    "wait_s": "wait for a file",
    "other_s": "other time of a worker",
    "utilization": "wanted utilization",
    "use": "use of a limit",
}
RANGE_FROM = 0.01
"""A range narrower than this share of its figure is not shown."""


def to_buy(plan: PlanReport) -> str:
    """`Buy 1.56 GB/s and 129,000 opens/s`."""
    read, opens = plan.need("read_bytes"), plan.need("opens")
    assert read and opens and read.to_buy and opens.to_buy
    return f"Buy {amount(read.to_buy)} and {grouped(opens.to_buy.value)} opens/s"


def terms(plan: PlanReport) -> str:
    """What the need depends on."""
    asked = plan.asked
    read = "whole files" if asked.images_per_file == 1 else f"shards of {asked.images_per_file:,} images"
    return (
        f"for {accelerators(plan)} at {percent(asked.utilization)} of their rate, {percent(asked.use)} of a limit in "
        f"use; {read} read in random order, caches cold"
    )


def title(plan: PlanReport) -> str:
    """What is planned, and for which data: `Storage plan for 64 x mlperf-h100, 500x375 (images of 108 kB)`."""
    asked, size, name = plan.asked, amount(plan.inputs["file_bytes"]), PurePath(plan.source.data).name
    grown = ""
    if asked.growth != 1:
        grown = f" ({asked.accelerators / asked.growth:.0f} now, times {asked.growth:g} for growth)"
    data = f"{name} (images of {size})" if name else f"images of {size}"
    return f"Storage plan for {accelerators(plan)}{grown}, {data}"


def accelerators(plan: PlanReport) -> str:
    """`64 x mlperf-h100`; of a rate as given `64 accelerators of 2500 images/s`."""
    name = plan.source.accelerator
    count = f"{plan.asked.accelerators:,}"
    if name[:1].isdigit():
        return f"{counted(plan.asked.accelerators, 'accelerator')} of {rate(float(name))} images/s"
    if name == "cpu":
        return f"{counted(plan.asked.accelerators, 'CPU')} like that of the run"
    return f"{count} x {name}"


def amount(quantity: Quantity, value: float | None = None) -> str:
    """A figure with its unit; `value` replaces the figure."""
    number = quantity.value if value is None else value
    if quantity.unit == "B/s":
        return format_rate(number)
    if quantity.unit == "B":
        return format_bytes(number)
    if quantity.unit == "s":
        return format_duration(number)
    if quantity.unit == "1/s":
        return f"{grouped(number)}/s"
    if quantity.unit == "":
        return percent(number)
    if quantity.unit == "images/s":
        return f"{rate(number)} images/s"
    if quantity.unit == "images":
        return f"{number:,.0f} images"  # a count that also stands in the sentence on an epoch
    if quantity.unit == "x":
        return f"{significant(number)} x"
    return f"{grouped(number)} {quantity.unit}"


def ranged(quantity: Quantity) -> str:
    """The figure, and its range where that is worth a word."""
    low, high = amount(quantity, quantity.low), amount(quantity, quantity.high)
    if quantity.high - quantity.low <= RANGE_FROM * abs(quantity.value) or low == high:
        return amount(quantity)
    return f"{amount(quantity)} ({low} to {high})"


def plain(quantity: Quantity) -> str:
    """The figure without a unit that its row names already; a wide range instead of it."""
    if quantity.unit in ("reads", "workers", "cores"):
        ends = figure(quantity.low, 2), figure(quantity.high, 2)
        if quantity.high - quantity.low > RANGE_FROM * quantity.value and ends[0] != ends[1]:
            return f"{ends[0]} to {ends[1]}"
        return figure(quantity.value, 2)
    return amount(quantity)


def spread(quantity: Quantity) -> str:
    """` ±3 %` beside the label of a rate whose inputs were measured to no better than that."""
    half = (quantity.high - quantity.low) / 2 / quantity.value
    return f" ±{percent(half)}" if quantity.unit in ("B/s", "1/s") and half > RANGE_FROM else ""


def label(quantity: Quantity) -> str:
    """`measured`, `derived from assumed`."""
    return quantity.label if quantity.label != "derived" else f"derived from {quantity.weakest}"


def supply_notes(supply: PlanSupply, asked: Asked) -> list[str]:
    """What is to be known of a storage beside its limits."""
    lines = [remark_words(note) for note in supply.notes]
    if supply.label == "measured" and supply.feeds is not None and asked.nodes > 1:
        lines.insert(
            0,
            f"from one machine, and counted as one storage for {asked.nodes:,} nodes; where each has its own, they "
            f"feed {grouped(supply.feeds * asked.nodes)}",
        )
    if supply.cache is not None:
        lines.append(_enough_cache(supply.cache, asked.nodes))
    if supply.cache is not None and supply.first_limit == "opens" and asked.images_per_file == 1:
        lines.append("shards need few opens: --layout shards:1251")
    flying = supply.reads_in_flight
    if flying is not None and supply.label != "measured":
        lines.append(
            f"at its latency an accelerator needs {plain(flying)} reads in flight, each by a worker of its own"
        )
    if supply.read_on:
        lines.append(f"{supply.source}, read {supply.read_on}")
    if supply.stale:
        lines.append("that was 12 months ago or longer: check it")
    return lines


def _enough_cache(size: CacheSize, nodes: int) -> str:
    need = f"it feeds all of them where caches answer {percent(size.hits)} of the reads"
    if size.pinned_bytes is None or size.page_bytes is None:
        return need
    slow = "" if nodes == 1 else ", after several epochs"
    return (
        f"{need}: {format_bytes(size.pinned_bytes)} of files pinned on each node, or {format_bytes(size.page_bytes)} "
        f"of its page cache{slow}"
    )


def from_words(plan: PlanReport) -> str:
    """What the plan was made from."""
    source = plan.source
    others = f" (also in the run: {join_words(source.other_data)}; --data)" if source.other_data else ""
    if source.kind == "trace":
        return f"From the recording {source.path}, without its files."
    # A plan is passed on: folders of the machine that measured say nothing to its readers.
    run = PurePath(source.path).name
    made = f"bandwidth result {run}" if source.kind == "bandwidth" else f"{source.configuration} of {run}"
    return f"From {made}{others}."
