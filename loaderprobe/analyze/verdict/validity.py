"""Whether segments were what they were meant to be: cold files cold, warm files warm, and undisturbed.

Judged by bytes where the file system counts them, else by what was in the page cache before, else by waiting: a
worker that reads from storage waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from loaderprobe.analyze.verdict.rates import (
    WorkerCost,
    batches_of,
    cold_fraction,
    cost_of_batches,
    rates_by_round,
    read_bytes,
    waiting_of,
    worker_cost,
)
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Activity, Measurement, Mode, Others, RankSeen, Segment, segments_of
from loaderprobe.records.phases import FROM_STORAGE, BandwidthPhase, StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import ResourceName
from loaderprobe.records.verdict import Evidence, EvidenceCode, FilesWere, How, Speedup
from loaderprobe.stats import mean


def evidence_of(
    rows: Iterable[tuple[EvidenceCode, float | None, float | None]], unit: str = "", how: How | None = None
) -> tuple[Evidence, ...]:
    """One record a (metric, value, threshold) whose value is known."""
    return tuple(
        Evidence(metric=metric, value=value, threshold=threshold, unit=unit, how=how)
        for metric, value, threshold in rows
        if value is not None
    )


_METRICS: dict[str, EvidenceCode] = {metric: metric for metric in get_args(EvidenceCode)}


def speedup_evidence(resource: ResourceName, speedup: Speedup, threshold: float) -> Evidence:
    """A speed-up, with how it is known."""
    metric = _METRICS[f"speedups.{resource}"]
    return Evidence(metric=metric, value=speedup.value, threshold=threshold, unit="x", how=speedup.how)


def why_not_as_asked(measurement: Measurement, mode: Mode) -> Remark | None:
    """Why the segments of a mode were not in the state of the base (or, in `warm`, not warm); None when they were."""
    if measurement.as_found:
        return _why_not_met_cold(measurement, mode)
    if measurement.access != "files":
        return _why_not_repeated(measurement, mode)
    segments = _of(measurement, mode)
    cold = mode != "warm" and measurement.config.cache == "cold"
    word = "cold" if cold else "warm"
    if not segments:
        return Remark(code="no_segment", facts={"files": word})
    if measurement.storage_kind == "memory":
        return Remark(code="files_in_memory") if mode == "baseline" else None
    share, resident = cold_fraction(measurement, segments), _resident(segments)
    if share is not None and not _is_as_asked(measurement, share, cold=cold):
        return _from_storage(share, word)
    least = thresholds.COLD_AT_LEAST if cold else thresholds.WARM_AT_MOST
    if resident is not None and (resident >= 1 - least if cold else share is None and resident <= 1 - least):
        return Remark(code="pages_resident", facts={"share": resident, "files": word})
    if share is not None:
        return why_not_on_a_rank(measurement, segments, cold=cold)
    return _why_not_by_waiting(measurement, mode) if resident is None else None


def cold_share(measurement: Measurement, segments: Sequence[Segment]) -> float | None:
    """`cold_fraction`; where memory held too many of the files for cold ones, no more than the share that it did not.

    Storage gives whole pages: of files of 1.5 kB, 2.7 times their bytes.
    """
    share, resident = cold_fraction(measurement, segments), _resident(segments)
    if share is None or share < thresholds.WARM_AT_MOST or resident is None or measurement.access != "files":
        return share
    return share if 1 - resident >= thresholds.COLD_AT_LEAST else min(share, 1 - resident)


def _why_not_met_cold(measurement: Measurement, mode: Mode) -> Remark | None:
    """Files that were to be cold, and could not be evicted, were met as they were: cold only where bytes show it."""
    if measurement.access != "none" or mode == "warm":
        return None
    share = cold_fraction(measurement, _of(measurement, mode))
    if share is None:
        return read_elsewhere(measurement)
    return None if share >= thresholds.COLD_AT_LEAST else _from_storage(share)


def _from_storage(share: float, files: str = "cold") -> Remark:
    return Remark(code="bytes_from_storage", facts={"share": min(1.0, share), "files": files})


def why_not_on_a_rank(measurement: Measurement, segments: Sequence[Segment], *, cold: bool) -> Remark | None:
    """Of several ranks, the one whose files were least so; None where that of all are good, or where it is not known.

    One rank whose files were warm is hidden in the bytes of all, and hides what storage costs the others.
    """
    chosen = {id(segment) for segment in segments}
    positions = [index for index, segment in enumerate(measurement.segments) if id(segment) in chosen]
    shares = [(_share_read(measurement, rank, positions), rank) for rank in measurement.by_rank]
    bad = [
        (share, rank) for share, rank in shares if share is not None and not _is_as_asked(measurement, share, cold=cold)
    ]
    if not bad or measurement.as_found or measurement.storage_kind == "memory" or measurement.access != "files":
        return None
    share, worst = min(bad, key=lambda pair: pair[0] if cold else -pair[0])
    facts: Facts = {"share": min(1.0, share), "files": "cold" if cold else "warm"}
    return Remark(code="bytes_on_a_rank", facts={**facts, "rank": str(worst.rank), "host": worst.host})


def _is_as_asked(measurement: Measurement, share: float, *, cold: bool) -> bool:
    return share >= thresholds.COLD_AT_LEAST if cold else share < _most_when_warm(measurement)


def _most_when_warm(measurement: Measurement) -> float:
    return thresholds.WARM_AT_MOST if measurement.config.mode == "warm" else thresholds.NEARLY_WARM


def _share_read(measurement: Measurement, rank: RankSeen, positions: Sequence[int]) -> float | None:
    """Bytes that a rank read from storage over those delivered to it; None where either was not counted."""
    read = delivered = 0.0
    for index in positions if rank.read_bytes else ():
        segment, own_bytes, given = measurement.segments[index], rank.read_bytes[index], rank.delivered_bytes[index]
        if own_bytes is None or segment.without == rank.rank or not given:
            continue
        # A file that is drawn twice comes from storage once.
        known = segment.distinct_bytes is not None and segment.delivered_bytes
        once = (segment.distinct_bytes or 0) / (segment.delivered_bytes or 1) if known else 1.0
        read, delivered = read + own_bytes, delivered + given * once
    return read / delivered if delivered and measurement.storage_counts_reads else None


def met_warm(measurement: Measurement) -> Remark | None:
    """Why files that were to be cold cannot have been: they are not all known, and were in memory; None otherwise."""
    first_pass = measurement.first_pass
    if measurement.access == "files" or measurement.config.mode == "warm" or first_pass is None:
        return None
    if measurement.access != "none" and read_elsewhere(measurement):
        return None  # they were evicted, and read again before the timed batches
    # Of unknown files it is not known either whether their reads would be counted.
    counted = measurement.storage_counts_reads or measurement.storage_kind == "unknown"
    if not counted or max(first_pass.called_bytes, first_pass.read_bytes) < thresholds.LEAST_BYTES * first_pass.images:
        return None
    loader_only = segments_of(measurement, "baseline", "loader_only")
    cost = worker_cost(measurement.worker_batches, loader_only)
    if cost is None or cost.read_bytes >= thresholds.LEAST_BYTES * cost.images:
        return None
    waiting = waiting_of(measurement, loader_only)
    elsewhere = waiting.count("network") + waiting.kinds.get("pipe", 0) + waiting.commands if waiting else 0
    if waiting and elsewhere > thresholds.FROM_ELSEWHERE * waiting.samples:
        return None  # read calls return what comes over sockets and pipes, too
    if first_pass.read_bytes >= thresholds.LEAST_BYTES * first_pass.images:
        return Remark(code="warm_after_first_pass")
    return Remark(code="always_warm")


def _why_not_repeated(measurement: Measurement, mode: Mode) -> Remark | None:
    """For files whose parts are not known: the same bytes each time when cold, none and as much work when warm."""
    segments = _of(measurement, mode)
    cold = mode != "warm" and measurement.config.mode == "baseline"
    if not segments:
        return Remark(code="no_segment", facts={"files": "cold" if cold else "warm"})
    if not cold:
        return _why_not_warm_again(measurement, segments)
    if not measurement.storage_counts_reads:
        return _why_not_by_waiting(measurement, mode) if "warm" in measurement.modes else None
    if elsewhere := read_elsewhere(measurement):
        return elsewhere
    known = cold_fraction(measurement, segments)
    if known is not None:
        # What is read ahead counts: the share is below 1 only where what was read before serves these batches.
        return None if known >= thresholds.COLD_AT_LEAST else _from_storage(known)
    first_pass = measurement.first_pass
    if first_pass is None or not first_pass.images:
        return None
    # What was cold in one of the two passes; one that begins again also reads ahead what it does not use.
    passes = [read_bytes / first_pass.images for read_bytes in (first_pass.read_bytes, first_pass.again_read_bytes)]
    first = min((image_bytes for image_bytes in passes if image_bytes >= thresholds.LEAST_BYTES), default=0.0)
    read = _read_from_eviction(measurement, segments, first_pass.images)
    if not first or read >= thresholds.READ_AGAIN * first:
        return None
    return Remark(code="read_less_again", facts={"share": read / first})


def _why_not_warm_again(measurement: Measurement, segments: Sequence[Segment]) -> Remark | None:
    """No bytes from storage, and as much work."""
    read, cpu_s = _per_image(measurement, segments)
    read_cold, cpu_cold_s = _per_image(measurement, _of(measurement, "baseline"))
    work_s = cpu_cold_s - thresholds.READING_S_PER_BYTE * max(0.0, read_cold - read)
    if cpu_s < thresholds.MADE_AGAIN * work_s:
        return Remark(code="kept_samples_show_nothing")
    if not measurement.storage_counts_reads:
        return _why_not_by_waiting(measurement, segments[0].mode)
    if read < max(thresholds.LEAST_BYTES, _most_when_warm(measurement) * read_cold):
        return None
    return _from_storage(read / max(read_cold, read), "warm")


def _read_from_eviction(measurement: Measurement, segments: Sequence[Segment], images: int) -> float:
    """Bytes from storage an image, of so many images from each eviction on, but not beyond the segment.

    What the kernel reads ahead at first, and around each page of a mapped file, falls as the cache fills: only the
    same stretch reads as much again. One batch leads a segment, untimed.
    """
    loader = measurement.config.loader
    batches = -(-images // measurement.step_images)
    ends = [s.first_batch + s.steps for s in measurement.segments]
    wanted: set[int] = set()
    for s in segments:
        begin = max(s.first_batch - loader.batches_begun - 1, *(end for end in ends if end <= s.first_batch), 0)
        wanted |= {*range(begin, min(begin + batches, s.first_batch + s.steps))}
    records = measurement.worker_batches
    rows = [row for row, number in enumerate(records.batch) if number in wanted]
    return sum(records.read_bytes[row] for row in rows) / (sum(records.images[row] for row in rows) or 1)


def read_elsewhere(measurement: Measurement) -> Remark | None:
    """Why the batches timed as asked do not show what samples owe to storage: they hold not their share of the reads.

    Libraries read row groups, chunks or shards whole, or ahead in a thread, and serve samples from memory until the
    next. So a sample owes what was read since the loader began, over the samples made since. The kernel reads ahead,
    too, and workers wait for that all the same: only where they also wait less were the reads elsewhere. A stream may
    also read in a few timed batches what it serves long after; of samples at random, read-ahead makes each read more.
    Files that are never evicted may be in memory since any earlier batch.
    """
    base, evicts = measurement.config.mode, measurement.access == "parts"
    if base == "warm" or measurement.access == "files" or measurement.storage_kind == "memory":
        return None
    owed, least = _since_begin(measurement), thresholds.READ_AGAIN
    for activity in dict.fromkeys(("loader_only", measurement.judged)):
        segments = segments_of(measurement, base, activity)
        timed, known = worker_cost(measurement.worker_batches, segments), cold_fraction(measurement, segments)
        if owed is None or timed is None or owed.read_bytes < thresholds.LEAST_BYTES * owed.images:
            continue
        read, owed_bytes = timed.read_bytes / timed.images, owed.read_bytes / owed.images
        waited_s, owed_s = timed.blocked_s / timed.images, owed.blocked_s / owed.images
        facts: Facts = {"read_bytes": read, "owed_bytes": owed_bytes}
        if read < least * owed_bytes and waited_s < least * owed_s and (known or 0.0) < thresholds.COLD_AT_LEAST:
            return Remark(code="read_before", facts=facts) if evicts else _from_storage(read / owed_bytes)
        if measurement.stream and least * read > owed_bytes and least * waited_s > owed_s:
            return Remark(code="read_for_later", facts=facts)
    return None


def _since_begin(measurement: Measurement) -> WorkerCost | None:
    """What all batches cost, but for those of warm segments.

    The first batch of each worker reads what it imports, and a data set that is kept in memory whole. Only of a stream
    whose files cannot be evicted it counts: it may hold all that is served later.
    """
    records = measurement.worker_batches
    firsts = {worker: number for number, worker in zip(records.batch[::-1], records.worker[::-1], strict=True)}
    begun = set() if measurement.stream and measurement.access == "none" else set(firsts.values())
    return cost_of_batches(records, {*records.batch} - begun - batches_of(_of(measurement, "warm")))


def _per_image(measurement: Measurement, segments: Sequence[Segment]) -> tuple[float, float]:
    """(bytes from storage, CPU seconds of the worker) an image."""
    cost = worker_cost(measurement.worker_batches, segments)
    return (0.0, 0.0) if cost is None else (cost.read_bytes / cost.images, cost.cpu_s / cost.images)


def files_were(measurement: Measurement) -> FilesWere | None:
    """What the files of the configuration as asked were; None where nothing shows it, or it reads none."""
    base = measurement.config.mode
    segments = _of(measurement, base)
    if measurement.storage_kind == "memory" or met_warm(measurement):
        return "warm"
    share = cold_share(measurement, segments)
    if share is None and measurement.access != "files":
        # Without the bytes of a sample, only as many as the first pass read show that all of it came from storage.
        elsewhere = read_elsewhere(measurement)
        if elsewhere is not None and elsewhere.code != "read_for_later":
            return "partly warm"
        if measurement.as_found:
            return None
        if base == "baseline" and elsewhere is None and _why_not_repeated(measurement, base):
            return "partly warm"
        read, _ = _per_image(measurement, segments)
        return "cold" if read >= thresholds.LEAST_BYTES else "warm" if base == "warm" else None
    if share is None and (resident := _resident(segments)) is not None:
        share = 1 - resident
    if share is None:
        return None
    return "cold" if share >= thresholds.COLD_AT_LEAST else "warm" if share < thresholds.WARM_AT_MOST else "partly warm"


def by_waiting(measurement: Measurement) -> bool:
    """True where only the workers' waiting separates cold files from warm ones."""
    if measurement.as_found or measurement.storage_kind == "memory":
        return False
    if measurement.access != "files":
        return not measurement.storage_counts_reads and "warm" in measurement.modes
    segments = _of(measurement, measurement.config.mode)
    return cold_fraction(measurement, segments) is None and _resident(segments) is None


