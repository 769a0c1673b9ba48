"""The exchange of gradients of a user's own models."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.compute.step import ExchangingStep, step_in_ranks
from loaderprobe.protocols import ComputeArguments
from loaderprobe.testing import FakeClock, example_config


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
    config = example_config()
    arguments = ComputeArguments(spec=config.compute, loader=config.loader, clock=FakeClock())
    for known in (models, models[::-1]):
        monkeypatch.setattr(gc, "get_objects", lambda known=known: known)
        made = step_in_ranks(lambda _: None, arguments)
        assert isinstance(made, ExchangingStep)
        assert [bucket.numel() for bucket, _ in made._buckets] == [10, 40]
