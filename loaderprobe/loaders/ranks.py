"""The ranks of a training: the store by which they join, and a group of our own over it.

The group is gloo's, whatever is trained over. A script's own groups are neither used nor counted up, and ours still
works after the script has left them.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
import xxhash
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import BatchSampler

from loaderprobe.batches import length_of, parts_of
from loaderprobe.errors import LostRank
from loaderprobe.protocols import SharedStore
from loaderprobe.records.config import RunConfig
from loaderprobe.records.diagnosis import BatchFiles
from loaderprobe.records.rank_processes import RankInput, RankPlacement
from loaderprobe.system.launcher import bound_calls
from loaderprobe.units import join_words

CALL_S = 60.0
"""Seconds for the store to answer: it is on another node."""
CONNECT_S = 300.0
"""Seconds for the process that makes the store to start."""


def client_of(address: str, port: int, wait_s: float, *, is_master: bool = False) -> Any:
    """A client of torch's TCPStore, which waits so long for it, and for keys. `is_master` makes the store itself, here.

    Raises LostRank where there is none. Where the store no longer answers, a call raises RuntimeError after CALL_S.
    """
    try:
        # Not torch's env://, which under torchrun takes every process for a client of a store that no process makes.
        client = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
            address, port, None, is_master=is_master, timeout=timedelta(seconds=wait_s), wait_for_workers=False
        )
    except (RuntimeError, ValueError) as error:
        raise LostRank(f"no store answers at {address}:{port} ({_first_line(error)})", hint=_HINT) from error
    # Torch waits without end for an answer; its timeout is for keys.
    bound_calls(port, CALL_S)
    return client


class TorchStore:
    """A `SharedStore`: a client of torch's TCPStore, whose keys begin with a prefix. It serves one thread at a time."""

    def __init__(self, address: str, port: int, prefix: str, *, is_master: bool = False) -> None:
        """`is_master` makes the store itself, here; port 0 is any that is free. Raises LostRank where there is none."""
        client = client_of(address, port, CONNECT_S, is_master=is_master)
        client.set_timeout(timedelta(seconds=CALL_S))
        self.port = int(client.port)
        self._store = _below(prefix, client)

    def set(self, key: str, value: str) -> None:
        _answered(self._store.set, key, value)

    def get(self, key: str) -> bytes:
        return bytes(_answered(self._store.get, key))

    def check(self, keys: list[str]) -> bool:
        return bool(_answered(self._store.check, keys))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        return bytes(_answered(self._store.compare_set, key, expected_value, desired_value))


_HINT = "check that all processes run, and that MASTER_ADDR and MASTER_PORT are those of rank 0 and free there"


