"""Ranks over torch's own gloo and its store, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from loaderprobe.errors import LostRank
from loaderprobe.loaders import ranks
from loaderprobe.loaders.ranks import GlooGroup, RankGroups, join_groups
from loaderprobe.measure.collectives import Collectives
from loaderprobe.records.rank_processes import RankPlacement
from tests.measure.scripted import in_threads


@pytest.fixture(scope="module")
def port() -> int:
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        "127.0.0.1", 0, None, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20)
    )
    _STORES.append(store)
    return int(store.port)


_STORES: list[Any] = []


def placed(rank: int, size: int, **at: Any) -> RankPlacement:
    """On one node, where nothing else is given."""
    return RankPlacement(**{"rank": rank, "size": size, "node": 0, "local_rank": rank, "local_size": size, **at})


def on_ranks(port: int, prefix: str, size: int, each: Callable[[int, RankGroups], Any]) -> list[Any]:
    """What `each(rank, joined)` returns or raises on every rank."""
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        placement = placed(rank, size, address="127.0.0.1", port=port, prefix=prefix, timeout_s=10.0)
        try:
            found[rank] = each(rank, join_groups(placement))
        except LostRank as error:
            found[rank] = error

    in_threads(partial(run, rank) for rank in range(size))
    return found


def test_three_ranks_agree_by_the_store_of_their_place(port: int) -> None:
    """On numbers and on bytes of any length; the device has a group of its own."""

    def agrees(rank: int, at: RankGroups) -> tuple[Any, ...]:
        on = Collectives(at.group)
        told = on.agree(100 + rank), on.least(None if rank == 2 else rank), on.ends(rank == 1)
        return *told, on.ascending(-rank), at.device.all_reduce_max(rank), at.group.gather(b"x" * rank)

    first, *others = on_ranks(port, "agree", 3, agrees)
    assert first == (100, 0, False, (2, 1, 0), (2,), (b"", b"x", b"xx"))
    assert all(each == (*first[:-1], ()) for each in others)


def test_a_rank_that_has_gone_is_named_by_the_others(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say so in the store; it does not."""
    monkeypatch.setattr(ranks, "OTHERS_S", 0.3)

    def leaves(rank: int, at: RankGroups) -> None:
        at.group.all_reduce_max(0)
        if rank != 1:
            at.group._step_s = 0.2
            at.group.all_reduce_max(0)
        else:
            _STORES.append(at)

    first, gone, third = on_ranks(port, "lost", 3, leaves)
    assert gone is None
    for error in (first, third):
        assert isinstance(error, LostRank)
        assert "does not answer: rank 1 (" in error.message


@pytest.mark.parametrize(
    ("text", "of_ranks"),
    [
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:1", True),
        ("NCCL error: remote process exited or there was a network error", True),
        ("NCCL error in: x.cpp:3, invalid usage, NCCL version 2.27\nDuplicate GPU detected : rank 0 and rank 1", False),
        ("Caught ReadTimeoutError in DataLoader worker process 0.\nRead timed out.", False),
        ("[Errno 110] Connection timed out: '/mnt/data/1.jpg'", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)  # fmt: skip
def test_only_errors_of_groups_mean_a_lost_rank(text: str, of_ranks: bool) -> None:
    """A storage on a network fails in the same words, and NCCL also says what no other rank has to do with."""
    group = object.__new__(GlooGroup)
    group._store = None
    assert (group.lost_by(RuntimeError(text)) is not None) == of_ranks


@pytest.mark.parametrize(("set_", "count"), [({}, "0"), ({"TORCHELASTIC_RESTART_COUNT": "2"}, "2")])
def test_code_may_read_torchruns_variables(set_: dict[str, str], count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the rank, and all of its numbers are numbers."""
    joined: list[dict[str, Any]] = []
    for module in (dist, dist.distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", lambda *_, **given: joined.append(given))
    monkeypatch.setattr(ranks, "_member", lambda *given: SimpleNamespace(rank=3, size=4, store=given))
    placement = placed(3, 4, node=1, local_rank=1, local_size=2, address="head", port=4000, prefix="ranks")
    variables = {**set_, "RANK": "0", "LOCAL_RANK": "0"}
    ranks.join_group(placement, variables)
    assert variables["TORCHELASTIC_RESTART_COUNT"] == count
    numbers = {name: int(value) for name, value in variables.items() if name.endswith(("RANK", "SIZE", "COUNT"))}
    assert (numbers["RANK"], numbers["LOCAL_RANK"], numbers["GROUP_RANK"], numbers["GROUP_WORLD_SIZE"]) == (3, 1, 1, 2)
    assert joined == [{"store": (placement, "own"), "rank": 3, "world_size": 4}]
