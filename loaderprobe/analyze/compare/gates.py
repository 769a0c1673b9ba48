"""What was asked to hold of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.compare import Compared, Gate, GateName

WHOLE = -1
"""Stands for the mean of all rows, or the whole step."""


def judge_gates(
    names: Sequence[GateName], rows: Sequence[Compared], whole: Compared | None, *, matters: float, missing: int
) -> tuple[Gate, ...]:
    """Each gate with the rows that fail it. `missing` are rows of A that B lacks: they are unclear."""
    numbered = [*enumerate(rows), *([(WHOLE, whole)] if whole else [])]
    gates = []
    for name in names:
        failing = tuple(place for place, row in numbered if _fails(name, row))
        lacking = missing if name == "unclear" else 0
        blind = sum(_blind(row, matters) for row in rows) if name == "slower" else 0
        gates.append(Gate(name=name, passed=not failing and not lacking, rows=failing, blind=blind, missing=lacking))
    return tuple(gates)


def _blind(row: Compared, matters: float) -> bool:
    return row.word == "unclear" and (row.visible is None or row.visible > matters)


def _fails(name: GateName, row: Compared) -> bool:
    if name == "slower":
        return row.word == "slower"
    if name == "unclear":
        return row.word == "unclear"
    return row.verdict_changed
