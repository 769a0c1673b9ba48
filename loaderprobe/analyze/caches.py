"""What caches answer where every epoch reads each image once, in a random order: a part of the set in memory.

Pinned and page cache are two things: a pinned part of the files always stays, and answers its share of the reads from
the epoch after the one that fills it; in the page cache the kernel decides what stays.
"""

from __future__ import annotations

import math

from loaderprobe.records.thresholds import LEAST_OF_LRU, MOST_WAY, WAY
from loaderprobe.records.verdict import Interval


def lru_hits(share: float) -> float:
    """Share of reads that one node's cache answers which drops the least recently used files: c + (1-c) ln(1-c).

    An image is found again when this node read fewer than c of the set since: last read at position x and now at y,
    that is (1-x) (1-y) >= 1 - c.
    """
    return share + (1 - share) * math.log1p(-share) if share < 1 else 1.0


def lru_share_for(hits: float) -> float:
    """The share of the set that such a cache must hold for so many hits: the inverse, by Lambert's W."""
    from scipy.special import lambertw

    return float(1 - math.exp(1 + lambertw((hits - 1) / math.e, -1).real))


def seen_before(nodes: int, epoch: int) -> float:
    """Share of a node's reads that it made in an epoch before: 1 - (1-1/M)^(e-1).

    Each node gets a random part of every epoch (a shuffle over all images, as `DistributedSampler` with `set_epoch`
    makes it). So no cache of several nodes that fills as they read answers more, however large.
    """
    return 1 - (1 - 1 / nodes) ** (epoch - 1)


def page_cache_hits(share: float, epoch: int | None = None) -> Interval:
    """The same of Linux's page cache on one node, with a range: from LRU's hits to 3/4 of the way to pinned files.

    Measured on Linux 6.18 (active and inactive lists), `scripts/bench forecast caches`: `explain plan` has the table.

    By epoch 2 the kernel has seen no file twice, so it has LRU's hits. What is read twice moves to the active list,
    which from 1 GiB on may be sqrt(10 x GiB) times as long as the other: so a larger cache answers more, up to the
    upper end in a simulation of these lists for 1 TB.
    """
    least = lru_hits(share)
    if epoch == 2:
        return Interval(value=least, low=least if share >= 1 else LEAST_OF_LRU * least, high=least)
    more = share - least
    return Interval(value=least + WAY * more, low=least, high=least + MOST_WAY * more)
