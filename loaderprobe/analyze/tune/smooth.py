"""What noisy rates of some batch sizes say about all of them: a Gaussian process over log2 of the size.

Neighbours share what was measured: the logarithm of the rate is a smooth curve, on which each size has a small
deviation of its own (a kernel that suits it, a cache that it just fits). Rasmussen and Williams 2006, chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.stats import mean

Array = NDArray[np.float64]

OCTAVES = 1.5
"""Over which the curve bends: sizes that are twice each other are much alike, sizes 16 times each other are not."""
BEND = 0.3
"""Standard deviation of the logarithm of the rate over such a distance."""
LEVEL = 2.0
"""Of the level of the curve, which is not known."""
OWN = 0.004
"""Of the deviation of a single size."""
LEAST_NOISE = 0.003
Z_95 = 1.96
FAR = 4.0
"""Octaves below the fastest size, beyond which rates say nothing of the top."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The logarithm of the rate at each of `sizes`: its mean, and what is not known of it."""

    sizes: tuple[int, ...]
    means: Array
    covariance: Array

    @classmethod
    def of(cls, probes: Sequence[BatchSizeProbe], sizes: Sequence[int]) -> Curve:
        """From probes that fit; at least one of them."""
        rates = np.array([math.log(rate_of(probe)) for probe in probes])
        level = rates.max()
        noise = np.diag([each**2 for each in noises(probes)])
        at = [probe.batch_size for probe in probes]
        between = _kernel(sizes, at)
        solved = np.linalg.solve(_kernel(at, at) + noise, np.column_stack([rates - level, between.T]))
        means = level + between @ solved[:, 0]
        return cls(tuple(sizes), means, _kernel(sizes, sizes) - between @ solved[:, 1:])

    def spread(self, size: int) -> float:
        """Standard deviation of the logarithm of the rate."""
        place = self.sizes.index(size)
        return math.sqrt(max(0.0, float(self.covariance[place, place])))

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


def noises(probes: Sequence[BatchSizeProbe]) -> list[float]:
    """Standard error of each probe's rate, as a share of it: from its steps, or from probes of one size if larger."""
    again = _between(probes)
    return [max(LEAST_NOISE, again, _within(probe)) for probe in probes]


def _within(probe: BatchSizeProbe) -> float:
    assert probe.images_per_s
    return (probe.images_per_s.high - probe.images_per_s.low) / 2 / Z_95 / probe.images_per_s.value


def _between(probes: Sequence[BatchSizeProbe]) -> float:
    """What probes of one size differ by, pooled over the sizes; 0 while that is not known."""
    by_size: dict[int, list[float]] = {}
    for probe in probes:
        by_size.setdefault(probe.batch_size, []).append(math.log(rate_of(probe)))
    groups = [each for each in by_size.values() if len(each) > 1]
    freedom = sum(len(each) - 1 for each in groups)
    if freedom < 2:
        return 0.0
    return math.sqrt(sum((value - mean(each)) ** 2 for each in groups for value in each) / freedom)


def near_top(probes: Sequence[BatchSizeProbe]) -> Sequence[BatchSizeProbe]:
    """Those of sizes that say something of the fastest."""
    top = max(probes, key=rate_of).batch_size
    return [each for each in probes if each.batch_size * 2**FAR >= top]


def _kernel(left: Sequence[int], right: Sequence[int]) -> Array:
    apart = np.log2(np.array(left, dtype=float))[:, None] - np.log2(np.array(right, dtype=float))[None, :]
    scaled = math.sqrt(5) * np.abs(apart) / OCTAVES
    smooth: Any = LEVEL**2 + BEND**2 * (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    made: Array = smooth + OWN**2 * (np.abs(apart) < 1e-9)
    return made
