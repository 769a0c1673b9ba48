"""Trainings of two gloo ranks, each in a process that no launcher named: measured together, or left alone."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist

from tests.examples.ranks import STEPS, train

LONGEST_S = 60.0


def trains(rank: int, way: str, scratch: Path) -> None:
    """One rank: what it found, or why not, and after how many steps it ended by itself."""
    import loaderprobe

    torch.set_num_threads(1)
    store = dist.FileStore(str(scratch / "store"), 2)  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    steps = 0
    with loaderprobe.attached(budget_s=0.5) as found:
        steps = train(way)
    told = {"reason": found.reason, "steps": steps}
    (scratch / f"rank-{rank}.json").write_bytes(msgspec.json.encode(told))
    dist.destroy_process_group()


def found_by(way: str, scratch: Path) -> list[dict[str, Any]]:
    """What the two ranks tell."""
    context = multiprocessing.get_context("forkserver")
    ranks = [context.Process(target=trains, args=(rank, way, scratch)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LONGEST_S)
        assert rank.exitcode == 0
    return [msgspec.json.decode((scratch / f"rank-{rank}.json").read_bytes()) for rank in range(2)]


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("refuses", "begun before"),
        ("no_loader", "rank 1 took no batches from a torch DataLoader"),
        ("batch_sizes", "the loader of rank 1 has another batch size than that of rank 0"),
    ],
)
def test_where_one_rank_cannot_be_measured_all_go_on(way: str, says: str, tmp_path: Path) -> None:
    """To their own ends; rank 0 has the reason."""
    first, second = found_by(way, tmp_path)
    assert says in first["reason"] and "trains with rank 0" in second["reason"]
    assert first["steps"] == second["steps"] == STEPS


def test_a_training_may_end_within_the_measurement(tmp_path: Path) -> None:
    """On all ranks; none waits for another."""
    first, second = found_by("short", tmp_path)
    assert "ended before a round was measured" in first["reason"]
    assert first["steps"] == second["steps"] == STEPS
