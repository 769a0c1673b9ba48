"""The probe by ranks: each reads its own shard after a common start, for an agreed time; rank 0 says what is next.

Shards are disjoint, so no rank evicts or warms what another reads. Each rank's times are those of its own clock, from
the meeting of all on: between ranks only durations are compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
import numpy as np

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.policy import Ask, Fixed, follow
from loaderprobe.protocols import Clock, Crew, PageCache
from loaderprobe.records import values
from loaderprobe.records.bandwidth import Engine, RankRead, RanksPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.storage.files import Piece, Sample, decoded_pieces, encoded_pieces
from loaderprobe.storage.phase import MOST_ROUNDS, PhaseSettings, Total, more, own_reads, run_phase
from loaderprobe.storage.probe import LONGEST, OnPhase
from loaderprobe.storage.reader import (
    VANISHED,
    Column,
    Order,
    ReadEngine,
    Reading,
    Supply,
    ThreadEngine,
    decoded,
    encoded,
    slices_until,
    together,
)
from loaderprobe.units import format_duration, significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one rank reports of one run of reads."""

    rank: int
    """Among those that read; -1 for one that does not."""
    reading: Reading
    """Its slices are those while all read, the same stretches on all ranks; its times are of some pieces only."""
    trouble: str = ""
    """An error that ended the run."""


def _rank(rank: int, where: Whereabouts, runs: Sequence[Sequence[Part]]) -> RankRead:
    own = Total()
    for run in runs:
        reading = run[rank].reading
        own.add(reading, reading.slices, counted=reading.counted)
    return RankRead(
        rank=rank,
        node=where.node,
        host=where.host,
        bw_bytes=own.bw_bytes,
        io_bytes=own.delivered_bytes,
        seconds=own.seconds,
        storage_bytes=own.counted["own"],
    )


LEAST_SHARE = 0.25
"""Of the time that is asked for, all ranks must read together for this much, however often they begin again."""
NOT_READING = -(2**62)
NO_TIMES: Column = np.empty(0, np.int64)
MOST_TIMES = 2000
"""Times of single files that a rank sends after a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStep:
    """One step of the ladder."""

    seats: tuple[int, ...]
    """The ranks of the crew that read; the first of them has the first shard."""
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

    crew: Crew
    cache: PageCache
    engine: ReadEngine = field(default_factory=ThreadEngine)
    counts_reads: bool = True
    """False where nothing counts what this process reads from storage."""
    pieces: tuple[Piece, ...] = ()

    def follow(self, here: Whereabouts) -> int:
        """Take part until rank 0 ends it; returns the exit code. Raises LostRank when a rank has gone."""
        found = json.loads(self.crew.broadcast(b""))
        if "exit_code" in found:
            return int(found["exit_code"])
        self.counts_reads = found["counts_reads"]
        self.pieces = decoded_pieces(self.crew.broadcast(b""))
        self.crew.gathered(msgspec.json.encode(here))
        while (turn := msgspec.json.decode(self.crew.broadcast(b""), type=Turn)).kind == "read":
            self.take_turn(turn)
        return turn.exit_code

    def begin(self, sample: Sample, here: Whereabouts) -> tuple[Whereabouts, ...]:
        """Rank 0: tell all which pieces there are; returns where each rank is."""
        self.pieces = sample.pieces
        self.crew.broadcast(json.dumps({"counts_reads": self.counts_reads}).encode())
        self.crew.broadcast(encoded_pieces(sample.pieces))
        found = self.crew.gathered(msgspec.json.encode(here))
        return tuple(msgspec.json.decode(each, type=Whereabouts) for each in found)

    def refuse(self, exit_code: int) -> None:
        """Rank 0: there is nothing to read."""
        self.crew.broadcast(json.dumps({"exit_code": exit_code}).encode())

    def tell(self, turn: Turn) -> None:
        """Rank 0: say what is next."""
        self.crew.broadcast(msgspec.json.encode(turn))

    def take_turn(self, turn: Turn) -> tuple[Part, ...]:
        """Read if it is this rank's turn, and report; returns, on rank 0, the parts of those that read."""
        step = turn.step
        assert step is not None
        mine = step.seats.index(self.crew.rank) if self.crew.rank in step.seats else None
        shard = () if mine is None else self.pieces[mine :: len(step.seats)]
        supply = None if not shard else self._evicted(shard, turn.seed)
        # All evict before any reads.
        self.crew.most(0)
        reading, read_bytes, trouble = Reading(seconds=0.0), None, ""
        if supply is not None:
            try:
                reading, read_bytes = self._read(supply, Order(readers=step.readers, seconds=turn.seconds))
            except (OSError, LoaderprobeError) as error:
                trouble = str(error)
        full = -reading.full_ns if len(reading.end_ns) else NOT_READING
        until_ns = -self.crew.most(full)[0]
        report = _report(reading, read_bytes, until_ns)
        part = Part(rank=-1 if mine is None else mine, reading=report, trouble=trouble)
        parts = (decoded(each, Part) for each in self.crew.gathered(encoded(part)))
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


