"""The probe by ranks: each reads its own shard after a common start, for an agreed time; rank 0 says what is next.

Shards are disjoint, so no rank evicts or warms what another reads. Each rank's times are those of its own clock, from
the meeting of all on: between ranks only durations are compared.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.protocols import Group, PageCache
from loaderprobe.records import values
from loaderprobe.records.bandwidth import RankRead, RanksPhase
from loaderprobe.storage.files import Piece, Sample
from loaderprobe.storage.phase import Total, figures, more, own_reads, summed
from loaderprobe.storage.probe import LONGEST, OnPhase
from loaderprobe.storage.reader import VANISHED, Column, Order, ReadEngine, Reading, Supply, ThreadEngine, slices_until
from loaderprobe.units import format_duration, significant

# The figures of ranks that read at once, from what each reports after each run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one rank reports of one run of reads."""

    rank: int
    """Among those that read; -1 for one that does not."""
    slices: list[tuple[float, float]]
    """(seconds, bytes) while all read; the same stretches on all ranks."""
    seconds: float
    io_bytes: int
    ios: int
    files: int
    storage_bytes: int | None
    """None where it is not counted."""
    read_ns: list[int]
    piece_ns: list[int]
    """Times of read calls and of files, or of every so many of them."""
    cpu_s: float
    unread: dict[str, str]
    """Why files could not be read to their end, by path."""
    trouble: str = ""
    """An error that ended the run."""


