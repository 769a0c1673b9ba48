"""The files of ranks stay small, and keep what verdicts are made from."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import ranks_view
from loaderprobe.errors import DamagedRun
from loaderprobe.records.measurement import Measurement
from loaderprobe.store.rank_files import MOST_SEGMENTS, expanded, read_rank, shortened, write_ranks
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import alike

A_ROUND = 8
"""Segments."""


def measured(segments: int) -> Measurement:
    """Of four ranks, the last of which is slow, with so many segments or a few more; figures have all their digits."""
    rounds = -(-segments // A_ROUND)
    made = rank_run(
        alike(rounds, training=88.0, baseline=86.0, warm=90.0, cached_samples=868.0, no_transport=88.0),
        alone=(114.0, 113.0, 112.0, 37.0), without={3: 229.0, 1: 72.0}, ranks=4, nodes=2,
    )  # fmt: skip
    drawn, count = random.Random(0), len(made.segments)

    def digits(figures: int) -> tuple[int, ...]:
        return tuple(drawn.randrange(10 ** (figures - 1), 10**figures) for _ in range(count))

    seen = [replace(each, input_ns=digits(9), meet_ns=digits(9)) for each in made.by_rank]
    return replace(made, by_rank=tuple(seen))


def sizes(path: Path, of: Measurement) -> list[int]:
    """Bytes of each rank's file."""
    write_ranks(path / "key.json", of)
    return [(path / "key" / f"rank-{rank}.json").stat().st_size for rank in range(of.ranks)]


@pytest.mark.parametrize("segments", [MOST_SEGMENTS - A_ROUND, 200])
def test_a_rank_takes_at_most_4_kb(segments: int, tmp_path: Path) -> None:
    """Of 200 segments too; the first, the slowest and the middle one then keep all they have, and of few all do."""
    made = measured(segments)
    found = sizes(tmp_path, made)
    kept = [shortened(each, made.segments) == each for each in made.by_rank]
    assert all(kept) == (segments != 200)
    assert found[2] <= 4096
    assert (max(found) > 4096) == (segments == 200)


def test_what_is_kept_of_many_segments_gives_the_same_verdict(tmp_path: Path) -> None:
    """Rates alone stay by round, sums of bytes and the usual times as they were."""
    many = measured(200)
    sizes(tmp_path, many)
    back = replace(many, by_rank=tuple(read_rank(tmp_path / "key.json", rank, many) for rank in range(4)))
    assert back.by_rank[0] == many.by_rank[0] and back.by_rank[2] != many.by_rank[2]
    for ours, theirs in zip(back.by_rank, many.by_rank, strict=True):
        assert len(ours.steps) == len(many.segments)
        assert sum(each or 0 for each in ours.read_bytes) == pytest.approx(sum(each or 0 for each in theirs.read_bytes))
    found, before = verdict(back), verdict(many)
    assert found.bound == before.bound and found.speedups == before.speedups
    shown = [ranks_view(back, found), ranks_view(many, before)]
    first, second = ([row.alone_images_per_s for row in each.rows] for each in shown if each)
    assert first == second


def test_shortening_twice_changes_nothing() -> None:
    """As where rounds are added to a measurement that was kept."""
    many = measured(200)
    once = expanded(shortened(many.by_rank[2], many.segments), many.segments)
    assert expanded(shortened(once, many.segments), many.segments) == once


def test_a_file_of_another_measurement_is_damaged(tmp_path: Path) -> None:
    """By its number of segments."""
    sizes(tmp_path, measured(200))
    with pytest.raises(DamagedRun, match="another measurement"):
        read_rank(tmp_path / "key.json", 2, measured(80))
