"""Whether the segments of a mode were what they were meant to be: cold files cold, warm files warm.

Judged by bytes where the file system counts them, else by what was in the page cache before, else by waiting: a
worker that reads from storage waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.verdict.evidence import evidence_of
from loaderprobe.analyze.verdict.rates import WorkerCost, cold_fraction, segments_of, step_images, worker_cost
from loaderprobe.analyze.verdict.waiting import waiting_of
from loaderprobe.records.measurement import (
    COLD_AT_LEAST,
    LEAST_BYTES,
    WARM_AT_MOST,
    Measurement,
    Mode,
    RankSeen,
    Segment,
)
from loaderprobe.records.measurement import base_mode as base_mode
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Evidence, FilesWere
from loaderprobe.stats import mean

# Reading from storage and reading from memory must differ by this factor, and by this much an image, for waiting
# to tell them apart: from memory a file of 100 kB takes some 50 us, and what else a worker waits for (locks, page
# faults) is in both.
CLEARLY_LONGER = 3.0
LEAST_WAIT_S = 1e-4
# Workers that wait for storage less than this share of their time read from memory.
WARM_WAIT_SHARE = 0.05
# Cold batches of files that are read in parts read about as much each time, but for what is read ahead.
READ_AGAIN = 0.6
# Of samples of workers: so many on sockets and pipes show that the data come from there.
FROM_ELSEWHERE = 0.05
# Samples that take less than this share of the CPU time the second time were kept.
WORK_AGAIN = 0.6
# No clock resolves a shorter wait.
SHORTEST_WAIT_S = 1e-6


def as_found(measurement: Measurement) -> bool:
    """True where the files were neither evicted nor warmed, since they are not known or it was not asked for."""
    return measurement.config.cache == "as-found" or measurement.access == "none"


def why_not_as_asked(measurement: Measurement, mode: Mode) -> Remark | None:
    """Why the segments of a mode were not in the state of the base (or, in `warm`, not warm); None when they were."""
    if as_found(measurement):
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
    share = cold_fraction(measurement, segments)
    if share is not None:
        if _is_as_asked(share, cold=cold):
            return why_not_on_a_rank(measurement, segments, cold=cold)
        return Remark(code="bytes_from_storage", facts={"share": share, "files": word})
    resident = _resident(segments)
    if resident is None:
        return _why_not_by_waiting(measurement, mode)
    if resident < 1 - COLD_AT_LEAST if cold else resident > 1 - WARM_AT_MOST:
        return None
    return Remark(code="pages_resident", facts={"share": resident, "files": word})


def _why_not_met_cold(measurement: Measurement, mode: Mode) -> Remark | None:
    """Files that were to be cold, and could not be evicted, were met as they were: cold only where bytes show it."""
    if measurement.access != "none" or mode == "warm":
        return None
    share = cold_fraction(measurement, _of(measurement, mode))
    return None if share is None or share >= COLD_AT_LEAST else _from_storage(share)


def _from_storage(share: float) -> Remark:
    return Remark(code="bytes_from_storage", facts={"share": share, "files": "cold"})


def why_not_on_a_rank(measurement: Measurement, segments: Sequence[Segment], *, cold: bool) -> Remark | None:
    """Of several ranks, the one whose files were least so; None where that of all are good, or where it is not known.

    One rank whose files were warm is hidden in the bytes of all, and hides what storage costs the others.
    """
    chosen = {id(segment) for segment in segments}
    places = [place for place, each in enumerate(measurement.segments) if id(each) in chosen]
    shares = [(_share_read(measurement, each, places), each) for each in measurement.by_rank]
    bad = [(share, each) for share, each in shares if share is not None and not _is_as_asked(share, cold=cold)]
    if not bad or as_found(measurement) or measurement.storage_kind == "memory" or measurement.access != "files":
        return None
    share, worst = min(bad, key=lambda found: found[0] if cold else -found[0])
    facts: dict[str, float | str] = {"share": share, "files": "cold" if cold else "warm"}
    return Remark(code="bytes_on_a_rank", facts={**facts, "rank": str(worst.rank), "host": worst.host})


def _is_as_asked(share: float, *, cold: bool) -> bool:
    return share >= COLD_AT_LEAST if cold else share < WARM_AT_MOST


def _share_read(measurement: Measurement, rank: RankSeen, places: Sequence[int]) -> float | None:
    """Bytes that a rank read from storage over those delivered to it; None where either was not counted."""
    read = delivered = 0.0
    for place in places if rank.read_bytes else ():
        segment, own, given = measurement.segments[place], rank.read_bytes[place], rank.delivered_bytes[place]
        if own is None or segment.without == rank.rank or not given:
            continue
        # A file that is drawn twice comes from storage once.
        known = segment.distinct_bytes is not None and segment.delivered_bytes
        once = (segment.distinct_bytes or 0) / (segment.delivered_bytes or 1) if known else 1.0
        read, delivered = read + own, delivered + given * once
    return read / delivered if delivered and measurement.storage_counts_reads else None


def met_warm(measurement: Measurement) -> Remark | None:
    """Why files that were to be cold cannot have been: they are not all known, and were in memory; None otherwise."""
    lap = measurement.first_lap
    if measurement.access == "files" or base_mode(measurement) == "warm" or lap is None:
        return None
    # Of unknown files it is not known either whether their reads would be counted.
    counted = measurement.storage_counts_reads or measurement.storage_kind == "unknown"
    if not counted or lap.called_bytes < LEAST_BYTES * lap.images:
        return None
    loader_only = segments_of(measurement, "baseline", "loader_only")
    cost = worker_cost(measurement.worker_batches, loader_only)
    if cost is None or cost.read_bytes >= LEAST_BYTES * cost.images:
        return None
    waiting = waiting_of(measurement, loader_only)
    if (
        waiting is not None
        and waiting.count("network") + waiting.kinds.get("pipe", 0) > FROM_ELSEWHERE * waiting.samples
    ):
        return None  # read calls return what comes over sockets and pipes, too
    if lap.read_bytes >= LEAST_BYTES * lap.images:
        return Remark(code="warm_after_first_pass")
    return Remark(code="always_warm")


def _why_not_repeated(measurement: Measurement, mode: Mode) -> Remark | None:
    """For files whose parts are not known: the same bytes each time when cold, none and as much work when warm."""
    segments = _of(measurement, mode)
    cold = mode != "warm" and base_mode(measurement) == "baseline"
    if not segments:
        return Remark(code="no_segment", facts={"files": "cold" if cold else "warm"})
    if not cold:
        read, cpu_s = _per_image(measurement, segments)
        read_cold, cpu_cold_s = _per_image(measurement, _of(measurement, "baseline"))
        if cpu_cold_s and cpu_s < WORK_AGAIN * cpu_cold_s:
            return Remark(code="kept_samples_show_nothing")
        if not measurement.storage_counts_reads:
            return _why_not_by_waiting(measurement, mode)
        if read < max(LEAST_BYTES, WARM_AT_MOST * read_cold):
            return None
        share = read / max(read_cold, read)
        return Remark(code="bytes_from_storage", facts={"share": share, "files": "warm"})
    if not measurement.storage_counts_reads:
        return _why_not_by_waiting(measurement, mode) if "warm" in measurement.modes else None
    known = cold_fraction(measurement, segments)
    if known is not None:
        # What is read ahead counts: the share is below 1 only where what was read before serves these batches.
        return None if known >= COLD_AT_LEAST else _from_storage(known)
    lap = measurement.first_lap
    if lap is None or not lap.images:
        return None
    # What was cold in one of the two laps; a lap that begins again also reads ahead what it does not use.
    laps = [read_bytes / lap.images for read_bytes in (lap.read_bytes, lap.again_read_bytes)]
    first = min((each for each in laps if each >= LEAST_BYTES), default=0.0)
    read = _read_from_eviction(measurement, segments, lap.images)
    if not first or read >= READ_AGAIN * first:
        return None
    return Remark(code="read_less_again", facts={"share": read / first})


def _read_from_eviction(measurement: Measurement, segments: Sequence[Segment], images: int) -> float:
    """Bytes from storage an image, of so many images from each eviction on, but not beyond the segment.

    What the kernel reads ahead at first, and around each page of a mapped file, falls as the cache fills: only the
    same stretch reads as much again.
    """
    loader = measurement.config.loader
    batches = -(-images // step_images(measurement))
    ends = sorted(s.first_batch + s.steps for s in measurement.segments)
    begins = [
        max(
            s.first_batch - loader.batches_begun - (s.activity == "training"),
            *(end for end in ends if end <= s.first_batch),
            0,
        )
        for s in segments
    ]
    wanted = {
        number
        for begin, s in zip(begins, segments, strict=True)
        for number in range(begin, min(begin + batches, s.first_batch + s.steps))
    }
    records = measurement.worker_batches
    rows = [row for row, number in enumerate(records.batch) if number in wanted]
    return sum(records.read_bytes[row] for row in rows) / (sum(records.images[row] for row in rows) or 1)


def _per_image(measurement: Measurement, segments: Sequence[Segment]) -> tuple[float, float]:
    """(bytes from storage, CPU seconds of the worker) an image."""
    cost = worker_cost(measurement.worker_batches, segments)
    return (0.0, 0.0) if cost is None else (cost.read_bytes / cost.images, cost.cpu_s / cost.images)


def files_were(measurement: Measurement) -> FilesWere | None:
    """What the files of the configuration as asked were; None where nothing shows it, or it reads none."""
    base = base_mode(measurement)
    segments = _of(measurement, base)
    if measurement.storage_kind == "memory":
        return "warm"
    if met_warm(measurement):
        return "warm"
    share = cold_fraction(measurement, segments)
    if share is None and measurement.access != "files":
        # Without the bytes of a sample, only as many as the first pass read show that all of it came from storage.
        if measurement.access == "none":
            return None
        if base == "baseline" and _why_not_repeated(measurement, base):
            return "partly warm"
        read, _ = _per_image(measurement, segments)
        return "cold" if read >= LEAST_BYTES else "warm" if base == "warm" else None
    if share is None:
        resident = _resident(segments)
        share = None if resident is None else 1 - resident
    if share is None:
        return None
    return "cold" if share >= COLD_AT_LEAST else "warm" if share < WARM_AT_MOST else "partly warm"


def by_waiting(measurement: Measurement) -> bool:
    """True where only the workers' waiting separates cold files from warm ones."""
    if as_found(measurement) or measurement.storage_kind == "memory":
        return False
    if measurement.access != "files":
        return not measurement.storage_counts_reads and "warm" in measurement.modes
    segments = _of(measurement, base_mode(measurement))
    return cold_fraction(measurement, segments) is None and _resident(segments) is None


