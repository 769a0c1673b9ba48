"""Rows of two sides, judged: slower, faster, the same, or unclear and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.effects import (
    ALPHA,
    ENOUGH_ROUNDS,
    Effect,
    RunReading,
    drift_of,
    holm,
    interval,
    mean_effect,
    of_pairs,
    pair_logs,
    sample,
    unpaired,
)
from loaderprobe.records.compare import (
    Compared,
    Gate,
    GateName,
    ReasonCode,
    ResultKind,
    Subject,
    Unit,
    Word,
)
from loaderprobe.records.verdict import Interval, ShortVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRow:
    """One row of one side."""

    subject: Subject
    unit: Unit
    readings: tuple[RunReading, ...]
    """One a run."""
    verdict: ShortVerdict | None = None

    @property
    def count(self) -> int:
        """Rounds or steps, of all runs."""
        return sum(len(each.values) for each in self.readings)

    @property
    def figure(self) -> Interval:
        """Of the only run, or over several."""
        if len(self.readings) == 1:
            return self.readings[0].figure
        return interval([each.figure.value for each in self.readings])


Pair = tuple[SideRow, SideRow]


def compare_rows(
    pairs: Sequence[Pair], *, matters: float, step: Pair | None = None, averaged: Sequence[int] = ()
) -> tuple[tuple[Compared, ...], Compared | None]:
    """Every pair as a row, and the whole: the pair `step`, else the mean of the rows, of those in `averaged` if any.

    `matters` is the size of a change that matters, as a share of the speed of A. A row that fewer runs have than there
    are on its side is compared as what it is: the drift between runs counts, unless its own runs show it.
    """
    effects = [_effect(pair) for pair in pairs]
    whole = _effect(step) if step else _whole(effects, averaged)
    known = [each for each in (*effects, whole) if each is not None]
    adjusted = iter(holm([each.p for each in known]))
    # The first of Holm's steps: what is seen at that level is seen among any others.
    level = ALPHA / max(1, len(known))
    judge = Judge(matters=matters, level=level)
    rows = [judge.row(pair, each, next(adjusted) if each else None) for pair, each in zip(pairs, effects, strict=True)]
    if step:
        return tuple(rows), judge.row(step, whole, next(adjusted) if whole else None)
    return tuple(rows), judge.mean(whole, next(adjusted)) if whole else None


def _effect(pair: Pair) -> Effect | None:
    times = pair[0].unit == "ms"
    logs = pair_logs(pair[0].readings, pair[1].readings)
    if len(logs) >= ENOUGH_ROUNDS:
        found = of_pairs(logs, times=times)
        return found if found.error else None
    before, after = (sample(side.readings) for side in pair)
    drift = drift_of((len(pair[0].readings), len(pair[1].readings)))
    if before is None or after is None or drift + before.variance + after.variance == 0:
        return None
    return unpaired(before, after, times=times, drift=drift)


def _whole(effects: Sequence[Effect | None], averaged: Sequence[int]) -> Effect | None:
    """The mean of the rows that have an effect; None where that is no more than one row."""
    chosen = [effects[place] for place in averaged] if averaged else effects
    known = [each for each in chosen if each is not None]
    return mean_effect(known) if len(known) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Gives rows their words."""

    matters: float
    level: float
    """Of the first of Holm's steps."""

    def row(self, pair: Pair, found: Effect | None, p: float | None) -> Compared:
        """A pair with its effect."""
        before, after = pair
        word, reason = self._word(found, p)
        return Compared(
            subject=_subject(before.subject, after.subject),
            unit=before.unit,
            before=before.figure,
            after=after.figure,
            rounds=(before.count, after.count),
            pairs=found.pairs if found else 0,
            ratio=found.ratio if found else None,
            p=p,
            visible=self._visible(found),
            rounds_needed=self._needed(found) if word == "unclear" else None,
            word=word,
            reason=reason,
            verdict_before=before.verdict,
            verdict_after=after.verdict,
        )

    def mean(self, found: Effect, p: float) -> Compared:
        """The mean of all rows."""
        word, reason = self._word(found, p)
        return Compared(
            subject=Subject(kind="all"), unit="", before=None, after=None, rounds=(0, 0), pairs=found.pairs,
            ratio=found.ratio, p=p, visible=self._visible(found), rounds_needed=None, word=word, reason=reason,
        )  # fmt: skip

    @property
    def _size(self) -> float:
        """A logarithm: of 5 %, from 0.95 times to 1 / 0.95 times as fast."""
        return -math.log1p(-self.matters)

    def _word(self, found: Effect | None, p: float | None) -> tuple[Word, ReasonCode]:
        if found is None or p is None:
            return "unclear", "no_spread"
        half, size = found.half(), self._size
        if abs(found.log) >= size and p <= ALPHA:
            return ("faster" if found.log > 0 else "slower"), "beyond_noise"
        if abs(found.log) + half <= size:
            return "same", "within_size"
        if abs(found.log) > half:
            return "unclear", "one_of_many" if abs(found.log) >= size else "near_size"
        return "unclear", "too_noisy"

    def _visible(self, found: Effect | None) -> float | None:
        return None if found is None else -math.expm1(-found.half(self.level))

    def _needed(self, found: Effect | None) -> int | None:
        return None if found is None else found.rounds_needed(self._size, self.level)


def _subject(before: Subject, after: Subject) -> Subject:
    if before.classes == after.classes:
        return before
    return replace(before, classes=(before.classes[0], after.classes[1]))


# What was asked to hold of a comparison.

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
