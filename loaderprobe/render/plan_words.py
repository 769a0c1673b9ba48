"""What a storage plan says in words: the answer, figures with their units, the test, what is not covered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath

from loaderprobe.records.plan import (
    Asked,
    LeverName,
    LockStep,
    NeedName,
    PlanPart,
    PlanReport,
    PlanSupply,
    PrefetchCost,
    Quantity,
    SupplyLimit,
    SupplyResource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import WORTH
from loaderprobe.render.document import Item, Paragraph, Part, Table
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, counted, figure, percent, rate
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

# What ranks lose by taking each step together, in words: the answer, its table, and what it is made from.

TITLE = "In step"
NOTHING = 1.01
"""A cost below this is none."""
DIFFERS = 0.15
"""A replay that is further than this from what was measured is no forecast."""
MORE_BATCHES = (
    "Sweep again with --thorough --rounds 10: without --thorough, a clear verdict ends the rounds early. Each round "
    "gives more batches."
)
NOTICED = 0.1
"""A correlation from here on is worth a word."""


def lock_step_answer(found: LockStep) -> str:
    """`1,024 ranks in step take 1.35 (1.30 to 1.42) times as long for a step as one rank alone.`"""
    ranks = _ranks(found.asked)
    if found.saturated:
        return f"{ranks} in step lose nothing to each other while they share this storage: it is never idle."
    now = found.at(found.prefetch_factor)
    assert now is not None
    if now.cost.value < NOTHING and now.cost.high < 1 + DIFFERS and not found.at_least:
        taken = "as long"
    else:
        taken = f"{'at least ' if found.at_least else ''}{_times(found, now)} times as long"
    lost = f"{ranks} in step take {taken} for a step as one rank alone{_with(found)}{_replayed(found)}."
    return f"{lost} {_advice(found, now)}".rstrip()


def refused_answer(ranks: int, why: Remark) -> str:
    """Of a replay that was asked for: why there is none, and what would make it."""
    remedy = f" {MORE_BATCHES}" if why.code == "too_few_batches" else ""
    return f"{_ranks(ranks)} in step: no cost is said, since {remark_words(why)}.{remedy}"


def lock_step_parts(found: LockStep) -> Iterator[Part]:
    """The answer, the prefetch factors, and what they rest on."""
    yield Paragraph(text=lock_step_answer(found))
    if found.costs:
        yield _table(found)
    for subject, text in _items(found):
        yield Item(subject=subject, text=text)


def _ranks(count: int) -> str:
    return f"{count:,} rank{'' if count == 1 else 's'}"


def _replayed(found: LockStep) -> str:
    """` (at least: replayed for 50)` where batches show no more ranks."""
    return f" (at least: replayed for {found.ranks:,})" if found.at_least else ""


def _with(found: LockStep) -> str:
    return f", with prefetch_factor={found.prefetch_factor}" if found.workers else ", without workers"


def _times(found: LockStep, cost: PrefetchCost) -> str:
    """`1.35 (1.30 to 1.42)`; without its upper end, which more batches would raise, where it is a least."""
    value = f"{cost.cost.value:.2f}"
    if found.at_least or cost.cost.high - cost.cost.low < NOTHING - 1:
        return value
    return f"{value} ({cost.cost.low:.2f} to {cost.cost.high:.2f})"


def _advice(found: LockStep, now: PrefetchCost) -> str:
    if not found.workers:
        return "Load with workers: what they fetch ahead takes up most late batches." if now.cost.value > WORTH else ""
    better = None if found.advised is None else found.at(found.advised)
    if better is None:
        return ""
    gain, alone = now.step_s / better.step_s, now.alone_s / better.alone_s
    factor = f"prefetch_factor={better.prefetch_factor} makes them {significant(gain)} times as fast"
    if alone < NOTHING:
        return f"{factor}; one rank alone gains nothing by it."
    return f"{factor}, and one rank alone {significant(alone)} times."


def _table(found: LockStep) -> Table:
    lines = tuple(
        (
            str(each.prefetch_factor) if found.workers else "no workers",
            format_duration(each.alone_s),
            f"{'>= ' if found.at_least else ''}{format_duration(each.step_s)}",
            f"{'>= ' if found.at_least else ''}{_times(found, each)}",
        )
        for each in found.costs
    )
    many = f"at least, replayed for {found.ranks:,}" if found.at_least else f"of {_ranks(found.ranks)}"
    head = ("prefetch_factor", "step of one rank", many, "times")
    return Table(head=head, lines=lines, right=frozenset({1, 2, 3}))


def _items(found: LockStep) -> Iterator[tuple[str, str]]:
    on = f" of {found.measured_ranks} ranks" if found.measured_ranks > 1 else " of one rank"
    workers = f", {counted(found.workers, 'worker')} a rank" if found.workers else ""
    yield (
        "Replayed",
        f"{found.batches:,} measured batches{on}, {format_duration(found.mean_s)} each in a worker, the longest "
        f"{format_duration(found.longest_s)}{workers}; a step computes for {format_duration(found.compute_s)}",
    )
    if found.at_least:
        yield (
            "At least",
            f"{found.batches:,} batches show what {found.ranks:,} ranks meet; rarer stalls cost more ranks more. "
            "A sweep with --thorough and more --rounds, or on more ranks, shows more",
        )
    if found.saturated:
        yield "Storage", "its limit over the bytes of an image is the whole answer; on another storage measure again"
    if found.slow_rank is not None:
        yield "Slow rank", f"rank {found.slow_rank} is replayed once, with batches of its own; the others without it"
    if found.slow_host:
        host = found.slow_host
        yield "Slow host", f"the ranks on {host} are replayed once, with batches of their own; the others without them"
    if found.correlation is not None:
        yield "Between ranks", _together(found.correlation)
    elif not found.saturated:
        yield "Between ranks", "taken as independent: a stall that hits all at once costs less than this"
    if found.measured_cost is not None and found.replayed_cost is not None:
        off = abs(found.replayed_cost / found.measured_cost - 1)
        warn = ". That is too far apart: ranks disturb each other, and more of them may lose more" * (off > DIFFERS)
        yield (
            "Against the measured",
            f"the loader alone, {found.measured_ranks} ranks: measured {found.measured_cost:.2f} times, replayed "
            f"{found.replayed_cost:.2f}{warn}",
        )


def _together(correlation: float) -> str:
    said = f"times of batches at the same place correlate by {correlation:.2f}"
    if correlation < NOTICED:
        return f"{said}: independent, as the replay takes them"
    return f"{said}: stalls hit several at once, which costs less than the replay says"


PART: dict[PlanPart, str] = {
    "measured_storage": "measured storage",
    "rank_storage": "storage by ranks",
    "cold_opens": "cold opens of the measured storage",
    "workers": "workers, and how slow a read may be",
    "cores": "cores",
    "reads_in_flight": "reads in flight",
    "stragglers": "stragglers",
    "lock_step": "cost of lock-step",
}
NEED: dict[NeedName, str] = {
    "read_bytes": "read bandwidth",
    "opens": "files opened",
    "requests": "read requests",
    "reads_in_flight": "reads in flight",
    "listing": "entries listed",
    "capacity": "capacity",
    "checkpoint": "checkpoint writes",
    "workers": "workers, each",
    "cores": "cores, each",
    "batch_memory": "batch memory, each",
    "read_time": "a file may take",
    "stall": "pause hidden",
}
"""each: of one accelerator."""
LIMIT_WORDS: dict[SupplyResource, str] = {
    "bandwidth": "bandwidth",
    "opens": "opens/s",
    "requests": "requests/s",
    "client": "client's share",
    "nic": "node's network",
}
LEDGER = {
    "rate": "G, rate of one accelerator",
    "file_bytes": "s, bytes of a file",
    "amplification": "a, storage bytes over bytes asked for",
    "images": "images in the set",
    "cpu_s": "CPU time of an image in a worker",
    "wait_s": "wait of a worker for a file",
    "other_s": "other time of a worker for an image",
    "utilization": "u, utilization of the accelerators",
    "use": "r, share of a limit to be used",
    "requests_per_file": "requests of a file",
    "batch_size": "images in a batch",
    "batches_ahead": "P, batches that a worker has ahead",
    "request_bytes": "largest request",
    "busy_cores": "share of cores to keep busy",
    "training_cores": "training thread",
}
LEVER: dict[LeverName, str] = {
    "shards": "Shards of {:,.0f} images",
    "cache": "A cache on each node",
    "half_size": "Files of half the size",
    "utilization": "Utilization of {}",
}
PLENTY = 10
"""A storage that feeds so many times what is planned gets no figure in the answer."""
_LATER = 10
"""Beside the second epoch: how far caches have filled by then depends on the nodes."""
RANGE_FROM = 0.01
"""A range narrower than this share of its figure is not shown."""


def answer(plan: PlanReport) -> tuple[str, ...]:
    """What is needed; what each storage feeds and what limits it first."""
    asked, read, opens = plan.asked, plan.need("read_bytes"), plan.need("opens")
    assert read and opens and read.to_buy and opens.to_buy
    need = (
        f"{accelerators(plan)} {at_utilization(asked.utilization)} need {amount(read.at_utilization)} and "
        f"{grouped(opens.at_utilization.value)} opens/s from storage while caches are cold. "
        f"Buy, {in_use(asked.use)}, {amount(read.to_buy)} and "
        f"{grouped(opens.to_buy.value)} opens/s."
    )
    return (need, *(_feeds(supply, asked) for supply in plan.supplies), *_simulated(plan))


def _simulated(plan: PlanReport) -> tuple[str, ...]:
    """What ranks in step cost, where that was asked for; or why it is not known."""
    ranks = plan.asked.simulate_ranks
    if ranks is None:
        return ()
    if plan.lock_step is not None:
        return (lock_step_answer(plan.lock_step),)
    return (refused_answer(ranks, plan.refused["lock_step"]),) if "lock_step" in plan.refused else ()


def title(plan: PlanReport) -> str:
    """What is planned, and what is simulated where that is another number."""
    ranks = plan.asked.simulate_ranks
    simulated = "" if ranks in (None, plan.asked.accelerators) else f", and lock-step of {counted(ranks or 0, 'rank')}"
    return f"Storage plan for {accelerators(plan)}{_grown(plan.asked)}{_images(plan)}{simulated}"


def _grown(asked: Asked) -> str:
    """Where the number includes growth."""
    if asked.growth == 1:
        return ""
    return f" ({asked.accelerators / asked.growth:.0f} now, times {asked.growth:g} for growth)"


def _images(plan: PlanReport) -> str:
    """Which data the plan is for: `, 500x375 (images of 108 kB)`."""
    size = next((entry.quantity for entry in plan.ledger if entry.name == "file_bytes"), None)
    name = PurePath(plan.source.data).name
    if size is None:
        return f", {name}" if name else ""
    return f", {name} (images of {amount(size)})" if name else f", images of {amount(size)}"


def accelerators(plan: PlanReport) -> str:
    """`64 x mlperf-h100`; of a rate as given `64 accelerators of 2500 images/s`."""
    name = plan.source.accelerator
    count = f"{plan.asked.accelerators:,}"
    if name[:1].isdigit():
        return f"{counted(plan.asked.accelerators, 'accelerator')} of {rate(float(name))} images/s"
    if name == "cpu":
        return f"{counted(plan.asked.accelerators, 'CPU')} like that of the run"
    return f"{count} x {name}"


def _feeds(supply: PlanSupply, asked: Asked) -> str:
    name = f"The storage {supply.name}" if supply.label == "measured" else supply.name
    if supply.feeds is None or supply.first_limit is None:
        return f"{name}: no limit of it is known."
    if supply.feeds >= PLENTY * asked.accelerators:
        return f"{name} is enough: it feeds over {PLENTY} times as many."
    if supply.feeds >= asked.accelerators:
        return f"{name} is enough: it feeds {feeds(supply)}{_end(supply)}."
    return f"{name} feeds {feeds(supply)} of {asked.accelerators:,}{_end(supply)}."


def _end(supply: PlanSupply) -> str:
    """What ends the count; a limit that is only known to be at least so high is no end."""
    assert supply.first_limit is not None
    return "; its limit was not reached" if supply.at_least else f", {limited_by(supply.first_limit)}"


def feeds(supply: PlanSupply) -> str:
    """`4.02`, `at least 4.02`."""
    if supply.feeds is None:
        return MISSING
    return fed(supply.feeds, supply.at_least)


def fed(count: float, at_least: bool) -> str:
    """How many accelerators a storage feeds: `4.02`, `at least 4.02`."""
    return f"{'at least ' if at_least else ''}{grouped(count)}"


def at_utilization(utilization: float) -> str:
    """The share of their rate that accelerators shall reach."""
    return f"at {percent(utilization)} of their rate"


def in_use(use: float) -> str:
    """The share of a storage's limit that is used."""
    return f"with {percent(use)} of a limit in use"


