"""Ranks that load with workers and take each batch together, replayed on batch times that were measured.

Batch k of a rank is made by its worker k mod N, which begins it when the rank has taken batch k - N x prefetch. A rank
takes its batch as soon as it is ready and the step before is over, and then waits for the others: its workers go on
meanwhile. Without workers a rank makes its batch when it asks for it, and all wait for the slowest of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
