"""A comparison as a page and as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaderprobe.records.compare import Compared, ComparedSide, ComparisonReport, Difference, ReasonCode
from loaderprobe.render.cells import as_columns, interval_cells
from loaderprobe.render.compare_words import (
    REASONS,
    SCALES,
    answers,
    change_parts,
    device_of,
    effect_size,
    figure_words,
    gate_words,
    names_of,
    note_words,
    title,
    verdict_change,
    visible_words,
)
from loaderprobe.render.document import Document, Item, Paragraph, Part, Section, Table
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
