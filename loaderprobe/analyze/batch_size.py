"""The batch size with the highest rate: a ladder of doublings, then the sizes between that may still be faster.

After each probe a curve is fitted (see `smooth`). The next probe is where it can change the answer most: at the size
that may be faster than the best by most, at the upper end of its interval, or at the best itself if less is known of
that (upper confidence bounds: Srinivas et al. 2010). The search ends when no size can be faster by more than 2 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaderprobe.policy import Ask
from loaderprobe.records import thresholds
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop, LimitName
from loaderprobe.records.layers import Milliseconds
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import half_width, mean, median

# What noisy rates of some batch sizes say about all of them: a Gaussian process over log2 of the size.
#
# Neighbours share what was measured: the logarithm of the rate is a smooth curve, on which each size has a small
# deviation of its own (a kernel that suits it, a cache that it just fits). Rasmussen and Williams 2006, chapter 2.

Array = NDArray[np.float64]

OCTAVES = (1.5, 3.0)
"""Over which the curve bends: the likelier one is taken."""
BEND = 0.7
"""Standard deviation of the logarithm of the rate over such a distance."""
LEVEL = 2.0
"""Of the level of the curve, which is not known."""
OWN = 0.004
"""Of the deviation of a single size."""
DRIFTS = (0.003, 0.01, 0.02, 0.04, 0.08)
"""By what share probes may differ beyond what their own steps show: the likeliest is taken."""


@dataclass(frozen=True, slots=True)
class RateCurve:
    """The logarithm of the rate at each of `sizes`: its mean, and what is not known of it."""

    sizes: tuple[int, ...]
    means: Array
    covariance: Array

    @classmethod
    def of(cls, probes: Sequence[BatchSizeProbe], sizes: Sequence[int]) -> RateCurve:
        """From probes that fit; at least one of them."""
        rates = np.array([math.log(rate_of(probe)) for probe in probes])
        rates -= (level := rates.max())
        at = [probe.batch_size for probe in probes]
        within = np.array([within_of(probe) for probe in probes]) ** 2
        fits = [_fitted(rates, at, within + drift**2, octaves) for drift in DRIFTS for octaves in OCTAVES]
        _, octaves, kernel, weights = max(fits, key=lambda fit: fit[0])
        between = _kernel(sizes, at, octaves)
        covariance = _kernel(sizes, sizes, octaves) - between @ np.linalg.solve(kernel, between.T)
        return cls(tuple(sizes), level + between @ weights, covariance)

    def spread(self, size: int) -> float:
        """Standard deviation of the logarithm of the rate."""
        index = self.sizes.index(size)
        return math.sqrt(max(0.0, float(self.covariance[index, index])))

    def fastest(self, among: Sequence[int]) -> int:
        """The size with the highest mean."""
        return max(among, key=lambda size: float(self.means[self.sizes.index(size)]))

    def above(self, size: int, other: int, z: float) -> float:
        """By what factor `size` may be faster than `other`, `z` standard deviations above the mean; as a logarithm."""
        a, b = self.sizes.index(size), self.sizes.index(other)
        variance = self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]
        return float(self.means[a] - self.means[b]) + z * math.sqrt(max(0.0, float(variance)))


def rate_of(probe: BatchSizeProbe) -> float:
    """Images/s of a probe that fits."""
    assert probe.images_per_s
    return probe.images_per_s.value


def within_of(probe: BatchSizeProbe) -> float:
    """Standard error of a probe's rate, as a share of it, from its steps."""
    assert probe.images_per_s
    return probe.images_per_s.half / thresholds.NORMAL / probe.images_per_s.value


def _fitted(rates: Array, at: Sequence[int], variances: Array, octaves: float) -> tuple[float, float, Array, Array]:
    """(the logarithm of its likelihood, without what is the same for all; octaves, kernel and weights) of a curve."""
    kernel = _kernel(at, at, octaves) + np.diag(variances)
    weights = np.asarray(np.linalg.solve(kernel, rates), dtype=np.float64)
    likelihood = -float(rates @ weights) / 2 - float(np.linalg.slogdet(kernel)[1]) / 2
    return likelihood, octaves, kernel, weights


