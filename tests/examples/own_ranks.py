"""A function that makes the loader and the step of one of several ranks, as scripts of DistributedDataParallel do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from tests.examples.training import BATCH, Costly


def make_loader() -> tuple[DataLoader[Any], Callable[[Any], None]]:
    """Each rank's own share, and a model whose gradients all exchange."""
    dist.init_process_group("gloo", init_method="env://")
    assert (dist.get_rank(), dist.get_world_size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    data = Costly(sample_s=0.0001)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch: Any) -> None:
        inputs, targets = batch
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return loader, step
