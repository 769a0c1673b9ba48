"""Rates, bytes, waits and worker times of segments and rounds; the loop that parts make; and what is estimated."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from operator import itemgetter
from typing import Literal

from loaderprobe.analyze.effects import DRIFT
from loaderprobe.records import by_key, thresholds
from loaderprobe.records.measurement import Activity, Measurement, Mode, Segment, WorkerBatches, segments_of
from loaderprobe.records.resources import ONLY_WAITED, RESOURCE, WAITED, SingleCause
from loaderprobe.records.verdict import FunctionTime, Interval, StepTime, WorkerTime
from loaderprobe.records.waits import WAIT_KINDS, StackSamples, WaitKind
from loaderprobe.stats import (
    Noise,
    half_width_beside,
    half_width_in_time,
    mean,
    median,
    noise_in_time,
    pooled,
    standard_error,
)

# What workers waited for while they made batches, from samples of their threads at random moments.
#
# A sample has the kind of a wait, not its length: shares of samples divide the waiting time that clocks measured.

WaitEnd = Literal["seen", "least", "most"]
RESOURCE_OF = {kind: name for name in WAITED for kind in RESOURCE[name].waits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Looks at workers while they made batches."""

    samples: int
    kinds: Mapping[WaitKind, int]
    """Looks by kind, `running` left out."""
    commands: int = 0
    """Looks at a worker that waited for a process of its own, which ran."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """By resource, the one that was met most often: a file, a peer, a lock."""
    unknown: bool = False
    """True where only state letters could be read, so that waiting without a kind may be for anything."""

    @property
    def waited(self) -> int:
        """Looks at a worker that waited."""
        return sum(self.kinds.values())

    def count(self, resource: str) -> int:
        """Looks at a worker that waited for this."""
        return sum(count for kind, count in self.kinds.items() if RESOURCE_OF[kind] == resource)

    def share(self, resource: str) -> float:
        return self.count(resource) / self.waited if self.waited else 0.0

    def least(self, resource: str) -> float:
        """The lower end of the share's 95 % interval."""
        return _wilson(self.count(resource), self.waited, -1.0) if self.waited else 0.0

    def most(self, resource: str) -> float:
        """The upper end of the share's 95 % interval, with what may be of any kind."""
        may_be = self.count(resource) + (self.kinds.get("other", 0) if self.unknown else 0)
        return _wilson(may_be, self.waited, 1.0) if self.waited else 1.0


def _wilson(count: int, of: int, side: float) -> float:
    """One end of Wilson's interval (1927), which holds for shares near 0 and 1 and for few samples."""
    share = count / of
    middle = share + thresholds.NORMAL**2 / (2 * of)
    half = thresholds.NORMAL * math.sqrt(share * (1 - share) / of + thresholds.NORMAL**2 / (4 * of * of))
    return min(1.0, max(0.0, (middle + side * half) / (1 + thresholds.NORMAL**2 / of)))


def waiting_of(measurement: Measurement, segments: Iterable[Segment]) -> Waiting | None:
    """Of the batches of these segments; None with too few samples."""
    waits = measurement.waits
    if waits is None:
        return None
    spans = _spans(measurement, segments)
    kinds: Counter[WaitKind] = Counter()
    subjects: Counter[tuple[str, str]] = Counter()
    samples = commands = 0
    for time_ns, worker, kind, subject in zip(waits.time_ns, waits.worker, waits.kind, waits.subject, strict=True):
        made = spans.get(0 if measurement.own_threads else worker, [])
        index = bisect_right(made, time_ns, key=itemgetter(0)) - 1
        if index < 0 or time_ns > made[index][1]:
            continue  # between two batches: idle
        samples += 1
        name = WAIT_KINDS[kind]
        if name == "running":
            commands += subject >= 0
            continue
        kinds[name] += 1
        if subject >= 0:
            subjects[RESOURCE_OF[name], waits.subjects[subject]] += 1
    if samples < thresholds.LEAST_SAMPLES:
        return None
    met = {resource: name for (resource, name), _ in reversed(subjects.most_common())}
    letters = waits.letters_only is not None
    return Waiting(samples=samples, kinds=kinds, commands=commands, subjects=met, unknown=letters)


