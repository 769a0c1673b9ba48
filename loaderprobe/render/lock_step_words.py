"""What ranks lose by taking each step together, in words: the answer, its table, and what it is made from."""

from __future__ import annotations

from collections.abc import Iterator

from loaderprobe.records.plan import LockStep, PrefetchCost
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import WORTH
from loaderprobe.render.document import Item, Paragraph, Part, Table
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import counted
from loaderprobe.units import format_duration, significant

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