def waiting_evidence(measurement: Measurement) -> tuple[Evidence, ...]:
    """The waits that separate cold from warm files, where nothing else does; else empty."""
    if not by_waiting(measurement):
        return ()
    if measurement.config.mode == "warm":
        waited = _share_waited(measurement, "warm")
        return evidence_of([("warm_file_wait_fraction", waited, thresholds.NEGLIGIBLE_WAIT)])
    cold_s, warm_s = _wait_s(measurement, "baseline"), _wait_s(measurement, "warm")
    if cold_s is None or warm_s is None:
        return ()
    ratio = max(cold_s, thresholds.SHORTEST_WAIT_S) / max(warm_s, thresholds.SHORTEST_WAIT_S)
    return evidence_of([("cold_over_warm_wait", ratio, thresholds.CLEARLY_LONGER)])


def _why_not_by_waiting(measurement: Measurement, mode: Mode) -> Remark | None:
    if measurement.config.mode == "warm":
        share = _share_waited(measurement, mode)
        if share is None:
            return Remark(code="no_worker_times")
        if share < thresholds.NEGLIGIBLE_WAIT:
            return None
        return Remark(code="warm_files_waited_for", facts={"share": share})
    if mode != "warm" and _waited_for_storage(measurement, mode):
        return None
    if not _of(measurement, "warm"):
        return Remark(code="no_warm_segment")
    # The warm segments are warm when the cold ones beside them waited for so much longer.
    cold_s, warm_s = _wait_s(measurement, "baseline" if mode == "warm" else mode), _wait_s(measurement, "warm")
    if warm_s is None or cold_s is None:
        return Remark(code="no_worker_times")
    if cold_s >= thresholds.CLEARLY_LONGER * warm_s and cold_s - warm_s >= thresholds.LEAST_WAIT_S:
        return None
    return Remark(code="waits_alike", facts={"cold_s": cold_s, "warm_s": warm_s})


