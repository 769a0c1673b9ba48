"""The charts of a comparison: ratios with their intervals, and what limits in A and in B, side by side. As SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loaderprobe.records.compare import Compared, ComparisonReport, ShortVerdict, Word
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import TONES, Axis, heat_cell, heat_rows, named_rows, shortened
from loaderprobe.render.compare import ROWS, ordered
from loaderprobe.render.compare_words import change_words, matters_words, names_of, stand_in
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.limit_map import line_of
from loaderprobe.render.limits import LETTERS, letters_in, limits_in
from loaderprobe.render.wording import interval, loading, verdict_tone

COLORS: dict[Word, str] = {"slower": "#D55E00", "faster": "#009E73", "same": "#9A9A9A", "unclear": "#56B4E9"}
MOST_ROWS = 60
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2, 5, 10, 20, 50, 100)
_LEAST_LOG = math.log(1.12)
"""The axis reaches at least so far on either side."""
_TICK_SHARE = 0.15
"""Of the axis, at least between two figures."""
_LONGEST = 46
"""Characters of a name; what is longer is cut."""


def compare_exhibits(found: ComparisonReport) -> dict[str, tuple[Exhibit, ...]]:
    """The ratios; and for each device and cache state of a sweep, both maps."""
    ratios = Exhibit(
        title="B's speed over A's",
        text=f"With 95 % intervals. In the grey band nothing changed that matters ({matters_words(found)}).",
        figures=(("Ratios of B's speed to A's", _ratios(found)),),
    )
    return {ROWS: (ratios, *_maps(found))}


def _ratios(found: ComparisonReport) -> str:
    rows = [*([found.whole] if found.whole else []), *ordered(found)]
    shown = [(row, row.ratio) for row in rows if row.ratio is not None][:MOST_ROWS]
    names = names_of(found, [row.subject for row, _ in shown])
    reach = max([_LEAST_LOG, *(1.15 * abs(math.log(ratio.value)) for _, ratio in shown)])
    farthest = max((max(-math.log(ratio.low), math.log(ratio.high)) for _, ratio in shown), default=0.0)
    reach = max(reach, min(1.5 * reach, farthest))
    axis = Axis(name="", low=math.exp(-reach), high=math.exp(reach), base=10, marks=_marks(reach), lines=True)
    plot = named_rows("B's speed over A's", axis, len(shown))
    plot.beyond(1 - found.matters, 1 / (1 - found.matters))
    for number, (name, (row, ratio)) in enumerate(zip(names, shown, strict=True)):
        bold, color = row.subject.kind in ("all", "step"), COLORS[row.word]
        middle = plot.named_row(number, shortened(name, _LONGEST), bold=bold)
        plot.stretch(ratio.low, ratio.high, middle, color, thick=3)
        said = f"{name}: {change_words(ratio)}"
        plot.mark(ratio.value, middle, color, full=row.word != "unclear", said=said)
        plot.beside((ratio.low, ratio.high), middle, f"{change_words(ratio)} {row.word}", side="over")
    return plot.svg()


def _marks(reach: float) -> tuple[tuple[float, str], ...]:
    """Those of `_TICKS` that have room, the middle first: it keeps its figure, whatever stands near it."""
    shown: list[float] = []
    room = 2 * reach * _TICK_SHARE
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        if abs(math.log(tick)) <= reach and all(abs(math.log(tick / other)) >= room for other in shown):
            shown.append(tick)
    return tuple((tick, _tick(tick)) for tick in shown)


def _tick(ratio: float) -> str:
    if ratio == 1:
        return "as fast"
    return f"{ratio:g}x" if not 0.5 < ratio < 2 else f"{100 * (ratio - 1):+.0f} %"


def _maps(found: ComparisonReport) -> Iterator[Exhibit]:
    groups: dict[tuple[str, str], list[Compared]] = {}
    for row in found.rows:
        if row.subject.config is not None:
            groups.setdefault((row.subject.config.compute.name, row.subject.config.cache), []).append(row)
    for (compute, cache), rows in groups.items():
        yield Exhibit(
            title=f"What limits, in A and in B: {compute}, {cache} files",
            text=f"Images/s with half the 95 % interval: {_key(rows)}. Framed where the verdict changed.",
            figures=tuple((f"What limits in {side}, by data set and workers", _map(rows, side)) for side in ("A", "B")),
            wide=True,
        )


def _key(rows: Sequence[Compared]) -> str:
    verdicts = [each for row in rows for each in (row.verdict_before, row.verdict_after) if each]
    seen = {name for each in verdicts for name in limits_in(each)}
    return "; ".join(f"{letter} {words}" for name, (letter, words) in LETTERS.items() if name in seen)


def _map(rows: Sequence[Compared], side: str) -> str:
    stands = [stand_in(row.subject) for row in rows]
    lines: dict[str, list[tuple[int, str]]] = {}
    for row, stand in zip(rows, stands, strict=True):
        value, verdict = (row.before, row.verdict_before) if side == "A" else (row.after, row.verdict_after)
        cells = lines.setdefault(line_of(stand, stands), [])
        if verdict is not None:
            cells.append((stand.config.loader.workers, _cell(row, loading(stand), value, verdict)))
    label = f"What limits in {side}, by data set and workers"
    return heat_rows(label, ((name, [cell for _, cell in sorted(cells)]) for name, cells in lines.items()), title=side)


def _cell(row: Compared, workers: str, value: Interval | None, verdict: ShortVerdict) -> str:
    color = TONES.get(verdict_tone(verdict), TONES["inconclusive"])
    said = " or ".join(LETTERS[name][1] for name in limits_in(verdict))
    rate = f"{interval(value, gap='')} {letters_in(verdict)}"
    return heat_cell(f"{workers}: {said}", (workers, rate), [(color, 0.25)], wide=92, framed=row.verdict_changed)