def _spans(measurement: Measurement, segments: Iterable[Segment]) -> dict[int, list[tuple[int, int]]]:
    """By worker, when batches of these segments were begun and ended, in the order of time."""
    records, wanted = measurement.worker_batches, batches_of(segments)
    by_worker: dict[int, list[tuple[int, int]]] = {}
    rows = zip(records.start_ns, records.batch, records.worker, records.wall_ns, strict=True)
    for start, number, worker, wall in sorted(rows):
        if number in wanted:
            by_worker.setdefault(worker, []).append((start, start + wall))
    return by_worker


NS = 1e9
CLOCK = Noise(variance=thresholds.CLOCK_VARIES**2, freedom=3)
DEVICE = Noise(variance=thresholds.DEVICE_VARIES**2, freedom=3)


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
    process_cpu_s: float | None = None
    """CPU time of all threads of the workers; None in runs that did not record it."""
    waiting: Waiting | None = None
    """What the workers waited for; None where they were not looked at."""

    @property
    def all_cpu_s(self) -> float:
        """CPU time of all threads of the workers, and of their commands; of those that make batches if that is all."""
        return max(self.cpu_s + self.commands_s, self.process_cpu_s or 0.0)

    @property
    def helped_s(self) -> float:
        """Waiting for other threads of the worker, or for its commands, that compute: not for anything outside it.

        What commands use is known once they end; those that stay are seen to run.
        """
        if self.waiting is None or self.process_cpu_s is None:
            return 0.0
        # A look at a thread that waits for such threads is one at a running worker.
        computed = self.blocked_s - self.wall_s * self.waiting.waited / self.waiting.samples
        run = self.waiting.commands > thresholds.HELPERS_AT_LEAST * self.waiting.samples
        return max(0.0, computed) if self._threads_compute or run else 0.0

    @property
    def _threads_compute(self) -> bool:
        """Other threads of the workers, or commands that ended: their CPU time is on record."""
        return (self.process_cpu_s or 0.0) - self.cpu_s > thresholds.HELPERS_AT_LEAST * self.wall_s

    @property
    def commands_s(self) -> float:
        """Waiting for commands whose CPU time is not on record, since they stay; they compute all the while."""
        return 0.0 if self._threads_compute else self.helped_s

    def waited_s(self, resource: str, end: WaitEnd = "seen") -> float:
        """For `storage`, `network`, `lock` or `wait`: as seen, or an end of its 95 % interval.

        Where workers were not looked at all waiting may be for it, and none must be.
        """
        if self.waiting is None:
            return 0.0 if end == "least" else self.blocked_s
        waited_s = self.blocked_s - self.helped_s
        if end == "least":
            return waited_s * self.waiting.least(resource)
        seen_s = waited_s * self.waiting.share(resource)
        if end == "seen":
            return seen_s
        # A worker that waits while it holds a lock makes the others wait for the lock.
        may_hold_lock = resource != "lock" and seen_s >= thresholds.NEGLIGIBLE_WAIT * self.wall_s
        return waited_s * min(1.0, self.waiting.most(resource) + (self.waiting.most("lock") if may_hold_lock else 0.0))

    @property
    def instrument_cpu_fraction(self) -> float | None:
        """What the recording adds to the CPU time of the workers; None where that is not known."""
        return self.instrument_s / self.cpu_s if self.instrument_s is not None and self.cpu_s else None

    @property
    def blocked_s(self) -> float:
        """Neither computing nor waiting for a core: waiting for storage, or for what workers are seen to wait for."""
        return max(0.0, self.wall_s - self.cpu_s - self.run_delay_s)

    def per_image(self, ranks: int = 1) -> WorkerTime:
        """Mean seconds an image in one worker; `ranks` made the images, of which the times of one are counted."""
        known = {} if self.waiting is None else {name: self.waited_s(name) for name in WAITED}
        images = self.images / ranks
        return WorkerTime(
            cpu_s=self.cpu_s / images,
            run_delay_s=self.run_delay_s / images,
            blocked_s=self.blocked_s / images,
            waits={name: seconds / images for name, seconds in known.items()},
        )


