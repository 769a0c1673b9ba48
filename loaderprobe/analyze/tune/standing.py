"""How the rates of settings compare, where each was measured in several visits on a machine whose speed drifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loaderprobe.analyze.effects import of_rounds
from loaderprobe.records.tune_workers import WorkersSetting, WorkersVisit
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import median

Rates = Mapping[WorkersSetting, Mapping[int, float]]
"""Images/s by setting and turn."""


def rates_of(visits: Sequence[WorkersVisit]) -> dict[WorkersSetting, dict[int, float]]:
    """The rates by setting and turn."""
    found: dict[WorkersSetting, dict[int, float]] = {}
    for visit in visits:
        found.setdefault(visit.setting, {})[visit.turn] = visit.images_per_s
    return found


def pairs(rates: Rates, one: WorkersSetting, other: WorkersSetting) -> dict[int, float]:
    """Rate of `one` over that of `other`, in each later turn that measured both."""
    common = sorted(turn for turn in rates[one] if turn and turn in rates[other])
    return {turn: rates[one][turn] / rates[other][turn] for turn in common}


def over(rates: Rates, one: WorkersSetting, other: WorkersSetting) -> Interval:
    """Rate of `one` over that of `other`: the median of the turns that measured both, with its 95 % interval.

    Both are compared in turns because the machine's speed drifts: two visits one after the other mostly see the same.
    Without such a turn, their first visits are compared.
    """
    if one == other:
        return Interval(value=1.0, low=1.0, high=1.0)
    first = {0: _first(rates[one]) / _first(rates[other])}
    return of_rounds(pairs(rates, one, other) or first, band="turns").ratio


def best_of(rates: Rates, among: Sequence[WorkersSetting]) -> WorkersSetting:
    """The fastest of these settings; each is compared with the one that was measured in most turns."""
    often = max(len(rates[each]) for each in among)
    reference = max(
        (each for each in sorted(among) if len(rates[each]) == often), key=lambda each: median([*rates[each].values()])
    )
    return max(sorted(among), key=lambda each: over(rates, each, reference).value)


def _first(by_turn: Mapping[int, float]) -> float:
    return by_turn[min(by_turn)]
