"""What caches answer: hits by epoch for one node and several, with a part of the set or all of it in memory.

Every epoch reads each image once, in a random order, and every node gets a random part of it (a shuffle over all
images, as `DistributedSampler` with `set_epoch` makes it). A node's cache holds a share c of the set. Pinned and page
cache are two things: a pinned part of the files always stays, in the page cache the kernel decides what stays.

LRU: an image is found again when fewer than c of the set were read by this node since. For a node that last read it
k epochs ago at position x, and reads it now at y, the part of the set that it did not read in between is
U q^(k-1) V, with q = 1 - 1/M, U = 1 - (1-x)/M and V = 1 - y/M; a hit is U V q^(k-1) >= 1 - c. With one node that
is c + (1-c) ln(1-c); with c = 1 it is 1 - q^(e-1) in epoch e.
"""

from __future__ import annotations

import math

from loaderprobe.records.verdict import Interval

WAY, MOST_WAY = 0.5, 0.75
"""Of the way from LRU to pinned: see `page_cache_hits`."""
LEAST_OF_LRU = 0.65
"""In epoch 2, of LRU's hits: four reading processes had 0.85 to 1.0 of them, workers of a DataLoader 0.69 to 1.0."""
_STEPS = 60
"""Halvings of an interval of 1: beyond the precision of a float."""


def lru_hits(share: float, nodes: int, epoch: int | None = None) -> float:
    """Share of reads that a cache with the least recently used files dropped answers, in one epoch or in the end."""
    before = math.inf if epoch is None else epoch - 1
    if share <= 0 or before <= 0:
        return 0.0
    if share >= 1:
        return _seen_again(nodes, before)
    if nodes == 1:
        return share + (1 - share) * math.log1p(-share)
    return _partly(share, nodes, before)


def pinned_hits(share: float) -> float:
    """The same where a fixed part of the set stays, from the epoch after the one that fills it."""
    return min(1.0, max(0.0, share))


def page_cache_hits(share: float, nodes: int = 1, epoch: int | None = None) -> Interval:
    """The same of Linux's page cache, with a range: from LRU's hits to 3/4 of the way to those of pinned files.

    Measured on Linux 6.18 (active and inactive lists), one node, `scripts/bench forecast caches`; hits in epoch 2, then
    3 to 6:

    | c   | LRU  | set of 0.44 GB    | set of 4.4 GB     | pinned |
    | 0.1 | 0.01 | 0.00, 0.01 - 0.02 | 0.00, 0.01 - 0.02 | 0.10   |
    | 0.3 | 0.05 | 0.05, 0.08 - 0.11 | 0.05, 0.09 - 0.17 | 0.30   |
    | 0.5 | 0.15 | 0.14, 0.20 - 0.22 | 0.15, 0.27 - 0.29 | 0.50   |
    | 0.7 | 0.34 | 0.33, 0.40 - 0.42 | 0.34, 0.46 - 0.48 | 0.70   |
    | 0.9 | 0.67 | 0.66, 0.72 - 0.82 | 0.67, 0.77 - 0.83 | 0.90   |

    What is read twice moves to the active list, which from 1 GiB on may be sqrt(10 x GiB) times as long as the other:
    so a larger cache answers more, up to the upper end in a simulation of these lists for 1 TB (`tests.analyze`).
    Without shuffling there were no hits at c = 0.9. Multi-generational LRU (CONFIG_LRU_GEN) was not measured.
    """
    low, value, high = (_way(share, nodes, epoch, way) for way in (0.0, WAY, MOST_WAY))
    if epoch == 2 and share < 1:
        low *= LEAST_OF_LRU
    return Interval(value=value, low=low, high=high)


def page_cache_share_for(hits: float, nodes: int) -> Interval:
    """The share of the set that the page cache of a node must hold for so many hits in the end, with a range."""
    low, value, high = (_share_for(hits, nodes, way) for way in (MOST_WAY, WAY, 0.0))
    return Interval(value=value, low=low, high=high)


def _way(share: float, nodes: int, epoch: int | None, way: float) -> float:
    """Hits so much of the way from LRU to pinned; by epoch 2 the kernel has seen no file twice, so it has LRU's."""
    least = lru_hits(share, nodes, epoch)
    if epoch is not None and epoch <= 2:
        return least
    most = min(pinned_hits(share), lru_hits(1.0, nodes, epoch))
    return least + way * max(0.0, most - least)


def _share_for(hits: float, nodes: int, way: float) -> float:
    """Inverse of `_way` in the end."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _way(middle, nodes, None, way) >= hits else (middle, high)
    return high


def _seen_again(nodes: int, epochs_before: float) -> float:
    """Share of images that this node read in one of the epochs before."""
    if nodes == 1 or epochs_before == math.inf:
        return 1.0
    return -math.expm1(epochs_before * math.log1p(-1 / nodes))


def _partly(share: float, nodes: int, epochs_before: float) -> float:
    decay = math.log1p(-1 / nodes)
    # Up to `sure` epochs ago, whatever was read is still there.
    sure = max(0.0, min(epochs_before, math.floor(math.log1p(-share) / decay - 1)))
    hits, epochs_ago = _seen_again(nodes, sure) if sure else 0.0, sure + 1
    while epochs_ago <= epochs_before:
        left = (1 - share) / math.exp((epochs_ago - 1) * decay)
        if left >= 1:
            break
        hits += math.exp((epochs_ago - 1) * decay) / nodes * _product_above(left, nodes)
        epochs_ago += 1
    return min(hits, share)


def _product_above(least: float, nodes: int) -> float:
    """Probability that the product of two numbers, each at random between 1 - 1/nodes and 1, is at least that."""
    q = 1 - 1 / nodes
    if least <= q * q:
        return 1.0
    if least >= q:
        return nodes**2 * (1 - least + least * math.log(least))
    return 1 - nodes**2 * (least * math.log(least / q**2) - least + q * q)