def segment_rate(measurement: Measurement, segment: Segment) -> float:
    """Images/s. A device with its own queue is timed on its own timeline: from step end to step end.

    With N workers batches come in groups of N, so only whole multiples of N of its steps count; where there is not
    one between two steps, time begins with the wait for the first batch.
    """
    finished, period = segment.finished_ns, max(measurement.workers, 1)
    first = (len(finished) - 1) % period
    if not measurement.compute.synchronous and len(finished) > period and finished[-1] > finished[first]:
        return segment.batch_size * (len(finished) - 1 - first) * NS / (finished[-1] - finished[first])
    seconds = max(segment.seconds, ((finished[-1] if finished else 0) - segment.begin_ns[0]) / NS)
    return segment.batch_size * segment.steps / seconds if seconds else math.inf


def rates_by_round(
    measurement: Measurement, mode: Mode, activity: Activity, *, without: int | None = None
) -> dict[int, float]:
    """Images/s of each round that has such a segment."""
    segments = segments_of(measurement, mode, activity, without=without)
    return {segment.round: segment_rate(measurement, segment) for segment in segments}


def rate_interval(measurement: Measurement, segments: Sequence[Segment]) -> Interval:
    """Images/s of these segments, one a round: their median, with the interval that 95 % of long loops lie in.

    The variance of a round's rate has two parts. What its steps vary by comes from their batch means, of all rounds
    together. The spread between rounds beyond that is assumed before anything is measured; the spread of these
    rounds is weighed against both, and against that of the loader, or of compute, alone: of the one that runs at about
    the same rate. So one round has an interval, and many rounds have that of their spread. A device with its own queue
    that never waits differs by no more than its clock.
    """
    rates = [segment_rate(measurement, segment) for segment in segments]
    value = median(rates)
    by_clock = _clock(measurement, min(rates)) if segments[0].activity == "training" else None
    drift, period = (by_clock, 1) if by_clock else (DRIFT, max(measurement.workers, 1))
    times = [_times_of_steps(measurement, segment, period) for segment in segments]
    steps = [noise for row in times if any(row) and (noise := noise_in_time([time / mean(row) for time in row]))]
    known = (pooled(steps) or _noise_unseen(measurement, segments, period, drift)) + drift
    beside = None if by_clock else _noise_beside(measurement, segments[0], value)
    known = (pooled([known, beside]) if beside else None) or known
    of_median = thresholds.MEDIAN_OVER_MEAN if len(rates) >= thresholds.ENOUGH_ROUNDS else 1.0
    half = value * of_median * half_width_beside([math.log(rate) for rate in rates], known)
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def _clock(measurement: Measurement, images_per_s: float) -> Noise | None:
    """What rounds of a device with its own queue differ by; None where it waits, or where its rate is not known."""
    if measurement.compute.synchronous:
        return None
    given = measurement.compute.specified_images_per_s
    alone = [given] if given is not None else [*rates_by_round(measurement, "resident", "training").values()]
    if not alone or images_per_s < thresholds.NEVER_WAITS * median(alone):
        return None
    return DEVICE if given is None else CLOCK


def _noise_beside(measurement: Measurement, judged: Segment, images_per_s: float) -> Noise | None:
    """What the rounds vary by of the part whose own rate is nearest to this one; None where none has two rounds."""
    both: list[tuple[Mode, Activity]] = [(judged.mode, "loader_only"), (judged.mode, "training")]
    parts = []
    for mode, activity in (*both, ("resident", "training")):
        rates = [rate for rate in rates_by_round(measurement, mode, activity).values() if rate < math.inf]
        if (mode, activity) != (judged.mode, judged.activity) and len(rates) > 1:
            logs = [math.log(rate) for rate in rates]
            noise = Noise(variance=standard_error(logs) ** 2 * len(logs), freedom=len(logs) - 1)
            parts.append((abs(median(logs) - math.log(images_per_s)), noise))
    return min(parts, key=lambda part: part[0])[1] if parts else None


