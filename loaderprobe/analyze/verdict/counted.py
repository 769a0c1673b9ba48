"""Which rounds count: a slow first one does not, once there is another."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.verdict.rates import rates_by_round, worker_cost
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import Activity, Measurement, Segment

# A first round so many times slower than each later one is a start: of connections, of imports, of a device that
# wakes. Rounds of token buckets in segments of 0.8 s differ by 1.4 at most in the runs seen.
SLOW_START = 1.5
# A first round that read this many times the bytes of later ones was the colder one, and not merely slow.
COLDER = 1.25


def counted(measurement: Measurement) -> Measurement:
    """The measurement without what the loader did in a slow first round, where later rounds did all of that again."""
    own = [each for each in measurement.segments if not each.round and each.mode != "resident"]
    again = {_kind(each) for each in measurement.segments if each.round}
    if measurement.by_rank or not own or not all(_kind(each) in again for each in own):
        return measurement
    if not any(_slow(measurement, activity) for activity in ("loader_only", "training")):
        return measurement
    dropped = {id(each) for each in own}
    return replace(measurement, segments=tuple(each for each in measurement.segments if id(each) not in dropped))


def _kind(segment: Segment) -> tuple[str, str, int | None]:
    return segment.mode, segment.activity, segment.without


def _slow(measurement: Measurement, activity: Activity) -> bool:
    """True when the first round is slower than each later one, which are alike, though it read no more from storage."""
    rates = rates_by_round(measurement, base_mode(measurement), activity)
    later = [rate for number, rate in rates.items() if number]
    if 0 not in rates or not later or max(SLOW_START * rates[0], max(later) / SLOW_START) >= min(later):
        return False
    if measurement.access == "none" and not measurement.storage_counts_reads:
        return False  # files as found may have been cold once
    read = _read_by_round(measurement, activity)
    return read.get(0, 0.0) <= COLDER * min((each for number, each in read.items() if number), default=0.0)


def _read_by_round(measurement: Measurement, activity: Activity) -> dict[int, float]:
    """Bytes from storage an image."""
    base = base_mode(measurement)
    segments = [s for s in measurement.segments if (s.mode, s.activity, s.without) == (base, activity, None)]
    costs = {s.round: worker_cost(measurement.worker_batches, [s]) for s in segments}
    return {number: cost.read_bytes / cost.images for number, cost in costs.items() if cost is not None}
