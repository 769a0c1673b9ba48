"""The bandwidth of ranks that read at once, as charts and as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from loaderprobe.records.bandwidth import RankBandwidthReport, RankRead, RanksPhase
from loaderprobe.render.bandwidth import NOTICED, layout, noun
from loaderprobe.render.charts import BLUE, GREY, RED, Axis, Plot, rank_chart
from loaderprobe.render.document import Exhibit
from loaderprobe.render.rows import as_columns, own_cells
from loaderprobe.render.wording import counted, megabytes_per_s
from loaderprobe.stats import median
from loaderprobe.units import significant


def rank_bandwidth_columns(found: RankBandwidthReport) -> dict[str, list[Any]]:
    """One row a step, units in the names."""
    return as_columns([_row(phase) for phase in found.phases])


def _row(phase: RanksPhase) -> dict[str, Any]:
    times = (phase.file_ns or phase.clat_ns).percentile
    return {
        **own_cells(phase, "ranks", "nodes", "readers_a_rank", "bw_bytes", "bw_low", "bw_high"),
        **own_cells(phase, "last_done_bw_bytes", "in_step_bw_bytes"),
        "slowest_rank": phase.slowest.rank,
        "slowest_host": phase.slowest.host,
        **own_cells(phase, "fairness", "files_per_s"),
        "p50_ms": times["50.000000"] / 1e6,
        "p99_ms": times["99.000000"] / 1e6,
        **own_cells(phase, "cold_fraction", "cache"),
    }


# The charts of ranks that read at once: rates against readers, all together and in step, and the rate of each rank.

TALL = 250
"""Pixels of a chart against readers."""
BEYOND = 2.0
"""Over the highest value of a logarithmic axis, and under the lowest, for their names."""
BESIDE = 1.4
"""Left of the fewest readers, and right of the most."""


def rank_bandwidth_exhibits(found: RankBandwidthReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the document that they belong to."""
    return {"ladder": tuple(_against_readers(found)), "ranks": tuple(_each_rank(found))}


def _against_readers(found: RankBandwidthReport) -> Iterator[Exhibit]:
    if len(found.phases) < 2:
        return
    piece = noun(found.phases[0], found)
    what = f"{piece.capitalize()}s/s"
    text = (
        "Solid: all ranks together, while all read. Dashed: as many times the slowest rank, which is what ranks in "
        "step get if what the others could read beyond it stays unused. Training in step lies between the two lines. "
        "Both axes are logarithmic."
    )
    if len(_alike(found)) < len(found.phases):
        text += " Grey: as many readers in fewer ranks; far below the solid line, a process or a node is the limit."
    opens = "" if piece == "block" else f"Each {piece} is opened once, so these are opens/s as well."
    yield Exhibit(
        title=_title(found),
        text=f"{text} {opens}".rstrip(),
        figures=(
            ("MB/s against readers", _lines(found, "MB/s", lambda _: 1e-6)),
            (f"{what} against readers", _lines(found, what, lambda phase: phase.files_per_s / phase.bw_bytes)),
        ),
    )


def _alike(found: RankBandwidthReport) -> list[RanksPhase]:
    """The steps with as many readers a rank as the first one, by ranks and nodes."""
    alike = [each for each in found.phases if each.readers_a_rank == found.phases[0].readers_a_rank]
    return sorted(alike, key=lambda each: (each.ranks, each.nodes))


def _title(found: RankBandwidthReport) -> str:
    """What the most ranks get, both ways."""
    most = found.best
    assert most is not None
    together = f"{counted(most.ranks, 'rank')} together get {megabytes_per_s(most.bw_bytes)} MB/s"
    if most.fairness >= NOTICED:
        return f"{together}, all alike"
    return f"{together}; in step they may get as little as {megabytes_per_s(most.in_step_bw_bytes)}"


def _lines(found: RankBandwidthReport, unit: str, scale: Callable[[RanksPhase], float]) -> str:
    """SVG of the ladder; `scale` is one byte/s of a step in the unit."""
    steps = _alike(found)
    others = [each for each in found.phases if each not in steps]

    def rate(phase: RanksPhase) -> float:
        return phase.bw_bytes * scale(phase)

    def in_step(phase: RanksPhase) -> float:
        return phase.in_step_bw_bytes * scale(phase)

    x = [each.readers for each in found.phases]
    y = [value for each in found.phases for value in (rate(each), in_step(each))]
    plot = Plot(
        unit,
        Axis(name="readers of all ranks", low=min(x) / BESIDE, high=max(x) * BESIDE, base=2),
        Axis(name="", low=min(y) / BEYOND, high=max(y) * BEYOND, base=10),
        height=TALL,
    )
    # Of steps with as many readers, the lines go through the fastest.
    best = [
        max((each for each in steps if each.readers == at), key=rate) for at in sorted({*(s.readers for s in steps)})
    ]
    plot.spans(((each.readers, each.bw_low * scale(each), each.bw_high * scale(each)) for each in steps), BLUE)
    plot.line([(each.readers, rate(each)) for each in best], BLUE, width=2.5)
    plot.line([(each.readers, in_step(each)) for each in best], RED, dash="6 4")
    plot.dots([(each.readers, rate(each)) for each in steps], BLUE, radius=3.5)
    plot.dots([(each.readers, in_step(each)) for each in steps], RED, shape="open", radius=3.5)
    plot.dots([(each.readers, rate(each)) for each in others], GREY, shape="diamond")
    last = best[-1]
    together, slowest = rate(last), f"{last.ranks} x slowest"
    # Of lines that end alike one name, which leaves the place below to others.
    if in_step(last) >= NOTICED * together:
        plot.name(last.readers, together, f"together, and {slowest}: {significant(together)}", "above left")
    else:
        plot.name(last.readers, together, f"together {significant(together)}", "above left")
        plot.name(last.readers, in_step(last), f"{slowest} {significant(in_step(last))}", "below left")
    for each in steps:
        if sum(other.readers == each.readers for other in steps) > 1:
            plot.name(each.readers, rate(each), layout(each), "right")
    for each in others:
        plot.name(each.readers, rate(each), counted(each.ranks, "rank"), "left")
    return plot.svg()


def _each_rank(found: RankBandwidthReport) -> Iterator[Exhibit]:
    most = found.best
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
