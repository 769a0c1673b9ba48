"""What a storage plan says in words: the answer, figures with their units, the test, what is not covered."""

from __future__ import annotations

import math

from loaderprobe.records.plan import (
    Asked,
    LeverName,
    NeedName,
    PlanReport,
    Quantity,
    Resource,
    Supply,
    SupplyLimit,
)
from loaderprobe.render.lock_step_words import lock_step_answer
from loaderprobe.render.note_words import note_words
from loaderprobe.render.wording import MISSING, counted, percent
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

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
RANGE_FROM = 0.01
"""A range narrower than this share of its figure is not shown."""
NOT_COVERED = (
    ("Writes", "checkpoints (ResNet-50: about 0.2 GB each), logs, staging"),
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
    in_step = () if asked.simulate_ranks is None or plan.lock_step is None else (lock_step_answer(plan.lock_step),)
    return (need, *(_feeds(supply, asked) for supply in plan.supplies), *in_step)


def not_covered(plan: PlanReport) -> tuple[tuple[str, str], ...]:
    """What no plan covers; and cold opens, of which a bandwidth result says itself what it measured."""
    return NOT_COVERED if plan.source.kind == "bandwidth" else (*NOT_COVERED, COLD_OPENS)


def accelerators(plan: PlanReport) -> str:
    """`64 x mlperf-h100`; of a rate as given `64 accelerators of 2,500 images/s`."""
    name = plan.source.accelerator
    count = f"{plan.asked.accelerators:,}"
    if name[:1].isdigit():
        return f"{count} accelerators of {grouped(float(name))} images/s"
    return f"{count} x {name}"


def _feeds(supply: Supply, asked: Asked) -> str:
    name = f"The storage {supply.name}" if supply.label == "measured" else supply.name
    if supply.feeds is None or supply.first_limit is None:
        return f"{name}: no limit of it is known."
    end = limited_by(supply.first_limit)
    if supply.feeds >= asked.accelerators:
        return f"{name} is enough: it feeds {feeds(supply)}, {end}."
    return f"{name} feeds {feeds(supply)} of {asked.accelerators:,}, {end}."


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
    if quantity.high - quantity.low <= RANGE_FROM * abs(quantity.value):
        return amount(quantity)
    return f"{amount(quantity)} ({amount(quantity, quantity.low)} to {amount(quantity, quantity.high)})"


def plain(quantity: Quantity) -> str:
    """The figure without a unit that its row names already; a wide range instead of it."""
    if quantity.unit in ("reads", "workers", "cores"):
        if quantity.high - quantity.low > RANGE_FROM * quantity.value:
            return f"{significant(quantity.low, 2)} to {significant(quantity.high, 2)}"
        return significant(quantity.value, 2)
    return amount(quantity)


def spread(quantity: Quantity) -> str:
    """` ±3 %` behind a rate whose inputs were measured to no better than that."""
    half = (quantity.high - quantity.low) / 2 / quantity.value
    return f" ±{percent(half)}" if quantity.unit in ("B/s", "1/s") and half > RANGE_FROM else ""


def label(quantity: Quantity) -> str:
    """`measured`, `derived from assumed`."""
    return quantity.label if quantity.label != "derived" else f"derived from {quantity.weakest}"


def delivery_command(plan: PlanReport) -> str:
    """What to type on every node of the delivered system."""
    return f"loaderprobe bandwidth PATH --readers {plan.acceptance.readers}"


def delivery_words(plan: PlanReport) -> str:
    """Where to type it, and what it must reach."""
    test = plan.acceptance
    where = f"on {counted(test.nodes, 'node')} at once, each" if test.nodes > 1 else "on the node,"
    files = "" if test.files_per_s is None else f" and {grouped(test.files_per_s)} files/s"
    return f"{where} at least {format_rate(test.bytes_per_s)}{files}, cold"


def readers_words(plan: PlanReport) -> str:
    """Where the number of readers comes from."""
    test, per_node = plan.acceptance, min(plan.asked.per_node, plan.asked.accelerators)
    if test.readers_from == "workers":
        return f"{test.readers} readers: {test.workers} workers for each of {per_node} accelerators"
    if test.readers_from == "reads_in_flight":
        return f"{test.readers} readers: the reads in flight of one node"
    return f"{test.readers} readers: assumed; more may be needed"


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
    told = [note_words(note) for note in supply.notes]
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
    made = (
        f"bandwidth result {source.path}" if source.kind == "bandwidth" else f"{source.configuration} of {source.path}"
    )
    where = "of" if source.kind == "run" else "under"
    return f"From {made}; files {where} {source.data}{others}. Nothing was measured for it."