def _noise_unseen(measurement: Measurement, segments: Sequence[Segment], period: int, drift: Noise) -> Noise:
    """Of steps too few to show it: what rounds vary by or, where it is more, batches that the steps wait for.

    A period of the workers lasts as long as a batch. Within one, the wait counts and not the batches that come at once
    behind it. Simulated with 4 and 8 workers whose batches of seconds vary by 14 to 53 %, one round in segments of 1 to
    16 steps: 94 to 100 % of the intervals held the rate.
    """
    records = measurement.worker_batches
    made = batches_of(segment for segment in measurement.segments if segment.mode == segments[0].mode)
    walls = [wall for number, wall in zip(records.batch, records.wall_ns, strict=True) if number in made]
    if len(walls) < 2 or not any(walls):
        return drift
    waited = sum(map(_waited_s, segments)) / sum(segment.seconds for segment in segments)
    periods = mean([segment.steps for segment in segments]) / period
    of_batch = (standard_error(walls) / mean(walls)) ** 2 * len(walls)
    noise = Noise(variance=of_batch * waited**2 / min(periods, periods**2), freedom=len(walls) - 1)
    return max(drift, noise, key=lambda spread: spread.variance)


def _times_of_steps(measurement: Measurement, segment: Segment, period: int) -> list[float]:
    """Seconds of each `period` steps: batches come in groups of as many as there are workers.

    As the rate is: of a device with its own queue on its own timeline, of which the host is two steps ahead.
    """
    finished, host = segment.finished_ns, (*segment.begin_ns, segment.closed_ns)
    stamps = host if measurement.compute.synchronous or len(finished) <= period else finished
    return [(end - begin) / NS for begin, end in pairwise(stamps[(len(stamps) - 1) % period :: period])]


def spread_of_both(measurement: Measurement, first: Iterable[Segment], second: Iterable[Segment]) -> dict[int, float]:
    """By round that both have, half the 95 % interval of the first rate over the second, as their steps vary.

    Fewer than three times show no spread.
    """

    def spread(segment: Segment) -> float:
        times = _times_of_steps(measurement, segment, max(measurement.workers, 1))
        return half_width_in_time(times) / mean(times) if len(times) >= thresholds.ENOUGH_ROUNDS and any(times) else 0.0

    of_first, of_second = ({segment.round: spread(segment) for segment in side} for side in (first, second))
    return {number: math.hypot(of_first[number], of_second[number]) for number in of_first.keys() & of_second.keys()}


def parent_overhead_s(segments: Sequence[Segment]) -> float:
    """Seconds a batch that the training thread works on receiving it, alone also on releasing it; 0 if not noted."""
    steps = sum(segment.steps for segment in segments)
    spent = (s.receive_cpu_ns or 0 if s.activity == "training" else s.thread_cpu_ns for s in segments)
    return sum(spent) / steps / NS if steps else 0.0


def worker_cost(records: WorkerBatches, segments: Iterable[Segment]) -> WorkerCost | None:
    """What the batches of these segments cost their workers; None when no record of them is left."""
    return cost_of_batches(records, batches_of(segments))


def batches_of(segments: Iterable[Segment]) -> set[int]:
    """The numbers of their batches; those that take none have none."""
    return {n for s in segments if s.first_batch >= 0 for n in range(s.first_batch, s.first_batch + s.steps)}


def cost_of_batches(records: WorkerBatches, wanted: Collection[int]) -> WorkerCost | None:
    """The same of batches by their numbers. One whose record is lost is taken to cost what the others did."""
    kept = [number in wanted for number in records.batch]

    def total(column: Sequence[int]) -> float:
        return sum(compress(column, kept)) * len(wanted) / kept.count(True)

    if not any(kept) or not total(records.images):
        return None
    return WorkerCost(
        images=round(total(records.images)),
        wall_s=total(records.wall_ns) / NS,
        cpu_s=total(records.cpu_ns) / NS,
        run_delay_s=total(records.run_delay_ns) / NS,
        read_bytes=round(total(records.read_bytes)),
        collate_s=total(records.collate_ns) / NS if records.collate_ns else 0.0,
        instrument_s=total(records.instrument_ns) / NS if records.instrument_ns else None,
        process_cpu_s=total(records.process_cpu_ns) / NS if records.process_cpu_ns else None,
    )


MOST_FUNCTIONS = 8


def function_times(stacks: StackSamples | None) -> tuple[FunctionTime, ...]:
    """The functions of a pipeline that take most time by themselves, in the order of all that they take."""
    looks = sum(stacks.counts) if stacks is not None else 0
    if stacks is None or looks < thresholds.LEAST_LOOKS:
        return ()
    own: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for stack, count in zip(stacks.stacks, stacks.counts, strict=True):
        own[stack[-1]] += count
        total.update(dict.fromkeys(stack, count))
    slowest = [number for number, count in own.most_common(MOST_FUNCTIONS) if count >= thresholds.LEAST_OWN * looks]
    ordered = sorted(slowest, key=lambda number: (-total[number], -own[number]))
    return tuple(
        FunctionTime(function=stacks.functions[number], own=own[number] / looks, total=total[number] / looks)
        for number in ordered
    )


