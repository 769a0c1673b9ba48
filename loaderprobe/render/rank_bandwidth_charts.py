"""The charts of ranks that read at once: rates against readers, all together and in step, and the rate of each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from loaderprobe.records.bandwidth import RankBandwidthReport, RankRead, RanksPhase
from loaderprobe.render.charts import FLOOR, HEIGHT, LEFT, RIGHT, svg_grid, svg_height, svg_page, svg_text
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.plan_drawing import BLUE, GREY, RED, data, log_axis, log_scale, names, svg, unchecked
from loaderprobe.render.rank_bandwidth_words import NOTICED, layout, noun
from loaderprobe.render.wording import counted, megabytes_per_s
from loaderprobe.stats import median
from loaderprobe.units import significant

TALL = 250
"""Pixels of a chart against readers."""
OVER = 1.25
"""Over the highest bar."""
BEYOND = 2.0
"""Over the highest value of a logarithmic axis, and under the lowest, for their names."""
BESIDE = 1.4
"""Left of the fewest readers, and right of the most."""
_LEAST_BAR, _WIDEST = 0.4, 24


@unchecked()
def rank_bandwidth_exhibits(found: RankBandwidthReport) -> dict[str, tuple[Exhibit, ...]]:
    """By the name of the section of the document that they belong to."""
    return {"ladder": tuple(_against_readers(found)), "ranks": tuple(_of_ranks(found))}


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
    import altair as alt

    steps = [_point(each, scale(each)) for each in found.ladder]
    others = [_point(each, scale(each)) for each in found.phases if each not in found.ladder]
    every = [*steps, *others]
    x_domain = (min(each["x"] for each in every) / BESIDE, max(each["x"] for each in every) * BESIDE)
    y_domain = min(min(each["slowest"], each["y"]) for each in every) / BEYOND, max(map(_rate, every)) * BEYOND
    x = alt.X("x:Q", scale=log_scale(x_domain, 2), axis=log_axis("readers of all ranks", x_domain, 2))
    y = alt.Y("y:Q", scale=log_scale(y_domain), axis=log_axis(unit, y_domain))
    base = alt.Chart(data(steps)).encode(x=x)
    slowest = alt.Y("slowest:Q")
    layers = [
        alt.Chart(data(_best(steps))).mark_line(color=BLUE, strokeWidth=2.5).encode(x=x, y=y),
        alt.Chart(data(_best(steps))).mark_line(color=RED, strokeWidth=2, strokeDash=[6, 4]).encode(x=x, y=slowest),
        base.mark_rule(color=BLUE).encode(y="low:Q", y2="high:Q"),
        base.mark_point(filled=True, size=45, opacity=1, color=BLUE).encode(y=y),
        base.mark_point(size=45, color=RED, strokeWidth=2, opacity=1).encode(y=slowest),
        *_named_layouts(steps),
        *_named_ends(steps),
    ]
    if others:
        marks = alt.Chart(data(others)).mark_point(shape="diamond", size=90, strokeWidth=2, color=GREY, opacity=1)
        layers += [marks.encode(x=x, y=y), *names(_texts(others), dx=-8, dy=14, align="right")]
    return svg(layers, unit, TALL)


def _named_ends(steps: Sequence[dict[str, Any]]) -> list[Any]:
    """Of both lines; of lines that end alike one name, which leaves the place below to others."""
    last = _best(steps)[-1]
    slowest = f"{last['ranks']} x slowest"
    if last["slowest"] >= NOTICED * last["y"]:
        return names([_end(steps, "y", f"together, and {slowest}:")], dx=4, dy=-12, align="right")
    return [
        *names([_end(steps, "y", "together")], dx=4, dy=-12, align="right"),
        *names([_end(steps, "slowest", slowest)], dx=4, dy=18, align="right"),
    ]


def _point(phase: RanksPhase, scale: float) -> dict[str, Any]:
    return {
        "x": phase.clients, "y": phase.bw_bytes * scale, "low": phase.bw_low * scale, "high": phase.bw_high * scale,
        "slowest": phase.in_step_bw_bytes * scale, "layout": layout(phase), "ranks": phase.ranks,
    }  # fmt: skip


def _best(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of steps with as many readers, the fastest, through which the lines go."""
    return [max((each for each in steps if each["x"] == at), key=_rate) for at in sorted({each["x"] for each in steps})]


