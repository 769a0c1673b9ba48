"""The probe by ranks: each reads its own shard after a common start, for an agreed time.

Shards are disjoint, so no rank evicts or warms what another reads. Each rank's times are those of its own clock, from
the meeting of all on: between ranks only durations are compared.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.protocols import Group, PageCache
from loaderprobe.records import values
from loaderprobe.records.bandwidth import RankRead, RanksPhase
from loaderprobe.records.ranks import RankRun, ReadTogether
from loaderprobe.storage.files import Piece, Sample
from loaderprobe.storage.phase import Total, figures, more, own_reads, summed
from loaderprobe.storage.probe import LONGEST, OnPhase
from loaderprobe.storage.reader import (
    VANISHED,
    ColdPieces,
    Column,
    ReadEngine,
    Reading,
    ReadRequest,
    ThreadEngine,
    slices_until,
)
from loaderprobe.units import format_duration, significant

# The figures of ranks that read at once, from what each reports after each run.


def phase_of(
    runs: Sequence[Sequence[RankRun]], places: Sequence[tuple[str, int]], readers: int, cores: float,
    block_bytes: int | None = None,
) -> RanksPhase:  # fmt: skip
    """All runs of one step together; `places` are (host, node) by rank, `readers` those of each, `cores` of a node."""
    total, nodes = _total(runs), len({node for _, node in places})
    found = figures(
        total,
        readers=readers * len(places),
        block_bytes=block_bytes,
        storage_bytes=total.counted["storage"],
        cores_available=cores * nodes,
    )
    return RanksPhase(
        **values(found),
        ranks=len(places),
        nodes=nodes,
        last_done_bw_bytes=total.delivered_bytes / total.seconds,
        by_rank=tuple(_rank(rank, host, node, runs) for rank, (host, node) in enumerate(places)),
    )


def _total(runs: Sequence[Sequence[RankRun]]) -> Total:
    """Of ranks that read at once; each run takes as long as the last of them."""
    total = Total()
    for run in runs:
        reading = Reading(
            seconds=max(part.seconds for part in run),
            read_ns=_column(run, "read_ns"),
            piece_ns=_column(run, "piece_ns"),
            ios=sum(part.ios for part in run),
            delivered_bytes=sum(part.io_bytes for part in run),
            unread={path: reason for part in run for path, reason in part.unread.items()},
            cpu_s=sum(part.cpu_s for part in run),
        )
        slices = [(at[0][0], sum(size for _, size in at)) for at in zip(*(part.slices for part in run), strict=True)]
        counted = summed(part.storage_bytes for part in run)
        total.add(reading, slices, pieces=sum(part.files for part in run), storage=counted)
    return total


def _column(run: Sequence[RankRun], name: str) -> Column:
    return np.array([ns for part in run for ns in getattr(part, name)], np.int64)


def _rank(rank: int, host: str, node: int, runs: Sequence[Sequence[RankRun]]) -> RankRead:
    own = _total([[run[rank]] for run in runs])
    return RankRead(
        rank=rank,
        node=node,
        host=host,
        bw_bytes=own.bw_bytes,
        io_bytes=own.delivered_bytes,
        seconds=own.seconds,
        storage_bytes=own.counted["storage"],
    )


MOST_RUNS = 40
LEAST_SHARE = 0.25
"""Of the time that is asked for, all ranks must read together for this much, however often they begin again."""
NOT_READING = -(2**62)
MOST_TIMES = 2000
"""Times of single files that a rank sends after a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStep:
    """One step of the ladder."""

    ranks: int
    nodes: int
    readers: int
    """Of each rank."""


def read_together(
    asked: ReadTogether, group: Group, cache: PageCache, on_run: Callable[[int], None],
    engine: ReadEngine | None = None,
) -> tuple[tuple[RankRun, ...], ...]:  # fmt: skip
    """All runs of this rank and the others, on rank 0: as many as it takes until the rate has settled.

    Each rank reads its own shard. Raises LostRank when a rank has gone.
    """
    runs: list[tuple[RankRun, ...]] = []
    pieces = [Piece(path=Path(os.fsdecode(path)), offset=at, size_bytes=size) for path, at, size in asked.pieces]
    shard, number, over = pieces[group.rank :: group.size], 0, 0
    while not over:
        on_run(number)
        own = _run(shard, asked, asked.seed + number, group, cache, engine or ThreadEngine())
        given = group.gathered(msgspec.json.encode(own))
        if given:
            runs.append(tuple(msgspec.json.decode(each, type=RankRun) for each in given))
            over = int(_enough(runs, asked))
        (over,), number = group.most(over), number + 1
    return tuple(runs)


