"""The bandwidth of ranks as a page, the answer first; its charts, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from loaderprobe.records.bandwidth import RankBandwidthReport, RankRead, RanksPhase
from loaderprobe.render.bandwidth import feeding, feeding_in_step, half_interval, other_feeds
from loaderprobe.render.cells import as_columns
from loaderprobe.render.charts import BLUE, GREY, RED, Axis, Plot, rank_chart
from loaderprobe.render.document import Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.rank_bandwidth_words import NOTICED, headline, layout, noun, ranks_limit_words
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import counted, megabytes_per_s
from loaderprobe.stats import median
from loaderprobe.units import format_bytes, format_duration, significant

MOST_RANKS = 8
"""Of more, the slowest, the middle and the fastest are shown."""


def rank_bandwidth_document(found: RankBandwidthReport) -> Document:
    """What all ranks get together, what they would get in step, and what limits them."""
    return Document(
        title=f"Storage under {found.path}, read by ranks",
        sections=(
            Section(parts=tuple(_answer(found))),
            *([Section(title="Ladder of ranks", name="ladder", parts=tuple(_ladder(found)))] if found.phases else []),
            *(_of_ranks(found)),
            Section(title="What was read", parts=tuple(_read(found))),
        ),
    )


def rank_bandwidth_columns(found: RankBandwidthReport) -> dict[str, list[Any]]:
    """One row a step, units in the names."""
    return as_columns([_row(phase) for phase in found.phases])


def _row(phase: RanksPhase) -> dict[str, Any]:
    return {
        "ranks": phase.ranks,
        "nodes": phase.nodes,
        "readers_a_rank": phase.readers,
        "bw_bytes": phase.bw_bytes,
        "bw_low": phase.bw_low,
        "bw_high": phase.bw_high,
        "last_done_bw_bytes": phase.last_done_bw_bytes,
        "in_step_bw_bytes": phase.in_step_bw_bytes,
        "slowest_rank": phase.slowest.rank,
        "slowest_host": phase.slowest.host,
        "fairness": phase.fairness,
        "files_per_s": phase.files_per_s,
        "p50_ms": phase.file_ns.percentile["50.000000"] / 1e6,
        "p99_ms": phase.file_ns.percentile["99.000000"] / 1e6,
        "cold_fraction": phase.cold_fraction,
        "cache": phase.cache,
    }


def _answer(found: RankBandwidthReport) -> Iterator[Part]:
    yield Paragraph(text=headline(found), strong=True)
    if found.interrupted:
        yield Paragraph(text="Interrupted: the ladder is not complete.")
    if fed := feeding(found.feeds):
        most = found.largest
        in_step = feeding_in_step(found.feeds_in_step) if most and most.fairness < NOTICED else ""
        yield Paragraph(text=f"{fed} {in_step}".rstrip(), strong=True)
    yield Item(subject="Limit", text=ranks_limit_words(found.limit))
    if others := other_feeds(found.feeds):
        yield Item(subject="ResNet-50 on others", text=others)


def _ladder(found: RankBandwidthReport) -> Iterator[Part]:
    head = ("ranks", "readers", "MB/s", "±95 %", "last done", "R x slowest", "fair", f"{noun(found)}s/s", "p99 ms",
            "cache")  # fmt: skip
    yield Table(head=head, lines=tuple(map(_line, found.phases)), right=frozenset(range(9)))
    yield Paragraph(
        text="readers: of all ranks. MB/s: of all together while all read (first done). last done: all bytes over the "
        "time of the last rank. R x slowest: what ranks in step get if the others' share stays unused. fair: slowest "
        "over fastest. *: not settled."
    )


def _line(phase: RanksPhase) -> tuple[str, ...]:
    half = (phase.bw_high - phase.bw_bytes) / 1e6
    return (
        layout(phase),
        str(phase.clients),
        f"{'>=' if phase.at_least else ''}{megabytes_per_s(phase.bw_bytes)}",
        f"{half_interval(phase.bw_bytes / 1e6, half)}{'' if phase.settled else '*'}",
        megabytes_per_s(phase.last_done_bw_bytes),
        megabytes_per_s(phase.in_step_bw_bytes),
        f"{phase.fairness:.2f}",
        significant(phase.files_per_s),
        significant(phase.file_ns.percentile["99.000000"] / 1e6),
        phase.cache,
    )


def _of_ranks(found: RankBandwidthReport) -> Iterator[Section]:
    """Each rank of the largest step; of many the slowest, the middle and the fastest."""
    most = found.largest
    if most is None or most.ranks == 1:
        return
    ordered = sorted(most.by_rank, key=lambda each: each.bw_bytes)
    shown = ordered if len(ordered) <= MOST_RANKS else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    lines = tuple(
        (str(each.rank), each.host, megabytes_per_s(each.bw_bytes), format_duration(each.seconds)) for each in shown
    )
    which = "Ranks, the slowest first" if shown is ordered else f"Slowest, middle and fastest of {most.ranks:,} ranks"
    yield Section(
        title=which,
        name="ranks",
        parts=(
            Table(head=("rank", "host", "MB/s", "done after"), lines=lines, right=frozenset({0, 2, 3})),
            *_of_hosts(most),
        ),
    )


def _of_hosts(most: RanksPhase) -> Iterator[Table]:
    """The ranks of each host, where hosts have several; of many hosts the slowest, the middle and the fastest."""
    hosts = dict.fromkeys(each.host for each in most.by_rank)
    if not 1 < len(hosts) < most.ranks:
        return
    rates = {host: sorted(each.bw_bytes for each in most.by_rank if each.host == host) for host in hosts}
    ordered = sorted(hosts, key=lambda host: rates[host][0])
    shown = ordered if len(ordered) <= MOST_RANKS else [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
    lines = tuple(
        (host, str(len(rates[host])), *(megabytes_per_s(each) for each in (sum(rates[host]), *_ends(rates[host]))))
        for host in shown
    )
    yield Table(head=("host", "ranks", "MB/s", "slowest", "fastest"), lines=lines, right=frozenset(range(1, 5)))


def _ends(rates: Sequence[float]) -> tuple[float, float]:
    return rates[0], rates[-1]


def _read(found: RankBandwidthReport) -> Iterator[Part]:
    size = format_bytes(found.mean_size_bytes)
    how = "read whole in random order" if found.whole_files else "read in blocks in random order"
    yield Paragraph(
        text=f"{found.files_used} of {counted(found.files_found, noun(found))}, {size} on average, {how}; each rank "
        f"reads a share of its own, cold, after a common start. {found.location.filesystem} ({found.location.kind}) on "
        f"{', '.join(found.hosts)}."
    )
    unread = {why: count for phase in found.phases for why, count in phase.unread.items()}
    for why, count in unread.items():
        yield Item(subject="Not read", text=f"{counted(count, noun(found))}: {why}")
    for note in found.notes:
        yield Paragraph(text=f"{remark_words(note)}.")


# The charts of ranks that read at once: rates against readers, all together and in step, and the rate of each rank.

TALL = 250
"""Pixels of a chart against readers."""
BEYOND = 2.0
"""Over the highest value of a logarithmic axis, and under the lowest, for their names."""
BESIDE = 1.4
"""Left of the fewest readers, and right of the most."""


def rank_bandwidth_exhibits(found: RankBandwidthReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the document that they belong to."""
    return {"ladder": tuple(_against_readers(found)), "ranks": tuple(_rank_bandwidth_charts_of_ranks(found))}


