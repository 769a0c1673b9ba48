"""Effects: rounds of A and of B in; how many times as fast B is, its interval, and whether that is noise, out.

Verdicts, comparisons, searches, devices and ranks all ask this. Rounds that were measured beside each other are
compared in pairs, since a machine drifts (`of_rounds`); others as two samples (`unpaired`), and figures of which only
the intervals are left by those (`of_intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.records import thresholds
from loaderprobe.records.verdict import How, Interval, Speedup
from loaderprobe.stats import (
    Noise,
    half_width,
    half_width_beside,
    mean,
    median,
    standard_error,
    student_quantile,
    student_tails,
)

DRIFT = Noise(variance=thresholds.ROUNDS_VARY**2, freedom=3)
TRIED_ROUNDS = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How many times as fast B is as A, in rounds that measured both beside each other."""

    rounds: Mapping[int, float]
    """The ratio of each."""
    ratio: Interval
    """Their median, with its 95 % interval."""
    log: float
    """The mean of their logarithms, which factors to either side are equally far from."""
    error: float
    """Its standard error."""

    def speedup(self, how: How = "measured") -> Speedup:
        """Of something that cannot slow training down: less than 1 is noise."""
        value, low, high = (max(1.0, each) for each in (self.ratio.value, self.ratio.low, self.ratio.high))
        return Speedup(value=value, low=low, high=high, how=how)

    @property
    def spread(self) -> float:
        """Between rounds: two standard errors of the logarithm, or its standard deviation where that is more."""
        return self.error * max(2.0, math.sqrt(len(self.rounds)))

    def exceeds(self, least: float = 1.0) -> bool:
        """True where the mean is above a factor, and beyond the spread between rounds."""
        return self.log > max(math.log(least), self.spread)

    def leads_in_each(self) -> bool:
        """True where each round alone is clear: of few rounds, by a wide margin."""
        least = thresholds.OPEN_LEAD if len(self.rounds) > 1 else thresholds.LEAD_OF_ONE_ROUND
        if len(self.rounds) >= thresholds.ENOUGH_ROUNDS:
            least = thresholds.CLEAR_LEAD
        return min(self.rounds.values(), default=0.0) >= least

    def over(self, other: Effect) -> Effect | None:
        """This speed-up over another, round by round, less than 1 being noise; None where no round has both."""
        both = sorted(self.rounds.keys() & other.rounds.keys())
        ratios = {n: max(1.0, self.rounds[n]) / max(1.0, other.rounds[n]) for n in both}
        return of_rounds(ratios) if ratios else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """How many times as fast B is as A, of two samples; as a logarithm."""

    log: float
    """The mean."""
    error: float
    """Its standard error."""
    freedom: float
    of_rounds: float
    """Variance of a single round, of both sides together."""
    drift: float
    """Variance between runs."""

    @property
    def ratio(self) -> Interval:
        """With its 95 % interval."""
        half = self.half()
        return Interval(value=math.exp(self.log), low=math.exp(self.log - half), high=math.exp(self.log + half))

    @property
    def p(self) -> float:
        """The probability of one as large by chance."""
        return student_tails(self.log / self.error, self.freedom) if self.error else float(self.log == 0)

    def half(self, alpha: float = thresholds.ALPHA) -> float:
        """Half the interval of the logarithm that holds it with probability 1 - `alpha`."""
        return student_quantile(alpha, self.freedom) * self.error

    def rounds_needed(self, smallest: float, alpha: float) -> int | None:
        """Rounds a side with which an effect of that size would be seen; None where the drift hides it."""
        for rounds in TRIED_ROUNDS:
            error = math.sqrt(self.of_rounds / rounds + self.drift)
            freedom = 2.0 * (rounds - 1)
            if self.drift:
                freedom = error**4 / ((self.of_rounds / rounds) ** 2 / freedom) if self.of_rounds else math.inf
            if student_quantile(alpha, freedom) * error <= smallest:
                return rounds
        return None


def interval(values: Sequence[float]) -> Interval:
    """Median and 95 % interval over rounds; never below 0.

    The median, since now and then a virtual machine loses its processor for seconds, in one round. Of two rounds the
    interval is that of the moderated t (Smyth 2004) beside `DRIFT`.
    """
    middle = median(values)
    if len(values) == 2 and min(values) > 0:
        half = middle * half_width_beside([value / middle for value in values], DRIFT)
    else:
        half = half_width(values)
    return Interval(value=middle, low=max(0.0, middle - half), high=middle + half)


def mean_interval(figures: Sequence[Interval]) -> Interval:
    """The mean of a figure that was measured several times, with the wider of two 95 % intervals.

    One interval is from what each was known by, the other from what they differ by.
    """
    values, middle = [figure.value for figure in figures], mean([figure.value for figure in figures])
    within = sum(figure.half**2 for figure in figures) ** 0.5 / len(figures)
    half = max(within, half_width(values) if len(values) >= thresholds.ENOUGH_ROUNDS else 0.0)
    return Interval(value=middle, low=max(0.0, middle - half), high=middle + half)