def never_warm(measurement: Measurement) -> bool:
    """True where files that had just been read came from the server again: the file system keeps none in memory."""
    reason = why_not_as_asked(measurement, "warm") if _of(measurement, "warm") else None
    codes = ("waits_alike", "bytes_from_storage")
    return reason is not None and reason.code in codes and not measurement.storage_counts_reads


def _waited_for_storage(measurement: Measurement, mode: Mode) -> bool:
    """True where workers were seen to wait in opens and reads of files, as they do for no file in memory.

    A mode that waits for much less than the configuration as asked met files in memory.
    """
    waiting = waiting_of(measurement, segments_of(measurement, "baseline", "loader_only"))
    asked_s, waited_s = _wait_s(measurement, "baseline"), _wait_s(measurement, mode)
    if waiting is None or asked_s is None or waited_s is None:
        return False
    waits = waiting.count("storage") > thresholds.NEGLIGIBLE_WAIT * waiting.samples
    return waits and thresholds.CLEARLY_LONGER * waited_s > asked_s


def _of(measurement: Measurement, mode: Mode) -> list[Segment]:
    """All ranks in step: those that only some took part in, or each for itself, are no part of the verdict's rates."""
    chosen = [segment for segment in measurement.segments if segment.mode == mode and segment.without is None]
    return [segment for segment in chosen if segment.activity != "alone"]


