"""Ranks that trained in step, as one measurement; and whether each takes all of the data set.

In step, each rank takes as long for a step as the slowest. So the rates of all together are the number of ranks times
those of the slowest rank, and every rule for one process holds: a batch is that of all ranks, made in the time, by the
workers and on the share of the cores that the slowest rank has.

Only the first rank of a node reads the counters of its machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from loaderprobe.analyze.verdict.rates import worker_cost
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Measurement, RankSeen, Segment, WorkerBatches, segments_of
from loaderprobe.records.rank_processes import RankInput, RankMeasurement, shares
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.thresholds import FILES_OF_ALL, READ_BY_ALL
from loaderprobe.records.verdict import Action, Advice, Interval
from loaderprobe.stats import mean

_OF_PASS = ("images", "read_bytes", "called_bytes", "again_read_bytes")


def as_one(ranks: Sequence[RankMeasurement]) -> Measurement:
    """One measurement of all ranks, which are given in their order; of one, its own.

    Raises LoaderprobeError where they did not take the same steps.
    """
    if len(ranks) == 1:
        return ranks[0].measurement
    # Ranks alone take equal times, not equal numbers of steps.
    taken = {
        tuple((*s.kind, 0 if s.activity == "alone" else s.steps) for s in rank.measurement.segments) for rank in ranks
    }
    if len(taken) > 1:
        raise LoaderprobeError("the ranks did not take the same steps", hint="report this, with the command")
    slowest = slowest_of(ranks)
    measured, size, first_pass = slowest.measurement, len(ranks), slowest.measurement.first_pass
    host = [rank for rank in ranks if (rank.node, rank.host) == (slowest.node, slowest.host)]
    first = host[0].measurement
    given, config = measured.compute.specified_images_per_s, measured.config
    if config.ranks == 1:
        # A script has no such option, so its batches count as one of all ranks.
        config = replace(config, compute=replace(config.compute, batch_size=config.compute.batch_size * size))
    return replace(
        measured,
        config=config,
        compute=replace(measured.compute, specified_images_per_s=None if given is None else given * size),
        segments=tuple(_together(slowest, number, ranks) for number in range(len(measured.segments))),
        worker_batches=_batches(slowest, ranks),
        series=first.series,
        # Each rank samples the waits of its own workers.
        missing=(*(m for m in first.missing if m.name != "waits"), *(m for m in measured.missing if m.name == "waits")),
        first_pass=first_pass and replace(first_pass, **{name: getattr(first_pass, name) * size for name in _OF_PASS}),
        modes=tuple(mode for mode in measured.modes if all(mode in rank.measurement.modes for rank in ranks)),
        alternatives=next((rank.measurement.alternatives for rank in ranks if rank.measurement.alternatives), ()),
        cores_available=cores(host) / len(host),
        notes=each_once(chain(*(rank.measurement.notes for rank in ranks))),
        ranks=size,
        host_ranks=len(host),
        by_rank=tuple(_rank_seen(rank) for rank in ranks) if measured.config.ranks > 1 else (),
    )


def slowest_of(ranks: Sequence[RankMeasurement]) -> RankMeasurement:
    """The rank that takes longest for a batch alone; where none was alone, for one in its worker."""
    alone = {rank.rank: [s for s in rank.measurement.segments if s.activity == "alone"] for rank in ranks}
    if alone[ranks[0].rank]:
        # Steps per nanosecond.
        return min(ranks, key=lambda rank: sum(s.steps / max(1, s.span_ns) for s in alone[rank.rank]))
    return max(ranks, key=_worker_s)


def cores(ranks: Sequence[RankMeasurement]) -> float:
    """Of ranks on one host: those that several may run on count once. Quotas may allow them fewer."""
    limits = [rank.core_limits or {str(rank.affinity): rank.cores} for rank in ranks]
    return min(sum(shares(limits)), len(set(chain(*(rank.affinity for rank in ranks)))))


def _worker_s(rank: RankMeasurement) -> float:
    """Wall seconds of a batch in its worker, with the loader alone; 0 before anything was measured."""
    measured = rank.measurement
    cost = worker_cost(measured.worker_batches, segments_of(measured, measured.config.mode, "loader_only"))
    return 0.0 if cost is None else cost.wall_s / cost.images


def _together(slowest: RankMeasurement, number: int, ranks: Sequence[RankMeasurement]) -> Segment:
    """Times of the slowest rank; images and bytes of all. A host's devices are counted once, by its first rank."""
    segments = [rank.measurement.segments[number] for rank in ranks]
    of_slowest = slowest.measurement.segments[number]
    by_rank = list(zip(ranks, segments, strict=True))
    fed = [segment for rank, segment in by_rank if rank.rank != of_slowest.without]
    hosts = {(rank.node, rank.host): segment for rank, segment in reversed(by_rank)}
    resident = [segment.resident_before for segment in fed if segment.resident_before is not None]
    return replace(
        of_slowest,
        batch_size=sum(segment.batch_size for segment in segments),
        delivered_bytes=_sum(segment.delivered_bytes for segment in fed),
        distinct_bytes=_sum(segment.distinct_bytes for segment in fed),
        disk_bytes=_sum(host.disk_bytes for host in hosts.values()),
        resident_before=mean(resident) if len(resident) == len(fed) else None,
        others=hosts[slowest.node, slowest.host].others,
    )


