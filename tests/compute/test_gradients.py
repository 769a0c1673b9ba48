"""The exchange of gradients: by two gloo ranks, on, off, and alone; and of a user's own models."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.compute.step import ExchangingStep, step_in_ranks
from loaderprobe.compute.torch import Gradients
from loaderprobe.protocols import Peers
from loaderprobe.testing import FakeClock, example_arguments
from tests.warm import in_two_ranks

LONGEST_S = 60.0


def exchanges(rank: int, scratch: Path) -> None:
    """One rank, whose gradients are 1 on rank 0 and 2 on rank 1 by themselves."""
    store: Any = dist.FileStore(str(scratch / "store"), 2)  # type: ignore[attr-defined]  # torch does not list it
    group: Any = SimpleNamespace(rank=rank, size=2)
    peers = Peers(group=group, local_rank=rank, cores=1.0, store=store, timeout_s=LONGEST_S)
    model = torch.nn.Linear(4, 1, bias=False)
    gradients = Gradients(torch.device("cpu"), peers)
    wrapped = gradients.exchanged_by(model)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        wrapped(torch.full((1, 4), 1.0 + rank)).sum().backward()

    found = []
    for on in (True, False, True):
        gradients.exchanged = on
        gradients.step(train)
        assert model.weight.grad is not None
        found.append(float(model.weight.grad[0, 0]))
    gradients.exchange_alone()
    (scratch / f"rank-{rank}.json").write_bytes(msgspec.json.encode(found))


def test_gradients_are_exchanged_unless_that_is_off(tmp_path: Path, python: str) -> None:
    """With it, each rank has the mean of both; without, its own."""
    in_two_ranks(python, exchanges, tmp_path)
    found = [msgspec.json.decode((tmp_path / f"rank-{rank}.json").read_bytes()) for rank in range(2)]
    assert found == [[1.5, 1.0, 1.5], [1.5, 2.0, 1.5]]


@pytest.fixture
def models() -> Iterator[list[DistributedDataParallel]]:
    """Of different sizes, in a group of one."""
    store: Any = dist.HashStore()  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield [DistributedDataParallel(torch.nn.Linear(4, outputs)) for outputs in (8, 2)]
    dist.destroy_process_group()


def test_all_ranks_exchange_models_in_the_same_order(
    models: list[DistributedDataParallel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever order the collector of a rank has them in: else their sizes would not match."""
    for known in (models, models[::-1]):
        monkeypatch.setattr(gc, "get_objects", lambda known=known: known)
        made = step_in_ranks(lambda _: None, example_arguments(FakeClock()))
        assert isinstance(made, ExchangingStep)
        assert [bucket.numel() for bucket, _ in made._buckets] == [10, 40]