def _resident(segments: Sequence[Segment]) -> float | None:
    known = [segment.resident_before for segment in segments if segment.resident_before is not None]
    return mean(known) if known and len(known) == len(segments) else None


def _cost(measurement: Measurement, mode: Mode) -> WorkerCost | None:
    """Of the loader alone: training leaves storage more time."""
    return worker_cost(measurement.worker_batches, segments_of(measurement, mode, "loader_only"))


def _wait_s(measurement: Measurement, mode: Mode) -> float | None:
    """Seconds that a worker waits for an image."""
    cost = _cost(measurement, mode)
    return None if cost is None else cost.per_image(measurement.ranks).blocked_s


def _share_waited(measurement: Measurement, mode: Mode) -> float | None:
    """Waiting in one mode as a share of a worker's time in the whole pipeline, of which a mode may leave little."""
    whole, waited_s = _cost(measurement, "warm"), _wait_s(measurement, mode)
    if whole is None or waited_s is None or not whole.wall_s:
        return None
    return waited_s * whole.images / measurement.ranks / whole.wall_s


# What other processes did while segments were timed, and which segments that concerns.
#
# Own processes alone make the training thread wait for a core, and threads wait in /proc/pressure, wherever workers are
# more than cores; so what others did is judged by their CPU time, by steal, and by their reads.