def _against_readers(found: RankBandwidthReport) -> Iterator[Exhibit]:
    if len(found.phases) < 2:
        return
    what = f"{noun(found)[:1].upper()}{noun(found)[1:]}s/s"
    text = (
        "Solid: all ranks together, while all read. Dashed: as many times the slowest rank, which is what ranks in "
        "step get if what the others could read beyond it stays unused. Training in step lies between the two lines. "
        "Both axes are logarithmic."
    )
    if len(found.ladder) < len(found.phases):
        text += " Grey: as many readers in fewer ranks; far below the solid line, a process or a node is the limit."
    opens = f"Each {noun(found)} is opened once, so these are opens/s as well." if found.whole_files else ""
    yield Exhibit(
        title=_title(found),
        text=f"{text} {opens}".rstrip(),
        figures=(
            ("MB/s against readers", _lines(found, "MB/s", lambda _: 1e-6)),
            (f"{what} against readers", _lines(found, what, lambda phase: phase.files_per_s / phase.bw_bytes)),
        ),
    )


def _title(found: RankBandwidthReport) -> str:
    """What the most ranks get, both ways."""
    most = found.largest
    assert most is not None
    together = f"{counted(most.ranks, 'rank')} together get {megabytes_per_s(most.bw_bytes)} MB/s"
    if most.fairness >= NOTICED:
        return f"{together}, all alike"
    return f"{together}; in step they may get as little as {megabytes_per_s(most.in_step_bw_bytes)}"


