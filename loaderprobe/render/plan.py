"""The storage plan as a page: the answer first, then what it rests on and the test to sign; the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import date

import msgspec

from loaderprobe.records.options import PLAN
from loaderprobe.records.plan import Amount, CatalogueEntry, Need, PlanReport, PlanSupply, Quantity, SupplyResource
from loaderprobe.render import plan_words as words
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.format import MISSING, counted, percent
from loaderprobe.render.plan_words import LIMIT_WORDS, PART, amount, grouped
from loaderprobe.render.plots import BLUE, RED, Axis, Plot, shortened
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant


def plan_document(plan: PlanReport) -> Document:
    """The plan: what is needed, what storage gives, the inputs, the test to sign, what is not known."""
    return Document(
        title=words.title(plan),
        sections=tuple(section for section in _sections(plan) if section.parts),
    )


def _sections(plan: PlanReport) -> Iterator[Section]:
    first = [Paragraph(text=sentence, strong=True) for sentence in words.answer(plan)]
    emulated = [Paragraph(text=_emulated_words(plan), tone="warning")] if plan.acceptance.compute else []
    yield Section(parts=(*first, *emulated))
    yield Section(title=f"What {plan.asked.accelerators:,} accelerators need", name="needs", parts=tuple(_needs(plan)))
    yield Section(title="What storage gives", name="supplies", parts=tuple(_supplies(plan)))
    yield Section(title="Caches", name="caches", parts=tuple(_caches(plan)))
    yield Section(title="Computed from", name="inputs", parts=(_inputs(plan),))
    yield Section(title="The test to sign, on delivery", name="test", parts=tuple(_test(plan)))
    yield Section(title="Not known", name="unknown", parts=tuple(_not_known(plan)))
    notes = tuple(Paragraph(text=remark_words(note)) for note in plan.notes)
    made = f"loaderprobe {plan.loaderprobe}, {plan.created_utc[:10]}. {words.from_words(plan)}"
    yield Section(parts=(*notes, Paragraph(text=f"{made} Formulas: loaderprobe explain plan.")))


def _emulated_words(plan: PlanReport) -> str:
    """That the rate is specified; where it is a benchmark's pace, also what a training asks for."""
    said = "Emulated: the accelerators' rate is specified, not measured."
    read = plan.need("read_bytes")
    if plan.pace is None or read is None:
        return said
    recipe, as_fast = (plan.pace.facts[name] for name in ("recipe", "recipe_images_per_s"))
    need = read.at_utilization.value * float(as_fast) / plan.inputs["rate"].value
    buy = f"{format_rate(need)}, and {format_rate(need / plan.asked.use)} to buy"
    return f"{said} {remark_words(plan.pace)}. With {recipe} the need is {buy}."


# What is needed.


def _needs(plan: PlanReport) -> Iterator[Part]:
    asked = plan.asked
    share = percent(asked.utilization)
    head = ("", f"at {share}", "at 100 %", "to buy", f"node of {asked.of_node}, {share}", "label")
    yield Table(head=head, lines=tuple(_need_line(need) for need in plan.needs), right=frozenset({1, 2, 3, 4}))
    seconds, images = plan.epochs.seconds, plan.inputs.get("images")
    if seconds is not None and images is not None:
        hint = "" if images.label == "given" else "; --images plans for another number"
        yield Item(subject=f"One epoch of {images.value:,.0f} images", text=f"{words.ranged(seconds)}{hint}")
    read = "whole files" if asked.images_per_file == 1 else f"shards of {asked.images_per_file:,} images"
    yield Item(subject="Workload", text=f"reads only, {read} in random order, each once an epoch")
    if asked.checkpoint is not None:
        write = asked.checkpoint
        every = f"{format_bytes(write.bytes)} every {format_duration(write.every_s)}"
        yield Item(subject="Checkpoints", text=f"{every}; training stands still for at most {percent(write.share)}")


