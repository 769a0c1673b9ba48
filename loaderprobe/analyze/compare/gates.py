"""What was asked to hold of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.compare import Compared, Gate, GateName, ResultKind

WHOLE = -1
"""Stands for the mean of all rows, or the whole step."""


def judge_gates(
    names: Sequence[GateName], rows: Sequence[Compared], whole: Compared | None, *, matters: float, missing: int,
    kind: ResultKind,
) -> tuple[Gate, ...]:  # fmt: skip
    """Each gate with the rows that fail it. `missing` are rows of A that B lacks: they are unclear.

    A configuration that B lacks may have failed there: that is no speed that holds. Phases and layers may be others.
    """
    numbered = [*enumerate(rows), *([(WHOLE, whole)] if whole else [])]
    gates = []
    for name in names:
        failing = tuple(place for place, row in numbered if _fails(name, row))
        blind = sum(_blind(row, matters) for row in rows) if name == "slower" else 0
        lacking = missing and (name == "unclear" or (name == "slower" and kind == "sweep"))
        passed = not failing and not lacking
        gates.append(Gate(name=name, passed=passed, rows=failing, blind=blind, missing=missing))
    return tuple(gates)


def _blind(row: Compared, matters: float) -> bool:
    return row.word == "unclear" and (row.visible is None or row.visible > matters)


def _fails(name: GateName, row: Compared) -> bool:
    if name == "slower":
        return row.word == "slower"
    if name == "unclear":
        return row.word == "unclear"
    return row.verdict_changed