def _rank_seen(rank: RankMeasurement) -> RankSeen:
    measured = rank.measurement
    segments, counted = measured.segments, measured.storage_counts_reads
    made = [worker_cost(measured.worker_batches, [segment]) for segment in segments]
    return RankSeen(
        rank=rank.rank,
        node=rank.node,
        host=rank.host,
        span_ns=tuple(segment.span_ns for segment in segments),
        input_ns=tuple((sum(segment.ready_ns) - sum(segment.begin_ns)) // segment.steps for segment in segments),
        meet_ns=tuple(
            (sum(s.end_ns) - sum(s.ready_ns)) // s.steps if s.activity == "loader_only" else 0 for s in segments
        ),
        steps=tuple(segment.steps for segment in segments),
        delivered_bytes=tuple(segment.delivered_bytes for segment in segments),
        read_bytes=tuple(cost.read_bytes if counted and cost else None for cost in made),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is not known."""
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _batches(slowest: RankMeasurement, ranks: Sequence[RankMeasurement]) -> WorkerBatches:
    """What each batch cost on the slowest rank; images of all ranks, and what all of them read from storage.

    Ranks number their batches on their own. Those of segments belong together; between segments each reads as much.
    """
    of_ranks = (rank.measurement.worker_batches for rank in ranks)
    rows = [dict(zip(records.batch, records.read_bytes, strict=True)) for records in of_ranks]
    records = slowest.measurement.worker_batches
    total = {number: size * len(ranks) for number, size in zip(records.batch, records.read_bytes, strict=True)}
    for index, segment in enumerate(slowest.measurement.segments):
        firsts = [rank.measurement.segments[index].first_batch for rank in ranks]
        # Ranks alone take unlike numbers of steps, and one that takes no input has no batches.
        for step in range(segment.steps if min(firsts) >= 0 and segment.activity != "alone" else 0):
            known = [row[first + step] for row, first in zip(rows, firsts, strict=True) if first + step in row]
            if len(known) == len(ranks):
                total[segment.first_batch + step] = sum(known)
    return replace(
        records,
        images=tuple(count * len(ranks) for count in records.images),
        read_bytes=tuple(total[number] for number in records.batch),
    )


def same_samples(ranks: Sequence[RankInput]) -> Remark | None:
    """That ranks take the same samples; None where nothing shows it.

    They do where most files that one opened another opened as well; where more than a few are, and each sampler goes
    through the whole data set, so that only chance lets ranks differ; and, where files are not known, where the first
    batch of all has the same content.
    """
    size, files = len(ranks), [set(rank.files) for rank in ranks]
    read = sum(map(len, files))
    if all(files):
        again = read - len(set().union(*files))
        limit = read * (1 - 1 / size)
        if again >= READ_BY_ALL * limit or (again > FILES_OF_ALL * (size - 1) and all(rank.whole for rank in ranks)):
            return Remark(code="same_samples", facts={"ranks": size, "again": again, "files": read})
        return None
    first = {rank.first for rank in ranks}
    if len(first) == 1 and None not in first:
        return Remark(code="same_batches", facts={"ranks": size})
    return None


def own_shares(notes: Sequence[Remark], now: Interval) -> tuple[Advice, ...]:
    """To share the data set out, where `notes` say that ranks take the same samples; the rate `now` stays."""
    if not any(note.code in ("same_samples", "same_batches") for note in notes):
        return ()
    command = "DataLoader(dataset, ..., sampler=DistributedSampler(dataset))"
    action = Action(code="own_shares", facts={})
    return (Advice(action=action, command=command, speedup=1.0, before=now, after=now, how="measured"),)


def differing(ranks: Sequence[RankInput]) -> tuple[int, str] | None:
    """(The first rank whose loader has another setting than rank 0's, that setting); None where all are alike."""
    for name in ("batch_size", "workers", "prefetch_factor", "exchanges"):
        values = [getattr(rank, name) for rank in ranks]
        other = next((number for number, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            return other, name
    return None