def pressing_share(measurement: Measurement, others: Others) -> float:
    """The share of `cores_available` that others took, without what they take of cores that may not be used."""
    available = _available(measurement, others)
    return max(0.0, others.share * others.cores - (others.cores - available)) / available


def _available(measurement: Measurement, others: Others) -> float:
    """Ranks of a host share the cores, of which `cores_available` is that of one."""
    return min(measurement.cores_available * measurement.ranks_here, others.cores)


def other_reads(measurement: Measurement, segment: Segment) -> float | None:
    """Bytes/s that other processes read from the devices meanwhile; None where reads are not counted, and for ranks."""
    own_bytes = segment.others.own_read_bytes if segment.others else None
    seconds = segment.seconds
    # Ranks may be on several hosts, whose devices count together, but not their processes.
    if own_bytes is None or segment.disk_bytes is None or not seconds or measurement.ranks > 1:
        return None
    return max(0, segment.disk_bytes - own_bytes) / seconds if measurement.storage_counts_reads else None


def is_disturbed(measurement: Measurement, segment: Segment) -> bool:
    """True where others took what may have changed its rate; False also where that was not read."""
    return any(disturbs(measurement, segment) for disturbs in (took_cores, lost_to_host, shared_devices))


def took_cores(measurement: Measurement, segment: Segment) -> bool:
    """True where others took a good part of the cores, and left few idle."""
    others = segment.others
    if others is None or others.cpu_ns <= thresholds.LEAST_TAKEN_NS:
        return False
    idle = others.cores - (others.cpu_ns + others.own_cpu_ns + others.steal_ns) / others.span_ns
    took = pressing_share(measurement, others) > thresholds.DISTURBED_FROM
    return took and idle < max(1.0, thresholds.IDLE_BELOW * others.cores)


def lost_to_host(measurement: Measurement, segment: Segment) -> bool:
    """True where the hypervisor gave others the cores while this machine had work."""
    others = segment.others
    if others is None or others.steal_ns <= thresholds.LEAST_TAKEN_NS:
        return False
    return others.steal_share > thresholds.DISTURBED_FROM