def limited_by(first_limit: SupplyResource) -> str:
    """What ends a count of accelerators: `limited by bandwidth`."""
    return f"limited by {LIMIT_WORDS[first_limit]}"


def grouped(value: float) -> str:
    """Three significant figures, thousands apart: `103,000`, `4.02`."""
    return f"{float(significant(value)):,.0f}" if value >= 1000 else significant(value)


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
    """` ±3 %` behind a rate whose inputs were measured to no better than that."""
    half = (quantity.high - quantity.low) / 2 / quantity.value
    return f" ±{percent(half)}" if quantity.unit in ("B/s", "1/s") and half > RANGE_FROM else ""


def label(quantity: Quantity) -> str:
    """`measured`, `derived from assumed`."""
    return quantity.label if quantity.label != "derived" else f"derived from {quantity.weakest}"


def epochs_words(plan: PlanReport) -> tuple[tuple[str, str], ...]:
    """Items on the length of an epoch and on what caches answer."""
    epochs, asked = plan.epochs, plan.asked
    found: list[tuple[str, str]] = []
    if epochs.seconds is not None:
        images = next(entry.quantity for entry in plan.ledger if entry.name == "images")
        hint = "" if images.label == "given" else "; --images plans for another number"
        found.append((f"One epoch of {images.value:,.0f} images", f"{ranged(epochs.seconds)}{hint}"))
    if epochs.cache_share is None:
        found.append(("Caches", f"none counted: every epoch reads all from storage{_if_all_fits(plan)}"))
        return tuple(found)
    kind = "page cache" if asked.cache.kind == "page" else "pinned files"
    nodes = counted(asked.nodes, "node")
    found.append(
        (
            "Caches",
            f"{kind} of {format_bytes(asked.cache.bytes)} a node, {percent(epochs.cache_share)} of the set; {nodes}",
        )
    )
    if epochs.sets_read is not None:
        low, high = (significant(each) for each in epochs.sets_read)
        times = low if low == high else f"{low} to {high}"
        found.append(
            (f"{asked.epochs} epochs", f"the set is read from storage {times} times instead of {asked.epochs}")
        )
    return tuple(found)


