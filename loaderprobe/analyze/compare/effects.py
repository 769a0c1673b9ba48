"""Welch's t test on logarithms of speeds, Student's on pairs measured in turn, Holm's correction for many rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.config import Turns
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import mean, standard_error, student_quantile, student_tails

ALPHA = 0.05
REPEAT = 0.03
"""Half the 95 % interval of the ratio of two runs of the same thing, minutes apart: a machine drifts between runs."""
NORMAL = 1.96
OF_SLICES = 5
"""Degrees of freedom of an interval of one round or two: of six to eleven batch means, or of a rate."""
FEWEST_ROUNDS = 3
"""Of fewer, the spread says nothing: Student's factor of two is 12.7. The interval of the rate stands in."""
APART_S = 600.0
"""Rounds that are further apart are no pair."""
FEWEST_RUNS = 3
"""From so many on the runs themselves show how they vary."""
TRIED_ROUNDS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one run says of one row."""

    values: tuple[float, ...]
    """Of rounds or steps."""
    figure: Interval
    """Their median, with its 95 % interval; it stands in where the rounds are too few."""
    turns: Turns | None = None
    """Of a run that was measured in turn with another."""
    at_s: tuple[float, ...] = ()
    """When each value was measured; on a clock that both runs of a pair share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The logarithm of a figure on one side."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The logarithm of the speed of B over that of A."""

    log: float
    error: float
    """Its standard error."""
    freedom: float
    of_rounds: float
    """Variance of a single round, of both sides together."""
    drift: float
    """Variance between runs."""
    pairs: int = 0
    """Of rounds in turn, whose ratios it comes from; 0 for two samples."""

    @property
    def p(self) -> float:
        """The probability of one as large by chance."""
        return student_tails(self.log / self.error, self.freedom) if self.error else float(self.log == 0)

    def half(self, alpha: float = ALPHA) -> float:
        """Half the interval that holds it with probability 1 - `alpha`."""
        return student_quantile(alpha, self.freedom) * self.error

    def rounds_needed(self, smallest: float, alpha: float) -> int | None:
        """Rounds a side with which an effect of that size would be seen; None where the drift hides it."""
        for rounds in TRIED_ROUNDS:
            error = math.sqrt(self.of_rounds / rounds + self.drift)
            samples = 1.0 if self.pairs else 2.0
            freedom = samples * (rounds - 1) if not self.drift else _freedom(error, self.of_rounds / rounds, rounds)
            if student_quantile(alpha, freedom) * error <= smallest:
                return rounds
        return None


def _freedom(error: float, of_rounds: float, rounds: int) -> float:
    return error**4 / (of_rounds**2 / (2 * (rounds - 1))) if of_rounds else math.inf


def sample(readings: Sequence[Reading]) -> Sample | None:
    """One side: its runs where there are several, else its rounds, else the interval of its rate; None where there is
    none."""
    if len(readings) >= FEWEST_RUNS:
        return _of_values([each.figure.value for each in readings])
    if too_few_rounds(readings):
        return _of_intervals([each.figure for each in readings])
    return _of_values([value for each in readings for value in each.values])


def too_few_rounds(readings: Sequence[Reading]) -> bool:
    """True for a side of which neither runs nor rounds show how much they vary: the interval of its rate stands in."""
    return len(readings) < FEWEST_RUNS and sum(len(each.values) for each in readings) < FEWEST_ROUNDS


def _of_values(values: Sequence[float]) -> Sample | None:
    if min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    return Sample(mean=mean(logs), variance=standard_error(logs) ** 2, freedom=len(logs) - 1, count=len(logs))


def _of_intervals(figures: Sequence[Interval]) -> Sample | None:
    if any(not 0 <= each.low < each.value < each.high for each in figures):
        return None
    factor = student_quantile(ALPHA, OF_SLICES)
    # The upper half: the lower one ends at 0.
    errors = [(each.high - each.value) / each.value / factor for each in figures]
    return Sample(
        mean=mean([math.log(each.value) for each in figures]),
        variance=math.fsum(error**2 for error in errors) / len(errors) ** 2,
        freedom=OF_SLICES * len(figures),
        count=len(figures),
    )


def effect(before: Sample, after: Sample, *, times: bool, drift: float) -> Effect:
    """Welch (1947), with the drift between runs as a variance that is known; `times` are slower where they are more."""
    variance = before.variance + after.variance
    error = math.sqrt(variance + drift)
    parts = math.fsum(each.variance**2 / each.freedom for each in (before, after))
    return Effect(
        log=(before.mean - after.mean) if times else (after.mean - before.mean),
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=before.variance * before.count + after.variance * after.count,
        drift=drift,
    )


def pair_logs(before: Sequence[Reading], after: Sequence[Reading]) -> list[float]:
    """The logarithms of B over A, of rounds that were measured in turn; none of runs that were not.

    A round that waited long for its partner has none: a machine drifts in minutes.
    """
    if len(before) != 1 or len(after) != 1 or not in_turn(before[0].turns, after[0].turns):
        return []
    (one,), (other,) = before, after
    rounds = zip(one.values, one.at_s, other.values, other.at_s, strict=False)
    return [math.log(b / a) for a, a_s, b, b_s in rounds if abs(a_s - b_s) <= APART_S and min(a, b) > 0]


def in_turn(before: Turns | None, after: Turns | None) -> bool:
    """True for the two runs that were measured in turn with each other."""
    return bool(before and after and before.pair == after.pair and before.side != after.side)


def paired_effect(logs: Sequence[float], *, times: bool) -> Effect:
    """Student's t over pairs of rounds: what reaches both rounds of a pair alike is not in their ratio."""
    error = standard_error(logs)
    return Effect(
        log=-mean(logs) if times else mean(logs), error=error, freedom=len(logs) - 1,
        of_rounds=error**2 * len(logs), drift=0.0, pairs=len(logs),
    )  # fmt: skip


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """The geometric mean of the ratios of all rows. Drift is of the runs, so rows do not average it out."""
    count = len(effects)
    drift = max(each.drift for each in effects)
    variances = [(each.error**2 - each.drift) / count**2 for each in effects]
    error = math.sqrt(math.fsum(variances) + drift)
    # Of a row, Welch's freedom belongs to its error with the drift: the drift adds none.
    parts = math.fsum(each.error**4 / each.freedom / count**4 for each in effects)
    return Effect(
        log=mean([each.log for each in effects]),
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=math.fsum(each.of_rounds for each in effects) / count**2,
        drift=drift,
        pairs=min(each.pairs for each in effects),
    )


def holm(chances: Sequence[float]) -> list[float]:
    """The probabilities of several tests, adjusted so that a false alarm in any has the chance of one (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    adjusted, most = [0.0] * len(chances), 0.0
    for rank, place in enumerate(order):
        most = max(most, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = most
    return adjusted


def drift_of(runs: tuple[int, int]) -> float:
    """The variance between runs that is added to a row; 0 where enough runs of each side have that row."""
    return 0.0 if min(runs) >= FEWEST_RUNS else (REPEAT / NORMAL) ** 2