def shared_devices(measurement: Measurement, segment: Segment) -> bool:
    """True where other processes' reads were a good part of what the devices read."""
    seconds = segment.seconds
    if not segment.disk_bytes or segment.disk_bytes <= thresholds.LEAST_OTHER_READS * seconds:
        return False
    reads = other_reads(measurement, segment)
    least = max(thresholds.LEAST_OTHER_READS, thresholds.DISTURBED_FROM * segment.disk_bytes / seconds)
    return reads is not None and reads > least


def like(first: Segment, second: Segment) -> bool:
    """True where others, and the hypervisor, took as much of the machine in both; also where that was not read."""
    one, other = first.others, second.others
    if one is None or other is None:
        return True
    return abs(one.share + one.steal_share - other.share - other.steal_share) < thresholds.LIKE_CONDITIONS


def disturbance_notes(measurements: Iterable[Measurement]) -> tuple[Remark, ...]:
    """What others did while all of these were measured: means over the segments that it disturbed, of how many."""
    pairs = [(measurement, segment) for measurement in measurements for segment in measurement.segments]
    took, lost, shared = (
        [(measurement, segment) for measurement, segment in pairs if disturbs(measurement, segment)]
        for disturbs in (took_cores, lost_to_host, shared_devices)
    )
    cores = max((_available(m, segment.others) for m, segment in [*took, *lost] if segment.others), default=0.0)
    figures = (
        ("others_took", "share", [pressing_share(m, segment.others) for m, segment in took if segment.others]),
        ("host_took", "share", [segment.others.steal_share for _, segment in lost if segment.others]),
        ("others_read_too", "bytes_per_s", [other_reads(m, segment) or 0.0 for m, segment in shared]),
    )
    notes = []
    for code, name, values in figures:
        if values:
            facts: Facts = {"segments": len(values), "of": len(pairs), name: mean(values)}
            notes.append(Remark(code=code, facts=facts | ({"cores": cores} if name == "share" else {})))
    return tuple(notes)


# Which segments count: those of a slow first round do not, nor those beside which others were at work; if enough do.
#
# Nothing is left out of what is stored.


def counted(measurement: Measurement) -> Measurement:
    """The measurement with the segments that count, of all that were measured: a second time may leave out more."""
    if measurement.by_rank:
        return measurement  # what ranks saw has a row for each segment
    return _without_slow_start(_without_disturbed(measurement))


def fair(measurement: Measurement) -> Mapping[tuple[Mode, Activity], int]:
    """How many segments of a mode others did not disturb, nor those which they are compared with."""
    return Counter((segment.mode, segment.activity) for segment in _fair(measurement) if segment.without is None)


def _without_disturbed(measurement: Measurement) -> Measurement:
    """Without those that were disturbed, or saw other conditions than what they are compared with, of kinds with more.

    The loader alone as asked goes with all of its round, and else stays: the rest is compared with it.
    """
    good = {id(segment) for segment in _fair(measurement)}
    enough = Counter(segment.kind for segment in measurement.segments if id(segment) in good)
    base = (measurement.config.mode, "loader_only", None)
    least = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds)
    beside = [segment for segment in measurement.segments if segment.kind != base]
    bad = {id(segment) for segment in beside if id(segment) not in good and enough[segment.kind] >= least}
    left = {segment.round for segment in beside if id(segment) not in bad}
    gone = {segment.round for segment in beside} - left
    kept = tuple(
        segment
        for segment in measurement.segments
        if id(segment) in good or (segment.round not in gone if segment.kind == base else id(segment) not in bad)
    )
    return measurement if len(kept) == len(measurement.segments) else replace(measurement, segments=kept)


def _fair(measurement: Measurement) -> list[Segment]:
    base = measurement.config.mode
    beside = {(s.round, s.activity): s for s in measurement.segments if s.kind[::2] == (base, None)}

    def alike(segment: Segment) -> bool:
        trains_without = segment.activity == "training" and segment.mode not in (base, "resident")
        reference = beside.get((segment.round, "training" if trains_without else "loader_only"))
        return segment.mode == "resident" or reference is None or like(segment, reference)

    return [segment for segment in measurement.segments if alike(segment) and not is_disturbed(measurement, segment)]