def _answered(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except RuntimeError as error:
        raise LostRank(f"the store of the ranks does not answer ({_first_line(error)})", hint=_HINT) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


recorded = record
"""The same function; an error that it raises is also written where torchelastic's launcher looks for the first one."""


JOIN_S = 60.0
"""Seconds for all ranks to join the group."""
STEP_S = 300.0
"""Seconds for all ranks to end a step: one may validate, or save, while the others wait."""
LEAVING_S = 10.0
"""Seconds that a rank whose script ends waits for the others."""
PREFIX = "loaderprobe"
OTHERS_S = 0.8
"""Seconds for the others to report that they lost a rank, too: one that does not is the lost one."""
OF_CONNECTIONS = ("Connection closed", "Connection reset", "Broken pipe", "imed out", "NCCL")
OF_GROUPS = ("gloo", "nccl")
"""The libraries whose errors count: a storage on a network uses the same words."""
OF_USE = ("invalid usage", "invalid argument", "out of memory", "Duplicate GPU")
"""NCCL's words for errors that are not of a lost rank."""
_measurements = itertools.count()
"""Each measurement of a process has keys of its own in the store; ranks of one training count alike."""
_LENGTH = 8
"""Bytes before a value that hold its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This process as one of several ranks."""

    rank: int
    size: int
    store: SharedStore


def member_here() -> Member | None:
    """This process in the group of torch.distributed; None where it has joined no other."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return None
    return Member(
        rank=dist.get_rank(),
        size=dist.get_world_size(),
        store=_below(f"{PREFIX}/{next(_measurements)}", dist.distributed_c10d._get_default_store()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroups:
    """This process among the ranks of a configuration."""

    group: GlooGroup
    """For what ranks agree on."""
    device: GlooGroup
    """For the device alone."""
    store: SharedStore
    """For groups of the device's own."""


def join_groups(placement: RankPlacement) -> RankGroups:
    """Join the other ranks by the store that the placement names. Raises LostRank where one does not.

    To be called once workers have been started, which would hold the connections open. Nothing is read from the
    environment: under torchrun that makes every rank wait for a server which no process starts.
    """
    lost = _member(placement, "lost").store
    group, device = (
        GlooGroup(_member(placement, name), join_s=placement.timeout_s, step_s=placement.timeout_s, lost=lost)
        for name in ("agreement", "device")
    )
    return RankGroups(group=group, device=device, store=_member(placement, "gradients").store)


def _member(placement: RankPlacement, name: str) -> Member:
    """The rank with a client and keys of its own: one client that waits in a thread delays all that use it."""
    client = client_of(placement.address, placement.port, placement.timeout_s)
    return Member(rank=placement.rank, size=placement.size, store=_below(f"{placement.prefix}/{name}", client))


class GlooGroup:
    """A `Group` over gloo. Once a rank is lost, no call waits any more."""

    def __init__(
        self, member: Member, *, join_s: float = JOIN_S, step_s: float = STEP_S, lost: SharedStore | None = None
    ) -> None:
        """Raises LostRank where a rank does not join. `lost` is where ranks report a lost one; it outlives them."""
        self.rank, self.size, self._lost = member.rank, member.size, ""
        self._step_s, self._store = step_s, lost
        store = _below("group", member.store)
        try:
            self._group: Any = dist.ProcessGroupGloo(store, self.rank, self.size, timedelta(seconds=join_s))
        except (RuntimeError, ValueError) as error:
            raise _lost(error, self._missing()) from error

    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        # A script may have set another device to make tensors on.
        tensor = torch.tensor(values, dtype=torch.int64, device="cpu")
        self._wait(lambda: self._group.allreduce([tensor], options), options, LEAVING_S if leaving else self._step_s)
        return tuple(tensor.tolist())

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        packed = _packed(value, self.all_reduce_max(len(value))[0])
        options = dist.GatherOptions()
        options.rootRank = 0
        received = [torch.zeros_like(packed) for _ in range(self.size)] if self.rank == 0 else []
        self._wait(lambda: self._group.gather([received] if received else [], [packed], options), options, self._step_s)
        return tuple(map(_unpacked, received))

    def broadcast(self, value: bytes) -> bytes:
        mine = value if self.rank == 0 else b""
        packed = _packed(mine, self.all_reduce_max(len(mine))[0])
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._wait(lambda: self._group.broadcast([packed], options), options, self._step_s)
        return _unpacked(packed)

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
        missing, until_s = set(range(self.size)) - {self.rank}, time.monotonic() + OTHERS_S
        try:
            self._store.set(f"lost/{self.rank}", "1")
            while missing and time.monotonic() < until_s:
                missing = {rank for rank in missing if not self._store.check([f"lost/{rank}"])}
                time.sleep(OTHERS_S / 20)
        except RuntimeError:  # the store has gone as well
            return []
        return sorted(missing)


def _below(prefix: str, store: Any) -> Any:
    """The same store; its keys begin with `prefix`."""
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]  # torch does not list it


def _lost(error: Exception, missing: Sequence[int]) -> LostRank:
    # Of gloo's words, without the line of its source before them and its advice after.
    words = re.sub(r"^\[[^]]*\] *", "", _first_line(error).partition(". ")[0])
    numbers = join_words([str(rank) for rank in missing])
    who = f": rank{'s' * (len(missing) > 1)} {numbers}" if missing else ""
    return LostRank(f"another rank has gone, or does not answer{who} ({words})", hint="see what that rank printed")