def of_rounds(ratios: Mapping[int, float]) -> Effect:
    """By the ratio of each round: their median, with the interval of the factors.

    A share of the time that is left, of which a speed-up is the inverse, is off by a factor rather than by an amount.
    Beside it Student's t over the logarithms: what reaches both alike is not in their ratio.
    """
    logs = [math.log(max(1e-9, ratio)) for ratio in ratios.values()]
    half, middle = half_of_rounds(logs), median(list(ratios.values()))
    ratio = Interval(value=middle, low=middle * math.exp(-half), high=middle * math.exp(half))
    return Effect(rounds=ratios, ratio=ratio, log=mean(logs), error=standard_error(logs))


def half_of_rounds(logs: Sequence[float]) -> float:
    """Half the 95 % interval of the mean; of one round and of two that of the moderated t beside `DRIFT`."""
    return half_width_beside(logs, DRIFT) if len(logs) < thresholds.ENOUGH_ROUNDS else half_width(logs)


def of_intervals(top: Interval, bottom: Interval) -> Interval:
    """B over A of two figures that were measured one after the other: their relative errors add in quadrature."""
    value = top.value / bottom.value
    error = value * math.hypot((top.high - top.value) / top.value, (bottom.high - bottom.value) / bottom.value)
    return Interval(value=value, low=max(0.0, value - error), high=value + error)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """What one run says of one row."""

    values: tuple[float, ...]
    """Of rounds."""
    figure: Interval
    """Their median, with its 95 % interval; it stands in where the rounds are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSample:
    """The logarithm of a figure on one side."""

    mean: float
    variance: float
    """Of the mean."""
    freedom: float
    count: int


def sample(readings: Sequence[RunReading]) -> SideSample | None:
    """One side: its runs where there are several, else its rounds, else the interval of its rate; None without one."""
    if len(readings) >= thresholds.ENOUGH_ROUNDS:
        return _of_values([reading.figure.value for reading in readings])
    if too_few_rounds(readings):
        return _of_figures([reading.figure for reading in readings])
    return _of_values([value for reading in readings for value in reading.values])


def too_few_rounds(readings: Sequence[RunReading]) -> bool:
    """True for a side of which neither runs nor rounds show how much they vary: the interval of its rate stands in."""
    return max(len(readings), sum(len(reading.values) for reading in readings)) < thresholds.ENOUGH_ROUNDS


def _of_values(values: Sequence[float]) -> SideSample | None:
    if min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    return SideSample(mean=mean(logs), variance=standard_error(logs) ** 2, freedom=len(logs) - 1, count=len(logs))


def _of_figures(figures: Sequence[Interval]) -> SideSample | None:
    if any(not 0 <= figure.low < figure.value < figure.high for figure in figures):
        return None
    factor = student_quantile(thresholds.ALPHA, thresholds.OF_SLICES)
    # The upper half: the lower one ends at 0.
    errors = [(figure.high - figure.value) / figure.value / factor for figure in figures]
    return SideSample(
        mean=mean([math.log(figure.value) for figure in figures]),
        variance=math.fsum(error**2 for error in errors) / len(errors) ** 2,
        freedom=thresholds.OF_SLICES * len(figures),
        count=len(figures),
    )


def unpaired(before: SideSample, after: SideSample, *, drift: float) -> Unpaired:
    """Welch (1947), with the drift between runs as a variance that is known."""
    variance = before.variance + after.variance
    error = math.sqrt(variance + drift)
    parts = math.fsum(each.variance**2 / each.freedom for each in (before, after))
    return Unpaired(
        log=after.mean - before.mean,
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=before.variance * before.count + after.variance * after.count,
        drift=drift,
    )


def mean_effect(effects: Sequence[Unpaired]) -> Unpaired:
    """The geometric mean of the ratios of all rows. Drift is of the runs, so rows do not average it out."""
    count = len(effects)
    drift = max(effect.drift for effect in effects)
    variances = [(effect.error**2 - effect.drift) / count**2 for effect in effects]
    error = math.sqrt(math.fsum(variances) + drift)
    # Of a row, Welch's freedom belongs to its error with the drift: the drift adds none.
    parts = math.fsum(effect.error**4 / effect.freedom / count**4 for effect in effects)
    return Unpaired(
        log=mean([effect.log for effect in effects]),
        error=error,
        freedom=error**4 / parts if parts else math.inf,
        of_rounds=math.fsum(effect.of_rounds for effect in effects) / count**2,
        drift=drift,
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
    return 0.0 if min(runs) >= thresholds.ENOUGH_ROUNDS else (thresholds.REPEAT / thresholds.NORMAL) ** 2