def _rate(point: dict[str, Any]) -> float:
    return float(point["y"])


def _end(steps: Sequence[dict[str, Any]], field: str, name: str) -> dict[str, Any]:
    last = _best(steps)[-1]
    return {**last, "y": last[field], "text": f"{name} {significant(last[field])}"}


def _texts(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the ranks of each."""
    return [{**each, "text": counted(each["ranks"], "rank")} for each in points]


def _named_layouts(steps: Sequence[dict[str, Any]]) -> list[Any]:
    """`1x8`, `8x1`, where several steps have as many readers."""
    shared = [each for each in steps if sum(other["x"] == each["x"] for other in steps) > 1]
    best, texts = _best(steps), [{**each, "text": each["layout"]} for each in shared]
    upper, lower = [each for each in texts if _in(each, best)], [each for each in texts if not _in(each, best)]
    return [*names(upper, dx=0, dy=-10), *names(lower, dx=0, dy=16)] if shared else []


def _in(point: dict[str, Any], points: Sequence[dict[str, Any]]) -> bool:
    return any((each["x"], each["y"]) == (point["x"], point["y"]) for each in points)


def _of_ranks(found: RankBandwidthReport) -> Iterator[Exhibit]:
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
    top, middle = max(rates) * OVER, median(rates)
    slow = {each.rank for each in phase.by_rank if each.host == slow_host} or {phase.slowest.rank}
    at = svg_height(middle, top)
    drawn = [
        *svg_grid("", top),
        _bars([0.0 if rank in slow else rate for rank, rate in enumerate(rates)], top, BLUE),
        _bars([rate if rank in slow else 0.0 for rank, rate in enumerate(rates)], top, RED),
        f'<path class="rule dashed" d="M{LEFT} {at:.1f}H{RIGHT}"/>',
        svg_text(LEFT + 4, at - 6, f"median {significant(middle)}", bold=True, halo=True),
        *_hosts(phase),
    ]
    return svg_page("MB/s of each rank", HEIGHT, drawn)


def _bars(values: Sequence[float], top: float, color: str) -> str:
    """All as one path: there may be a thousand."""
    slot = (RIGHT - LEFT) / len(values)
    width = min(_WIDEST, max(_LEAST_BAR, slot * 0.8))
    first = LEFT + (slot - width) / 2
    bars = "".join(
        f"M{first + slot * place:.1f} {FLOOR}V{svg_height(value, top):.1f}h{width:.1f}V{FLOOR}z"
        for place, value in enumerate(values)
        if value
    )
    return f'<path d="{bars}" fill="{color}"/>'


def _hosts(phase: RanksPhase) -> Iterator[str]:
    """The first rank and the last; between nodes a line."""
    slot = (RIGHT - LEFT) / phase.ranks
    yield svg_text(LEFT, FLOOR + 16, "rank 0")
    yield svg_text(RIGHT, FLOOR + 16, f"rank {phase.ranks - 1}", anchor="end")
    nodes = [each.node for each in phase.by_rank]
    borders = [rank for rank in range(1, phase.ranks) if nodes[rank] != nodes[rank - 1]]
    if borders and len(borders) == phase.nodes - 1 and phase.ranks > phase.nodes:
        for rank in borders:
            yield f'<path class="axis" d="M{LEFT + slot * rank:.1f} {FLOOR}v7"/>'
        yield svg_text((LEFT + RIGHT) / 2, FLOOR + 30, "marks between nodes", anchor="middle")