def _kernel(left: Sequence[int], right: Sequence[int], octaves: float) -> Array:
    """Matern 5/2, a level of its own, and the deviation of each size."""
    distance = np.log2(np.array(left, dtype=float))[:, None] - np.log2(np.array(right, dtype=float))[None, :]
    scaled = math.sqrt(5) * np.abs(distance) / octaves
    smooth: Any = LEVEL**2 + BEND**2 * (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    made: Array = smooth + OWN**2 * (np.abs(distance) < 1e-9)
    return made


def by_size(probes: Sequence[BatchSizeProbe]) -> tuple[BatchSizeProbe, ...]:
    """One for each size, from the smallest on; of sizes that do not fit, the first try."""
    sizes = sorted({probe.batch_size for probe in probes})
    return tuple(together([probe for probe in probes if probe.batch_size == size]) for size in sizes)


def within_noise(sizes: Sequence[BatchSizeProbe], chosen: BatchSizeProbe) -> list[int]:
    """Those whose rates differ from that of the chosen one by less than the 95 % interval of the difference."""
    if (rate := chosen.images_per_s) is None:
        return []
    others = [(probe.batch_size, probe.images_per_s) for probe in sizes if probe.batch_size != chosen.batch_size]
    return [size for size, its in others if its and abs(its.value - rate.value) < math.hypot(its.half, rate.half)]


def together(probes: Sequence[BatchSizeProbe]) -> BatchSizeProbe:
    """Probes of one size that fit, as one: the mean of their rates, with the wider of two 95 % intervals.

    One interval is from the steps within the probes, the other from what the probes differ by.
    """
    if len(probes) == 1 or not all(probe.fits for probe in probes):
        return probes[0]
    rates = [probe.images_per_s for probe in probes if probe.images_per_s]
    times = [probe.step_ms for probe in probes if probe.step_ms]
    busy = [probe.utilization for probe in probes if probe.utilization is not None]
    low, high = min((time.low for time in times), default=0.0), max((time.high for time in times), default=0.0)
    values = [rate.value for rate in rates]
    middle, within = mean(values), sum(rate.half**2 for rate in rates) ** 0.5 / len(rates)
    half = max(within, half_width(values) if len(values) >= thresholds.ENOUGH_ROUNDS else 0.0)
    return replace(
        probes[0],
        steps=sum(probe.steps for probe in probes),
        images_per_s=Interval(value=middle, low=max(0.0, middle - half), high=middle + half),
        step_ms=Milliseconds(value=median([time.value for time in times]), low=low, high=high) if times else None,
        utilization=mean(busy) if busy else None,
        utilization_samples=tuple(sample for probe in probes for sample in probe.utilization_samples),
        memory_bytes=max(probe.memory_bytes or 0 for probe in probes) or None,
        wall_s=sum(probe.wall_s for probe in probes),
    )


Probes = Sequence[tuple[int, BatchSizeProbe]]
NextSize = Ask[int] | BatchSizeStop


LOG_ALIKE = math.log(1 + thresholds.ALIKE)
FIRST_SIZE = 2
"""Not 1: some models cannot train on a single image, as batch normalisation has nothing to average."""
MOST = 1024
MOST_PROBES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Finds the highest images/s within memory."""

    most: int = MOST

    def next(self, done: Probes, spent_s: float) -> NextSize:
        """The next rung of the ladder, else the size of which most may come, else the end."""
        size = self._size([probe for _, probe in done])
        return size if isinstance(size, BatchSizeStop) else Ask(what=size, done=len(done), total=MOST_PROBES)

    def _size(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        fitting = [probe for probe in probes if probe.fits]
        wall = min((probe.batch_size for probe in probes if not probe.fits), default=math.inf)
        if not fitting:
            size = min(FIRST_SIZE, self.most) if wall == math.inf else int(wall) // 2
            return size or BatchSizeStop(code="nothing_fits", chosen=0)
        largest, rises = max(probe.batch_size for probe in fitting), _rises(fitting)
        rung = min(2 * largest, self.most)
        if len(probes) < MOST_PROBES and largest < self.most and rung < wall and rises:
            return rung
        top = int(wall) - 1 if wall < math.inf else self.most if rises else largest
        # Those of sizes that say something of the fastest.
        fastest = max(fitting, key=rate_of).batch_size
        near = [probe for probe in fitting if probe.batch_size * 2**thresholds.MOST_OCTAVES >= fastest]
        return _refine(near, top, spent=len(probes))


def sizes_up_to(top: int) -> tuple[int, ...]:
    """Sizes worth trying: 1, 2, 4, then multiples of 8, from 128 on of 16, from 256 on of 32.

    Between two powers of two there are at most seven others.
    """
    sizes = {1, 2, 4}
    power = 8
    while power <= top:
        sizes.update(range(power, 2 * power, max(8, power // 8)))
        power *= 2
    return tuple(sorted(size for size in sizes if 1 <= size <= top))


def limit_at(chosen: int, probes: Sequence[BatchSizeProbe], *, most: int, loaded: bool) -> LimitName:
    """What keeps the rate from rising: memory, or the largest size allowed, only where it still rises there."""
    fitting = [probe for probe in probes if probe.fits]
    at_end = chosen >= max((probe.batch_size for probe in fitting), default=0)
    if at_end and _slope(fitting)[0] > LOG_ALIKE:
        if any(not probe.fits for probe in probes):
            return "memory"
        if chosen >= most:
            return "maximum"
    return "loader" if loaded else "compute"


def _rises(fitting: Sequence[BatchSizeProbe]) -> bool:
    """True while the rate may still rise by 2 % at twice the size: judged by the last three rungs."""
    slope, error = _slope(fitting)
    largest = max(fitting, key=lambda probe: probe.batch_size)
    if largest.wall_s > thresholds.SLOW_PROBE_S:
        return slope > LOG_ALIKE
    return slope + thresholds.NORMAL * error > LOG_ALIKE


def _slope(fitting: Sequence[BatchSizeProbe]) -> tuple[float, float]:
    """(growth of the logarithm of the rate a doubling, its standard error) from a quarter of the largest size on.

    Infinite while there are fewer than three sizes.
    """
    largest = max((probe.batch_size for probe in fitting), default=0)
    last = [probe for probe in fitting if 4 * probe.batch_size >= largest]
    if len({probe.batch_size for probe in last}) < 3:
        return math.inf, 0.0
    octaves = [math.log2(probe.batch_size) for probe in last]
    away = [octave - mean(octaves) for octave in octaves]
    square = math.fsum(x**2 for x in away)
    slope = math.fsum(x * math.log(rate_of(probe)) for x, probe in zip(away, last, strict=True)) / square
    error = math.sqrt(math.fsum((x * within_of(probe)) ** 2 for x, probe in zip(away, last, strict=True))) / square
    return slope, error


def _refine(probes: Sequence[BatchSizeProbe], top: int, *, spent: int) -> int | BatchSizeStop:
    tried = sorted({probe.batch_size for probe in probes})
    sizes = sorted({*tried, *(size for size in sizes_up_to(top) if size >= tried[0])})
    curve = RateCurve.of(probes, sizes)
    best = curve.fastest(tried)
    others = [size for size in sizes if size != best]
    rival = max(others, key=lambda size: curve.above(size, best, thresholds.NORMAL), default=best)
    left = curve.above(rival, best, thresholds.NORMAL) if others else 0.0
    if spent < MOST_PROBES:
        if left > LOG_ALIKE:
            return rival if curve.spread(rival) >= curve.spread(best) else best
        if (near := _beside(best, tried, sizes)) is not None:
            return near
        if (again := _to_repeat(probes, best)) is not None:
            return again
    # Of equals, the smaller: where it is sure that it loses less than 2 %.
    chosen = next((size for size in tried if curve.above(best, size, thresholds.Z_SURE) <= LOG_ALIKE), best)
    return BatchSizeStop(
        code="no_candidate_better" if left <= LOG_ALIKE else "probes_spent",
        chosen=chosen,
        left=max(0.0, math.expm1(left)),
    )


def _beside(best: int, tried: Sequence[int], sizes: Sequence[int]) -> int | None:
    """A size close to the best, smaller or larger, until both sides are tried: a curve cannot show an edge."""
    for close in (
        range(math.ceil(best / thresholds.NEAR_BEST), best),
        range(best + 1, math.floor(best * thresholds.NEAR_BEST) + 1),
    ):
        open_ = [size for size in sizes if size in close]
        if open_ and not any(size in close for size in tried):
            return min(open_) if open_[0] < best else max(open_)
    return None


def _to_repeat(probes: Sequence[BatchSizeProbe], best: int) -> int | None:
    """The best size, then the fastest other one, until both were probed twice: a probe does not show its own drift."""
    counts = Counter(probe.batch_size for probe in sorted(probes, key=rate_of, reverse=True))
    others = [size for size in counts if size != best][:1]
    return next((size for size in (best, *others) if counts[size] < 2), None)


# The two strategies of Serizawa and Tatebe (`loaderprobe explain batch-size`), written again from the behaviour of the
# author's own package. Two things differ from the text of the paper, as they do there: the printed comparison of
# GpuUsageMaximize is inverted (errata), and EpochTimeMinimize also shrinks the batch.
#
# Before loops 0, 5, 10, ... change the size, convergence is checked.

PAPER_FIRST_SIZE = 10
MOST_OF_PAPER = 256
"""The package's front gives this; the class itself has 100."""
UPDATES = 1000
LOOPS = 100
CHECK_EVERY = 5
LONGEST_STEP = 10
USAGE_TARGET = 0.99
SIZES_ALIKE = 5
IMPROVEMENT_TARGET = 0.5
RATIOS_ALIKE = 0.05
FIRST_RATIO = 100.0
"""What the first ratio is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperStrategy:
    """Grows the batch, or shrinks it, loop after loop, until it converges."""

    name: Literal["gpu-usage", "epoch-time"]
    """GpuUsageMaximize or EpochTimeMinimize."""
    images: int
    """Of the data set."""
    first: int = PAPER_FIRST_SIZE
    most: int = MOST_OF_PAPER

    def next(self, done: Probes, spent_s: float) -> NextSize:
        """The size of the next loop. Memory that ends, for which the package has no rule, ends the search."""
        size = self._walk([probe for _, probe in done])
        return size if isinstance(size, BatchSizeStop) else Ask(what=size, done=len(done), total=LOOPS)

    def _walk(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        """The loops so far once more, and what follows from the last of them."""
        by_usage = self.name == "gpu-usage"
        # By what share an epoch is shorter than in the first loop.
        epochs_s = [probe.epoch_s(self.images) for probe in probes]
        ratios = [(epochs_s[0] - epoch_s) / epochs_s[0] if epoch_s < math.inf else 0.0 for epoch_s in epochs_s]
        size, up, step, checked = self.first, True, 1, math.inf if by_usage else FIRST_RATIO
        for number, probe in enumerate(probes):
            if not probe.fits:
                fitting = [probe.batch_size for probe in probes if probe.fits]
                return BatchSizeStop(code="out_of_memory" if fitting else "nothing_fits", chosen=[0, *fitting][-1])
            size = probe.batch_size
            if number % CHECK_EVERY == 0:
                metric = float(size) if by_usage else ratios[number]
                if abs(checked - metric) <= (SIZES_ALIKE if by_usage else RATIOS_ALIKE):
                    return BatchSizeStop(code="converged", chosen=size)
                checked = metric
            grows = (probe.usage or 0.0) < USAGE_TARGET if by_usage else 0 <= ratios[number] < IMPROVEMENT_TARGET
            turned = 1 if by_usage else 2
            step = step + 1 if grows == up else turned
            up = grows
            size += min(step, LONGEST_STEP) if up else -min(step, LONGEST_STEP)
            if size >= self.most:
                return BatchSizeStop(code="at_maximum", chosen=self.most)
            if size < 1:
                return BatchSizeStop(code="at_minimum", chosen=1)
        return size if len(probes) < LOOPS else BatchSizeStop(code="loops_spent", chosen=size)
