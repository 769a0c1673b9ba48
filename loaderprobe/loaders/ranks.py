"""The ranks of a training: the store that they meet by, and a group of our own over it.

The group is gloo's, whatever is trained over. A script's own groups are neither used nor counted up, and ours still
works after the script has left them.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from loaderprobe.errors import LostRank
from loaderprobe.protocols import SharedStore
from loaderprobe.records.ranks import Launched, Place
from loaderprobe.system.launcher import bound_calls
from loaderprobe.units import join_words

# torch's store, by which the processes that a launcher started find each other.

CALL_S = 60.0
"""For the store to answer: it is on another node."""
COME_S = 300.0
"""For the process that holds it to come."""
P = ParamSpec("P")
R = TypeVar("R")


def client_of(address: str, port: int, wait_s: float, *, holds: bool = False) -> Any:
    """A client of torch's TCPStore, which waits so long for it, and for keys. `holds` makes the store itself, here.

    Raises torch's RuntimeError or ValueError where there is none. Where the store no longer answers, a call raises
    RuntimeError after CALL_S.
    """
    # Not torch's env://, which under torchrun takes every process for a client of a store that none holds.
    client = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        address, port, None, is_master=holds, timeout=timedelta(seconds=wait_s), wait_for_workers=False
    )
    # Torch waits without end for an answer; its timeout is for keys.
    bound_calls(port, CALL_S)
    return client


class TorchStore:
    """A `SharedStore`: a client of torch's TCPStore, whose keys begin with a prefix. It serves one thread at a time."""

    def __init__(self, address: str, port: int, prefix: str, *, holds: bool = False) -> None:
        """`holds` makes the store itself, here, of port 0 at any that is free. Raises LostRank where there is none."""
        try:
            client = client_of(address, port, COME_S, holds=holds)
        except (RuntimeError, ValueError) as error:
            raise LostRank(f"no store answers at {address}:{port} ({_first_line(error)})", hint=_HINT) from error
        client.set_timeout(timedelta(seconds=CALL_S))
        self.port = int(client.port)
        self._store: Any = dist.PrefixStore(prefix, client)  # type: ignore[attr-defined]  # torch does not list it

    def set(self, key: str, value: str) -> None:
        _answered(self._store.set, key, value)

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        return bytes(_answered(self._store.get, key))

    def check(self, keys: list[str]) -> bool:
        """True when all are there."""
        return bool(_answered(self._store.check, keys))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set the key if it has the expected value, or none where that is empty; returns the value it has then."""
        return bytes(_answered(self._store.compare_set, key, expected_value, desired_value))


_HINT = "check that all processes run, and that MASTER_ADDR and MASTER_PORT are those of rank 0 and free there"


def _answered(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except RuntimeError as error:
        raise LostRank(f"the store of the ranks does not answer ({_first_line(error)})", hint=_HINT) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def clients(here: Launched, prefix: str) -> tuple[TorchStore, TorchStore]:
    """Two clients of the store, one for each thread. Where the launcher holds none, rank 0 makes it."""
    holds = here.rank == 0 and not here.agent_store
    first = TorchStore(here.address, here.port, prefix, holds=holds)
    return first, TorchStore(here.address, here.port, prefix)


def recorded(body: Callable[P, R]) -> Callable[P, R | None]:
    """The same; an error that it raises is also written where torchelastic's launcher looks for the first one."""
    return record(body)


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

    group: GlooGroup
    """For what ranks agree on."""
    device: GlooGroup
    """For the device alone."""
    store: SharedStore
    """For groups of the device's own."""


def joined_at(place: Place) -> AtPlace:
    """Meet the other ranks by the store that the place names. Raises LostRank where not all come.

    To be called once workers have been started, which would hold the connections open. Nothing is read from the
    environment: under torchrun that makes every rank wait for a server which no process starts.
    """
    lost = _joined(place, "lost").store
    group, device = (
        GlooGroup(_joined(place, name), join_s=place.timeout_s, step_s=place.timeout_s, lost=lost)
        for name in ("agreement", "device")
    )
    return AtPlace(group=group, device=device, store=_joined(place, "gradients").store)


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


class GlooGroup:
    """A `Group` over gloo. Once a rank is lost, no call waits any more."""

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
        """The number of this rank in its group, from 0."""
        return self._rank

    @property
    def size(self) -> int:
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


# The process group of a training, for code of the user's that makes a loader in one of several ranks.
#
# Such code asks torch.distributed, or the variables that torchrun sets, which rank it is. Often a script has joined the
# group before it makes its loader; so it is joined here already, and code that joins it itself finds that done.


def join_group(place: Place, variables: MutableMapping[str, str] = os.environ) -> None:
    """Make this process that rank for torch and for the user's code. Raises LostRank where not all come.

    To be called before that code is imported, which may import `init_process_group` by its name.
    """
    variables.update(variables_of(place))
    # A number, which code may read. Each rank makes its loader once in the life of the store.
    variables.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    # With torch's own timeout: that code may have ranks wait while one prepares the data.
    dist.init_process_group(backend, store=store_at(place, "own"), rank=place.rank, world_size=place.size)
    found: Any = dist
    found.init_process_group = found.distributed_c10d.init_process_group = _joined_already


def variables_of(place: Place) -> dict[str, str]:
    """Those of torchrun, whoever started this process. The store that they name is held by another process."""
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(place.size // place.local_size),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        # As a client: without it, rank 0 would make a store where there is one.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _joined_already(*_: Any, **__: Any) -> None:
    """For `init_process_group`: the group, over gloo and NCCL, is joined."""
