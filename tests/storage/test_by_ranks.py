"""Ranks that read at once: disjoint shards, a common window, and troubles by host."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthPhase, Engine
from loaderprobe.records.ranks import ReadTogether
from loaderprobe.storage.by_ranks import RankReader, RanksStep, climb, read_step
from loaderprobe.storage.files import Piece, encoded_pieces
from loaderprobe.storage.reader import Reading, ReadOrder
from loaderprobe.testing.fakes import FakeClock, FakePageCache, example_location
from loaderprobe.testing.ranks import FakeGroup

SIZE = 100_000


@dataclass
class PacedEngine:
    """Reads a file every so many ms without a disk, and remembers which."""

    file_ms: float
    full_s: float | None = None
    """When it has no more work; None: at the end of its order."""
    trouble: OSError | None = None
    read_paths: list[list[Path]] = field(default_factory=list)
    name: Engine = "threads"
    least_s: float = 0.1

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """As many files as fit into the order."""
        if self.trouble:
            raise self.trouble
        count = int((self.full_s or order.seconds) * 1e3 / self.file_ms)
        self.read_paths.append([piece.path for piece in pieces])
        end_ns = np.arange(1, count + 1) * round(self.file_ms * 1e6)
        same, took = np.ones(count, np.int64), round(self.file_ms * 1e6)
        return Reading(
            seconds=order.seconds, end_ns=end_ns, size_bytes=same * SIZE, read_ns=same, piece_ns=same * took,
            ios=count, delivered_bytes=count * SIZE, taken=count, full_ns=round((self.full_s or order.seconds) * 1e9),
        )  # fmt: skip


def climbed(engines: Sequence[PacedEngine], *steps: RanksStep) -> list[BandwidthPhase]:
    """The phases of these ranks, each on a host of its own and in a thread of its own."""
    pieces = tuple(Piece(path=Path(f"/data/{number}.jpg"), offset=0, size_bytes=SIZE) for number in range(40))
    location = replace(example_location("/data"), kind="fuse", devices=())

    def read(step: RanksStep) -> BandwidthPhase:
        asked = ReadTogether(
            pieces=encoded_pieces(pieces), location=location,
            places=tuple((f"node{rank}", rank) for rank in range(step.ranks)), readers=step.readers, seconds=2.0,
            seed=0, cores=4,
        )  # fmt: skip
        readers = [
            RankReader(asked, group, FakePageCache(), engine)
            for group, engine in zip(FakeGroup.of(step.ranks), engines, strict=False)
        ]
        with ThreadPoolExecutor(step.ranks) as pool:
            first, *others = [pool.submit(read_step, reader) for reader in readers]
        assert all(other.result() is None for other in others)
        phase = first.result()
        assert phase is not None
        return phase

    phases, interrupted = climb(steps, read, lambda *_: None, clock=FakeClock())
    assert not interrupted
    return phases


def step(ranks: int, readers: int = 2) -> RanksStep:
    """Each rank on a node of its own."""
    return RanksStep(ranks=ranks, nodes=ranks, readers=readers)


@pytest.mark.parametrize(
    ("engines", "together", "in_step", "last_done", "fairness", "slowest"),
    [
        ([PacedEngine(10.0)], 10, 10, 10, 1.0, None),
        ([PacedEngine(10.0) for _ in range(3)], 30, 30, 30, 1.0, None),
        # 10 + 10 + 4 MB/s, where one path is slow.
        ([PacedEngine(10.0), PacedEngine(10.0), PacedEngine(25.0)], 24, 12, 24, 0.4, (2, "node2")),
        # A shard ends after half the time: what the other reads alone counts for last done only.
        ([PacedEngine(10.0, full_s=1.0), PacedEngine(10.0)], 20, 20, 15, 1.0, None),
    ],
)
def test_rates_of_ranks_are_of_the_time_in_which_all_read(
    engines: list[PacedEngine], together: float, in_step: float, last_done: float, fairness: float,
    slowest: tuple[int, str] | None,
) -> None:  # fmt: skip
    """In MB/s: their sum, that of ranks that wait for the slowest, and over the time until the last is done."""
    (phase,) = climbed(engines, step(len(engines)))
    assert phase.bw_bytes == pytest.approx(together * 1e6, rel=0.02)
    if len(engines) > 1:
        assert phase.in_step_bw_bytes == pytest.approx(in_step * 1e6, rel=0.02)
        assert phase.last_done_bw_bytes == pytest.approx(last_done * 1e6, rel=0.02)
        assert phase.fairness == pytest.approx(fairness, abs=0.01)
    assert phase.files_per_s == pytest.approx(together * 10, rel=0.02) and phase.settled
    assert [each.host for each in phase.by_rank] == [f"node{rank}" for rank in range(len(engines))]
    assert (phase.cache, phase.cold_fraction) == ("unproved", None)
    if slowest:
        assert phase.slowest and (phase.slowest.rank, phase.slowest.host) == slowest


def test_reading_that_is_over_at_once_is_refused_with_the_files_that_are_needed() -> None:
    """5 ms of 2 s in each run, 40 times: a tenth of what is needed, and some margin."""
    with pytest.raises(BadValue, match=r"2 ranks with 20 files each read for 3\.75 ms at a time") as caught:
        climbed([PacedEngine(1.0, full_s=0.005), PacedEngine(1.0)], step(2))
    assert caught.value.hint.startswith("give some 270 files")


def test_a_rank_that_reads_nothing_is_named_with_its_host() -> None:
    """And the others are let go."""
    with pytest.raises(BadValue, match="rank 1 on node1 read nothing: Stale file handle"):
        climbed([PacedEngine(10.0), PacedEngine(10.0, trouble=OSError("Stale file handle"))], step(2))