def phase_of(
    runs: Sequence[Sequence[Part]], places: Sequence[tuple[str, int]], readers: int, cores: float,
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


def _total(runs: Sequence[Sequence[Part]]) -> Total:
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


def _column(run: Sequence[Part], name: str) -> Column:
    return np.array([ns for part in run for ns in getattr(part, name)], np.int64)


def _rank(rank: int, host: str, node: int, runs: Sequence[Sequence[Part]]) -> RankRead:
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

    seats: tuple[int, ...]
    """The ranks of the group that read; the first of them has the first shard."""
    nodes: int
    readers: int
    """Of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The node of a rank."""

    host: str
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What all do next."""

    kind: Literal["read", "end"]
    step: RanksStep | None = None
    seconds: float = 0.0
    seed: int = 0
    exit_code: int = 0
    """With `end`: of all processes. A launcher that sees others end well may wait for them."""


@dataclass(slots=True)
class RankReader:
    """One rank's part: reads its shard when rank 0 says so, and reports."""

    group: Group
    cache: PageCache
    engine: ReadEngine = field(default_factory=ThreadEngine)
    counts_reads: bool = True
    """False where nothing counts what this process reads from storage."""
    pieces: tuple[Piece, ...] = ()

    def follow(self, here: Whereabouts) -> int:
        """Take part until rank 0 ends it; returns the exit code. Raises LostRank when a rank has gone."""
        found = json.loads(self.group.broadcast(b""))
        if "exit_code" in found:
            return int(found["exit_code"])
        self.counts_reads = found["counts_reads"]
        self.pieces = tuple(Piece(path=Path(p), offset=o, size_bytes=s) for p, o, s in found["pieces"])
        self.group.gathered(msgspec.json.encode(here))
        while (turn := msgspec.json.decode(self.group.broadcast(b""), type=Turn)).kind == "read":
            self.take_turn(turn)
        return turn.exit_code

    def begin(self, sample: Sample, here: Whereabouts) -> tuple[Whereabouts, ...]:
        """Rank 0: tell all which pieces there are; returns where each rank is."""
        self.pieces = sample.pieces
        pieces = [(os.fsdecode(piece.path), piece.offset, piece.size_bytes) for piece in sample.pieces]
        self.group.broadcast(json.dumps({"pieces": pieces, "counts_reads": self.counts_reads}).encode())
        found = self.group.gathered(msgspec.json.encode(here))
        return tuple(msgspec.json.decode(each, type=Whereabouts) for each in found)

    def refuse(self, exit_code: int) -> None:
        """Rank 0: there is nothing to read."""
        self.group.broadcast(json.dumps({"exit_code": exit_code}).encode())

    def tell(self, turn: Turn) -> None:
        """Rank 0: say what is next."""
        self.group.broadcast(msgspec.json.encode(turn))

    def take_turn(self, turn: Turn) -> tuple[Part, ...]:
        """Read if it is this rank's turn, and report; returns, on rank 0, the parts of those that read."""
        step = turn.step
        assert step is not None
        mine = step.seats.index(self.group.rank) if self.group.rank in step.seats else None
        shard = () if mine is None else self.pieces[mine :: len(step.seats)]
        supply = None if not shard else self._evicted(shard, turn.seed)
        # All evict before any reads.
        self.group.most(0)
        reading, read_bytes, trouble = Reading(seconds=0.0), None, ""
        if supply is not None:
            try:
                reading, read_bytes = self._read(supply, Order(readers=step.readers, seconds=turn.seconds))
            except (OSError, LoaderprobeError) as error:
                trouble = str(error)
        full = -reading.full_ns if len(reading.end_ns) else NOT_READING
        until_ns = -self.group.most(full)[0]
        part = _part(mine, reading, read_bytes, until_ns, trouble)
        found = self.group.gathered(msgspec.json.encode(part))
        parts = (msgspec.json.decode(each, type=Part) for each in found)
        return tuple(sorted((each for each in parts if each.rank >= 0), key=lambda each: each.rank))

    def _evicted(self, shard: Sequence[Piece], seed: int) -> Supply:
        sample = Sample(pieces=tuple(shard), found=len(shard), images=False, block_bytes=None)
        supply = Supply(sample, self.cache, seed=seed)
        supply.ahead(1)
        return supply

    def _read(self, supply: Supply, order: Order) -> tuple[Reading, int | None]:
        before = own_reads()
        reading = self.engine.read(supply.ahead(1), order)
        return reading, more(own_reads(), before) if self.counts_reads else None


def _part(mine: int | None, reading: Reading, read_bytes: int | None, until_ns: int, trouble: str) -> Part:
    """What this rank reports; a rank of -1 does not read."""
    every = max(1, len(reading.piece_ns) // MOST_TIMES)
    return Part(
        rank=-1 if mine is None else mine,
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


@dataclass(slots=True)
class RankLadder:
    """Rank 0's part: the steps, each read again until its rate has settled."""

    reader: RankReader
    places: tuple[Whereabouts, ...]
    """By rank of the group."""
    seconds: float
    cores: float
    block_bytes: int | None = None
    """Size of one read; None when files are read whole."""
    seed: int = 0
    phases: list[RanksPhase] = field(default_factory=list)

    def climb(self, steps: Sequence[RanksStep], on_phase: OnPhase) -> bool:
        """All steps; True when interrupted after the first. The other ranks' parts end with it."""
        try:
            for number, step in enumerate(steps):
                ranks = len(step.seats)
                on_phase(f"{ranks} rank{'s' * (ranks > 1)}, {step.readers} readers each", number, len(steps))
                self.phases.append(self._phase(step))
        except KeyboardInterrupt:
            # Amid a turn the others do not hear of it: they lose this rank, or are interrupted as well.
            if not self.phases:
                raise
            return True
        except BadValue as error:
            self.reader.tell(Turn(kind="end", exit_code=error.exit_code))
            raise
        self.reader.tell(Turn(kind="end"))
        return False

    def _phase(self, step: RanksStep) -> RanksPhase:
        runs: list[tuple[Part, ...]] = []
        places = [self.places[seat] for seat in step.seats]
        while True:
            turn = Turn(kind="read", step=step, seconds=self.seconds, seed=self.seed + len(runs))
            self.reader.tell(turn)
            parts = self.reader.take_turn(turn)
            _check(parts, places)
            runs.append(parts)
            self._check_length(runs, len(places))
            on = [(each.host, each.node) for each in places]
            phase = phase_of(runs, on, step.readers, self.cores, self.block_bytes)
            read_s = phase.runtime / 1e3
            over = read_s >= 0.98 * LONGEST * self.seconds or len(runs) == MOST_RUNS
            if over or (phase.settled and read_s >= 0.98 * self.seconds):
                return phase

    def _check_length(self, runs: Sequence[Sequence[Part]], ranks: int) -> None:
        """Raises BadValue where all read together for too short a time, even if every run were as long as these."""
        each_s = sum(length for run in runs for length, _ in run[0].slices) / len(runs)
        least_s = LEAST_SHARE * self.seconds
        if each_s * MOST_RUNS >= least_s:
            return
        pieces = len(self.reader.pieces)
        needed = math.ceil(2 * pieces * least_s / (each_s * MOST_RUNS))
        raise BadValue(
            f"{ranks} rank{'s' * (ranks > 1)} with {pieces // ranks} files each read for {format_duration(each_s)} "
            f"at a time: too short for --seconds {self.seconds:g}",
            hint=f"give some {float(significant(needed, 2)):,.0f} files, or fewer ranks, or a shorter --seconds",
        )


def _check(parts: Sequence[Part], places: Sequence[Whereabouts]) -> None:
    """Raises BadValue where a rank could read nothing: a node may not see the data."""
    for part in parts:
        if part.trouble or not part.files:
            unread = (
                "its files are not there" if each == VANISHED else each for each in dict.fromkeys(part.unread.values())
            )
            why = part.trouble or ", ".join(unread) or "no file could be read in the agreed time"
            raise BadValue(
                f"rank {part.rank} on {places[part.rank].host} read nothing: {why}",
                hint="put the files on storage that all nodes mount at the same path, more of them than readers",
            )
