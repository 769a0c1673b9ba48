"""The storage plan as a page: what each storage feeds, what to buy, the test to sign; and the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date

import msgspec

from loaderprobe.records.options import PLAN
from loaderprobe.records.plan import Amount, CatalogueEntry, Need, PlanReport, PlanSupply, Quantity
from loaderprobe.render import plan_words as words
from loaderprobe.render.document import (
    Bar,
    Chart,
    ChartRow,
    Command,
    Document,
    Item,
    Paragraph,
    Part,
    Section,
    Table,
    Tags,
)
from loaderprobe.render.format import MISSING, counted, grouped, percent
from loaderprobe.render.plan_words import LIMIT_WORDS, PART, amount
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words

_ENOUGH = {
    "enough": ("good", "\N{CHECK MARK}"),
    "not known": ("warning", "?"),
    "not enough": ("failed", "\N{MULTIPLICATION SIGN}"),
}
"""By whether a limit lets a storage feed all that is planned for: tone and letter. Of a lower bound that is too low,
nothing is known."""
_REACH = 1.3
"""The axis goes to so many times the accelerators that are planned for; a longer bar ends there."""


def plan_document(plan: PlanReport) -> Document:
    """What each storage feeds and what to buy; then the test to sign, and what the plan is computed from."""
    measured = next((supply for supply in plan.supplies if supply.label == "measured" and supply.limits), None)
    enough = measured and _verdict(plan, measured.feeds or 0.0, measured.at_least)
    return Document(
        title=words.title(plan),
        headline=f"Storage here feeds all {plan.asked.accelerators:,}" if enough == "enough" else words.to_buy(plan),
        subline=words.terms(plan),
        tone="good" if enough == "enough" else "storage",
        sections=tuple(section for section in _sections(plan) if section.parts),
    )


def _sections(plan: PlanReport) -> Iterator[Section]:
    yield Section(
        title="How many accelerators each storage feeds", name="supplies", parts=tuple(_supplies(plan)), panel="main"
    )
    yield Section(title="What to buy", name="needs", parts=(_needs(plan),), panel="main")
    yield Section(title="The rate", parts=tuple(_rate(plan)), panel="side")
    yield Section(title="Not known", name="unknown", parts=(_not_known(plan),), panel="side")
    yield Section(title="The test to sign, on delivery", name="test", parts=tuple(_test(plan)))
    yield Section(title="Storages", name="storages", parts=tuple(_storages(plan)))
    yield Section(title="Caches", name="caches", parts=tuple(_caches(plan)))
    yield Section(title="Computed from", name="inputs", parts=(_inputs(plan),))
    notes = tuple(Paragraph(text=remark_words(note)) for note in plan.notes)
    made = f"loaderprobe {plan.loaderprobe}, {plan.created_utc[:10]}. {words.from_words(plan)}"
    yield Section(parts=(*notes, Paragraph(text=f"{made} Formulas: loaderprobe explain plan.", tone="quiet")))


# What storage gives, what is needed, and what of it is known.


def _verdict(plan: PlanReport, feeds: float, at_least: bool) -> str:
    if feeds >= plan.asked.accelerators:
        return "enough"
    return "not known" if at_least else "not enough"


def _supplies(plan: PlanReport) -> Iterator[Part]:
    """A row a limit of each storage; the shortest bar is what gives out first."""
    rows = tuple(row for supply in plan.supplies for row in _supply_rows(plan, supply))
    if not rows:
        return
    yield Chart(
        rows=rows,
        high=_REACH * plan.asked.accelerators,
        unit="accelerators",
        level=f"planned: {plan.asked.accelerators:,}",
        names=tuple((tone, f"{letter} {verdict}") for verdict, (tone, letter) in _ENOUGH.items()),
        ends="storage,feeds",
    )


def _supply_rows(plan: PlanReport, supply: PlanSupply) -> Iterator[ChartRow]:
    if supply.limits:
        yield ChartRow(label=supply.name, head=True)
    for limit in supply.limits:
        verdict = _verdict(plan, limit.feeds, limit.at_least)
        tone, letter = _ENOUGH[verdict]
        least = ">= " if limit.at_least else ""
        yield ChartRow(
            label=LIMIT_WORDS[limit.resource],
            value=f"{least}{grouped(limit.feeds)} {letter}",
            note=f"{least}{amount(limit.limit)}, {limit.limit.label}",
            bars=(Bar(end=limit.feeds, tone=tone, how="measured" if limit.limit.label == "measured" else "specified"),),
            level=plan.asked.accelerators,
            level_how="specified",
        )


_EACH = ("workers", "cores")
"""Needs of one accelerator."""
_FIXED = ("read_time", "capacity", "checkpoint")
"""Those that do not grow with the accelerators."""


def _needs(plan: PlanReport) -> Table:
    """With the share of a limit that is left unused; of one accelerator, of a node and of all."""
    asked = plan.asked
    counts = sorted({1, asked.of_node, asked.accelerators})
    lines = [_need_line(need, counts, asked.accelerators) for need in plan.needs]
    seconds, images = plan.epochs.seconds, plan.inputs.get("images")
    if seconds is not None and images is not None:
        epochs = (amount(seconds, seconds.value * asked.accelerators / count) for count in counts)
        lines.append((f"an epoch of {images.value:,.0f} images", *epochs, images.label))
    return Table(
        head=("accelerators", *(f"{count:,}" for count in counts), "label"),
        lines=tuple(lines),
        caption="Reads in flight, times, workers and cores have no headroom.",
    )


def _need_line(need: Need, counts: Sequence[int], planned: int) -> tuple[str, ...]:
    label = f"{need.at_utilization.weakest}{words.spread(need.at_utilization)}"
    return words.NEED[need.name], *(_need(need, count, planned) for count in counts), label


def _need(need: Need, count: int, planned: int) -> str:
    """Of so many accelerators: what to buy where that can be bought."""
    quantity = need.to_buy or need.at_utilization
    scale = 1.0 if need.name in _FIXED else count if need.name in _EACH else count / planned
    scaled = replace(quantity, value=scale * quantity.value, low=scale * quantity.low, high=scale * quantity.high)
    return words.plain(scaled)


def _rate(plan: PlanReport) -> Iterator[Part]:
    """Where the accelerators' rate comes from; of a benchmark's pace, also what a training asks for."""
    rate, read = plan.inputs["rate"], plan.need("read_bytes")
    how = "specified, not measured" if plan.acceptance.compute else rate.label
    yield Paragraph(text=f"{amount(rate)} an accelerator, {how}: {rate.source}.")
    if plan.pace is not None and read is not None:
        recipe, as_fast = (plan.pace.facts[name] for name in ("recipe", "recipe_images_per_s"))
        buy = read.at_utilization.value * float(as_fast) / rate.value / plan.asked.use
        yield Paragraph(text=f"{remark_words(plan.pace)}. At the rate of {recipe}, buy {format_rate(buy)}.")


def _not_known(plan: PlanReport) -> Tags:
    """What this plan cannot say, and what none covers."""
    asked, refused = plan.asked, (f"{PART[part]}: {remark_words(why)}" for part, why in plan.refused.items())
    cold = ["cold opens: the test drops names"] if plan.source.kind in ("sweep", "run") else []
    writes = ["checkpoints: --checkpoint 205MB:600"] if asked.checkpoint is None else []
    others = ("other jobs, failures, rebuilds", "caches of the storage", "listing of folders")
    return Tags(texts=(*refused, *cold, *writes, *others))


# Below: what is to be known of each storage, caches, and what all is computed from.


def _storages(plan: PlanReport) -> Iterator[Part]:
    for supply in plan.supplies:
        notes = words.supply_notes(supply, plan.asked)
        if notes:
            yield Item(subject=supply.name, text="; ".join(notes))


def _caches(plan: PlanReport) -> Iterator[Part]:
    asked, share = plan.asked, plan.epochs.cache_share
    if share is None:
        return
    kind = "page cache" if asked.cache.kind == "page" else "pinned files"
    text = f"{format_bytes(asked.cache.bytes)} of {kind}, {percent(share)} of the set"
    if asked.cache.kind == "page":
        text = f"{text}; with a shuffle over all images they answer at least"
    yield Item(subject=f"On each of {counted(asked.nodes, 'node')}", text=text)
    lines = (
        (str(cached.epoch), percent(cached.hits) if cached.hits else "0 %", format_rate(cached.read_bytes_per_s))
        for cached in plan.epochs.cached
    )
    yield Table(head=("epoch", "from caches", "from storage"), lines=tuple(lines))


def _inputs(plan: PlanReport) -> Table:
    lines = tuple(
        (words.INPUT[name], words.ranged(quantity), words.label(quantity), _source(quantity))
        for name, quantity in plan.inputs.items()
        if name != "rate"  # which stands beside the answer
    )
    return Table(head=("figure", "value", "label", "source"), lines=lines)


def _source(quantity: Quantity) -> str:
    """Where a quantity comes from; one that was given, from its option."""
    return _FLAGS.get(quantity.source, quantity.source) if quantity.label == "given" else quantity.source


_FLAGS = {option.name: option.flags[0] for option in PLAN}


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


# The test of the delivered storage: what is promised, and what to type to measure it.

LAUNCHER = "--rdzv-backend c10d --rdzv-endpoint HEAD:29500 --rdzv-id 7"
"""What starts processes on several nodes together (`explain ranks`)."""


def _test(plan: PlanReport) -> Iterator[Part]:
    """What is promised, to be signed, and the commands that measure it."""
    test = plan.acceptance
    several = [f"{test.nodes:,} nodes at once"] if test.nodes > 1 else []
    head = ("cold files", *several, "one node", "measured", "pass")
    lines = tuple((what, *promised[1 - len(several) :], "", "") for what, *promised in _promises(plan))
    yield Table(head=head, lines=lines)
    readers = _readers_words(plan)
    if several:
        yield Item(subject=several[0], text=f"on each; {readers}")
        yield Command(text=delivery_command(plan))
    yield Item(subject="One node", text=f"as root, so that names are cold too{'' if several else f'; {readers}'}")
    yield Command(text=f"loaderprobe bandwidth PATH --readers {test.readers} --drop-caches")
    if plan.asked.checkpoint is not None:
        blocks = math.ceil(plan.asked.checkpoint.bytes / 2**20)
        yield Item(subject="A checkpoint", text="from one node, until it is on the storage")
        yield Command(text=f"dd if=/dev/zero of=PATH/checkpoint bs=1M count={blocks} conv=fsync")
    if test.compute and test.workers:
        ranks = f" --ranks {plan.asked.of_node}" if plan.asked.of_node > 1 else ""
        yield Item(subject="Training", text="on each node; the column of alone")
        yield Command(text=f"loaderprobe sweep PATH --workers {test.workers}{ranks} --compute {test.compute}")
    head_words = " HEAD: the first node." if several else ""
    yield Paragraph(text=f"PATH: images of that size, more than storage caches.{head_words}")


def _promises(plan: PlanReport) -> Iterator[tuple[str, str, str]]:
    """(what, of all nodes, of one node) of each line of the table to sign."""
    test, asked = plan.acceptance, plan.asked
    nodes = asked.accelerators / asked.of_node
    yield "bandwidth", f">= {format_rate(test.bytes_per_s * nodes)}", f">= {format_rate(test.bytes_per_s)}"
    if test.files_per_s is not None:
        one = f">= {grouped(test.files_per_s)}/s"
        yield "files", f">= {grouped(test.files_per_s * nodes)}/s", one
        yield "opens of cold names", MISSING, one
    bought = {need.name: f">= {amount(need.to_buy)}" for need in plan.needs if need.to_buy is not None}
    if "capacity" in bought:
        yield "capacity", bought["capacity"], bought["capacity"] if test.nodes == 1 else MISSING
    if "checkpoint" in bought:
        yield "writing a checkpoint", MISSING, bought["checkpoint"]
    yield "training, of its rate alone", MISSING, f">= {percent(asked.utilization)}"


def delivery_command(plan: PlanReport) -> str:
    """What to type on each of several nodes of the delivered system: a rank for each accelerator, as many on all."""
    test, asked = plan.acceptance, plan.asked
    ranks = -(-asked.accelerators // test.nodes)
    return (
        f"torchrun --nnodes {test.nodes} --nproc-per-node {ranks} {LAUNCHER} -m loaderprobe bandwidth PATH "
        f"--ranks {test.nodes}x{ranks} --readers {_readers(plan)}"
    )


def _readers(plan: PlanReport) -> int:
    """Of one of those ranks."""
    return plan.acceptance.workers or -(-plan.acceptance.readers // plan.asked.of_node)


def _readers_words(plan: PlanReport) -> str:
    readers = counted(_readers(plan), "reader")
    origin = {"workers": "its workers", "reads_in_flight": "by the reads in flight", "assumed": "assumed"}
    return f"{readers} an accelerator: {origin[plan.acceptance.readers_from]}"


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
                    Table(head=_HEAD, lines=tuple(_line(each) for each in chosen)),
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