def _if_all_fits(plan: PlanReport) -> str:
    """What caches could answer, where they are large enough for all."""
    held = next((need.at_utilization for need in plan.needs if need.name == "capacity"), None)
    curve = next((each.cold for each in plan.curves.epochs if each.nodes == plan.asked.nodes), ())
    if held is None or len(curve) < _LATER:
        return "; --cache page:1TB counts one"
    read = plan.need("read_bytes")
    assert read
    cold = [
        f"{percent(curve[epoch - 1])} in epoch {epoch} ({format_rate(curve[epoch - 1] * read.at_utilization.value)})"
        for epoch in (2, _LATER)
    ]
    return (
        f". Where the memory of each node holds all {amount(held)}, storage is read for {join_words(cold)}: "
        f"--cache page:{_size(held)}"
    )


def _size(held: Quantity) -> str:
    return f"{math.ceil(held.value / 1e9)}GB"


def late_words(plan: PlanReport) -> str:
    """What stragglers cost, as a range."""
    late = plan.stragglers
    if late is None:
        return ""
    return (
        f"waiting takes {percent(late.alone)} of a step when all ranks wait together, and "
        f"{percent(late.independent)} when {late.ranks:,} ranks wait independently ({late.steps:,} steps seen, the "
        f"latest by {format_duration(late.longest_s)})"
    )


