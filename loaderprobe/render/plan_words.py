"""What a storage plan says in words: the answer, figures with their units, the test, what is not covered."""

from __future__ import annotations

import math

from loaderprobe.records.plan import (
    Asked,
    LeverName,
    NeedName,
    PlanPart,
    PlanReport,
    Quantity,
    Resource,
    Supply,
    SupplyLimit,
)
from loaderprobe.render.lock_step_words import lock_step_answer, refused_answer
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, counted, percent
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

PART: dict[PlanPart, str] = {
    "measured_storage": "measured storage",
    "rank_storage": "storage by ranks",
    "cold_opens": "cold opens of the measured storage",
    "workers": "workers",
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
    "workers": "workers, each",
    "cores": "cores, each",
}
"""each: of one accelerator."""
RESOURCE: dict[Resource, str] = {
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
    "request_bytes": "size of a request",
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
    return f"Storage plan for {accelerators(plan)}{simulated}"


def accelerators(plan: PlanReport) -> str:
    """`64 x mlperf-h100`; of a rate as given `64 accelerators of 2,500 images/s`."""
    name = plan.source.accelerator
    count = f"{plan.asked.accelerators:,}"
    if name[:1].isdigit():
        return f"{counted(plan.asked.accelerators, 'accelerator')} of {grouped(float(name))} images/s"
    if name == "cpu":
        return f"{counted(plan.asked.accelerators, 'CPU')} like that of the run"
    return f"{count} x {name}"


def _feeds(supply: Supply, asked: Asked) -> str:
    name = f"The storage {supply.name}" if supply.label == "measured" else supply.name
    if supply.feeds is None or supply.first_limit is None:
        return f"{name}: no limit of it is known."
    if supply.feeds >= PLENTY * asked.accelerators:
        return f"{name} is enough: it feeds over {PLENTY} times as many."
    if supply.feeds >= asked.accelerators:
        return f"{name} is enough: it feeds {feeds(supply)}{_end(supply)}."
    return f"{name} feeds {feeds(supply)} of {asked.accelerators:,}{_end(supply)}."


def _end(supply: Supply) -> str:
    """What ends the count; a limit that is only known to be at least so high is no end."""
    assert supply.first_limit is not None
    return "; its limit was not reached" if supply.at_least else f", {limited_by(supply.first_limit)}"


def feeds(supply: Supply) -> str:
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


def limited_by(first_limit: Resource) -> str:
    """What ends a count of accelerators: `limited by bandwidth`."""
    return f"limited by {RESOURCE[first_limit]}"


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
        ends = significant(quantity.low, 2), significant(quantity.high, 2)
        if quantity.high - quantity.low > RANGE_FROM * quantity.value and ends[0] != ends[1]:
            return f"{ends[0]} to {ends[1]}"
        return significant(quantity.value, 2)
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
        found.append(("Caches", "none counted: every epoch reads all from storage; --cache page:1TB counts one"))
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


def usable(supply: Supply) -> list[tuple[SupplyLimit, str]]:
    """Its limits that bound something, with their names."""
    return [(limit, RESOURCE[limit.resource]) for limit in supply.limits if math.isfinite(limit.feeds)]


def storage_name(supply: Supply) -> str:
    """What a sentence calls it."""
    return f"the storage {supply.name}" if supply.label == "measured" else supply.name


def supply_notes(supply: Supply, nodes: int) -> list[str]:
    """What is to be known of a storage beside its limits."""
    told = [remark_words(note) for note in supply.notes]
    if supply.label == "measured" and supply.feeds is not None and nodes > 1:
        told.insert(
            0,
            f"it was measured from one machine and is counted as one storage for the {nodes:,} nodes together. If each "
            f"node has its own, they feed {grouped(supply.feeds * nodes)}. If all share it, measure from all at once",
        )
    flying = supply.reads_in_flight
    if flying is not None and supply.label != "measured":
        told.append(f"at its latency an accelerator needs {plain(flying)} reads in flight, each by a worker of its own")
    if supply.read_on:
        told.append(f"{supply.source}, read {supply.read_on}")
    if supply.stale:
        told.append("that was 12 months ago or longer: check it")
    return told


def from_words(plan: PlanReport) -> str:
    """What the plan was made from."""
    source = plan.source
    others = f" (also in the run: {join_words(source.other_data)}; --data)" if source.other_data else ""
    if source.kind == "trace":
        return f"From the recording {source.path}, without its files. Nothing was measured for it."
    made = (
        f"bandwidth result {source.path}" if source.kind == "bandwidth" else f"{source.configuration} of {source.path}"
    )
    where = "of" if source.kind == "run" else "under"
    return f"From {made}; files {where} {source.data}{others}. Nothing was measured for it."