def _need_line(need: Need) -> tuple[str, ...]:
    cells = [
        MISSING if quantity is None else words.plain(quantity)
        for quantity in (need.at_utilization, need.at_most, need.to_buy, need.node)
    ]
    return words.NEED[need.name], cells[0] + words.spread(need.at_utilization), *cells[1:], need.at_utilization.weakest


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


# What storage and caches give, and what all of that is computed from.


def _supplies(plan: PlanReport) -> Iterator[Part]:
    lines = [line for supply in plan.supplies for line in _supply_lines(supply)]
    if lines:
        head = ("storage", "resource", "limit", "need", "feeds", "label")
        yield Table(head=head, lines=tuple(lines), right=frozenset({2, 3, 4}))
    for supply in plan.supplies:
        notes = words.supply_notes(supply, plan.asked)
        if notes:
            yield Item(subject=supply.name, text="; ".join(notes))


def _supply_lines(supply: PlanSupply) -> Iterator[tuple[str, ...]]:
    for place, limit in enumerate(supply.limits):
        least = ">= " if limit.at_least else ""
        yield (
            "" if place else supply.name,
            LIMIT_WORDS[limit.resource],
            f"{least}{amount(limit.limit)}",
            amount(limit.need),
            f"{least}{grouped(limit.feeds)}",
            limit.limit.label,
        )


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
    yield Table(head=("epoch", "from caches", "from storage"), lines=tuple(lines), right=frozenset({0, 1, 2}))


def _inputs(plan: PlanReport) -> Table:
    lines = tuple(
        (words.INPUT[name], words.ranged(quantity), words.label(quantity), _source(quantity))
        for name, quantity in plan.inputs.items()
    )
    return Table(head=("figure", "value", "label", "source"), lines=lines, right=frozenset())


def _source(quantity: Quantity) -> str:
    """Where a quantity comes from; one that was given, from its option."""
    return _FLAGS.get(quantity.source, quantity.source) if quantity.label == "given" else quantity.source


_FLAGS = {option.name: option.flags[0] for option in PLAN}


# The test of the delivered storage: what is promised, and what to type to measure it.

LAUNCHER = "--rdzv-backend c10d --rdzv-endpoint HEAD:29500 --rdzv-id 7"
"""What starts processes on several nodes together (`explain ranks`)."""


def _test(plan: PlanReport) -> Iterator[Part]:
    """What is promised, to be signed, and the commands that measure it."""
    test = plan.acceptance
    several = [f"{test.nodes:,} nodes at once"] if test.nodes > 1 else []
    head = ("cold files", *several, "one node", "measured", "pass")
    lines = tuple((what, *promised[1 - len(several) :], "", "") for what, *promised in _promises(plan))
    yield Table(head=head, lines=lines, right=frozenset(range(1, len(head) - 1)))
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


# What this plan cannot say, and what none covers.

NOT_COUNTED = (
    ("Other jobs, failures, rebuilds", "the unused share of a limit is for them"),
    ("Caches of the storage", "they flatter it while the set is small"),
    ("Listing of folders", "each accelerator's process does it before its first step"),
)
CHECKPOINTS = "Checkpoints and other writes", "--checkpoint 205MB:600 counts one every 10 min"
COLD_OPENS = "Cold opens", "names were in memory, so opens look cheap; the test drops them"


def _not_known(plan: PlanReport) -> Iterator[Part]:
    for part, why in plan.refused.items():
        yield Item(subject=PART[part], text=remark_words(why))
    if plan.source.kind in ("sweep", "run"):
        yield _item(*COLD_OPENS)
    for subject, text in NOT_COUNTED:
        yield _item(subject, text)
    if plan.asked.checkpoint is None:
        yield _item(*CHECKPOINTS)


def _item(subject: str, text: str) -> Item:
    return Item(subject=subject, text=text)


# The charts: the need against accelerators, and what storages give.

