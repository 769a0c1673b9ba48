"""The rates of loader and compute where only training was seen, estimated from its waits and the workers' clocks.

The loader alone makes batches as fast as its workers do when they never stand idle, or as the serial loader does while
the training thread waits for it. Compute alone is the steps without their waits: right where a step ends before the
host goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loaderprobe.analyze.verdict import estimate
from loaderprobe.analyze.verdict.rates import NS, WorkerCost, segment_seconds
from loaderprobe.records.measurement import Segment


def loader_rates(
    trained: Sequence[Segment], costs: Mapping[int, WorkerCost | None], limits: estimate.Limits
) -> dict[int, float]:
    """Images/s of the loader alone by round; one whose batches have no record is left out."""
    if not limits.workers:
        return _rates({each.round: (each, _waited_s(each)) for each in trained})
    return {
        each.round: estimate.never_idle(cost, limits)
        for each in trained
        if (cost := costs.get(each.round)) is not None and cost.wall_s
    }


def compute_rates(trained: Sequence[Segment]) -> dict[int, float]:
    """Images/s of compute alone by round."""
    return _rates({each.round: (each, segment_seconds(each) - _waited_s(each)) for each in trained})


def _rates(spent: Mapping[int, tuple[Segment, float]]) -> dict[int, float]:
    return {n: each.batch_size * each.steps / seconds for n, (each, seconds) in spent.items() if seconds > 0}


def _waited_s(segment: Segment) -> float:
    return (sum(segment.ready_ns) - sum(segment.begin_ns)) / NS