def cores_in_training(measurement: Measurement, segments: Sequence[Segment]) -> float | None:
    """Cores that workers and the training process together keep busy; None in runs that did not record it.

    As the kernel counted it meanwhile; else by the batches taken, of which some may have been made before.
    """
    counted = [segment.others for segment in segments if segment.others]
    if measurement.ranks == 1 and counted and len(counted) == len(segments):
        return sum(others.own_cpu_ns for others in counted) / sum(others.span_ns for others in counted)
    cost = worker_cost(measurement.worker_batches, segments)
    cpu_ns = [segment.process_cpu_ns for segment in segments]
    seconds = sum(segment.seconds for segment in segments)
    if cost is None or cost.process_cpu_s is None or None in cpu_ns or not seconds:
        return None
    workers_s, own_s = cost.process_cpu_s if measurement.workers else 0.0, sum(ns or 0 for ns in cpu_ns) / NS
    # Threads of the loader's own belong to the training process, too.
    return (max(workers_s, own_s) if measurement.own_threads else workers_s + own_s) / seconds


def cold_fraction(measurement: Measurement, segments: Sequence[Segment]) -> float | None:
    """Bytes read from storage over bytes delivered; None where reads are not accounted, or no size is known."""
    read = read_bytes(measurement, segments)
    # A file that is drawn twice comes from storage once.
    known = measurement.access == "files"
    distinct = (
        s.distinct_bytes if known and s.distinct_bytes is not None else delivered_bytes(measurement, s)
        for s in segments
    )
    delivered = sum(size or 0 for size in distinct)
    return read / delivered if read is not None and delivered else None


def read_bytes(measurement: Measurement, segments: Sequence[Segment]) -> float | None:
    """From storage, by the workers; of a file server, for all who use it. None where neither is counted."""
    cost = worker_cost(measurement.worker_batches, segments)
    if cost is None:
        return None
    if measurement.storage_counts_reads:
        return cost.read_bytes
    moved = [segment.disk_bytes for segment in segments]
    served = measurement.storage_kind in ("fuse", "network") and None not in moved and measurement.ranks == 1
    return sum(size or 0 for size in moved) if served else None


def delivered_bytes(measurement: Measurement, segment: Segment) -> float | None:
    """Bytes of the samples of a segment: of their files or, where those are not known, of as many usual samples."""
    if measurement.access == "files":
        return segment.delivered_bytes
    if measurement.sample_bytes is None or segment.first_batch < 0:
        return None
    return measurement.sample_bytes * segment.batch_size * segment.steps


def bytes_per_image(measurement: Measurement, segments: Iterable[Segment]) -> float | None:
    """Bytes of the files of an image; None where none is known."""
    known = [(size, s) for s in segments if (size := delivered_bytes(measurement, s)) is not None]
    images = sum(s.batch_size * s.steps for _, s in known)
    return sum(size for size, _ in known) / images if images else None


def bytes_over(measurement: Measurement, loader: Sequence[Segment], training: Sequence[Segment]) -> dict[int, float]:
    """By round, the mean bytes of an image of the one over that of the other; only where both are known.

    Of their files; where samples have no file of their own, what they took from storage: read-ahead gives one segment
    more than it uses, and another less.
    """

    def over(bytes_per_image: Callable[[Segment], float]) -> dict[int, float]:
        first, second = ({s.round: bytes_per_image(s) for s in segments} for segments in (loader, training))
        return {n: size / second[n] for n, size in first.items() if size and second.get(n)}

    def read(segment: Segment) -> float:
        cost = worker_cost(measurement.worker_batches, [segment])
        return cost.read_bytes / cost.images if cost else 0.0

    by_files = over(lambda s: (s.delivered_bytes or 0) / (s.batch_size * s.steps))
    by_storage = measurement.access != "files" and measurement.storage_counts_reads
    return by_files or (over(read) if by_storage else {})


