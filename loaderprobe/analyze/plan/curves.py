"""What caches do in general, for the nodes of a plan: cold reads by epoch, and hits by the size of a cache."""

from __future__ import annotations

from loaderprobe.analyze.caches import lru_hits, page_cache_hits, pinned_hits
from loaderprobe.records.plan import CacheCurves, CacheHits, NodeEpochs

CURVE_EPOCHS = 20
CURVE_SHARES = tuple(number / 20 for number in range(21))
OTHER_NODES = 8
"""Beside a plan of one node."""


def cache_curves(nodes: int) -> CacheCurves:
    """What a cache of the whole set leaves to storage by epoch, on one node and on these; hits by a cache's size."""
    shown = sorted({1, nodes if nodes > 1 else OTHER_NODES})
    return CacheCurves(
        epochs=tuple(
            NodeEpochs(nodes=each, cold=tuple(1 - lru_hits(1.0, each, epoch) for epoch in range(1, CURVE_EPOCHS + 1)))
            for each in shown
        ),
        sizes=tuple(
            CacheHits(
                share=share,
                lru=lru_hits(share, nodes),
                page=page_cache_hits(share, nodes),
                pinned=pinned_hits(share),
            )
            for share in CURVE_SHARES
        ),
    )
