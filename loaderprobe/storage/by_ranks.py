"""The probe by ranks: each reads its own shard after a common start, for an agreed time; rank 0 says what is next.

Shards are disjoint, so no rank evicts or warms what another reads. Each rank's times are those of its own clock, from
the common barrier on: between ranks only durations are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from loaderprobe.errors import BadValue, LoaderprobeError, LostRank
from loaderprobe.policy import Ask, Fixed, follow
from loaderprobe.protocols import Clock, Group, OnStage, PageCache
from loaderprobe.records.phases import BandwidthPhase, Engine, RankRead
from loaderprobe.records.rank_processes import ReadTogether
from loaderprobe.storage.files import Piece, Sample, decoded_pieces
from loaderprobe.storage.phase import MOST_ROUNDS, PhaseSettings, more, own_reads, run_phase
from loaderprobe.storage.probe import LONGEST
from loaderprobe.storage.reader import (
    VANISHED,
    Column,
    ReadEngine,
    Reading,
    ReadOrder,
    Supply,
    ThreadEngine,
    decoded,
    encoded,
    in_a_row,
    slices_until,
    together,
)
from loaderprobe.units import format_duration, significant


def _rank(rank: int, where: tuple[str, int], runs: Sequence[Sequence[Reading]]) -> RankRead:
    total = in_a_row([run[rank] for run in runs])
    return RankRead(
        rank=rank,
        node=where[1],
        host=where[0],
        bw_bytes=total.bw_bytes,
        io_bytes=total.delivered_bytes,
        seconds=total.seconds,
        storage_bytes=total.counted["own"],
    )


LEAST_SHARE = 0.25
"""Of the time that is asked for, all ranks must read together for this much, however often they begin again."""
NOT_READING = -(2**62)
NO_TIMES: Column = np.empty(0, np.int64)
MOST_SENT = 2000
"""Times of single files that a rank sends after a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStep:
    """One step of the ladder."""

    ranks: int
    nodes: int
    readers: int
    """Of each rank."""


@dataclass(slots=True)
class RankReader:
    """One rank's part: reads its shard when rank 0 says so, and reports.

    On rank 0 it implements `ReadEngine` with the ranks of one step, each in its own shard for the agreed time.
    """

    order: ReadTogether
    group: Group
    cache: PageCache
    cores: float
    """Its part of those that it shares with others."""
    engine: ReadEngine = field(default_factory=ThreadEngine)
    shard: tuple[Piece, ...] = field(init=False)
    name: Engine = field(init=False, default="threads")
    reports: list[tuple[Reading, ...]] = field(init=False, default_factory=list)
    """On rank 0, of all ranks, by run."""
    _runs: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.shard = decoded_pieces(self.order.pieces)[self.group.rank :: self.group.size]

    def follow(self) -> None:
        """Take part in the runs of rank 0 until it ends the step. Raises LostRank when a rank has gone."""
        while msgspec.json.decode(self.group.broadcast(b""), type=bool):
            self.take_part()

    def send(self, goes_on: bool) -> None:
        """On rank 0: broadcast that another run begins, or that the step has ended."""
        self.group.broadcast(msgspec.json.encode(goes_on))

    def take_part(self) -> tuple[Reading, ...]:
        """Read for the agreed time, and report; returns, on rank 0, what all report."""
        supply = Supply(Sample(pieces=self.shard), self.cache, seed=self.order.seed + self._runs)
        self._runs += 1
        supply.ahead(1)
        # All evict before any reads.
        self.group.all_reduce_max(0)
        reading, read_bytes = Reading(seconds=0.0), None
        try:
            before = own_reads()
            order = ReadOrder(readers=self.order.readers, seconds=self.order.seconds)
            reading = self.engine.read(supply.ahead(1), order)
            read_bytes = more(own_reads(), before) if self.order.location.counts_reads else None
        except (OSError, LoaderprobeError) as error:
            reading.unread[""] = str(error)
        full = -reading.full_ns if len(reading.end_ns) else NOT_READING
        until_ns = -self.group.all_reduce_max(full)[0]
        reports = self.group.gather(encoded(_report(reading, read_bytes, until_ns)))
        return tuple(decoded(report, Reading) for report in reports)

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """One run of all. Raises BadValue where a rank reads nothing, or all for too short a time."""
        self.send(True)
        parts = self.take_part()
        _check(parts, self.order.places)
        self.reports.append(parts)
        self._check_length()
        return replace(together(parts), taken=len(pieces))

    def _check_length(self) -> None:
        """Raises BadValue where all read together for too short a time, even if every run were as long as these."""
        ranks = self.group.size
        run_s = sum(length for run in self.reports for length, _ in run[0].slices) / len(self.reports)
        asked_s = self.order.seconds
        least_s = LEAST_SHARE * asked_s
        if run_s * MOST_ROUNDS >= least_s:
            return
        pieces = ranks * len(self.shard)
        needed = math.ceil(2 * pieces * least_s / (run_s * MOST_ROUNDS))
        raise BadValue(
            f"{ranks} rank{'s' * (ranks > 1)} with {pieces // ranks} files each read for {format_duration(run_s)} "
            f"at a time: too short for --seconds {asked_s:g}",
            hint=f"give some {float(significant(needed, 2)):,.0f} files, or fewer ranks, or a shorter --seconds",
        )


