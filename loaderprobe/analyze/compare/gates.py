"""What was asked to hold of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.records.compare import Compared, Gate, GateName, ResultKind

STEPS = ("layers", "trace")
"""Kinds of results whose whole step must be clear."""
WHOLE = -1
"""Stands for the mean of all rows, or the whole step."""


def judge_gates(
    names: Sequence[GateName], rows: Sequence[Compared], whole: Compared | None, *, matters: float, missing: int,
    kind: ResultKind, allow_unclear: bool = False,
) -> tuple[Gate, ...]:  # fmt: skip
    """Each gate with the rows that fail it. `missing` are rows of A that B lacks: they are unclear.

    A configuration that B lacks may have failed there: that is no speed that holds. Phases and layers may be others.
    Where a row is too noisy to show a loss of `matters`, no speed is seen to hold either, unless `allow_unclear`. Of
    layers that counts for the whole step: a layer of a thousandth of it is always noisy.
    """
    numbered = [*enumerate(rows), *([(WHOLE, whole)] if whole else [])]
    gates = []
    for name in names:
        failing = tuple(place for place, row in numbered if _fails(name, row))
        blind = sum(_blind(row, matters) for row in rows) if name == "slower" else 0
        lacking = missing and (name == "unclear" or (name == "slower" and kind == "sweep"))
        unseen = name == "slower" and any(
            _blind(row, matters) for row in ([whole] if kind in STEPS and whole else rows)
        )
        held = not failing and not lacking
        too_noisy = held and unseen and not allow_unclear
        gate = Gate(name=name, passed=held and not too_noisy, rows=failing, blind=blind, missing=missing)
        gates.append(replace(gate, too_noisy=too_noisy))
    return tuple(gates)


def _blind(row: Compared, matters: float) -> bool:
    """True for a row that would not have shown such a loss; one of which nothing shows how much it varies, too."""
    return row.word == "unclear" and (row.visible is None or row.visible > matters)


def _fails(name: GateName, row: Compared) -> bool:
    if name == "slower":
        return row.word == "slower"
    if name == "unclear":
        return row.word == "unclear"
    return row.verdict_changed
