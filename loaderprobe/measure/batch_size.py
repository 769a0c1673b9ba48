"""The search for a batch size: a strategy asks, a prober answers."""

from __future__ import annotations

from collections.abc import Callable

from loaderprobe.protocols import BatchSizeProber, BatchSizeStrategy
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop

OnProbe = Callable[[int], None]
"""Called before each probe, with how many there were."""


def search(
    strategy: BatchSizeStrategy, prober: BatchSizeProber, on_probe: OnProbe
) -> tuple[tuple[BatchSizeProbe, ...], BatchSizeStop]:
    """All probes in order, and the end of the search. Ctrl-C ends it with the fastest size so far."""
    probes: list[BatchSizeProbe] = []
    while True:
        asked = strategy.next(probes)
        if isinstance(asked, BatchSizeStop):
            return tuple(probes), asked
        try:
            on_probe(len(probes))
            probes.append(prober.probe(asked))
        except KeyboardInterrupt:
            fitting = [each for each in probes if each.images_per_s]
            if not fitting:
                raise
            return tuple(probes), BatchSizeStop(code="interrupted", chosen=max(fitting, key=_rate).batch_size)


def _rate(probe: BatchSizeProbe) -> float:
    return probe.images_per_s.value if probe.images_per_s else 0.0
