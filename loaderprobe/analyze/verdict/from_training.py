"""The rates of loader and compute where only training was seen, estimated from its waits and the workers' clocks.

The loader alone makes batches as fast as its workers do when they never stand idle, or as the serial loader does while
the training thread waits for it. Compute alone is the steps without their waits: right where a step ends before the
host goes on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loaderprobe.analyze.verdict import estimate
from loaderprobe.analyze.verdict.rates import NS, WorkerCost, segment_seconds, segments_of, worker_cost
from loaderprobe.records.measurement import NO_STEP, Measurement, Mode, Segment


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


def input_at_most(measurement: Measurement, base: Mode) -> dict[int, float]:
    """By round, the most that training can gain from any input, as seen in training itself; empty without a step.

    Gone is all time of the training thread outside its steps. And while workers compute or wait for a core, the step is
    counted as standing still: so much it may at most be held up by them. Not known where their records are lost.
    """
    if measurement.compute.name == NO_STEP:
        return {}
    found, on_a_node = {}, measurement.config.ranks // measurement.config.nodes
    for segment in segments_of(measurement, base, "training"):
        seconds = segment_seconds(segment)
        cost = worker_cost(measurement.worker_batches, [segment])
        if cost is None or not seconds:
            return {}
        in_steps = sum(segment.end_ns) - sum(segment.copied_ns)
        # The serial loader works in the training thread, outside the steps.
        by_workers = max(cost.cpu_s + cost.run_delay_s, cost.process_cpu_s or 0.0) / seconds * on_a_node
        left = in_steps / 1e9 / seconds - (by_workers if measurement.config.loader.workers else 0.0)
        found[segment.round] = 1 / left if left > 0 else math.inf
    return found