def usable(supply: PlanSupply) -> list[tuple[SupplyLimit, str]]:
    """Its limits that bound something, with their names."""
    return [(limit, LIMIT_WORDS[limit.resource]) for limit in supply.limits if math.isfinite(limit.feeds)]


def storage_name(supply: PlanSupply) -> str:
    """What a sentence calls it."""
    return f"the storage {supply.name}" if supply.label == "measured" else supply.name


def supply_notes(supply: PlanSupply, nodes: int) -> list[str]:
    """What is to be known of a storage beside its limits."""
    lines = [remark_words(note) for note in supply.notes]
    if supply.label == "measured" and supply.feeds is not None and nodes > 1:
        lines.insert(
            0,
            f"it was measured from one machine and is counted as one storage for the {nodes:,} nodes together. If each "
            f"node has its own, they feed {grouped(supply.feeds * nodes)} accelerators. If all share it, measure from "
            "all at once",
        )
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


def from_words(plan: PlanReport) -> str:
    """What the plan was made from."""
    source = plan.source
    others = f" (also in the run: {join_words(source.other_data)}; --data)" if source.other_data else ""
    if source.kind == "trace":
        return f"From the recording {source.path}, without its files. The plan is computed from that."
    run = PurePath(source.path).name
    made = f"bandwidth result {run}" if source.kind == "bandwidth" else f"{source.configuration} of {run}"
    # A plan is passed on: folders of the machine that measured say nothing to its readers.
    files = PurePath(source.data).name or source.data
    return f"From {made}; files of {files}{others}. The plan is computed from that; it measured nothing more."
