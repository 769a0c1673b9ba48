"""What belongs to one node, and not to all ranks: cores, the ceiling of its storage, GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from loaderprobe.api.policy import JUDGING
from loaderprobe.compute.torch import gpu_of
from loaderprobe.errors import MissingPart
from loaderprobe.measure import child
from loaderprobe.measure.ceilings import Ceilings
from loaderprobe.measure.ranks.child import cores_of
from loaderprobe.records.ranks import Place
from loaderprobe.system.limits import cores_available
from loaderprobe.testing import FakeGroup, example_config


@pytest.mark.parametrize(("node_of", "sharing"), [(lambda _: 0, 4), (lambda rank: rank // 2, 2)])
def test_ranks_of_one_node_share_its_cores(node_of: Callable[[int], int], sharing: int) -> None:
    """Evenly; containers on two nodes may have the same host name."""
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda group: cores_of(group, node_of(group.rank)), FakeGroup.of(4)))
    assert found == [cores_available() / sharing] * 4


def test_one_node_measures_no_ceiling_of_several() -> None:
    """What it gets alone is less than all get together."""
    run: Any = None
    order: Any = SimpleNamespace(config=replace(example_config(), ranks=4, nodes=2))
    Ceilings(run=run, judging=JUDGING).after(order, order)


class OnlyGpu(Exception):
    """What is seen of GPUs when the loader starts."""


@pytest.mark.parametrize(
    ("compute", "shown", "seen"),
    [
        ("cuda", None, "2"),
        ("cuda:1", None, "3"),
        ("cuda", "7,6,5", "5"),
        ("cuda", "7", "7"),
        ("emulated:100", None, None),
    ],
)
def test_a_rank_sees_its_own_gpu_before_its_loader_starts(
    compute: str, shown: str | None, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread that pins memory uses the first GPU it sees, and starts before the device chooses one."""

    def make_loader(*_: Any) -> Any:
        raise OnlyGpu(os.environ.get("CUDA_VISIBLE_DEVICES"))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setattr(child, "list_gpus", lambda: (("a", "b", "c", "d"), None))
    monkeypatch.setattr(child, "make_loader", make_loader)
    shard: Any = SimpleNamespace(root="/")
    order: Any = SimpleNamespace(
        config=example_config(compute=compute, ranks=3), files=SimpleNamespace(shard=lambda *_: shard), earlier=None,
        place=Place(rank=2, size=3, node=0, local_rank=2, local_size=3, address="a", port=1, prefix="p"),
    )  # fmt: skip
    with pytest.raises(OnlyGpu) as raised:
        child.measure(order, Path("/"), lambda *_: None, JUDGING)
    assert raised.value.args == (seen,)


@pytest.mark.parametrize(("first", "gpus", "number"), [(0, 1, 0), (2, 1, 0), (0, 4, 2), (1, 4, 3)])
def test_the_device_of_a_rank_is_the_only_one_it_sees(
    first: int, gpus: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several, those of a node's ranks follow each other; without ranks it is the one that is asked for."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    peers: Any = SimpleNamespace(local_rank=2)
    assert gpu_of(first, peers) == number and gpu_of(first, None) == first
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(MissingPart, match="rank 2 of this node has no GPU"):
        gpu_of(0, peers)