def _lines(found: RankBandwidthReport, unit: str, scale: Callable[[RanksPhase], float]) -> str:
    """SVG of the ladder; `scale` is one byte/s of a step in the unit."""
    steps, others = found.ladder, [each for each in found.phases if each not in found.ladder]

    def rate(phase: RanksPhase) -> float:
        return phase.bw_bytes * scale(phase)

    def in_step(phase: RanksPhase) -> float:
        return phase.in_step_bw_bytes * scale(phase)

    x = [each.clients for each in found.phases]
    y = [value for each in found.phases for value in (rate(each), in_step(each))]
    plot = Plot(
        unit,
        Axis(name="readers of all ranks", low=min(x) / BESIDE, high=max(x) * BESIDE, base=2),
        Axis(name="", low=min(y) / BEYOND, high=max(y) * BEYOND, base=10),
        height=TALL,
    )
    # Of steps with as many readers, the lines go through the fastest.
    best = [
        max((each for each in steps if each.clients == at), key=rate) for at in sorted({*(s.clients for s in steps)})
    ]
    plot.spans(((each.clients, each.bw_low * scale(each), each.bw_high * scale(each)) for each in steps), BLUE)
    plot.line([(each.clients, rate(each)) for each in best], BLUE, width=2.5)
    plot.line([(each.clients, in_step(each)) for each in best], RED, dash="6 4")
    plot.dots([(each.clients, rate(each)) for each in steps], BLUE, radius=3.5)
    plot.dots([(each.clients, in_step(each)) for each in steps], RED, shape="open", radius=3.5)
    plot.dots([(each.clients, rate(each)) for each in others], GREY, shape="diamond")
    last = best[-1]
    together, slowest = rate(last), f"{last.ranks} x slowest"
    # Of lines that end alike one name, which leaves the place below to others.
    if in_step(last) >= NOTICED * together:
        plot.name(last.clients, together, f"together, and {slowest}: {significant(together)}", "above left")
    else:
        plot.name(last.clients, together, f"together {significant(together)}", "above left")
        plot.name(last.clients, in_step(last), f"{slowest} {significant(in_step(last))}", "below left")
    for each in steps:
        if sum(other.clients == each.clients for other in steps) > 1:
            plot.name(each.clients, rate(each), layout(each), "right")
    for each in others:
        plot.name(each.clients, rate(each), counted(each.ranks, "rank"), "left")
    return plot.svg()


def _rank_bandwidth_charts_of_ranks(found: RankBandwidthReport) -> Iterator[Exhibit]:
    most = found.largest
    if most is None or most.ranks == 1:
        return
    slow, fast = most.slowest, max(most.by_rank, key=lambda each: each.bw_bytes)
    middle = median([each.bw_bytes for each in most.by_rank])
    host = str(found.limit.facts["host"]) if found.limit.code == "slow_host" else ""
    yield Exhibit(
        title=f"The slowest of {most.ranks:,} ranks gets {100 * most.fairness:.0f} % of the fastest",
        text=f"Of {layout(most)} ranks that read at once, the slowest is {_named(slow)} with "
        f"{megabytes_per_s(slow.bw_bytes)} MB/s, the median {megabytes_per_s(middle)}, the fastest {_named(fast)} with "
        f"{megabytes_per_s(fast.bw_bytes)}. Ranks in step wait for the slowest.",
        figures=((f"MB/s of each of {most.ranks} ranks", spread_chart(most, host)),),
    )


def _named(rank: RankRead) -> str:
    return f"rank {rank.rank} on {rank.host}"


def spread_chart(phase: RanksPhase, slow_host: str = "") -> str:
    """SVG of a bar for each rank, in their order, the slowest or those of a slow host in red; a line at the median."""
    rates = [each.bw_bytes / 1e6 for each in phase.by_rank]
    slow = {each.rank for each in phase.by_rank if each.host == slow_host} or {phase.slowest.rank}
    colors = [RED if rank in slow else BLUE for rank in range(len(rates))]
    nodes = [each.node for each in phase.by_rank]
    borders = [rank for rank in range(1, phase.ranks) if nodes[rank] != nodes[rank - 1]]
    marked = len(borders) == phase.nodes - 1 and phase.ranks > phase.nodes > 1
    plot = rank_chart("MB/s of each rank", "", rates, colors, axis="marks between nodes" if marked else "")
    plot.level(median(rates), f"median {significant(median(rates))}")
    for rank in borders if marked else ():
        plot.add(f'<path class="axis" d="M{plot.x(rank):.1f} {plot.floor:g}v7"/>')
    return plot.svg()