def _packed(value: bytes, longest: int) -> torch.Tensor:
    """Its length and its bytes, as long as the longest."""
    whole = len(value).to_bytes(_LENGTH, "big") + value.ljust(longest, b"\0")
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8)


def _unpacked(packed: torch.Tensor) -> bytes:
    whole = packed.numpy().tobytes()
    return whole[_LENGTH : _LENGTH + int.from_bytes(whole[:_LENGTH], "big")]


# The process group of a training, for code of the user's that makes a loader in one of several ranks.
#
# Such code asks torch.distributed, or the variables that torchrun sets, which rank it is. Often a script has joined the
# group before it makes its loader; so it is joined here already, and code that joins it itself finds that done.


def join_group(placement: RankPlacement, variables: MutableMapping[str, str] = os.environ) -> None:
    """Make this process that rank for torch and for the user's code. Raises LostRank where a rank does not join.

    To be called before that code is imported, which may import `init_process_group` by its name. The variables are
    those that torchrun sets, whoever started this process.
    """
    variables.update(
        RANK=str(placement.rank),
        WORLD_SIZE=str(placement.size),
        LOCAL_RANK=str(placement.local_rank),
        LOCAL_WORLD_SIZE=str(placement.local_size),
        GROUP_RANK=str(placement.node),
        GROUP_WORLD_SIZE=str(placement.size // placement.local_size),
        MASTER_ADDR=placement.address,
        MASTER_PORT=str(placement.port),
        # As a client: without it, rank 0 would make a store where there is one.
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    # A number, which code may read. Each rank makes its loader once in the life of the store.
    variables.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    member: Any = _member(placement, "own")
    # With torch's own timeout: that code may have ranks wait while one prepares the data.
    dist.init_process_group(backend, store=member.store, rank=member.rank, world_size=member.size)
    module: Any = dist
    # The group, over gloo and NCCL, is joined.
    module.init_process_group = module.distributed_c10d.init_process_group = lambda *_, **__: None


# What one rank takes of the data set, by the first batches of its loader.

MOST_FILES = 2000
"""Files whose names are compared."""
MOST_BYTES = 1 << 20
"""Bytes of the first batch that are hashed."""


def rank_input(loader: Any, config: RunConfig, files: object, batches: Sequence[Any], *, exchanges: bool) -> RankInput:
    """Describe what a DataLoader takes: by its settings as measured, the known files and the first of its batches."""
    paths = files.paths if isinstance(files, BatchFiles) else ()
    names = islice((name for batch in paths for name in batch), MOST_FILES)
    first, *others = [_content(batch) for batch in batches[:2]] or [None]
    return RankInput(
        batch_size=0 if loader.batch_sampler is None else config.compute.batch_size,
        workers=config.loader.workers,
        prefetch_factor=config.loader.prefetch_factor,
        files=tuple(_hash([name.encode(errors="surrogateescape")]) for name in names),
        # Not where another batch has the same content, as of data that are made up.
        first=None if first in others else first,
        whole=_is_whole(loader),
        exchanges=exchanges,
    )


def _is_whole(loader: Any) -> bool:
    """False also where batches are formed by a sampler of which no more is known."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return False
    samples, taken = length_of(loader.dataset), length_of(loader.sampler if batches is None else batches.sampler)
    return samples is not None and taken is not None and taken >= samples


def _content(batch: Any) -> int | None:
    """None where the batch holds no tensors in the memory of the host, or arrays."""
    parts = [part for value in parts_of(batch) if (part := _bytes(value)) is not None]
    return _hash(parts) if parts else None


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return None
        value = value.detach().contiguous().reshape(-1).view(torch.uint8)[:MOST_BYTES].numpy()
    return bytes(value.tobytes()[:MOST_BYTES]) if hasattr(value, "tobytes") and hasattr(value, "shape") else None


def _hash(parts: Iterable[bytes]) -> int:
    """A hash of 63 bits, which JSON and every reader hold."""
    made = xxhash.xxh3_64()
    for part in parts:
        made.update(part)
    return made.intdigest() >> 1