def step_time(segments: Sequence[Segment], images_per_s: float) -> StepTime:
    """Where a step goes on the training thread: waiting in `next()`, submitting the copy, the step, the rest.

    The parts are shares of the time of all steps, and sum to the batch over `images_per_s`, the median of the rounds:
    a step that lasts long in one round changes no figure.
    """
    wait = copy = step = total = 0
    for segment in segments:
        wait += sum(segment.ready_ns) - sum(segment.begin_ns)
        copy += sum(segment.copied_ns) - sum(segment.ready_ns)
        step += sum(segment.end_ns) - sum(segment.copied_ns)
        total += segment.closed_ns - segment.begin_ns[0]
    batch_s = segments[0].batch_size / images_per_s
    return StepTime(
        wait_s=batch_s * wait / total,
        copy_s=batch_s * copy / total,
        step_s=batch_s * step / total,
        other_s=batch_s * (total - wait - copy - step) / total,
    )


def per_second(supply: float, demand: float) -> float:
    """Images/s of a resource of which one image takes `demand`; inf where it takes none."""
    return supply / demand if demand > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A training loop: how it overlaps, what a batch costs the training thread, and what a loader in it cannot exceed.

    The three formulas were chosen in earlier experiments on throttled disks; the prediction_error in every verdict
    holds them against the run at hand.
    """

    workers: int
    batch_size: int
    synchronous: bool
    overhead_s: float
    """Seconds a batch that the training thread works on receiving and releasing it."""
    cores: float = math.inf
    storage_images_per_s: float = math.inf
    """What the storage delivers; infinite where that is not known."""

    @property
    def parent_s(self) -> float:
        """The overhead of an image."""
        return self.overhead_s / self.batch_size

    def end_to_end(self, loader: float, compute: float) -> float:
        """Images/s of training, from those of the loader and of compute alone.

        Without workers nothing loads while the training thread waits for the device: a synchronised loop adds the two
        times. An asynchronous device overlaps its step with the loading of the next batch, which the host begins as
        soon as it has submitted a step.
        """
        if self.synchronous and not self.workers:
            return 1 / (1 / loader + 1 / compute)
        overhead_s = self.parent_s if self.workers else 0.0
        if self.synchronous:
            return min(loader, 1 / (1 / compute + overhead_s))
        return min(loader, compute, per_second(1.0, overhead_s))


# What a loader would deliver without one resource, where its mode was not measured: its time is taken off a worker's.
#
# For waiting that is close to the truth. For preprocessing and transport it is the most that can be had: on a device at
# its limit the workers would wait for it all the longer.


BY_TIMES: tuple[SingleCause, ...] = ("preprocessing", "transport")
"""Those that take a worker's time without waiting. They can be estimated, as what workers are seen to wait for can."""


def rate_without(resource: str, rate: float, cost: WorkerCost, loop: Loop, end: WaitEnd = "seen") -> float:
    """Images/s of a loader of `rate` images/s without `resource`: at least `rate`, at most `UNBOUNDED` times that.

    A wait is taken as it was seen, or as the least or most that it can be.
    """
    per_image = cost.per_image()
    wall_s, busy_s = cost.wall_s / cost.images, per_image.cpu_s + per_image.run_delay_s
    # The serial loader sends nothing: putting a batch together is part of making it.
    collate_s = min(cost.collate_s / cost.images, busy_s) if loop.workers else 0.0
    # Of putting a batch together, as much is CPU time as of the rest that does not wait for storage.
    collate_cpu_s = collate_s * per_image.cpu_s / busy_s if busy_s else 0.0
    whole_cpu_s, helped_s = cost.all_cpu_s / cost.images, cost.helped_s / cost.images
    by_resource = {
        "preprocessing": (busy_s - collate_s + helped_s, collate_cpu_s, loop.storage_images_per_s),
        "transport": (collate_s, whole_cpu_s - collate_cpu_s, loop.storage_images_per_s),
    }
    wait = (cost.waited_s(resource, end) / cost.images, whole_cpu_s, math.inf)
    gone_s, cpu_s, ceiling = by_resource.get(resource, wait)
    # The serial loader is its only worker, and also works outside of fetching.
    left_s = wall_s - gone_s if loop.workers else 1 / rate - gone_s
    parent_s = 0.0 if resource == "transport" else loop.parent_s
    # A wait that was not there takes nothing away, however idle the workers were between batches.
    negligible = resource in WAITED and gone_s < thresholds.NEGLIGIBLE_WAIT * wall_s
    not_there = loop.workers and (negligible or resource in ONLY_WAITED)
    bounds = (
        rate * per_second(wall_s, left_s) if not_there else per_second(max(loop.workers, 1), left_s),
        per_second(loop.cores, cpu_s + parent_s),
        per_second(1.0, parent_s) if loop.workers else math.inf,
        ceiling,
        thresholds.UNBOUNDED * rate,
    )
    return max(rate, min(bounds))


