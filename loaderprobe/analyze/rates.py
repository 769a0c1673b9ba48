"""Rates, bytes and worker times of single segments and rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loaderprobe.records.measurement import Activity, Measurement, Mode, Segment, WorkerBatches
from loaderprobe.records.verdict import Interval, StepTime, WorkerTime
from loaderprobe.stats import half_width, median

NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCost:
    """Sums over the batches of some segments, as their workers saw them."""

    images: int
    wall_s: float
    cpu_s: float
    run_delay_s: float
    read_bytes: int
    collate_s: float = 0.0
    """Wall time of putting samples together into batches; 0 in runs that did not record it."""
    instrument_s: float | None = None
    """CPU time of the recording itself; None in runs that did not record it."""

    @property
    def instrument_cpu_fraction(self) -> float | None:
        """What the recording adds to the CPU time of the workers; None where that is not known."""
        return self.instrument_s / self.cpu_s if self.instrument_s is not None and self.cpu_s else None

    @property
    def blocked_s(self) -> float:
        """Waiting for storage: neither computing nor waiting for a core."""
        return max(0.0, self.wall_s - self.cpu_s - self.run_delay_s)

    def per_image(self) -> WorkerTime:
        """Mean seconds an image in one worker."""
        return WorkerTime(
            cpu_s=self.cpu_s / self.images,
            run_delay_s=self.run_delay_s / self.images,
            blocked_s=self.blocked_s / self.images,
        )


def segments_of(measurement: Measurement, mode: Mode, activity: Activity) -> list[Segment]:
    """The segments of one mode and activity, by round."""
    found = [s for s in measurement.segments if (s.mode, s.activity) == (mode, activity) and s.steps > 0]
    return sorted(found, key=lambda segment: segment.round)


def segment_seconds(segment: Segment) -> float:
    """Whole iterations, from the first `next()` to the release of the last batch."""
    return (segment.closed_ns - segment.begin_ns[0]) / NS


def segment_rate(segment: Segment, *, synchronous: bool, workers: int = 0) -> float:
    """Images/s. A device with its own queue is timed on its own timeline: from step end to step end.

    With N workers batches come in groups of N, so only whole multiples of N of its steps count; where there is not
    one between two steps, time begins with the wait for the first batch.
    """
    finished, period = segment.finished_ns, max(workers, 1)
    first = (len(finished) - 1) % period
    if not synchronous and len(finished) > period and finished[-1] > finished[first]:
        return segment.batch_size * (len(finished) - 1 - first) * NS / (finished[-1] - finished[first])
    seconds = max(segment_seconds(segment), ((finished[-1] if finished else 0) - segment.begin_ns[0]) / NS)
    return segment.batch_size * segment.steps / seconds if seconds else math.inf


def rates_by_round(measurement: Measurement, mode: Mode, activity: Activity) -> dict[int, float]:
    """Images/s of each round that has such a segment."""
    synchronous = measurement.compute.synchronous or activity == "drain"
    return {
        segment.round: segment_rate(segment, synchronous=synchronous, workers=measurement.config.workers)
        for segment in segments_of(measurement, mode, activity)
    }


def interval(values: Sequence[float]) -> Interval:
    """Median and 95 % interval over rounds; never below 0.

    The median, since now and then a virtual machine loses its processor for seconds, in one round.
    """
    middle, half = median(values), half_width(values)
    return Interval(value=middle, low=max(0.0, middle - half), high=middle + half)


def parent_overhead_s(segments: Iterable[Segment]) -> float:
    """Seconds a batch that the training thread itself works on receiving and releasing it (from drains)."""
    drains = list(segments)
    steps = sum(segment.steps for segment in drains)
    return sum(segment.thread_cpu_ns for segment in drains) / steps / NS if steps else 0.0


def worker_cost(records: WorkerBatches, segments: Iterable[Segment]) -> WorkerCost | None:
    """What the batches of these segments cost their workers; None when no record of them is left."""
    wanted = {number for s in segments for number in range(s.first_batch, s.first_batch + s.steps)}
    rows = [i for i, number in enumerate(records.batch) if number in wanted]
    images = sum(records.images[i] for i in rows)
    if not images:
        return None
    return WorkerCost(
        images=images,
        wall_s=sum(records.wall_ns[i] for i in rows) / NS,
        cpu_s=sum(records.cpu_ns[i] for i in rows) / NS,
        run_delay_s=sum(records.run_delay_ns[i] for i in rows) / NS,
        read_bytes=sum(records.read_bytes[i] for i in rows),
        collate_s=sum(records.collate_ns[i] for i in rows) / NS if records.collate_ns else 0.0,
        instrument_s=sum(records.instrument_ns[i] for i in rows) / NS if records.instrument_ns else None,
    )


def cold_fraction(measurement: Measurement, segments: Sequence[Segment]) -> float | None:
    """Bytes read from storage over bytes delivered; None where reads are not accounted."""
    cost = worker_cost(measurement.worker_batches, segments)
    delivered = sum(segment.delivered_bytes or 0 for segment in segments)
    if cost is None or not delivered or not measurement.storage_counts_reads:
        return None
    return cost.read_bytes / delivered


def step_time(segments: Sequence[Segment]) -> StepTime:
    """Where a step goes on the training thread: waiting in `next()`, handing over the copy, the step, the rest."""
    steps = sum(segment.steps for segment in segments)
    if not steps:
        return StepTime(wait_s=0.0, copy_s=0.0, step_s=0.0, other_s=0.0)
    wait = copy = step = total = 0
    for segment in segments:
        wait += sum(segment.ready_ns) - sum(segment.begin_ns)
        copy += sum(segment.copied_ns) - sum(segment.ready_ns)
        step += sum(segment.end_ns) - sum(segment.copied_ns)
        total += segment.closed_ns - segment.begin_ns[0]
    return StepTime(
        wait_s=wait / steps / NS,
        copy_s=copy / steps / NS,
        step_s=step / steps / NS,
        other_s=(total - wait - copy - step) / steps / NS,
    )
