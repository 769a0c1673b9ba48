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
Z_95 = 1.96
FAR = 3.0
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
        rates -= (level := rates.max())
        at = [probe.batch_size for probe in probes]
        within = np.array([within_of(probe) for probe in probes]) ** 2
        fits = [_Fit.of(rates, at, within + drift**2, octaves) for drift in DRIFTS for octaves in OCTAVES]
        best = max(fits, key=lambda each: each.likelihood)
        between = _kernel(sizes, at, best.octaves)
        covariance = _kernel(sizes, sizes, best.octaves) - between @ np.linalg.solve(best.kernel, between.T)
        return cls(tuple(sizes), level + between @ best.weights, covariance)

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


def within_of(probe: BatchSizeProbe) -> float:
    """Standard error of a probe's rate, as a share of it, from its steps."""
    assert probe.images_per_s
    return (probe.images_per_s.high - probe.images_per_s.low) / 2 / Z_95 / probe.images_per_s.value


def near_top(probes: Sequence[BatchSizeProbe]) -> Sequence[BatchSizeProbe]:
    """Those of sizes that say something of the fastest."""
    top = max(probes, key=rate_of).batch_size
    return [each for each in probes if each.batch_size * 2**FAR >= top]


@dataclass(frozen=True, slots=True)
class _Fit:
    octaves: float
    kernel: Array
    weights: Array
    likelihood: float
    """Its logarithm, without what is the same for all."""

    @classmethod
    def of(cls, rates: Array, at: Sequence[int], variances: Array, octaves: float) -> _Fit:
        kernel = _kernel(at, at, octaves) + np.diag(variances)
        weights = np.asarray(np.linalg.solve(kernel, rates), dtype=np.float64)
        likelihood = -float(rates @ weights) / 2 - float(np.linalg.slogdet(kernel)[1]) / 2
        return cls(octaves, kernel, weights, likelihood)


def _kernel(left: Sequence[int], right: Sequence[int], octaves: float) -> Array:
    """Matern 5/2, a level of its own, and the deviation of each size."""
    apart = np.log2(np.array(left, dtype=float))[:, None] - np.log2(np.array(right, dtype=float))[None, :]
    scaled = math.sqrt(5) * np.abs(apart) / octaves
    smooth: Any = LEVEL**2 + BEND**2 * (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    made: Array = smooth + OWN**2 * (np.abs(apart) < 1e-9)
    return made