def loader_rates(trained: Sequence[Segment], costs: Mapping[int, WorkerCost], loop: Loop) -> dict[int, float]:
    """Images/s of the loader alone by round, where only training was seen, from the clocks of workers.

    Of workers that never stand idle, or while training waits for it.
    """
    if not loop.workers:
        return _rates(trained, _waited_s)
    return {
        number: min(
            per_second(loop.workers, cost.wall_s / cost.images),
            per_second(loop.cores, cost.all_cpu_s / cost.images + loop.parent_s),
            per_second(1.0, loop.parent_s),
        )
        for number, cost in costs.items()
        if cost.wall_s
    }


def compute_rates(trained: Sequence[Segment]) -> dict[int, float]:
    """Images/s of compute alone by round, from steps without waits: right where a step ends before the host goes on."""
    return _rates(trained, lambda segment: segment.seconds - _waited_s(segment))


def _rates(trained: Sequence[Segment], spent_s: Callable[[Segment], float]) -> dict[int, float]:
    return {segment.round: segment.batch_size * segment.steps / s for segment in trained if (s := spent_s(segment)) > 0}


def _waited_s(segment: Segment) -> float:
    return (sum(segment.ready_ns) - sum(segment.begin_ns)) / NS


def input_at_most(measurement: Measurement) -> float:
    """The most that training can gain from any input, in any round, as seen in training itself.

    Gone is all time of the training thread outside its steps. And while workers compute or wait for a core, the step is
    counted as standing still: so much it may at most be held up by them. Infinite without a step, and where their
    records are lost.
    """
    left_over = []
    for segment in segments_of(measurement, measurement.config.mode, "training"):
        seconds = segment.seconds
        cost = worker_cost(measurement.worker_batches, [segment])
        if cost is None or not seconds:
            return math.inf
        in_steps = sum(segment.end_ns) - sum(segment.copied_ns)
        # The serial loader works in the training thread, outside the steps.
        by_workers = max(cost.cpu_s + cost.run_delay_s, cost.process_cpu_s or 0.0) / seconds * measurement.ranks_here
        left_over.append(in_steps / NS / seconds - (by_workers if measurement.workers else 0.0))
    return per_second(1.0, min(left_over, default=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost:
    """A host, and its ranks beside all others. Rates are in the unit that was given."""

    host: str
    slow: int
    """How many of its ranks are slow."""
    ranks: int
    rate: float
    """The median rate of its slow ranks."""
    elsewhere: float
    """The rate of the slowest rank of any other host."""
    lead: float
    """`elsewhere` over the rate of the fastest slow rank; above 1."""


def host_names(hosts: Sequence[tuple[int, str]]) -> list[str]:
    """The name of the host of each rank, from its (node, host); with the node where two nodes have the same name."""
    nodes = by_key(set(hosts), lambda rank: rank[1])
    return [host if len(nodes[host]) == 1 else f"{host} (node {node})" for node, host in hosts]


def slow_host(rates: Sequence[tuple[str, float]]) -> SlowHost | None:
    """The host whose ranks are slower than all others, from (host, rate) of each rank; None without one."""
    for host, ranks in by_key(rates, lambda rank: rank[0]).items():
        own_rates = sorted(rate for _, rate in ranks)
        slow = own_rates[: len(own_rates) - len(own_rates) // thresholds.ONE_OF]
        elsewhere = min((rate for name, rate in rates if name != host), default=0.0)
        if len(own_rates) >= thresholds.FEWEST_RANKS and 0 < slow[-1] < elsewhere:
            return SlowHost(
                host=host,
                slow=sum(rate < elsewhere for rate in own_rates),
                ranks=len(own_rates),
                rate=median(slow),
                elsewhere=elsewhere,
                lead=elsewhere / slow[-1],
            )
    return None
