"""A training of several ranks, started by a launcher: `ranks.py WAY`. The ways are what its ranks do unlike.

`make_loader` makes the loader and the step of one rank, as scripts of DistributedDataParallel do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from tests.examples.training import BATCH, SAMPLES, Costly

STEPS = 48
"""After which a training ends by itself."""
MOST_STEPS = 20_000
"""The same where a measurement has ended it long before."""


class Once(IterableDataset[tuple[torch.Tensor, int]]):
    """Samples without end, which can be begun only once: no measurement can begin them again."""

    begun = False

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        if self.begun:
            raise RuntimeError("begun before")
        self.begun = True
        while True:
            yield torch.ones(10), 0


def loader_of(way: str, rank: int) -> Iterable[Any]:
    """Of one rank."""
    data = Costly(samples=2 * SAMPLES)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    if rank == 0 or way in ("plain", "short"):
        return DataLoader(data, BATCH, sampler=sampler)
    if way == "batch_sizes":
        return DataLoader(data, 2 * BATCH, sampler=sampler)
    if way == "refuses":
        return DataLoader(Once(), BATCH)
    assert way == "no_loader"
    return [(torch.ones(BATCH, 10), torch.zeros(BATCH).long())] * STEPS


def train(way: str) -> int:
    """In step with the other ranks, until a measurement ends it; or the number of steps after which it ended."""
    rank, steps, limit = dist.get_rank(), 0, MOST_STEPS if way == "plain" else STEPS
    loader = loader_of(way, rank)
    model = DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == limit:
                return steps


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


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    sys.stdout.write(f"rank {dist.get_rank()} ended by itself after {train(sys.argv[1])} steps\n")
    dist.destroy_process_group()
