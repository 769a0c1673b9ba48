"""Measurements of several ranks from scripted rates, which are those of all ranks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loaderprobe.records.measurement import Activity, Measurement, Mode, RankSeen, Segment
from tests.analyze.runs import BATCH, FILE_BYTES, STEPS, Cost, Round, run, segment

NS = 1e9
_READ_BYTES = FILE_BYTES * BATCH * STEPS
"""By each rank in a segment."""


def rank_run(
    rounds: Sequence[Round], cost: Cost | None = None, /, *, alone: Sequence[float] = (),
    without: Mapping[int, float | Sequence[float]] | None = None, no_exchange: float | None = None,
    exchange: float | None = None, ranks: int = 2, nodes: int = 1, cold: Sequence[float] = (), compute: float = 1e5,
    **changes: Any,
) -> Measurement:  # fmt: skip
    """Rounds as `run` takes them, with what only ranks measure in each of them.

    `alone` has images/s by rank, `without` those of all in step, by the rank that goes without input (and by round),
    `compute` is the rate of all devices, `cold` the share of its bytes that each rank read from storage when cold.
    """
    each = [{name: rate / ranks for name, rate in one.items()} for one in rounds]
    made = run(each, cost or Cost(), compute=compute, ranks=ranks, nodes=nodes, **changes)
    segments = [_of_all(one, ranks) for one in made.segments]
    base: Mode = "warm" if made.config.cache == "warm" else "baseline"
    for number in range(len(rounds)):
        if alone:
            segments.append(_further(base, "alone", number, min(alone), ranks))
        for rank, rate in (without or {}).items():
            of_round = rate if isinstance(rate, int | float) else rate[number]
            segments.append(replace(_further(base, "loader_only", number, of_round / ranks, ranks), without=rank))
        further: dict[Mode, float | None] = {"no_exchange": no_exchange, "exchange": exchange}
        for mode, of_all in further.items():
            if of_all is not None:
                segments.append(_further(mode, "training", number, of_all / ranks, ranks))
    records = made.worker_batches
    each_device = replace(made.config.compute, name=f"emulated:{compute / ranks:g}")
    return replace(
        made,
        config=replace(made.config, compute=each_device),
        segments=tuple(segments),
        worker_batches=replace(
            records,
            images=tuple(count * ranks for count in records.images),
            read_bytes=tuple(count * ranks for count in records.read_bytes),
        ),
        ranks=ranks,
        by_rank=tuple(_seen(rank, segments, ranks, nodes, alone, cold) for rank in range(ranks)) if ranks > 1 else (),
    )


def _further(mode: Mode, activity: Activity, number: int, rate: float, ranks: int) -> Segment:
    """One of `rate` images/s of each rank."""
    size = None if activity == "training" else _READ_BYTES
    made = segment(mode, activity, number, -1, rate, thread_cpu_ns=0, delivered_bytes=size)
    return _of_all(made, ranks)


def _of_all(one: Segment, ranks: int) -> Segment:
    delivered = None if one.delivered_bytes is None else one.delivered_bytes * ranks
    return replace(one, batch_size=one.batch_size * ranks, delivered_bytes=delivered)


def _seen(
    rank: int, segments: Sequence[Segment], ranks: int, nodes: int, alone: Sequence[float], cold: Sequence[float]
) -> RankSeen:
    def span(one: Segment) -> int:
        if one.activity == "alone":
            return round(BATCH * STEPS / alone[rank] * NS)
        return one.closed_ns - one.begin_ns[0]

    def read(one: Segment) -> int | None:
        if one.mode not in ("baseline", "cached_samples", "no_transport") or one.delivered_bytes is None:
            return 0 if one.mode == "warm" else None
        return round((cold[rank] if cold else 1.0) * _READ_BYTES)

    def waited(one: Segment) -> int:
        return span(one) // STEPS // 10 * rank if one.activity == "loader_only" else 0

    node = rank * nodes // ranks
    return RankSeen(
        rank=rank,
        node=node,
        host=f"node{node}",
        span_ns=tuple(span(one) for one in segments),
        input_ns=tuple(span(one) // STEPS // (rank + 1) for one in segments),
        meet_ns=tuple(waited(one) for one in segments),
        steps=tuple(one.steps for one in segments),
        delivered_bytes=tuple(None if one.delivered_bytes is None else _READ_BYTES for one in segments),
        read_bytes=tuple(read(one) for one in segments),
    )
