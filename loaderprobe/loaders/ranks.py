"""The ranks of a training, as torch.distributed joined them: the store they met by, and a group of our own beside it.

The group is gloo's, whatever the script trains over. The script's own groups are neither used nor counted up, and ours
still works after the script has left them.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from loaderprobe.errors import LostRank
from loaderprobe.protocols import SharedStore

JOIN_S = 60.0
"""For all ranks to come to the group."""
STEP_S = 300.0
"""For all ranks to end a step: one may validate, or save, while the others wait."""
LEAVING_S = 10.0
"""For the others to come to a rank whose script ends."""
PREFIX = "loaderprobe"
_times = itertools.count()
"""Each measurement of a process has keys of its own in the store; ranks of one training count alike."""
_LENGTH = 8
"""Bytes before a value that say how long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """This process as one of several ranks."""

    rank: int
    size: int
    store: SharedStore


def joined_ranks() -> Joined | None:
    """None where this process has joined no other."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return Joined(
        rank=dist.get_rank(),
        size=dist.get_world_size(),
        store=_below(f"{PREFIX}/{next(_times)}", dist.distributed_c10d._get_default_store()),
    )


class GlooCrew:
    """A `Crew` over gloo. Once a rank is lost, no call waits any more."""

    def __init__(self, joined: Joined) -> None:
        """Raises LostRank where not all come."""
        self._rank, self._size, self._lost = joined.rank, joined.size, ""
        store = _below("group", joined.store)
        try:
            self._group: Any = dist.ProcessGroupGloo(store, self._rank, self._size, timedelta(seconds=JOIN_S))
        except (RuntimeError, ValueError) as error:
            raise _lost(error) from error

    @property
    def rank(self) -> int:
        """From 0."""
        return self._rank

    @property
    def size(self) -> int:
        """Of all ranks."""
        return self._size

    def most(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        """Of each value the largest; raises LostRank."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        # A script may have set another device to make tensors on.
        given = torch.tensor(values, dtype=torch.int64, device="cpu")
        self._wait(lambda: self._group.allreduce([given], options), options, LEAVING_S if leaving else STEP_S)
        return tuple(given.tolist())

    def gathered(self, value: bytes) -> tuple[bytes, ...]:
        """What each rank gives, on rank 0; raises LostRank."""
        given = _packed(value, self.most(len(value))[0])
        options = dist.GatherOptions()
        options.rootRank = 0
        all_ = [torch.zeros_like(given) for _ in range(self._size)] if self._rank == 0 else []
        self._wait(lambda: self._group.gather([all_] if all_ else [], [given], options), options, STEP_S)
        return tuple(map(_unpacked, all_))

    def broadcast(self, value: bytes) -> bytes:
        """What rank 0 gives; raises LostRank."""
        mine = value if self._rank == 0 else b""
        given = _packed(mine, self.most(len(mine))[0])
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._wait(lambda: self._group.broadcast([given], options), options, STEP_S)
        return _unpacked(given)

    def _wait(self, begin: Any, options: Any, seconds: float) -> None:
        if self._lost:
            raise LostRank(self._lost)
        options.timeout = timedelta(seconds=seconds)
        try:
            begin().wait()
        except RuntimeError as error:
            lost = _lost(error)
            self._lost = lost.message
            raise lost from error


def _below(prefix: str, store: Any) -> Any:
    """The same store; its keys begin with `prefix`."""
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]  # torch does not list it


def _lost(error: Exception) -> LostRank:
    # Of gloo's words, without the line of its source before them and its advice after.
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    words = re.sub(r"^\[[^]]*\] *", "", first)
    return LostRank(f"another rank has gone, or does not answer ({words})", hint="see what that rank printed")


def _packed(value: bytes, longest: int) -> torch.Tensor:
    """Its length and its bytes, as long as the longest."""
    whole = len(value).to_bytes(_LENGTH, "big") + value.ljust(longest, b"\0")
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8)


def _unpacked(given: torch.Tensor) -> bytes:
    whole = given.numpy().tobytes()
    return whole[_LENGTH : _LENGTH + int.from_bytes(whole[:_LENGTH], "big")]