NEED_HEIGHT = 290
MOST_STORAGES = 4
"""Of more, the lines would cover each other; the table has all of them."""
BEYOND = 8
"""The need is drawn up to so many times the accelerators that are planned for."""
STEPS = (-3, -2, -1, 0, 1, 2)
"""Powers of two around the accelerators that are planned for."""
DASHED = "6 4"


def plan_exhibits(plan: PlanReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the plan that they belong to."""
    read, opens = plan.need("read_bytes"), plan.need("opens")
    assert read and opens and read.to_buy and opens.to_buy
    count = plan.asked.accelerators
    lines = tuple(
        (
            f"{number:,}",
            *(amount(need, need.value * number / count) for need in (read.at_utilization, read.to_buy)),
            *(grouped(need.value * number / count) for need in (opens.at_utilization, opens.to_buy)),
        )
        for number in dict.fromkeys(max(1, round(count * 2.0**step)) for step in STEPS)
    )
    exhibit = Exhibit(
        title=_need_title(plan),
        text=f"Both axes are logarithmic. Solid: the need at {percent(plan.asked.utilization)} of the accelerators' "
        f"rate; dashed: what to buy, so that {percent(plan.asked.use)} of a limit is in use. Dotted: what a storage "
        "gives; it feeds as many accelerators as the dashed line has where it crosses.",
        figures=(
            ("Read bandwidth against accelerators", need_chart(plan, read, "bandwidth", "Read bandwidth")),
            ("Files opened against accelerators", need_chart(plan, opens, "opens", "Files opened")),
        ),
        table=Table(
            head=("accelerators", "bandwidth", "to buy", "opens/s", "to buy"), lines=lines, right=frozenset(range(5))
        ),
    )
    return {"needs": (exhibit,)}


def _need_title(plan: PlanReport) -> str:
    count = plan.asked.accelerators
    supply = next((supply for supply in plan.supplies if supply.label == "measured"), None)
    if supply is None or supply.feeds is None:
        return f"The need of {count:,} accelerators grows with their number"
    if supply.feeds >= count:
        return f"The storage measured here is enough for {count:,} accelerators"
    times = significant(count / supply.feeds, 2)
    least = "up to " if supply.at_least else ""
    return f"{count:,} accelerators ask for {least}{times} times what the storage measured here can feed"


def need_chart(plan: PlanReport, need: Need, resource: SupplyResource, title: str) -> str:
    """SVG of one need against accelerators, on logarithmic axes, with what storages give as horizontal lines."""
    assert need.to_buy
    count = plan.asked.accelerators
    levels = [
        (limit.limit.value, f"{shortened(supply.name, 24)} {amount(limit.limit)}")
        for supply in plan.supplies[:MOST_STORAGES]
        for limit in supply.limits
        if limit.resource == resource
    ]
    most = max([need.to_buy.value * BEYOND, *(value for value, _ in levels)])
    least = min([need.at_utilization.value / count, *(value for value, _ in levels)])
    plot = Plot(
        title,
        Axis(name="accelerators", low=1, high=count * BEYOND, base=2),
        Axis(name="bytes/s" if resource == "bandwidth" else "files/s", low=least * 0.7, high=most * 2, base=10),
        height=NEED_HEIGHT,
    )
    lines = {"need": (need.at_utilization, "", "below right"), "to buy": (need.to_buy, DASHED, "above left")}
    for quantity, dash, _ in lines.values():
        plot.line([(at, quantity.value * at / count) for at in (1, count * BEYOND)], BLUE, dash=dash, width=2.5)
    # The highest first: its name stands over it, whatever is below.
    for value, said in sorted(levels, reverse=True):
        plot.level(value, said, RED)
    for line, (quantity, _, side) in lines.items():
        plot.dots([(count, quantity.value)], BLUE, radius=4)
        plot.name(count, quantity.value, f"{line} {amount(quantity)}", side)
    return plot.svg()


# The storage plan as sections of a report's page.

_NAME = "plan"


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
