"""The charts of a comparison: ratios with their intervals, and what limits in A and in B, side by side. As SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from loaderprobe.records.compare import Compared, ComparisonReport, ShortVerdict, Word
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import TONES, shortened, svg_text
from loaderprobe.render.compare import ROWS, ordered
from loaderprobe.render.compare_words import change_words, matters_words, names_of, stand_in
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.limit_map import line_of
from loaderprobe.render.limits import LETTERS, letters_in, limits_in
from loaderprobe.render.wording import interval, verdict_tone, visible

COLORS: dict[Word, str] = {"slower": "#D55E00", "faster": "#009E73", "same": "#9A9A9A", "unclear": "#56B4E9"}
MOST_ROWS = 60
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2, 5, 10, 20, 50, 100)
_LEAST_LOG = math.log(1.12)
"""The axis reaches at least so far on either side."""
_TICK_PX = 46
_PLOT, _WORDS, _ROW = 360, 190, 22
_CELL, _HIGH, _GAP, _LETTERS = 90, 30, 3, 30
_CHARACTER = 6.2
"""Pixels of one, on average and at most."""
_LONGEST, _LONGEST_OF_MAP = 46, 24
"""Characters of a name; what is longer is cut."""
_LEGIBLE = 0.8
"""Of its own size: narrower windows scroll the chart."""


def compare_exhibits(found: ComparisonReport) -> dict[str, tuple[Exhibit, ...]]:
    """The ratios; and for each device and cache state of a sweep, both maps."""
    ratios = Exhibit(
        title="B's speed over A's",
        text=f"With 95 % intervals. In the grey band nothing changed that matters ({matters_words(found)}).",
        figures=(("Ratios of B's speed to A's", _ratios(found)),),
        wide=True,
    )
    return {ROWS: (ratios, *_maps(found))}


def _ratios(found: ComparisonReport) -> str:
    rows = [*([found.whole] if found.whole else []), *ordered(found)]
    rows = [row for row in rows if row.ratio is not None][:MOST_ROWS]
    names = names_of(found, [row.subject for row in rows])
    reach = max([_LEAST_LOG, *(1.15 * abs(math.log(row.ratio.value)) for row in rows if row.ratio)])
    reach = max(reach, min(1.5 * reach, max((_farthest(row) for row in rows), default=0.0)))
    height, left = _ROW * len(rows) + 34, _width(names, _LONGEST)
    drawn = [f'<g transform="translate({left:g} 0)">', *_axis(found, reach, height)]
    for place, (name, row) in enumerate(zip(names, rows, strict=True)):
        drawn += _ratio(name, row, reach, 10 + _ROW * place)
    return _svg(left + _PLOT + _WORDS, height, [*drawn, "</g>"])


def _width(names: Sequence[str], most: int) -> float:
    """Pixels of the longest name, with the space beside it."""
    return 12 + _CHARACTER * max((len(shortened(name, most)) for name in names), default=0)


def _farthest(row: Compared) -> float:
    return max(-math.log(row.ratio.low), math.log(row.ratio.high)) if row.ratio else 0.0


def _x(ratio: float, reach: float) -> float:
    share = (math.log(ratio) / reach + 1) / 2
    return _PLOT * min(1.0, max(0.0, share))


def _axis(found: ComparisonReport, reach: float, height: float) -> Iterator[str]:
    low, high = _x(1 - found.matters, reach), _x(1 / (1 - found.matters), reach)
    foot = height - 26
    place = f'x="{low:.1f}" y="4" width="{high - low:.1f}" height="{foot - 4:.1f}"'
    yield f'<rect {place} fill="#9A9A9A" fill-opacity="0.18"/>'
    shown: list[float] = []
    # The middle first: it keeps its label, whatever stands near it.
    for tick in sorted(_TICKS, key=lambda each: abs(math.log(each))):
        x = _x(tick, reach)
        if abs(math.log(tick)) > reach or any(abs(x - other) < _TICK_PX for other in shown):
            continue
        shown.append(x)
        wide = 1.2 if tick == 1 else 0.5
        yield (
            f'<path d="M{x:.1f} 4V{foot:.1f}" stroke="currentColor" stroke-width="{wide}" stroke-opacity="0.4" '
            'fill="none"/>'
        )
        yield svg_text(x, height - 12, _tick(tick), anchor="middle")


def _tick(ratio: float) -> str:
    if ratio == 1:
        return "as fast"
    return f"{ratio:g}x" if not 0.5 < ratio < 2 else f"{100 * (ratio - 1):+.0f} %"


def _ratio(name: str, row: Compared, reach: float, y: float) -> Iterator[str]:
    if row.ratio is None:
        return
    low, x, high = (_x(each, reach) for each in (row.ratio.low, row.ratio.value, row.ratio.high))
    color, middle = COLORS[row.word], y + _ROW / 2 - 4
    bold = row.subject.kind in ("all", "step")
    yield svg_text(-8, middle + 4, shortened(name, _LONGEST), anchor="end", bold=bold)
    yield f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{color}" stroke-width="3" fill="none"/>'
    fill = "none" if row.word == "unclear" else color
    yield (
        f'<circle cx="{x:.1f}" cy="{middle}" r="4.5" fill="{fill}" stroke="{color}" stroke-width="2">'
        f"<title>{escape(visible(f'{name}: {change_words(row.ratio)}'))}</title></circle>"
    )
    yield svg_text(_PLOT + 10, middle + 4, f"{change_words(row.ratio)} {row.word}", bold=bold)


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
    workers = sorted({each.config.loader.workers for each in stands})
    names = list(dict.fromkeys(line_of(each, stands) for each in stands))
    left = max(_width(names, _LONGEST_OF_MAP), _width([f"{side}, workers:"], _LONGEST_OF_MAP))
    drawn = [svg_text(left - 8, 20, f"{side}, workers:", anchor="end", bold=True)]
    drawn += [
        svg_text(left + number * (_CELL + _GAP) + _CELL - 5, 20, str(count or "serial"), anchor="end")
        for number, count in enumerate(workers)
    ]
    for place, name in enumerate(names):
        y = 30 + place * (_HIGH + _GAP)
        drawn.append(svg_text(left - 8, y + 19, shortened(name, _LONGEST_OF_MAP), anchor="end"))
        for row, stand in zip(rows, stands, strict=True):
            if line_of(stand, stands) == name:
                x = left + workers.index(stand.config.loader.workers) * (_CELL + _GAP)
                shown = (row.before, row.verdict_before) if side == "A" else (row.after, row.verdict_after)
                drawn += _cell(row, *shown, x, y)
    return _svg(left + len(workers) * (_CELL + _GAP), 32 + len(names) * (_HIGH + _GAP), drawn)


def _cell(row: Compared, value: Interval | None, verdict: ShortVerdict | None, x: float, y: float) -> Iterator[str]:
    if verdict is None:
        return
    color = TONES.get(verdict_tone(verdict), TONES["inconclusive"])
    frame = 'stroke="currentColor" stroke-width="2"' if row.verdict_changed else f'stroke="{color}" stroke-width="0.5"'
    said = " or ".join(LETTERS[name][1] for name in limits_in(verdict))
    yield (
        f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_HIGH}" fill="{color}" fill-opacity="0.22" {frame}>'
        f"<title>{escape(said)}</title></rect>"
        f'<rect x="{x}" y="{y}" width="5" height="{_HIGH}" fill="{color}"/>'
    )
    yield svg_text(x + _CELL - _LETTERS, y + 19, interval(value, gap=""), anchor="end")
    yield svg_text(x + _CELL - 5, y + 19, letters_in(verdict), anchor="end", bold=True)


def _svg(width: float, height: float, drawn: Sequence[str]) -> str:
    """Hidden from screen readers: the table has the figures."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" aria-hidden="true" '
        f'style="max-width: {width:g}px; min-width: {_LEGIBLE * width:.0f}px" '
        f'font-family="sans-serif" font-size="11">{"".join(drawn)}</svg>'
    )
