"""What lock-step costs more ranks than were measured: never more ranks than batches, and a range for what is said.

A rare long batch is the reason why many ranks wait, and few batches show none: too few of them err on the cheerful
side. So nothing is replayed for more ranks than batches were measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loaderprobe.analyze.forecast.changes import WITHIN
from loaderprobe.analyze.forecast.fit import batch_seconds
from loaderprobe.analyze.ranks import host_names
from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.analyze.verdict.validity import NEAR_CEILING
from loaderprobe.records.measurement import Measurement, base_mode
from loaderprobe.records.plan import LockStep, PrefetchCost
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import WORTH, Interval, Verdict

# Ranks that load with workers and take each batch together, replayed on batch times that were measured.
#
# Batch k of a rank is made by its worker k mod N, which begins it when the rank has taken batch k - N x prefetch. A
# rank takes its batch as soon as it is ready and the step before is over, and then waits for the others: its workers go
# on meanwhile. Without workers a rank makes its batch when it asks for it, and all wait for the slowest of them.

Seconds = NDArray[np.float64]
BLOCK = 8
"""Neighbours in time are alike, so they are drawn together: the times of one batch and the next correlated by 0.2 to
0.4 on two shared cores."""
STEPS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The loader of one rank, and the step that follows each batch."""

    workers: int
    prefetch_factor: int
    compute_s: float = 0.0

    @property
    def ahead(self) -> int:
        """Batches under way at most; 0 for the serial loader."""
        return self.workers * self.prefetch_factor


def mean_steps(batches: Iterator[Seconds], loading: Loading, steps: int = STEPS) -> Seconds:
    """Mean seconds a step once the first buffers are used up.

    Each of `batches` has the shape (..., ranks): the times of one batch of each rank, of any number of independent
    replays at once. The result has the shape (...).
    """
    if not loading.ahead:
        slowest = [next(batches).max(axis=-1) for _ in range(steps)]
        return np.asarray(np.mean(slowest, axis=0) + loading.compute_s)
    batch = next(batches)
    ready = np.zeros((loading.workers, *batch.shape))
    taken = np.zeros((loading.ahead, *batch.shape))
    met = np.zeros(batch.shape[:-1])
    skipped = 4 * loading.ahead + 8
    begun = met
    for number in range(skipped + steps):
        lane, place = number % loading.workers, number % loading.ahead
        ready[lane] = np.maximum(ready[lane], taken[place]) + batch
        taken[place] = np.maximum(met[..., None], ready[lane])
        met = taken[place].max(axis=-1) + loading.compute_s
        if number + 1 == skipped:
            begun = met
        batch = next(batches)
    return np.asarray((met - begun) / steps)


def blocks_of(series: Sequence[Sequence[float]]) -> Seconds:
    """All stretches of neighbours in these series, one a row; no stretch spans two of them."""
    known = [np.asarray(each, np.float64) for each in series if each]
    length = min(BLOCK, *map(len, known))
    return np.concatenate([np.lib.stride_tricks.sliding_window_view(each, length) for each in known])


