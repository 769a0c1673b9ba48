"""Ranks that trained in step, as one measurement.

In step, each rank takes as long for a step as the slowest. So the rates of all together are the number of ranks times
those of the slowest rank, and every rule for one process holds: a batch is that of all ranks, made in the time, by the
workers and on the share of the cores that the slowest rank has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import TypeVar

from loaderprobe.analyze.verdict.rates import segments_of, worker_cost
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import FirstLap, Measurement, Segment, WorkerBatches
from loaderprobe.records.together import RankMeasurement
from loaderprobe.stats import mean

Note = TypeVar("Note")
_OF_LAP = ("images", "read_bytes", "called_bytes", "again_read_bytes")


def as_one(ranks: Sequence[RankMeasurement]) -> Measurement:
    """One measurement of all ranks, which are given in their order; of one, its own.

    Raises LoaderprobeError where they did not take the same steps.
    """
    if len(ranks) == 1:
        return ranks[0].measurement
    _check_in_step(ranks)
    slowest = max(ranks, key=_worker_s)
    seen, size = slowest.measurement, len(ranks)
    asked, given, lap = seen.config.compute, seen.compute.specified_images_per_s, seen.first_lap
    return replace(
        seen,
        config=replace(seen.config, compute=replace(asked, batch_size=asked.batch_size * size)),
        compute=replace(seen.compute, specified_images_per_s=None if given is None else given * size),
        segments=tuple(
            _together(slowest.measurement.segments[number], number, ranks) for number in range(len(seen.segments))
        ),
        worker_batches=_batches(slowest, ranks),
        first_lap=None if lap is None else _lap(lap, size),
        modes=tuple(mode for mode in seen.modes if all(mode in each.measurement.modes for each in ranks)),
        cores_available=cores(ranks) / size,
        notes=tuple(_once(note for each in ranks for note in each.measurement.notes)),
        ranks=size,
    )


def cores(ranks: Iterable[RankMeasurement]) -> float:
    """Of all hosts together: those that several ranks may run on count once. A rank's quota may allow it fewer."""
    hosts: dict[str, dict[tuple[int, ...], float]] = {}
    for each in ranks:
        hosts.setdefault(each.host, {})[each.affinity] = each.cores
    return sum(min(sum(host.values()), len(set(chain(*host)))) for host in hosts.values())


def _check_in_step(ranks: Sequence[RankMeasurement]) -> None:
    first, *others = ([(s.mode, s.activity, s.steps) for s in each.measurement.segments] for each in ranks)
    if any(each != first for each in others):
        raise LoaderprobeError("the ranks did not take the same steps", hint="report this, with the command")


def _worker_s(rank: RankMeasurement) -> float:
    """Wall seconds of a batch in its worker, with the loader alone; 0 before anything was measured."""
    measured = rank.measurement
    cost = worker_cost(measured.worker_batches, segments_of(measured, base_mode(measured), "loader_only"))
    return 0.0 if cost is None else cost.wall_s / cost.images


def _together(slowest: Segment, number: int, ranks: Sequence[RankMeasurement]) -> Segment:
    """Times of the slowest rank; images and bytes of all. A host's devices are counted once, by its first rank."""
    all_ = [each.measurement.segments[number] for each in ranks]
    hosts = {each.host: segment for each, segment in reversed(list(zip(ranks, all_, strict=True)))}
    resident = [each.resident_before for each in all_ if each.resident_before is not None]
    return replace(
        slowest,
        batch_size=sum(each.batch_size for each in all_),
        delivered_bytes=_sum(each.delivered_bytes for each in all_),
        distinct_bytes=_sum(each.distinct_bytes for each in all_),
        disk_bytes=_sum(each.disk_bytes for each in hosts.values()),
        resident_before=mean(resident) if len(resident) == len(all_) else None,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    known = list(values)
    return None if None in known else sum(each or 0 for each in known)


def _batches(slowest: RankMeasurement, ranks: Sequence[RankMeasurement]) -> WorkerBatches:
    """What each batch cost on the slowest rank; images of all ranks, and what all of them read from storage.

    Ranks number their batches on their own. Those of segments belong together; between segments each reads as much.
    """
    rows = [_read_by_number(each) for each in ranks]
    records = slowest.measurement.worker_batches
    total = {number: size * len(ranks) for number, size in zip(records.batch, records.read_bytes, strict=True)}
    for place, segment in enumerate(slowest.measurement.segments):
        firsts = [each.measurement.segments[place].first_batch for each in ranks]
        for step in range(segment.steps if segment.first_batch >= 0 else 0):
            known = [row[first + step] for row, first in zip(rows, firsts, strict=True) if first + step in row]
            if len(known) == len(ranks):
                total[segment.first_batch + step] = sum(known)
    return replace(
        records,
        images=tuple(count * len(ranks) for count in records.images),
        read_bytes=tuple(total[number] for number in records.batch),
    )


def _read_by_number(rank: RankMeasurement) -> dict[int, int]:
    records = rank.measurement.worker_batches
    return dict(zip(records.batch, records.read_bytes, strict=True))


def _once(notes: Iterable[Note]) -> list[Note]:
    """Without those that an earlier rank has, too."""
    found: list[Note] = []
    for note in notes:
        if note not in found:
            found.append(note)
    return found


def _lap(lap: FirstLap, size: int) -> FirstLap:
    counts = {each.name: getattr(lap, each.name) * size for each in fields(lap) if each.name in _OF_LAP}
    return replace(lap, **counts)