def _without_slow_start(measurement: Measurement) -> Measurement:
    """Without what the loader did in a slow first round, where later rounds did all of that again."""
    kept = tuple(segment for segment in measurement.segments if segment.round or segment.mode == "resident")
    first = {segment.kind for segment in measurement.segments if not segment.round and segment.mode != "resident"}
    if not first <= {segment.kind for segment in kept if segment.round}:
        return measurement
    slow = any(_slow_start(measurement, activity) for activity in ("loader_only", "training"))
    return replace(measurement, segments=kept) if slow else measurement


def _slow_start(measurement: Measurement, activity: Activity) -> bool:
    """True when the first round is slower than each later one, which are alike, though it read no more from storage."""
    rates = rates_by_round(measurement, measurement.config.mode, activity)
    later = [rate for number, rate in rates.items() if number]
    if 0 not in rates or not later:
        return False
    if max(thresholds.SLOW_START * rates[0], max(later) / thresholds.SLOW_START) >= min(later):
        return False
    if measurement.access == "none" and not measurement.storage_counts_reads:
        return False  # files as found may have been cold once
    segments, records = segments_of(measurement, measurement.config.mode, activity), measurement.worker_batches
    costs = {segment.round: cost for segment in segments if (cost := worker_cost(records, [segment]))}
    read = {number: cost.read_bytes / cost.images for number, cost in costs.items()}
    return read.get(0, 0.0) <= thresholds.COLDER * min((size for number, size in read.items() if number), default=0.0)


def disk_use(
    measurement: Measurement, segments: Sequence[Segment], ceiling: StorageCeiling | None, images_per_s: float
) -> tuple[dict[str, float | None], dict[str, Remark]]:
    """The figures of a verdict that say what its loader read from storage; and why those that are None are not known.

    Of segments that serve so many images/s. Reads are those of an image times that rate, so that both figures are of
    the same round, the median one.
    """
    cost = worker_cost(measurement.worker_batches, segments)
    seconds = cost.images / images_per_s if cost is not None else 0.0
    read = read_bytes(measurement, segments)
    if measurement.is_remote and cost is not None and measurement.sample_bytes:
        read = cost.images * measurement.sample_bytes
    moved = [segment.disk_bytes for segment in segments]
    # What a server read for others is in its own count.
    all_moved = sum(size or 0 for size in moved) if measurement.storage_counts_reads and None not in moved else None
    share = cold_share(measurement, segments)
    phase, reason = ceiling_phase(measurement, ceiling)
    ceiling_per_s = phase.moved_bytes_per_s if phase else None
    figures = {
        "disk_read_bytes_per_s": None if read is None else read / seconds,
        "cold_fraction": None if share is None else min(1.0, share),  # what is read ahead is in the amplification
        "read_amplification": share if share is not None and share >= thresholds.COLD_AT_LEAST else None,
        "other_read_bytes_per_s": None if read is None or all_moved is None else max(0, all_moved - read) / seconds,
        "disk_ceiling_fraction": read / seconds / ceiling_per_s if read is not None and ceiling_per_s else None,
    }
    uncounted = Remark(code="reads_not_counted")
    why = {
        "read_amplification": Remark(code="not_of_objects" if measurement.is_remote else "files_came_from_memory"),
        "other_read_bytes_per_s": Remark(code="devices_not_visible"),
    }
    why = (dict.fromkeys(figures, uncounted) if read is None else why) | {"disk_ceiling_fraction": reason or uncounted}
    return figures, {name: remark for name, remark in why.items() if figures[name] is None}


def ceiling_phase(
    measurement: Measurement, ceiling: StorageCeiling | None
) -> tuple[BandwidthPhase | None, Remark | None]:
    """The ceiling at as many readers. It counts only when its own reads were cold; else why there is none."""
    if measurement.config.cache == "warm":
        return None, Remark(code="warm_as_asked")
    if measurement.config.nodes > 1:
        return None, Remark(code="ceiling_of_one_node")
    if ceiling is None:
        return None, Remark(code="ceiling_not_measured")
    phase = ceiling.at(measurement.config.readers)
    if phase is None:
        return None, ceiling.missing or Remark(code="ceiling_not_measured")
    if phase.cache not in FROM_STORAGE:
        return None, Remark(code="ceiling_not_cold", facts={"files": phase.cache})
    if phase.at_least:
        return None, Remark(code="cores_below_ceiling", facts={"bytes_per_s": phase.bw_bytes})
    return phase, None
