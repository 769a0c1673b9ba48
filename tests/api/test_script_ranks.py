"""Trainings of two gloo ranks, in processes that no launcher named, of which one cannot be measured: both go on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
import torch.distributed as dist

from tests.examples.ranks import STEPS, train
from tests.warm import in_two_ranks

WAYS = {
    "refuses": "begun before",
    "batch_sizes": "the loader of rank 1 has another batch size than that of rank 0",
    "short": "ended before a round was measured",
    # The last, since that rank measures nothing, and so does not count along.
    "no_loader": "rank 1 took no batches from a torch DataLoader",
}
"""To the reason that rank 0 gives."""
Told = dict[str, tuple[str, int]]
"""By way, the reason of a rank and after how many steps it ended by itself."""


def trains(rank: int, scratch: Path) -> None:
    """One rank, in each of the ways."""
    import loaderprobe

    torch.set_num_threads(1)
    store = dist.FileStore(str(scratch / "store"), 2)  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    told: Told = {}
    for way in WAYS:
        with loaderprobe.attached(budget_s=0.5) as found:
            steps = train(way)
        told[way] = found.reason, steps
    (scratch / f"rank-{rank}.json").write_bytes(msgspec.json.encode(told))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, python: str) -> list[Told]:
    """By the two ranks."""
    scratch = tmp_path_factory.mktemp("ranks")
    in_two_ranks(python, trains, scratch)
    return [msgspec.json.decode((scratch / f"rank-{rank}.json").read_bytes(), type=Told) for rank in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_where_one_rank_cannot_be_measured_all_go_on(way: str, told: list[Told]) -> None:
    """To their own ends, in step; rank 0 has the reason."""
    first, second = (each[way] for each in told)
    assert WAYS[way] in first[0]
    assert first[1] == second[1] == STEPS
    assert way == "no_loader" or "trains with rank 0" in second[0]
