"""The ranks of a training: the store that they meet by, and a group of our own over it.

The group is gloo's, whatever is trained over. A script's own groups are neither used nor counted up, and ours still
works after the script has left them.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from loaderprobe.errors import LostRank
from loaderprobe.loaders.store import client_of
from loaderprobe.protocols import SharedStore
from loaderprobe.records.place import Place
from loaderprobe.units import join_words

JOIN_S = 60.0
"""For all ranks to come to the group."""
STEP_S = 300.0
"""For all ranks to end a step: one may validate, or save, while the others wait."""
LEAVING_S = 10.0
"""For the others to come to a rank whose script ends."""
PREFIX = "loaderprobe"
OTHERS_S = 0.8
"""For the others to say that they lost a rank, too: who does not is the one that is lost."""
OF_CONNECTIONS = ("Connection closed", "Connection reset", "Broken pipe", "imed out", "NCCL")
OF_GROUPS = ("gloo", "nccl")
"""Who says it: a storage on a network uses the same words."""
OF_USE = ("invalid usage", "invalid argument", "out of memory", "Duplicate GPU")
"""NCCL's words for what is no rank's absence."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPlace:
    """This process among the ranks of a configuration."""

    crew: GlooCrew
    """For what ranks agree on."""
    device: GlooCrew
    """For the device alone."""
    store: SharedStore
    """For groups of the device's own."""


def joined_at(place: Place, *, join_s: float | None = None) -> AtPlace:
    """Meet the other ranks by the store that the place names. Raises LostRank where not all come.

    They have `join_s` seconds, and as long as for a step unless it is given.

    To be called once workers have been started, which would hold the connections open. Nothing is read from the
    environment: under torchrun that makes every rank wait for a server which no process starts.
    """
    lost = _joined(place, "lost").store
    crew, device = (
        GlooCrew(_joined(place, name), join_s=join_s or place.timeout_s, step_s=place.timeout_s, lost=lost)
        for name in ("agreement", "device")
    )
    return AtPlace(crew=crew, device=device, store=_joined(place, "gradients").store)


def store_at(place: Place, name: str) -> Any:
    """torch's store at a place, with a client and keys of its own. Raises LostRank where there is none."""
    return _joined(place, name).store


def _joined(place: Place, name: str) -> Joined:
    """With a client of its own: one that waits in a thread holds up all that use it."""
    try:
        client = client_of(place.address, place.port, place.timeout_s)
    except (RuntimeError, ValueError) as error:
        raise _lost(error) from error
    return Joined(rank=place.rank, size=place.size, store=_below(f"{place.prefix}/{name}", client))


class GlooCrew:
    """A `Crew` over gloo. Once a rank is lost, no call waits any more."""

    def __init__(
        self, joined: Joined, *, join_s: float = JOIN_S, step_s: float = STEP_S, lost: SharedStore | None = None
    ) -> None:
        """Raises LostRank where not all come. `lost` is where ranks say that they lost another; it outlives them."""
        self._rank, self._size, self._lost = joined.rank, joined.size, ""
        self._step_s, self._store = step_s, lost
        store = _below("group", joined.store)
        try:
            self._group: Any = dist.ProcessGroupGloo(store, self._rank, self._size, timedelta(seconds=join_s))
        except (RuntimeError, ValueError) as error:
            raise _lost(error, self._missing()) from error

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
        self._wait(lambda: self._group.allreduce([given], options), options, LEAVING_S if leaving else self._step_s)
        return tuple(given.tolist())

    def gathered(self, value: bytes) -> tuple[bytes, ...]:
        """What each rank gives, on rank 0; raises LostRank."""
        given = _packed(value, self.most(len(value))[0])
        options = dist.GatherOptions()
        options.rootRank = 0
        all_ = [torch.zeros_like(given) for _ in range(self._size)] if self._rank == 0 else []
        self._wait(lambda: self._group.gather([all_] if all_ else [], [given], options), options, self._step_s)
        return tuple(map(_unpacked, all_))

    def broadcast(self, value: bytes) -> bytes:
        """What rank 0 gives; raises LostRank."""
        mine = value if self._rank == 0 else b""
        given = _packed(mine, self.most(len(mine))[0])
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._wait(lambda: self._group.broadcast([given], options), options, self._step_s)
        return _unpacked(given)

    def _wait(self, begin: Any, options: Any, seconds: float) -> None:
        if self._lost:
            raise LostRank(self._lost)
        options.timeout = timedelta(seconds=seconds)
        try:
            begin().wait()
        except RuntimeError as error:
            lost = _lost(error, self._missing())
            self._lost = lost.message
            raise lost from error

    def lost_by(self, error: Exception) -> LostRank | None:
        """What an error of another group of these ranks means; None where it is no lost connection, and no timeout."""
        text, from_torch = str(error), isinstance(error, dist.DistError)
        if not any(word in text for word in OF_CONNECTIONS) or any(word in text for word in OF_USE):
            return None
        if text.startswith("Caught ") or not (from_torch or any(word in text.lower() for word in OF_GROUPS)):
            return None
        return _lost(error, self._missing())

    def _missing(self) -> list[int]:
        """The ranks that do not say either that they lost another; empty where that is not known."""
        if self._store is None:
            return []
        missing, until_s = set(range(self._size)) - {self._rank}, time.monotonic() + OTHERS_S
        try:
            self._store.set(f"lost/{self._rank}", "1")
            while missing and time.monotonic() < until_s:
                missing = {rank for rank in missing if not self._store.check([f"lost/{rank}"])}
                time.sleep(OTHERS_S / 20)
        except RuntimeError:  # the store has gone as well
            return []
        return sorted(missing)


def _below(prefix: str, store: Any) -> Any:
    """The same store; its keys begin with `prefix`."""
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]  # torch does not list it


def _lost(error: Exception, missing: Sequence[int] = ()) -> LostRank:
    # Of gloo's words, without the line of its source before them and its advice after.
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    words = re.sub(r"^\[[^]]*\] *", "", first)
    numbers = join_words([str(each) for each in missing])
    who = f": rank{'s' * (len(missing) > 1)} {numbers}" if missing else ""
    return LostRank(f"another rank has gone, or does not answer{who} ({words})", hint="see what that rank printed")


def _packed(value: bytes, longest: int) -> torch.Tensor:
    """Its length and its bytes, as long as the longest."""
    whole = len(value).to_bytes(_LENGTH, "big") + value.ljust(longest, b"\0")
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8)


def _unpacked(given: torch.Tensor) -> bytes:
    whole = given.numpy().tobytes()
    return whole[_LENGTH : _LENGTH + int.from_bytes(whole[:_LENGTH], "big")]
