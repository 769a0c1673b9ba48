"""A comparison as a page, as its charts, and as the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from loaderprobe.records.compare import (
    Compared,
    ComparedSide,
    CompareNote,
    ComparisonReport,
    Difference,
    Gate,
    GateName,
    ResultKind,
    Subject,
    Unit,
    Word,
    WordReason,
)
from loaderprobe.records.config import OPTIONS
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Interval, ShortVerdict
from loaderprobe.render.document import Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.format import MISSING, counted, interval, percent
from loaderprobe.render.groups import LETTERS, letters_in, limits_in, line_of
from loaderprobe.render.plots import TONES, Axis, heat_cell, heat_rows, named_rows, shortened
from loaderprobe.render.rows import as_columns, interval_cells, own_cells
from loaderprobe.render.wording import label, loading, verdict_tone, verdict_words
from loaderprobe.units import format_bytes, join_words, significant

# How a comparison is said: the names of its rows, changes, and the sentences of its answer.

NAMED = 3
"""Rows that a sentence names."""
NOUNS: dict[ResultKind, str] = {
    "sweep": "configuration", "bandwidth": "phase", "diagnosis": "loader",
}  # fmt: skip
PHASES: dict[str, str] = {"files": "files", "direct": "direct reads", "sequential": "sequential reads"}
SCALES: dict[Unit, tuple[float, str]] = {
    "images/s": (1.0, "images/s"), "samples/s": (1.0, "samples/s"),
    "bytes/s": (1e-6, "MB/s"), "1/s": (1.0, "1/s"), "": (1.0, ""),
}  # fmt: skip
THOUSANDS_FROM = 1e4
"""Operations/s."""
REASONS: dict[WordReason, str] = {
    "beyond_noise": "",
    "within_size": "",
    "too_noisy": "too noisy",
    "one_of_many": "in one of so many rows, chance alone makes such a change",
    "near_size": "changed, but perhaps by less than matters",
    "no_spread": "nothing shows how much it varies",
}
GATES: dict[GateName, str] = {
    "slower": "--fail-if-slower", "unclear": "--fail-if-unclear", "verdict_changes": "--fail-if-verdict-changes",
}  # fmt: skip


def names_of(found: ComparisonReport, subjects: Sequence[Subject], *, device: bool = True) -> list[str]:
    """The names of these, as far as they set them apart from all that were compared; `device` and cache state, too."""
    every = [*(row.subject for row in found.rows), *found.only_before, *found.only_after]
    among = [stand_in(each) for each in every if each.config is not None]
    whole = "the ladder together" if found.kind == "bandwidth" else "all together"
    return [whole if subject.kind == "all" else _name(subject, among, device) for subject in subjects]


def device_of(subject: Subject) -> str:
    """`emulated:mlperf-h100, cold files`; empty for what is no configuration."""
    return f"{subject.config.compute.name}, {subject.config.cache} files" if subject.config else ""


def _name(subject: Subject, among: Sequence[ConfigurationRow], device: bool) -> str:
    if subject.kind in ("training", "loader"):
        return "training" if subject.kind == "training" else "the loader alone"
    if subject.config is not None:
        return _configuration(stand_in(subject), among, device)
    what = PHASES.get(subject.name, subject.name) if subject.kind == "phase" else f"{subject.kind}s"
    return f"{what}, {counted(subject.readers, 'reader')}"


def _configuration(row: ConfigurationRow, among: Sequence[ConfigurationRow], device: bool) -> str:
    """`500x375, 2 workers`, with device and cache state where there are several."""
    alike = [each for each in among if _device(each) == _device(row)]
    parts = [label(row, alike)]
    if not device:
        return parts[0]
    if len({each.config.compute.name for each in among}) > 1:
        parts.append(row.config.compute.name)
    if len({each.config.cache for each in among}) > 1:
        parts.append(row.config.cache)
    return ", ".join(parts)


def _device(row: ConfigurationRow) -> tuple[str, str]:
    return row.config.compute.name, row.config.cache


def stand_in(subject: Subject) -> ConfigurationRow:
    """A row with nothing but its configuration, which is all that a label needs."""
    assert subject.config is not None
    # Whether the data differ is said apart, and rounds stand beside the figures.
    config = replace(subject.config, data="", rounds=OPTIONS["rounds"].default)
    return ConfigurationRow(config=config, status="skipped", reason=None, verdict=None, emulated=False)


def figure_words(row: Compared, value: Interval | None, *, unit: bool = False, gap: str = " ") -> str:
    """`462 ±54`, in the unit of its row."""
    if value is None:
        return MISSING
    scale, name = SCALES[row.unit]
    if row.unit == "1/s" and row.before and row.before.value >= THOUSANDS_FROM:
        scale, name = 1e-3, "k/s"
    scaled = Interval(value=value.value * scale, low=value.low * scale, high=value.high * scale)
    return f"{interval(scaled, gap)}{f' {name}' if unit and name else ''}"


def change_parts(ratio: Interval | None) -> tuple[str, str]:
    """`-12 %` of the speed and `-18 to -5`; `31x` and `28 to 34` of large changes."""
    if ratio is None:
        return MISSING, MISSING
    if not 0.5 < ratio.value < 2:
        value, low, high = (significant(each, 2) for each in (ratio.value, ratio.low, ratio.high))
        return f"{value}x", f"{low} to {high}"
    low, high = (_signed(each - 1, 0.01) for each in (ratio.low, ratio.high))
    return f"{_signed(ratio.value - 1, 0.1)} %", f"{low} to {high}"


def change_words(ratio: Interval | None) -> str:
    """`-12 % (-18 to -5)`."""
    value, ends = change_parts(ratio)
    return value if ratio is None else f"{value} ({ends})"


def _signed(share: float, whole_from: float) -> str:
    text = f"{100 * share:+.1f}" if abs(share) < 0.995 * whole_from else f"{100 * share:+.0f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def matters_words(found: ComparisonReport) -> str:
    """`5 %`: the size of a change that matters."""
    return f"{100 * found.matters:g} %"


def visible_words(row: Compared) -> str:
    """The smallest change that would have been seen."""
    return MISSING if row.visible is None else percent(row.visible)


def title(found: ComparisonReport) -> str:
    """The counts of the words."""
    many = counted(len(found.rows), NOUNS[found.kind])
    words: tuple[Word, ...] = ("slower", "faster", "same", "unclear")
    counts = [f"{len(rows)} {word}" for word in words if (rows := found.of_word(word))]
    return f"B against A, {many}: {', '.join(counts)}"


def answers(found: ComparisonReport) -> list[tuple[str, bool]]:
    """(sentence, whether it is an answer): verdicts, slower, faster, all together, the rest."""
    whole = [_whole(found, found.whole)] if found.whole else []
    first = [*_verdicts(found), *_changed(found, "slower"), *_changed(found, "faster"), *whole]
    rest = [*_unclear(found), *_same(found)]
    if found.kind != "bandwidth" and not _verdicts(found):
        rest.append("No verdict changed.")
    # A single row that did not change has no answer but the rest.
    return [*((text, True) for text in first), *((text, not first) for text in rest)]


def _whole(found: ComparisonReport, row: Compared) -> str:
    name = "All steps of the ladder together" if found.kind == "bandwidth" else f"All {len(found.rows)} together"
    only = "only " if row.word == "unclear" else ""
    seen = f"; {only}a change of {visible_words(row)} would have been seen" if row.visible else ""
    said = {"same": "the same", "unclear": "unclear"}.get(row.word, f"{row.word} in B")
    return f"{name} are {said}: {change_words(row.ratio)}{seen}."


def _verdicts(found: ComparisonReport) -> list[str]:
    changed = [row for row in found.rows if row.verdict_changed]
    if not changed:
        return []
    names = names_of(found, [row.subject for row in changed])
    said = [f"{name}: {verdict_change(row)}" for name, row in zip(names, changed, strict=True)]
    return [f"{counted(len(changed), 'verdict')} changed: {'; '.join(_few(said))}."]


def verdict_change(row: Compared) -> str:
    """`input: storage → compute`."""
    verdicts = (row.verdict_before, row.verdict_after)
    return " → ".join(verdict_words(verdict) if verdict else MISSING for verdict in verdicts)


def _changed(found: ComparisonReport, word: Word) -> list[str]:
    rows = sorted(found.of_word(word), key=lambda row: -effect_size(row))
    if not rows:
        return []
    names = names_of(found, [row.subject for row in rows])
    said = [f"{name} {change_words(row.ratio)}" for name, row in zip(names, rows, strict=True)]
    return [f"{word.capitalize()} in B: {len(rows)} of {len(found.rows)}: {'; '.join(_few(said))}."]


def _unclear(found: ComparisonReport) -> list[str]:
    rows = found.of_word("unclear")
    if not rows:
        return []
    text = f"Unclear: {len(rows)} of {len(found.rows)}"
    known = [row.visible for row in rows if row.visible is not None]
    if known:
        ends = dict.fromkeys(percent(each) for each in (min(known), max(known)))
        text += f", where only changes of {' to '.join(ends)} and more would have been seen"
    return [f"{text}. {settles(found, rows)}".strip()]


def settles(found: ComparisonReport, rows: Sequence[Compared]) -> str:
    """What would make unclear rows clear."""
    needed = [row.rounds_needed for row in rows if row.rounds_needed is not None]
    size = matters_words(found)
    runs = "Three runs a side, begun in turn, would show more (A1 A2 A3 --with B1 --with B2 --with B3)."
    if found.kind != "sweep" or not needed:
        return runs
    return f"With --rounds {max(needed)}, {len(needed)} of them would show a change of {size}. {runs}"


def _same(found: ComparisonReport) -> list[str]:
    rows = found.of_word("same")
    if not rows:
        return []
    seen = percent(max(row.visible or 0.0 for row in rows))
    many = f"The same within {matters_words(found)}: {len(rows)} of {len(found.rows)}"
    return [f"{many}, where changes of {seen} and more would have been seen."]


def effect_size(row: Compared) -> float:
    """By which rows of a word are ordered."""
    return 0.0 if row.ratio is None else max(row.ratio.value, 1 / row.ratio.value)


def _few(said: Sequence[str]) -> list[str]:
    more = len(said) - NAMED
    return [*said[:NAMED], f"and {more} more"] if more > 0 else [*said]


def gate_words(found: ComparisonReport, gate: Gate) -> tuple[str, str]:
    """(the option, whether it holds and why not)."""
    size = matters_words(found)
    name = f"{GATES[gate.name]} {size.replace(' ', '')}" if gate.name == "slower" else GATES[gate.name]
    if gate.too_noisy:
        return name, f"failed: {_too_noisy(found, gate)}"
    if not gate.passed:
        rows = [found.whole if place < 0 else found.rows[place] for place in gate.rows]
        names = names_of(found, [row.subject for row in rows if row])
        lacking = [f"{gate.missing} of A that B lacks or failed to measure"] if gate.missing else []
        return name, f"failed by {'; '.join(_few([*lacking, *names]))}"
    doubts = []
    if gate.blind:
        allowed = " (allowed)" if found.allow_unclear else ""
        doubts.append(f"{gate.blind} of {len(found.rows)} rows were too noisy to show a loss of {size}{allowed}")
    if gate.missing:
        doubts.append(f"{gate.missing} of A {'is' if gate.missing == 1 else 'are'} not in B")
    return name, f"held, but {join_words(doubts)}; --fail-if-unclear fails then" if doubts else "held"


def _too_noisy(found: ComparisonReport, gate: Gate) -> str:
    """Where a gate cannot see what it was asked to hold, what it can see, and what would help."""
    rows = [row for row in found.rows if row.word == "unclear"]
    known = [row.visible for row in rows if row.visible is not None]
    seen = f"; only a loss of {percent(max(known))} would be seen in each" if known else ""
    return (
        f"too noisy to hold {matters_words(found)} in {gate.blind} of {len(found.rows)}{seen}. {settles(found, rows)} "
        "--allow-unclear lets it hold."
    )


def note_words(found: ComparisonReport, note: CompareNote) -> str:
    """One thing that weakens the comparison."""
    rows = counted(note.rows, "configuration" if found.kind == "sweep" else "step")
    if note.code == "other_reads":
        return f"{note.side}: other processes read from the same devices in {rows}."
    if note.code == "few_rounds":
        return f"{note.side}: {rows} with fewer than three rounds, compared by the intervals of their rates."
    return f"{note.side}: the probe itself was the limit in {rows} of the ladder; the storage may be faster."


SHOWN = 20
ROWS = "rows"
"""The name of the section of the rows."""
ORDER = ("slower", "faster", "unclear", "same")
MARKS: dict[WordReason, str] = {"one_of_many": "*", "near_size": "**", "no_spread": "***"}
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
    notes += [f"{mark}: {REASONS[reason]}." for reason, mark in MARKS.items() if any(r.reason == reason for r in shown)]
    same = len(found.rows) - len(rows)
    notes += [f"{same} more are the same."] if same else []
    notes += [f"{len(rows) - SHOWN} more are not shown."] if len(rows) > SHOWN else []
    return (*parts, Paragraph(text=" ".join(notes)))


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
    for difference in found.differences:
        first, other = (_value(difference, place) for place in (0, 1))
        if difference.between[1].startswith("A"):
            within.append(Item(subject=difference.field, text=f"{first}; {other}"))
        else:
            lines.append((difference.field, first, other))
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
    """One row a configuration or phase, the whole last; units in the column `unit`."""
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
        **own_cells(row, "p", "visible"),
        "rounds_before": row.rounds[0],
        "rounds_after": row.rounds[1],
        **own_cells(row, "word", "reason"),
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
        bold, color = row.subject.kind == "all", COLORS[row.word]
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
    seen = {name for verdict in verdicts for name in limits_in(verdict)}
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
