"""Which segments count: those of a slow first round do not, nor those beside which others were at work; if enough do.

Nothing is left out of what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from loaderprobe.analyze.verdict.disturbance import is_disturbed, like
from loaderprobe.analyze.verdict.rates import rates_by_round, worker_cost
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import Activity, Measurement, Mode, Segment

# A first round so many times slower than each later one is a start: of connections, of imports, of a device that
# wakes. Rounds of token buckets in segments of 0.8 s differ by 1.4 at most in the runs seen.
SLOW_START = 1.5
# A first round that read this many times the bytes of later ones was the colder one, and not merely slow.
COLDER = 1.25
# Enough segments of a kind for a spread.
LEAST_ROUNDS = 3

Kind = tuple[Mode, Activity, int | None]


def counted(measurement: Measurement) -> Measurement:
    """The measurement with the segments that count; applied again, it changes nothing."""
    if measurement.by_rank:
        return measurement  # what ranks saw has a row for each segment
    return _without_slow_start(_without_disturbed(measurement))


def fair(measurement: Measurement) -> Mapping[tuple[Mode, Activity], int]:
    """How many segments of a mode others did not disturb, nor those which they are compared with."""
    return Counter((each.mode, each.activity) for each in _fair(measurement) if each.without is None)


def _without_disturbed(measurement: Measurement) -> Measurement:
    """Without those that were disturbed, or saw other conditions than what they are compared with, of kinds with more.

    The loader alone as asked stays: all of its round is compared with it.
    """
    good = {id(each) for each in _fair(measurement)}
    enough = Counter(_kind(each) for each in measurement.segments if id(each) in good)
    base: Kind = (base_mode(measurement), "loader_only", None)
    kept = tuple(
        each
        for each in measurement.segments
        if id(each) in good or _kind(each) == base or enough[_kind(each)] < _least(measurement)
    )
    return measurement if len(kept) == len(measurement.segments) else replace(measurement, segments=kept)


def _fair(measurement: Measurement) -> list[Segment]:
    base = base_mode(measurement)
    beside = {(each.round, each.activity): each for each in measurement.segments if _kind(each)[::2] == (base, None)}

    def alike(segment: Segment) -> bool:
        trains_without = segment.activity == "training" and segment.mode not in (base, "resident")
        other = beside.get((segment.round, "training" if trains_without else "loader_only"))
        return segment.mode == "resident" or other is None or like(segment, other)

    return [each for each in measurement.segments if alike(each) and not is_disturbed(measurement, each)]


def _least(measurement: Measurement) -> int:
    return min(LEAST_ROUNDS, measurement.config.rounds)


def _without_slow_start(measurement: Measurement) -> Measurement:
    """Without what the loader did in a slow first round, where later rounds did all of that again."""
    own = [each for each in measurement.segments if not each.round and each.mode != "resident"]
    again = {_kind(each) for each in measurement.segments if each.round}
    if not own or not all(_kind(each) in again for each in own):
        return measurement
    if not any(_slow_start(measurement, activity) for activity in ("loader_only", "training")):
        return measurement
    dropped = {id(each) for each in own}
    return replace(measurement, segments=tuple(each for each in measurement.segments if id(each) not in dropped))


def _kind(segment: Segment) -> Kind:
    return segment.mode, segment.activity, segment.without


def _slow_start(measurement: Measurement, activity: Activity) -> bool:
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
    kind: Kind = (base_mode(measurement), activity, None)
    segments = [each for each in measurement.segments if _kind(each) == kind]
    costs = {each.round: worker_cost(measurement.worker_batches, [each]) for each in segments}
    return {number: cost.read_bytes / cost.images for number, cost in costs.items() if cost is not None}
