"""The steady part of one run of reads: equal slices of time, and the bytes completed in each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loaderprobe.storage.reader import Reading

SLICE_S = 0.5
# A throttled device first spends its credit from idle time: 0.1 to 0.25 s of its rate under blkio. It grants reads
# every 0.1 s from the first read on: the edge lies between two grants.
WARM_UP_S = 0.35
WARM_UP_SHARE = 0.25


def steady_slices(reading: Reading) -> list[tuple[float, float]]:
    """(seconds, bytes) of the slices between the warm-up and the moment when a reader runs out of work.

    The bytes of a piece are spread evenly over its reading time, so a piece across an edge counts on both
    sides. A run too short for a steady part is one slice.
    """
    if reading.slices:
        return reading.slices
    if reading.full_ns < reading.seconds * 1e9 / 3:
        # Most of the time was spent waiting for the last pieces.
        return [(reading.seconds, float(reading.size_bytes.sum()))]
    return slices_until(reading, reading.full_ns)


def slices_until(reading: Reading, until_ns: int) -> list[tuple[float, float]]:
    """(seconds, bytes) of the slices between the warm-up and a time: the same slices for all that began together."""
    first_ns = min(WARM_UP_S * 1e9, WARM_UP_SHARE * until_ns)
    length_ns = until_ns - first_ns
    edges = np.linspace(first_ns, until_ns, max(1, round(length_ns / 1e9 / SLICE_S)) + 1)
    begun = reading.end_ns - reading.piece_ns
    took = np.maximum(reading.piece_ns, 1)
    before = [float((reading.size_bytes * np.clip((edge - begun) / took, 0.0, 1.0)).sum()) for edge in edges]
    return [(length_ns / (len(edges) - 1) / 1e9, after - since) for since, after in pairwise(before)]
