"""A comparison as a page, as its charts, and as the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from loaderprobe.records.compare import (
    Compared,
    ComparedSide,
    ComparisonReport,
    Difference,
    ReasonCode,
    ShortVerdict,
    Word,
)
from loaderprobe.records.verdict import Interval
from loaderprobe.render.cells import as_columns, interval_cells
from loaderprobe.render.charts import TONES, Axis, heat_cell, heat_rows, named_rows, shortened
from loaderprobe.render.compare_words import (
    REASONS,
    SCALES,
    answers,
    change_parts,
    change_words,
    device_of,
    effect_size,
    figure_words,
    gate_words,
    matters_words,
    names_of,
    note_words,
    stand_in,
    title,
    verdict_change,
    visible_words,
)
from loaderprobe.render.document import Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.limits import LETTERS, letters_in, limits_in, line_of
from loaderprobe.render.wording import interval, loading, verdict_tone
from loaderprobe.units import format_bytes, join_words

SHOWN = 20
ROWS = "rows"
"""The name of the section of the rows."""
ORDER = ("slower", "faster", "unclear", "same")
MARKS: dict[ReasonCode, str] = {"one_of_many": "*", "near_size": "**", "no_spread": "***"}
LEGEND = (
    "change: of the speed, with its 95 % interval. seen from: the smallest change that would have been seen here, in "
    "about half of all cases; twice as much is nearly always seen."
)


def compare_document(found: ComparisonReport) -> Document:
    """The answer first, then the rows that changed or are unclear, then what differs."""
    return Document(
        title=title(found),
        sections=tuple(section for section in _sections(found) if section.parts),
    )


def _sections(found: ComparisonReport) -> Iterator[Section]:
    gates = [Item(subject=name, text=text) for name, text in (gate_words(found, gate) for gate in found.gates)]
    yield Section(parts=(*(Paragraph(text=text, strong=strong) for text, strong in answers(found)), *gates))
    yield Section(title="Rows", name=ROWS, parts=_rows(found))
    changed = [row for row in found.rows if row.verdict_changed]
    names = names_of(found, [row.subject for row in changed])
    verdicts = (Item(subject=name, text=verdict_change(row)) for name, row in zip(names, changed, strict=True))
    yield Section(title="Verdicts that changed", parts=tuple(verdicts))
    yield Section(title="Not in both", parts=tuple(_alone(found)))
    yield Section(title="What differs", parts=_differences(found))
    notes = tuple(Paragraph(text=note_words(found, note)) for note in found.notes)
    yield Section(title="A and B", parts=(*_side("A", found.before), *_side("B", found.after), *notes))


def _rows(found: ComparisonReport) -> tuple[Part, ...]:
    """What is not the same, by device; all of it where everything is."""
    rows = [row for row in ordered(found) if row.word != "same" or row.verdict_changed] or ordered(found)
    shown = rows[:SHOWN]
    groups: dict[str, list[Compared]] = {}
    for row in shown:
        groups.setdefault(device_of(row.subject), []).append(row)
    several = len(groups) > 1
    if found.whole:
        groups.setdefault("" if several else next(iter(groups)), []).append(found.whole)
    parts: list[Part] = []
    for device, some in groups.items():
        parts += [Paragraph(text=device)] if several and device else []
        parts.append(_table(found, some))
    notes = [LEGEND]
    if found.kind == "trace":
        notes.append("ms: the median of the steps; `trace` shows their mean. A cause under 1 % of a step is no row.")
    if found.pairs:
        notes.append(f"A and B were measured in turn: a change is that of {_pairs(found)} of rounds, without drift.")
    notes += [f"{mark}: {REASONS[reason]}." for reason, mark in MARKS.items() if any(r.reason == reason for r in shown)]
    same = len(found.rows) - len(rows)
    notes += [f"{same} more are the same."] if same else []
    notes += [f"{len(rows) - SHOWN} more are not shown."] if len(rows) > SHOWN else []
    return (*parts, Paragraph(text=" ".join(notes)))


def _pairs(found: ComparisonReport) -> str:
    """`6 pairs`, `4 to 6 pairs`; rows with too few are compared as if measured apart."""
    ends = dict.fromkeys((found.pairs, max(row.pairs for row in found.rows)))
    return f"{' to '.join(map(str, ends))} pairs"


def ordered(found: ComparisonReport) -> list[Compared]:
    """Verdict changes first, then slower, faster, unclear, the same; the largest changes of each first."""
    return sorted(
        found.rows, key=lambda row: (not row.verdict_changed, ORDER.index(row.word), -effect_size(row))
    )  # fmt: skip


def _table(found: ComparisonReport, rows: list[Compared]) -> Table:
    units = {row.unit for row in found.rows}
    unit = SCALES[next(iter(units))][1] if len(units) == 1 else ""
    names = names_of(found, [row.subject for row in rows], device=False)
    return Table(
        head=("", f"A {unit}".strip(), f"B {unit}".strip(), "change", "interval", "seen from", ""),
        lines=tuple(
            (
                name,
                figure_words(row, row.before, unit=not unit, gap=""),
                figure_words(row, row.after, unit=not unit, gap=""),
                *change_parts(row.ratio),
                visible_words(row),
                f"{row.word}{MARKS.get(row.reason, '')}",
            )
            for name, row in zip(names, rows, strict=True)
        ),
        right=frozenset({1, 2, 3, 4, 5}),
    )


def _alone(found: ComparisonReport) -> Iterator[Part]:
    for side, subjects in (("A", found.only_before), ("B", found.only_after)):
        names = names_of(found, subjects)
        if names:
            more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
            yield Item(subject=f"only in {side}", text="; ".join([*names[:SHOWN], *more]))


def _differences(found: ComparisonReport) -> tuple[Part, ...]:
    """A table of A and B; then what differs among the runs of A."""
    lines, within = [], []
    for each in found.differences:
        first, other = (_value(each, place) for place in (0, 1))
        if each.between[1].startswith("A"):
            within.append(Item(subject=each.field, text=f"{first}; {other}"))
        else:
            lines.append((each.field, first, other))
    table = [Table(head=("", "A", "B"), lines=tuple(lines), right=frozenset())] if lines else []
    return (*table, *within)


def _value(difference: Difference, place: int) -> str:
    """Of A or B; with the name of the run where its side has several."""
    text, name = (difference.before, difference.after)[place], difference.between[place]
    shown = format_bytes(float(text)) if difference.field == "memory_bytes" else text
    return shown if name in ("A", "B") else f"{name}: {shown}"


def _side(name: str, side: ComparedSide) -> tuple[Part, ...]:
    runs = ", ".join(f"{path} ({created[:16]})" for path, created in zip(side.paths, side.created_utc, strict=True))
    data = f"; data: {join_words(side.roots)}" if side.roots else ""
    return (Item(subject=name, text=f"{runs}{data}; {side.command}"),)


def compare_columns(found: ComparisonReport) -> dict[str, list[Any]]:
    """One row a configuration, phase, layer or cause, the whole last; units in the column `unit`."""
    rows = [*found.rows, *([found.whole] if found.whole else [])]
    names = names_of(found, [row.subject for row in rows])
    return as_columns([{"name": name, **_columns(row)} for name, row in zip(names, rows, strict=True)])


def _columns(row: Compared) -> dict[str, Any]:
    return {
        "kind": row.subject.kind,
        "key": row.subject.name,
        "unit": row.unit,
        **interval_cells("before", row.before),
        **interval_cells("after", row.after),
        **interval_cells("ratio", row.ratio),
        "p": row.p,
        "visible": row.visible,
        "rounds_before": row.rounds[0],
        "rounds_after": row.rounds[1],
        "pairs": row.pairs,
        "word": row.word,
        "reason": row.reason,
        "cause_before": row.verdict_before.cause if row.verdict_before else None,
        "cause_after": row.verdict_after.cause if row.verdict_after else None,
        "verdict_changed": row.verdict_changed,
    }


# The charts of a comparison: ratios with their intervals, and what limits in A and in B, side by side. As SVG.

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
    """Those of `_TICKS` whose figures fit, the middle first: it keeps its figure, whatever stands near it."""
    shown: list[float] = []
    least = 2 * reach * _TICK_SHARE
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        if abs(math.log(tick)) <= reach and all(abs(math.log(tick / other)) >= least for other in shown):
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
