"""Effects: rounds of A and of B in; how many times as fast B is, its interval, and whether that is noise, out.

Verdicts, searches, devices and ranks all ask this. Rounds that were measured beside each other are compared in pairs,
since a machine drifts (`of_rounds`), and figures of which only the intervals are left by those (`of_intervals`). Two
runs are compared as two samples: that is in `comparison.py`. Of several rates, the knee is the first that is near the
best (`fewest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.records import thresholds
from loaderprobe.records.verdict import How, Interval, Speedup
from loaderprobe.stats import Noise, half_width, half_width_beside, mean, median, standard_error

DRIFT = Noise(variance=thresholds.ROUNDS_VARY**2, freedom=3)


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

    def speedup(self, how: How = "measured", at_most: bool = False) -> Speedup:
        """Of something that cannot slow training down: less than 1 is noise."""
        value, low, high = (max(1.0, factor) for factor in (self.ratio.value, self.ratio.low, self.ratio.high))
        return Speedup(value=value, low=low, high=high, how=how, at_most=at_most)

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


def of_rounds(ratios: Mapping[int, float]) -> Effect:
    """By the ratio of each round: their median, with the interval of the factors.

    A share of the time that is left, of which a speed-up is the inverse, is off by a factor rather than by an amount.
    Beside it Student's t over the logarithms: what reaches both alike is not in their ratio.
    """
    logs = [math.log(max(1e-9, ratio)) for ratio in ratios.values()]
    half, middle = half_of_rounds(logs), median(ratios.values())
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


def fewest(rates: Mapping[int, float]) -> int | None:
    """The smallest number whose rate is within 2 % of the best; None where there is none."""
    best = max(rates.values(), default=0.0)
    return next((number for number in sorted(rates) if rates[number] >= (1 - thresholds.ALIKE) * best), None)


def ranked(rates: Mapping[int, Interval]) -> dict[int, float]:
    """Those known well enough to rank by, where there are any; else all."""
    known = {number: rate.value for number, rate in rates.items() if not rate.too_wide}
    return known or {number: rate.value for number, rate in rates.items()}


def ladder() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    return [1, *sorted(size for power in range(1, 12) for size in (2**power, 3 * 2 ** (power - 1)))]