def _report(reading: Reading, read_bytes: int | None, until_ns: int) -> Reading:
    """What rank 0 needs of it: slices while all read, the same stretches on all ranks; times of some pieces only."""
    every = max(1, len(reading.piece_ns) // MOST_SENT)
    return replace(
        reading,
        slices=slices_until(reading, until_ns) if len(reading.end_ns) else [],
        end_ns=NO_TIMES,
        size_bytes=NO_TIMES,
        read_ns=reading.read_ns[::every],
        piece_ns=reading.piece_ns[::every],
        completed=len(reading.end_ns),
        counted={"own": read_bytes, "storage": None},
    )


def read_step(reader: RankReader) -> BandwidthPhase | None:
    """One step: all ranks read until the rate has settled. The phase on rank 0, None on the others.

    Raises LostRank when a rank has gone, on rank 0 BadValue where one reads nothing.
    """
    cores = [msgspec.json.decode(text, type=float) for text in reader.group.gather(msgspec.json.encode(reader.cores))]
    if reader.group.rank:
        reader.follow()
        return None
    order = reader.order
    pieces, nodes = decoded_pieces(order.pieces), len({node for _, node in order.places})
    sample = Sample(pieces=pieces, block_bytes=order.block_bytes)
    settings = PhaseSettings(
        engine=reader,
        supply=Supply(sample, None, seed=order.seed),
        location=order.location,
        cores_available=sum(cores),
        order=ReadOrder(readers=order.readers * reader.group.size, seconds=order.seconds),
        longest_s=LONGEST * order.seconds,
    )
    try:
        phase = run_phase(settings)
    finally:
        with suppress(LostRank):
            reader.send(False)
    return replace(
        phase,
        ranks=reader.group.size,
        nodes=nodes,
        by_rank=tuple(_rank(rank, where, reader.reports) for rank, where in enumerate(order.places)),
    )


def climb(
    steps: Sequence[RanksStep], read: Callable[[RanksStep], BandwidthPhase], on_phase: OnStage, *, clock: Clock
) -> tuple[list[BandwidthPhase], bool]:
    """(the phases of all steps, True when interrupted after the first). `read` measures one."""

    def measure(ask: Ask[RanksStep]) -> BandwidthPhase:
        ranks = ask.what.ranks
        text = f"{ranks} rank{'s' * (ranks > 1)}, {ask.what.readers} readers each"
        on_phase(text, round(ask.done), round(ask.total))
        return read(ask.what)

    phases, reason = follow(Fixed(asks=steps), measure, clock=clock, enough=bool)
    return phases, reason is None


def _check(parts: Sequence[Reading], places: Sequence[tuple[str, int]]) -> None:
    """Raises BadValue where a rank could read nothing: a node may not see the data."""
    for rank, part in enumerate(parts):
        if not part.pieces:
            reasons = dict.fromkeys(part.unread.values())
            unread = ("its files are not there" if reason == VANISHED else reason for reason in reasons)
            why = ", ".join(unread) or "no file could be read in the agreed time"
            raise BadValue(
                f"rank {rank} on {places[rank][0]} read nothing: {why}",
                hint="put the files on storage that all nodes mount at the same path, more of them than readers",
            )
