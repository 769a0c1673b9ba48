"""From the pieces of one bout to its steady part: equal slices of time, and the bytes that ended in each."""

from __future__ import annotations

import numpy as np

from loaderprobe.storage.reader import Reading

SLICE_S = 0.5
# A throttled device grants what it saved up while idle: 0.1 to 0.25 s of its rate under blkio.
WARM_UP_S = 0.3
WARM_UP_SHARE = 0.25


def steady_slices(reading: Reading, readers: int) -> list[tuple[float, int]]:
    """(seconds, bytes) of the slices between the warm-up and the moment when a reader ran out of work.

    Edges are moments, not ends of reads: bytes still under way at the one edge make up for those at the
    other. A bout too short to have a steady part is one slice.
    """
    if reading.slices:
        return reading.slices
    ends = reading.end_ns
    whole = [(reading.seconds, int(reading.size_bytes.sum()))]
    if len(ends) < 2 * readers:
        return whole
    warm_up_ns = min(WARM_UP_S * 1e9, WARM_UP_SHARE * reading.full_ns)
    first_ns = max(warm_up_ns, float(ends[readers - 1]))
    length_ns = reading.full_ns - first_ns
    if length_ns < reading.full_ns / 3:
        return whole
    count = max(1, round(length_ns / 1e9 / SLICE_S))
    edges = np.linspace(first_ns, reading.full_ns, count + 1)
    sums, _ = np.histogram(ends, edges, weights=reading.size_bytes)
    return [(length_ns / count / 1e9, int(bytes_)) for bytes_ in sums]
