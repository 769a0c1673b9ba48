"""What other processes did while segments were timed, and which segments that concerns.

Own processes alone make the training thread wait for a core, and threads wait in /proc/pressure, wherever workers are
more than cores; so what others did is judged by their CPU time, by steal, and by their reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from loaderprobe.analyze.verdict.rates import segment_seconds
from loaderprobe.records.measurement import Measurement, Others, Segment
from loaderprobe.records.remark import Remark
from loaderprobe.stats import mean

CPU_FROM = 0.10
"""Of the cores that may be used: what others take from this share on disturbs. On a quiet machine with two cores,
19 segments of 0.1 to 0.8 s showed 2 % at most."""
LEAST_NS = 50_000_000
"""Five ticks: less is noise, however short the segment."""
IDLE_BELOW = 0.25
"""Of the cores, or one core where that is more: with as much idle, what others take is in the way of none. Assumed."""
STEAL_FROM = 0.10
"""Of the time of the cores. A virtual machine that was let alone showed up to 4 % in half a second."""
READS_FROM = 0.10
"""Of the bytes that the devices read: other processes' share."""
LEAST_READS = 1e6
"""Bytes a second below which other processes' reads, such as of a program that starts, hold up no device. Assumed."""
ALIKE_WITHIN = 0.15
"""Of the cores: segments in which others took shares that differ by less saw like conditions."""


def others_share(segment: Segment) -> float | None:
    """Share of the cores that other processes took while it was timed; None where that was not read."""
    seen = segment.others
    return None if seen is None else seen.cpu_ns / (seen.span_ns * seen.cores)


def steal_share(segment: Segment) -> float:
    """Share of the time of the cores that the hypervisor gave other machines; 0 where that was not read."""
    seen = segment.others
    return 0.0 if seen is None else seen.steal_ns / (seen.span_ns * seen.cores)


def pressing_share(measurement: Measurement, segment: Segment) -> float | None:
    """The same of `cores_available`, without what others take of cores that may not be used; None as above."""
    share, seen = others_share(segment), segment.others
    if share is None or seen is None:
        return None
    available = _available(measurement, seen)
    return max(0.0, share * seen.cores - (seen.cores - available)) / available


def _available(measurement: Measurement, seen: Others) -> float:
    """Ranks share the cores, of which `cores_available` is that of one."""
    return min(measurement.cores_available * measurement.ranks, seen.cores)


def other_reads(measurement: Measurement, segment: Segment) -> float | None:
    """Bytes/s that other processes read from the devices meanwhile; None where reads are not counted, and for ranks."""
    own = segment.others.own_read_bytes if segment.others else None
    seconds = segment_seconds(segment)
    # Ranks may be on several hosts, whose devices count together, but not their processes.
    if own is None or segment.disk_bytes is None or not seconds or measurement.ranks > 1:
        return None
    return max(0, segment.disk_bytes - own) / seconds if measurement.storage_counts_reads else None


def is_disturbed(measurement: Measurement, segment: Segment) -> bool:
    """True where others took what may have changed its rate; False also where that was not read."""
    return any(found(measurement, segment) for found in (took_cores, lost_to_host, shared_devices))


def took_cores(measurement: Measurement, segment: Segment) -> bool:
    """True where others took a good part of the cores, and left few idle."""
    seen, pressing = segment.others, pressing_share(measurement, segment)
    if seen is None or pressing is None:
        return False
    idle = seen.cores - (seen.cpu_ns + seen.own_cpu_ns + seen.steal_ns) / seen.span_ns
    return pressing > CPU_FROM and seen.cpu_ns > LEAST_NS and idle < max(1.0, IDLE_BELOW * seen.cores)


def lost_to_host(measurement: Measurement, segment: Segment) -> bool:
    """True where the hypervisor gave others the cores while this machine had work."""
    seen = segment.others
    return seen is not None and seen.steal_ns > LEAST_NS and steal_share(segment) > STEAL_FROM


def shared_devices(measurement: Measurement, segment: Segment) -> bool:
    """True where other processes' reads were a good part of what the devices read."""
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
    """True where others, and the hypervisor, took as much of the machine in both; also where that was not read."""
    one, other = others_share(first), others_share(second)
    if one is None or other is None:
        return True
    return abs(one + steal_share(first) - other - steal_share(second)) < ALIKE_WITHIN


def disturbance_notes(measurements: Iterable[Measurement]) -> tuple[Remark, ...]:
    """What others did while all of these were measured: means over the segments that it disturbed, of how many."""
    seen = [(measurement, each) for measurement in measurements for each in measurement.segments]
    took, lost, shared = (
        [(measurement, each) for measurement, each in seen if found(measurement, each)]
        for found in (took_cores, lost_to_host, shared_devices)
    )
    notes = []
    cores = max((_available(m, each.others) for m, each in [*took, *lost] if each.others), default=0.0)
    if took:
        share = mean([pressing_share(measurement, each) or 0.0 for measurement, each in took])
        notes.append(Remark(code="others_took", facts=_facts(took, seen) | {"share": share, "cores": cores}))
    if lost:
        share = mean([steal_share(each) for _, each in lost])
        notes.append(Remark(code="host_took", facts=_facts(lost, seen) | {"share": share, "cores": cores}))
    if shared:
        rate = mean([other_reads(measurement, each) or 0.0 for measurement, each in shared])
        notes.append(Remark(code="others_read_too", facts=_facts(shared, seen) | {"bytes_per_s": rate}))
    return tuple(notes)


def _facts(found: Sequence[object], of: Sequence[object]) -> dict[str, float | str]:
    return {"segments": len(found), "of": len(of)}