def resampled(blocks: Seconds, batches: int, replicates: int, rng: np.random.Generator) -> Seconds:
    """For each replicate another series of so many batches, made of blocks drawn with replacement: a bootstrap."""
    wanted = -(-batches // blocks.shape[1])
    chosen = rng.integers(len(blocks), size=(replicates, wanted))
    return blocks[chosen].reshape(replicates, -1)[:, :batches]


def drawn(series: Seconds, ranks: int, rng: np.random.Generator) -> Iterator[Seconds]:
    """Batch times of the shape (replicates, ranks), without an end, from a series for each replicate.

    Each rank reads on from a place of its own and goes elsewhere after every block; not all of them at once, since
    ranks that read the same block would be late together.
    """
    replicates, length = series.shape
    whose = np.arange(replicates)[:, None]
    at = rng.integers(length, size=(replicates, ranks))
    for step in itertools.count():
        yield series[whose, at]
        at = (at + 1) % length
        going = at[:, step % BLOCK :: BLOCK]
        at[:, step % BLOCK :: BLOCK] = rng.integers(length, size=going.shape)


def beside(first: Iterator[Seconds], second: Iterator[Seconds]) -> Iterator[Seconds]:
    """The ranks of both, together."""
    for one, other in zip(first, second, strict=True):
        yield np.concatenate([one, other], axis=-1)


def apart(batches: Iterator[Seconds]) -> Iterator[Seconds]:
    """The same ranks, none of which waits for another: each is the only rank of a replay."""
    for batch in batches:
        yield batch[..., None]


LEAST_BATCHES = 30
FACTORS = (2, 4, 8)
"""Prefetch factors beside the measured one."""
AS_MEASURED = 10
"""Replays of the measured batches; their mean is the figure."""
REPLICATES = 40
"""Replays of resampled batches; they give the range."""
ALONE = 64
"""Ranks of which each is replayed alone."""
FURTHEST = 2.0
"""A range ends at this factor of the cost above that of one rank, below which it is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """The measured batches, and what is known of the ranks that made them."""

    series: tuple[tuple[float, ...], ...]
    """Seconds of each batch in its worker, in order, by rank or by stretch of one."""
    by_rank: bool = False
    """True when each of `series` is of one rank, in their order."""
    images: int
    """Of one rank's batch."""
    workers: int
    prefetch_factor: int
    ranks: int = 1
    """That they were measured on."""
    slow_ranks: frozenset[int] = frozenset()
    """The one whose input an ablation found to be slower than the others', or those of a host that was found to be."""
    slow_host: str = ""
    """That host; empty for a single rank."""
    saturated: bool = False
    """True when these ranks took all that their storage gives."""
    measured_cost: float | None = None
    """Sum of the ranks' rates alone over their rate in step, loader only."""

    @property
    def count(self) -> int:
        """Of all batches."""
        return sum(map(len, self.series))

    @property
    def usual(self) -> tuple[tuple[float, ...], ...]:
        """Those of all ranks but the slow ones."""
        return tuple(each for rank, each in enumerate(self.series) if not self._is_slow(rank))

    @property
    def slow(self) -> tuple[tuple[float, ...], ...]:
        """Those of the slow ranks alone."""
        return tuple(each for rank, each in enumerate(self.series) if self._is_slow(rank))

    def _is_slow(self, rank: int) -> bool:
        return self.by_rank and rank in self.slow_ranks


def lock_step(batches: Batches, compute_s: float, ranks: int) -> LockStep | Remark:
    """What so many ranks lose by waiting for each other, each step of which computes for `compute_s`."""
    if batches.count < LEAST_BATCHES or not any(batches.usual):
        return Remark(code="too_few_batches", facts={"batches": batches.count, "least": LEAST_BATCHES})
    replayed = min(ranks, batches.count)
    times = list(itertools.chain.from_iterable(batches.series))
    found = LockStep(
        asked=ranks,
        ranks=replayed,
        measured_ranks=batches.ranks,
        batches=batches.count,
        mean_s=sum(times) / len(times),
        longest_s=max(times),
        workers=batches.workers,
        prefetch_factor=batches.prefetch_factor if batches.workers else 0,
        compute_s=compute_s,
        costs=(),
        correlation=correlation(batches.series) if batches.by_rank else None,
        slow_rank=min(batches.slow_ranks) if batches.slow and not batches.slow_host else None,
        slow_host=batches.slow_host if batches.slow else "",
        saturated=batches.saturated,
        measured_cost=batches.measured_cost,
    )
    if batches.saturated:
        return found
    pools = _Pools(batches)
    own = found.prefetch_factor
    factors = sorted({own, *(each for each in FACTORS if batches.workers)})
    costs = tuple(pools.cost(_loading(batches, factor, compute_s), replayed) for factor in factors)
    check = None
    if batches.measured_cost is not None and not batches.slow and 1 < batches.ranks <= replayed:
        check = pools.cost(_loading(batches, own, 0.0), batches.ranks).cost.value
    return replace(found, costs=costs, advised=_advised(costs, own), replayed_cost=check)


def _loading(batches: Batches, factor: int, compute_s: float) -> Loading:
    return Loading(workers=batches.workers, prefetch_factor=factor, compute_s=compute_s)


def _advised(costs: Sequence[PrefetchCost], own: int) -> int | None:
    """The smallest factor within 2 % of the shortest step, if that is worth a change."""
    shortest = min(each.step_s for each in costs)
    enough = next(each for each in costs if each.step_s <= shortest / WITHIN)
    now = next(each for each in costs if each.prefetch_factor == own)
    return enough.prefetch_factor if now.step_s >= WORTH * enough.step_s else None


def correlation(series: Sequence[Sequence[float]]) -> float | None:
    """Mean over all pairs of ranks of the correlation of their times at the same place; None where there is none."""
    shared = min(map(len, series), default=0)
    if len(series) < 2 or shared < LEAST_BATCHES:
        return None
    table = np.array([each[:shared] for each in series])
    table = table[table.std(axis=1) > 0]
    if len(table) < 2:
        return None
    pairs = np.corrcoef(table)[np.triu_indices(len(table), k=1)]
    return float(pairs.mean())


class _Pools:
    """Draws for the usual ranks, and for the slow ones from batches of their own."""

    def __init__(self, batches: Batches) -> None:
        self._rng = np.random.default_rng(0)
        # All replays of one plan see the same resampled batches, so that they differ by what is asked only.
        self._usual = self._series(batches.usual)
        self._slow = self._series(batches.slow) if batches.slow else None
        self._slow_ranks = len(batches.slow)

    def cost(self, loading: Loading, ranks: int) -> PrefetchCost:
        """The step of so many ranks over that of a usual one alone."""
        together = mean_steps(self._together(ranks), loading)
        alone = mean_steps(apart(drawn(self._usual, ALONE, self._rng)), loading).mean(axis=-1)
        first = slice(0, AS_MEASURED)
        step_s, alone_s = float(together[first].mean()), float(alone[first].mean())
        ratios = together[AS_MEASURED:] / alone[AS_MEASURED:]
        return PrefetchCost(
            prefetch_factor=loading.prefetch_factor,
            alone_s=alone_s,
            step_s=step_s,
            cost=_reflected(max(1.0, step_s / alone_s), ratios),
        )

    def _together(self, ranks: int) -> Iterator[Seconds]:
        if self._slow is None:
            return drawn(self._usual, ranks, self._rng)
        few = min(ranks, self._slow_ranks)
        slow = drawn(self._slow, few, self._rng)
        return slow if ranks == few else beside(drawn(self._usual, ranks - few, self._rng), slow)

    def _series(self, of_ranks: Sequence[Sequence[float]]) -> Seconds:
        """One for each replay: of the first few the measured batches, of the others a bootstrap."""
        measured = np.array(list(itertools.chain.from_iterable(of_ranks)))
        again = resampled(blocks_of(of_ranks), len(measured), REPLICATES, self._rng)
        return np.concatenate([np.tile(measured, (AS_MEASURED, 1)), again])


def _reflected(value: float, others: Seconds) -> Interval:
    """A range about the cost that holds 90 %, from the costs of all resampled batches, reflected.

    A resampled set misses some of the longest batches, as the measured one misses some of the truth's: by how much the
    one falls short of the other, the other falls short of the truth. What is compared is the cost above that of one
    rank. Of 270 samples of 200 batches from three known distributions, for 8 ranks, 91 % of the ranges held the truth;
    the way to make them was chosen on the same distributions. At 64 ranks earlier ways held 45 to 85 %.
    """
    excess = value - 1
    if excess <= 0:
        return Interval(value=1.0, low=1.0, high=max(1.0, float(others.max())))
    least, most = (max(float(each) - 1, 0.0) / excess for each in (others.min(), others.max()))
    return Interval(
        value=value,
        low=1 + excess / max(1.0, min(most, FURTHEST)),
        high=1 + excess / min(1.0, max(least, 1 / FURTHEST)),
    )


# The batches of a measurement that a replay draws from: of ranks those that each made alone, else of the loader.


def batches_of(measurement: Measurement, verdict: Verdict) -> Batches | Remark:
    """What was measured of one configuration, or why no batch's time is known."""
    loader, bound = measurement.config.loader, verdict.bound
    alone = tuple(tuple(each / NS for each in seen.service_ns) for seen in measurement.by_rank)
    series = alone or tuple(map(tuple, batch_seconds(measurement, base_mode(measurement))))
    if not any(series):
        return Remark(code="batches_not_timed")
    straggler = verdict.speedups.straggler
    return Batches(
        series=series,
        by_rank=bool(alone),
        images=rank_images(measurement),
        workers=loader.workers,
        prefetch_factor=loader.prefetch_factor,
        ranks=measurement.ranks,
        slow_ranks=_slow_ranks(measurement, verdict),
        slow_host=bound.host if bound.cause == "imbalance" and bound.rank is None else "",
        saturated=(verdict.disk_ceiling_fraction or 0.0) >= NEAR_CEILING,
        measured_cost=straggler.value if alone and straggler is not None and straggler.how == "measured" else None,
    )


def _slow_ranks(measurement: Measurement, verdict: Verdict) -> frozenset[int]:
    """The rank that the verdict names, or all ranks of the host that it names."""
    bound = verdict.bound
    if bound.cause != "imbalance":
        return frozenset()
    if bound.rank is not None:
        return frozenset({bound.rank})
    hosts = host_names([(seen.node, seen.host) for seen in measurement.by_rank])
    return frozenset(seen.rank for seen, host in zip(measurement.by_rank, hosts, strict=True) if host == bound.host)


def rank_images(measurement: Measurement) -> int:
    """Images of one rank's batch: a sweep is asked for that many, while the ranks of a script ask for all together."""
    together = measurement.config.compute.batch_size
    return together if measurement.config.ranks > 1 else max(1, together // measurement.ranks)
