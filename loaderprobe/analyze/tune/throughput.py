"""The batch size with the highest rate: a ladder of doublings, then the sizes between that may still be faster.

After each probe a curve is fitted (see `smooth`). The next probe is where it can change the answer most: at the size
that may be faster than the best by most, at the upper end of its interval, or at the best itself if less is known of
that (upper confidence bounds: Srinivas et al. 2010). The search ends when no size can be faster by more than 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.analyze.tune.smooth import Curve, near_top, rate_of, within_of
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop, LimitName
from loaderprobe.stats import mean

FIRST_SIZE = 2
"""Not 1: some models cannot train on a single image, as batch normalisation has nothing to average."""
MOST = 1024
MOST_PROBES = 32
ALIKE = math.log(1.02)
"""Rates that differ by less are equal: then the smaller batch is chosen."""
Z = 1.96
"""Of the bound that a size may reach: 95 % intervals."""
Z_SURE = 3.0
"""Of the bound that a smaller size must keep to be preferred."""
NEAR = 1.3
"""A size this close to the best is tried on either side."""
SLOW_S = 15.0
"""A probe that took longer is doubled only where the rate still rises, not where it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Finds the highest images/s within memory."""

    most: int = MOST

    def next(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        """The next rung of the ladder, else the size of which most may come, else the end."""
        fitting = [each for each in probes if each.fits]
        wall = min((each.batch_size for each in probes if not each.fits), default=None)
        if not fitting:
            return self._first(wall)
        if len(probes) < MOST_PROBES and (rung := self._rung(fitting, wall)):
            return rung
        top = self.most if wall is None else wall - 1
        if wall is None and not _rises(fitting):
            top = max(each.batch_size for each in fitting)
        return _refine(near_top(fitting), top, spent=len(probes))

    def _first(self, wall: int | None) -> int | BatchSizeStop:
        if wall is None:
            return min(FIRST_SIZE, self.most)
        return wall // 2 if wall > 1 else BatchSizeStop(code="nothing_fits", chosen=0)

    def _rung(self, fitting: Sequence[BatchSizeProbe], wall: int | None) -> int | None:
        """Twice the largest size, while the rate rises and memory lasts; None at the top of the ladder."""
        largest = max(each.batch_size for each in fitting)
        rung = min(2 * largest, self.most)
        if largest >= self.most or (wall is not None and rung >= wall) or not _rises(fitting):
            return None
        return rung


def sizes_up_to(top: int) -> tuple[int, ...]:
    """Sizes worth trying: 1, 2, 4, then multiples of 8, from 128 on of 16, from 256 on of 32.

    Between two powers of two there are at most seven others.
    """
    found = {1, 2, 4}
    power = 8
    while power <= top:
        found.update(range(power, 2 * power, max(8, power // 8)))
        power *= 2
    return tuple(sorted(each for each in found if 1 <= each <= top))


def limit_at(chosen: int, probes: Sequence[BatchSizeProbe], *, most: int, loaded: bool) -> LimitName:
    """What keeps the rate from rising: memory, or the largest size allowed, only where it still rises there."""
    fitting = [each for each in probes if each.fits]
    at_end = chosen >= max((each.batch_size for each in fitting), default=0)
    if at_end and _slope(fitting)[0] > ALIKE:
        if any(not each.fits for each in probes):
            return "memory"
        if chosen >= most:
            return "maximum"
    return "loader" if loaded else "compute"


def _rises(fitting: Sequence[BatchSizeProbe]) -> bool:
    """True while the rate may still rise by 2 % at twice the size: judged by the last three rungs."""
    slope, error = _slope(fitting)
    largest = max(fitting, key=lambda each: each.batch_size)
    if largest.wall_s > SLOW_S:
        return slope > ALIKE
    return slope + Z * error > ALIKE


def _slope(fitting: Sequence[BatchSizeProbe]) -> tuple[float, float]:
    """(growth of the logarithm of the rate a doubling, its standard error) from a quarter of the largest size on.

    Infinite while there are fewer than three sizes.
    """
    largest = max((each.batch_size for each in fitting), default=0)
    last = [each for each in fitting if 4 * each.batch_size >= largest]
    if len({each.batch_size for each in last}) < 3:
        return math.inf, 0.0
    octaves = [math.log2(each.batch_size) for each in last]
    away = [each - mean(octaves) for each in octaves]
    square = math.fsum(each**2 for each in away)
    slope = math.fsum(x * math.log(rate_of(each)) for x, each in zip(away, last, strict=True)) / square
    error = math.sqrt(math.fsum((x * within_of(each)) ** 2 for x, each in zip(away, last, strict=True))) / square
    return slope, error


def _refine(probes: Sequence[BatchSizeProbe], top: int, *, spent: int) -> int | BatchSizeStop:
    tried = sorted({each.batch_size for each in probes})
    sizes = sorted({*tried, *(size for size in sizes_up_to(top) if size >= tried[0])})
    curve = Curve.of(probes, sizes)
    best = curve.fastest(tried)
    others = [size for size in sizes if size != best]
    rival = max(others, key=lambda size: curve.above(size, best, Z), default=best)
    left = curve.above(rival, best, Z) if others else 0.0
    if spent < MOST_PROBES:
        if left > ALIKE:
            return rival if curve.spread(rival) >= curve.spread(best) else best
        if (near := _beside(best, tried, sizes)) is not None:
            return near
        if (again := _to_repeat(probes, best)) is not None:
            return again
    # Of equals, the smaller: where it is sure that it loses less than 2 %.
    chosen = next((size for size in tried if curve.above(best, size, Z_SURE) <= ALIKE), best)
    return BatchSizeStop(
        code="no_candidate_better" if left <= ALIKE else "probes_spent",
        chosen=chosen,
        left=max(0.0, math.expm1(left)),
    )


def _beside(best: int, tried: Sequence[int], sizes: Sequence[int]) -> int | None:
    """A size close to the best, smaller or larger, until both sides are tried: a curve cannot show an edge."""
    for close in (range(math.ceil(best / NEAR), best), range(best + 1, math.floor(best * NEAR) + 1)):
        open_ = [size for size in sizes if size in close]
        if open_ and not any(size in close for size in tried):
            return min(open_) if open_[0] < best else max(open_)
    return None


def _to_repeat(probes: Sequence[BatchSizeProbe], best: int) -> int | None:
    """The best size, then the fastest other one, until both were probed twice: a probe does not show its own drift."""
    counts: dict[int, int] = {}
    for each in sorted(probes, key=rate_of, reverse=True):
        counts[each.batch_size] = counts.get(each.batch_size, 0) + 1
    others = [size for size in counts if size != best][:1]
    return next((size for size in (best, *others) if counts[size] < 2), None)
