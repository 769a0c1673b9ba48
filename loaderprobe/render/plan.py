"""The storage plan as a page: the answer and the test first, then what they rest on; and as JSON with its schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loaderprobe.records.options import PLAN
from loaderprobe.records.plan import CacheSize, LedgerEntry, Lever, Need, PlanPart, PlanReport, Quantity, Supply
from loaderprobe.records.remark import Remark
from loaderprobe.render import plan_words as words
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.plan_charts import exhibits
from loaderprobe.render.plan_words import PART, grouped, lock_step_parts
from loaderprobe.render.plan_words import TITLE as LOCK_STEP
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.sweep import EVIDENCE
from loaderprobe.render.wording import MISSING, counted, percent
from loaderprobe.units import format_bytes, format_rate

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
    return f"{format_rate(bytes_per_s)}{files}"


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
    emulated = [Paragraph(text="Emulated: the accelerators' rate is specified, not measured.", tone="warning")]
    yield Section(
        parts=(*first, test, Command(text=delivery_command(plan)), *(emulated if plan.acceptance.compute else []))
    )
    yield Section(title=f"What {plan.asked.accelerators:,} accelerators need", name="needs", parts=(_needs(plan),))
    yield Section(title="What storage gives", name="supplies", parts=tuple(_supplies(plan)))
    yield Section(title="Epochs and caches", name="epochs", parts=tuple(_epochs(plan)))
    late = words.late_words(plan)
    yield Section(title="Stragglers", parts=(Paragraph(text=f"{late[0].upper()}{late[1:]}."),) if late else ())
    in_step = () if plan.lock_step is None else tuple(lock_step_parts(plan.lock_step))
    yield Section(title=LOCK_STEP, name="lock_step", parts=in_step)
    yield Section(title="What lowers the need", parts=tuple(_levers(plan)))
    yield Section(title="Inputs and assumptions", parts=tuple(_ledger(plan)))
    yield Section(title="The test on delivery", parts=tuple(_test(plan)))
    refused = tuple(Item(subject=PART[part], text=remark_words(why)) for part, why in not_said(plan).items())
    yield Section(title="Not said, and why", parts=refused)
    uncovered = [Item(subject=subject, text=text) for subject, text in not_covered(plan)]
    yield Section(title="Not covered", parts=tuple(uncovered))
    notes = tuple(Paragraph(text=remark_words(note)) for note in plan.notes)
    made = f"loaderprobe {plan.loaderprobe}, {plan.created_utc[:10]}. {words.from_words(plan)}"
    yield Section(parts=(*notes, Paragraph(text=made)))


def _needs(plan: PlanReport) -> Table:
    node = min(plan.asked.per_node, plan.asked.accelerators)
    head = ("", f"at {percent(plan.asked.utilization)}", "at most", "to buy", f"node of {node}", "weakest input")
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
        head = ("storage", "limited by", "limit", "need", "feeds", "label")
        yield Table(head=head, lines=tuple(lines), right=frozenset({2, 3, 4}))
    for supply in plan.supplies:
        notes = words.supply_notes(supply, plan.asked.nodes)
        if notes:
            yield Item(subject=supply.name, text="; ".join(notes))


def _supply_lines(supply: Supply) -> Iterator[tuple[str, ...]]:
    for place, limit in enumerate(supply.limits):
        least = ">= " if limit.at_least else ""
        yield (
            "" if place else supply.name,
            words.RESOURCE[limit.resource],
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
        else f"{each.supply} {words.grouped(each.feeds)} ({words.RESOURCE[each.first_limit]} first)"
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
    test = plan.acceptance
    yield Item(subject="Storage", text=delivery_words(plan))
    yield Command(text=delivery_command(plan))
    yield Paragraph(text=read_words(plan))
    if test.compute and test.workers:
        yield Item(
            subject="One accelerator on each node",
            text=f"training must reach {percent(plan.asked.utilization)} of its rate (column used)",
        )
        yield Command(text=f"loaderprobe sweep PATH --workers {test.workers} --compute {test.compute}")


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
    planned = _without(plan, command) if isinstance(plan, Remark) else _plan_page_sections(plan, command)
    drawn = {} if isinstance(plan, Remark) else {_named(name): each for name, each in exhibits(plan).items()}
    sections = (*document.sections[:place], *planned, *document.sections[place:])
    return replace(document, sections=sections), {**charts, **drawn}


def _named(name: str) -> str:
    """Of a section of the plan: the report has some of the same name."""
    return f"{_NAME}_{name}" if name else ""


def _without(why: Remark, command: str) -> tuple[Section, ...]:
    then = " Name one to plan for it:" if why.code == "only_a_cpu" else ""
    words = Paragraph(text=f"No plan: {remark_words(why)}.{then}")
    return (Section(title="Storage plan", name=_NAME, parts=(words, Command(text=command))),)


def _plan_page_sections(plan: PlanReport, command: str) -> tuple[Section, ...]:
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