def _report(reading: Reading, read_bytes: int | None, until_ns: int) -> Reading:
    """What others need of this rank's reading."""
    every = max(1, len(reading.piece_ns) // MOST_TIMES)
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


@dataclass(slots=True)
class RankEngine:
    """Rank 0's part: implements `ReadEngine` with the ranks of one step, each in its own shard."""

    reader: RankReader
    places: Sequence[Whereabouts]
    """By rank of the crew."""
    step: RanksStep
    least_s: float
    """Seconds of each run."""
    seed: int = 0
    name: Engine = "threads"
    runs: list[tuple[Part, ...]] = field(default_factory=list)

    @property
    def on(self) -> list[Whereabouts]:
        """Of the ranks that read."""
        return [self.places[seat] for seat in self.step.seats]

    def read(self, pieces: Sequence[Piece], order: Order) -> Reading:
        """One run of all. Raises BadValue where a rank reads nothing, or all for too short a time."""
        turn = Turn(kind="read", step=self.step, seconds=order.seconds, seed=self.seed + len(self.runs))
        self.reader.tell(turn)
        parts = self.reader.take_turn(turn)
        _check(parts, self.on)
        self.runs.append(parts)
        self._check_length()
        return replace(together([part.reading for part in parts]), taken=len(pieces))

    def _check_length(self) -> None:
        """Raises BadValue where all read together for too short a time, even if every run were as long as these."""
        ranks = len(self.step.seats)
        each_s = sum(length for run in self.runs for length, _ in run[0].reading.slices) / len(self.runs)
        least_s = LEAST_SHARE * self.least_s
        if each_s * MOST_ROUNDS >= least_s:
            return
        pieces = len(self.reader.pieces)
        needed = math.ceil(2 * pieces * least_s / (each_s * MOST_ROUNDS))
        raise BadValue(
            f"{ranks} rank{'s' * (ranks > 1)} with {pieces // ranks} files each read for {format_duration(each_s)} "
            f"at a time: too short for --seconds {self.least_s:g}",
            hint=f"give some {float(significant(needed, 2)):,.0f} files, or fewer ranks, or a shorter --seconds",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLadder:
    """Rank 0's part: the steps, each read again until its rate has settled."""

    reader: RankReader
    places: Sequence[Whereabouts]
    """By rank of the crew."""
    sample: Sample
    location: StorageLocation
    seconds: float
    cores: float
    """Of a node."""
    seed: int = 0

    def climb(self, steps: Sequence[RanksStep], on_phase: OnPhase, *, clock: Clock) -> tuple[list[RanksPhase], bool]:
        """(the phases of all steps, True when interrupted after the first). The other ranks' parts end with it."""

        def measure(ask: Ask[RanksStep]) -> RanksPhase:
            ranks = len(ask.what.seats)
            text = f"{ranks} rank{'s' * (ranks > 1)}, {ask.what.readers} readers each"
            on_phase(text, round(ask.done), round(ask.total))
            return self._phase(ask.what)

        try:
            results, reason = follow(Fixed(asks=steps), measure, clock=clock, enough=lambda results: bool(results.done))
        except BadValue as error:
            self.reader.tell(Turn(kind="end", exit_code=error.exit_code))
            raise
        # Amid a turn the others do not hear of Ctrl-C: they lose this rank, or are interrupted as well.
        if reason:
            self.reader.tell(Turn(kind="end"))
        return results.found, reason is None

    def _phase(self, step: RanksStep) -> RanksPhase:
        engine = RankEngine(
            reader=self.reader, places=self.places, step=step, least_s=self.seconds, seed=self.seed
        )  # fmt: skip
        nodes = len({where.node for where in engine.on})
        settings = PhaseSettings(
            name="files",
            engine=engine,
            supply=Supply(self.sample, None, seed=self.seed),
            location=self.location,
            cores_available=self.cores * nodes,
            readers=step.readers * len(step.seats),
            seconds=self.seconds,
            longest_s=LONGEST * self.seconds,
        )
        found = run_phase(settings)
        return RanksPhase(
            **values(found),
            ranks=len(step.seats),
            nodes=nodes,
            last_done_bw_bytes=found.io_bytes / (found.runtime / 1e3),
            by_rank=tuple(_rank(rank, where, engine.runs) for rank, where in enumerate(engine.on)),
        )


def _check(parts: Sequence[Part], places: Sequence[Whereabouts]) -> None:
    """Raises BadValue where a rank could read nothing: a node may not see the data."""
    for part in parts:
        if part.trouble or not part.reading.pieces:
            reasons = dict.fromkeys(part.reading.unread.values())
            unread = ("its files are not there" if reason == VANISHED else reason for reason in reasons)
            why = part.trouble or ", ".join(unread) or "no file could be read in the agreed time"
            raise BadValue(
                f"rank {part.rank} on {places[part.rank].host} read nothing: {why}",
                hint="put the files on storage that all nodes mount at the same path, more of them than readers",
            )