def _run(
    shard: Sequence[Piece], asked: ReadTogether, seed: int, group: Group, cache: PageCache, engine: ReadEngine
) -> RankRun:
    """Of this rank."""
    sample = Sample(pieces=tuple(shard), found=len(shard), images=False, block_bytes=None)
    supply = ColdPieces(sample, cache, seed=seed)
    supply.ahead(1)
    # All evict before any reads.
    group.most(0)
    reading, read_bytes, trouble = Reading(seconds=0.0), None, ""
    try:
        before = own_reads()
        reading = engine.read(supply.ahead(1), ReadRequest(readers=asked.readers, seconds=asked.seconds))
        read_bytes = more(own_reads(), before) if asked.counts_reads else None
    except (OSError, LoaderprobeError) as error:
        trouble = str(error)
    full = -reading.full_ns if len(reading.end_ns) else NOT_READING
    until_ns = -group.most(full)[0]
    every = max(1, len(reading.piece_ns) // MOST_TIMES)
    return RankRun(
        rank=group.rank,
        slices=slices_until(reading, until_ns) if len(reading.end_ns) else [],
        seconds=reading.seconds,
        io_bytes=reading.delivered_bytes,
        ios=reading.ios,
        files=len(reading.end_ns),
        storage_bytes=read_bytes,
        read_ns=reading.read_ns[::every].tolist(),
        piece_ns=reading.piece_ns[::every].tolist(),
        cpu_s=reading.cpu_s,
        unread=reading.unread,
        trouble=trouble,
    )


def _enough(runs: Sequence[Sequence[RankRun]], asked: ReadTogether) -> bool:
    """True once the rate is known, or can not be."""
    if any(map(_read_nothing, runs[-1])) or _too_short(runs, asked.seconds):
        return True
    phase = phase_of(runs, [("", 0)] * len(runs[0]), asked.readers, asked.cores, asked.block_bytes)
    read_s = phase.runtime / 1e3
    over = read_s >= 0.98 * LONGEST * asked.seconds or len(runs) == MOST_RUNS
    return over or (phase.settled and read_s >= 0.98 * asked.seconds)


def _read_nothing(part: RankRun) -> bool:
    return bool(part.trouble) or not part.files


def _together_s(runs: Sequence[Sequence[RankRun]]) -> float:
    """For which all read at once in a run."""
    return sum(length for run in runs for length, _ in run[0].slices) / len(runs)


def _too_short(runs: Sequence[Sequence[RankRun]], seconds: float) -> bool:
    """True where all read together for too short a time, even if every run were as long as these."""
    return _together_s(runs) * MOST_RUNS < LEAST_SHARE * seconds


@dataclass(slots=True)
class RankLadder:
    """The steps. `read(step)` gives all runs of the ranks of one, whose (host, node) are `places(step)`."""

    read: Callable[[RanksStep], Sequence[Sequence[RankRun]]]
    places: Callable[[RanksStep], Sequence[tuple[str, int]]]
    pieces: int
    """Of all ranks."""
    seconds: float
    cores: float
    block_bytes: int | None = None
    """Size of one read; None when files are read whole."""
    phases: list[RanksPhase] = field(default_factory=list)

    def climb(self, steps: Sequence[RanksStep], on_phase: OnPhase) -> bool:
        """All steps; True when interrupted after the first. Raises BadValue for what cannot be read."""
        try:
            for number, step in enumerate(steps):
                on_phase(f"{step.ranks} rank{'s' * (step.ranks > 1)}, {step.readers} readers each", number, len(steps))
                self.phases.append(self._phase(step))
        except KeyboardInterrupt:
            if not self.phases:
                raise
            return True
        return False

    def _phase(self, step: RanksStep) -> RanksPhase:
        runs, places = self.read(step), self.places(step)
        _check(runs[-1], places)
        self._check_length(runs, step.ranks)
        return phase_of(runs, places, step.readers, self.cores, self.block_bytes)

    def _check_length(self, runs: Sequence[Sequence[RankRun]], ranks: int) -> None:
        """Raises BadValue where all read together for too short a time."""
        if not _too_short(runs, self.seconds):
            return
        each_s, least_s = _together_s(runs), LEAST_SHARE * self.seconds
        needed = math.ceil(2 * self.pieces * least_s / (each_s * MOST_RUNS))
        raise BadValue(
            f"{ranks} rank{'s' * (ranks > 1)} with {self.pieces // ranks} files each read for "
            f"{format_duration(each_s)} at a time: too short for --seconds {self.seconds:g}",
            hint=f"give some {float(significant(needed, 2)):,.0f} files, or fewer ranks, or a shorter --seconds",
        )


def _check(parts: Sequence[RankRun], places: Sequence[tuple[str, int]]) -> None:
    """Raises BadValue where a rank could read nothing: a node may not see the data."""
    for part in parts:
        if _read_nothing(part):
            unread = (
                "its files are not there" if each == VANISHED else each for each in dict.fromkeys(part.unread.values())
            )
            why = part.trouble or ", ".join(unread) or "no file could be read in the agreed time"
            raise BadValue(
                f"rank {part.rank} on {places[part.rank][0]} read nothing: {why}",
                hint="put the files on storage that all nodes mount at the same path, more of them than readers",
            )
