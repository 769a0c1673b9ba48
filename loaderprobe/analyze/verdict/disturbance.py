"""What other processes did while segments were timed, and which segments that concerns.

Own processes alone make the training thread wait for a core, and threads wait in /proc/pressure, wherever workers are
more than cores; so what others did is judged by their CPU time, by steal, and by their reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from loaderprobe.analyze.verdict.rates import segment_seconds, worker_cost
from loaderprobe.records.measurement import Measurement, Segment

CPU_FROM = 0.10
"""Of the cores that may be used: what others take from this share on disturbs."""
IDLE_BELOW = 0.25
"""Of the cores, or one core where that is more: with as much idle, what others take is in the way of none. Assumed."""
STEAL_FROM = 0.05
"""Of the time of the cores; a hypervisor steals only while there is work."""
READS_FROM = 0.10
"""Of the bytes that the devices read: other processes' share."""
LEAST_READS = 1e6
"""Bytes a second below which other processes' reads, such as of a program that starts, hold up no device. Assumed."""
ALIKE_WITHIN = 0.15
"""Of the cores: segments in which others took shares that differ by less saw like conditions."""


def others_share(segment: Segment) -> float | None:
    """Share of the cores that others, and the hypervisor, took while it was timed; None where that was not read."""
    seen = segment.others
    return None if seen is None else (seen.cpu_ns + seen.steal_ns) / (seen.span_ns * seen.cores)


def pressing_share(measurement: Measurement, segment: Segment) -> float | None:
    """The same of `cores_available`, without what others take of cores that may not be used; None as above."""
    share, seen = others_share(segment), segment.others
    if share is None or seen is None:
        return None
    available = min(measurement.cores_available, seen.cores)
    return max(0.0, share * seen.cores - (seen.cores - available)) / available


def other_reads(measurement: Measurement, segment: Segment) -> float | None:
    """Bytes/s that other processes read from the devices meanwhile; None where reads are not counted.

    Batches of the segment were begun before it, and those after it within it: as many bytes are in doubt.
    """
    cost = worker_cost(measurement.worker_batches, [segment])
    if cost is None or segment.disk_bytes is None or not measurement.storage_counts_reads:
        return None
    ahead = measurement.config.loader.batches_begun / segment.steps
    seconds = segment_seconds(segment)
    others = segment.disk_bytes - cost.read_bytes * (1 + ahead)
    return max(0.0, others) / seconds if seconds else None


def is_disturbed(measurement: Measurement, segment: Segment) -> bool:
    """True where others took what may have changed its rate; False also where that was not read."""
    return _by_cpu(measurement, segment) or _by_reads(measurement, segment)


def _by_cpu(measurement: Measurement, segment: Segment) -> bool:
    seen, pressing = segment.others, pressing_share(measurement, segment)
    if seen is None or pressing is None:
        return False
    cores = seen.span_ns * seen.cores
    idle = seen.cores - (seen.cpu_ns + seen.own_cpu_ns + seen.steal_ns) / seen.span_ns
    return (pressing > CPU_FROM and idle < max(1.0, IDLE_BELOW * seen.cores)) or seen.steal_ns > STEAL_FROM * cores


def _by_reads(measurement: Measurement, segment: Segment) -> bool:
    seconds = segment_seconds(segment)
    if not segment.disk_bytes or segment.disk_bytes <= LEAST_READS * seconds:
        return False
    reads = other_reads(measurement, segment)
    return reads is not None and reads > max(LEAST_READS, READS_FROM * segment.disk_bytes / seconds)


def disturbed(measurement: Measurement) -> tuple[Segment, ...]:
    """The segments that others disturbed, in their order."""
    return tuple(each for each in measurement.segments if is_disturbed(measurement, each))


def disturbed_rounds(measurement: Measurement) -> Mapping[int, Sequence[Segment]]:
    """By round, its disturbed segments; rounds without one are not in it."""
    found: defaultdict[int, list[Segment]] = defaultdict(list)
    for segment in disturbed(measurement):
        found[segment.round].append(segment)
    return found


def like(first: Segment, second: Segment) -> bool:
    """True where others took as much of the machine in both; True also where that was not read."""
    one, other = others_share(first), others_share(second)
    return one is None or other is None or abs(one - other) < ALIKE_WITHIN