def waiting_evidence(measurement: Measurement) -> tuple[Evidence, ...]:
    """The waits that separate cold from warm files, where nothing else does; else empty."""
    if not by_waiting(measurement):
        return ()
    if base_mode(measurement) == "warm":
        return evidence_of([("warm_file_wait_fraction", _share_waited(measurement, "warm"), WARM_WAIT_SHARE)])
    cold_s, warm_s = _wait_s(measurement, "baseline"), _wait_s(measurement, "warm")
    if cold_s is None or warm_s is None:
        return ()
    ratio = max(cold_s, SHORTEST_WAIT_S) / max(warm_s, SHORTEST_WAIT_S)
    return evidence_of([("cold_over_warm_wait", ratio, CLEARLY_LONGER)])


def _why_not_by_waiting(measurement: Measurement, mode: Mode) -> Remark | None:
    if base_mode(measurement) == "warm":
        share = _share_waited(measurement, mode)
        if share is None:
            return Remark(code="no_worker_times")
        if share < WARM_WAIT_SHARE:
            return None
        return Remark(code="warm_files_waited_for", facts={"share": share})
    if not _of(measurement, "warm"):
        return Remark(code="no_warm_segment")
    # The warm segments are warm when the cold ones beside them waited for so much longer.
    cold_s, warm_s = _wait_s(measurement, "baseline" if mode == "warm" else mode), _wait_s(measurement, "warm")
    if warm_s is None or cold_s is None:
        return Remark(code="no_worker_times")
    if cold_s >= CLEARLY_LONGER * warm_s and cold_s - warm_s >= LEAST_WAIT_S:
        return None
    return Remark(code="waits_alike", facts={"cold_s": cold_s, "warm_s": warm_s})


def _of(measurement: Measurement, mode: Mode) -> list[Segment]:
    """All ranks in step: those that only some took part in, or each for itself, are no part of the verdict's rates."""
    chosen = [each for each in measurement.segments if each.mode == mode and each.without is None]
    return [each for each in chosen if each.activity != "alone"]


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
