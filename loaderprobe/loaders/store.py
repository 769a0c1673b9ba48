"""torch's store, by which the processes that a launcher started find each other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from loaderprobe.errors import LostRank
from loaderprobe.records.seats import Launched
from loaderprobe.system.network import bound_calls

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
        """`holds` makes the store itself, here. Raises LostRank where there is none."""
        try:
            client = client_of(address, port, COME_S, holds=holds)
        except (RuntimeError, ValueError) as error:
            raise LostRank(f"no store answers at {address}:{port} ({_first_line(error)})", hint=_HINT) from error
        client.set_timeout(timedelta(seconds=CALL_S))
        self._store: Any = dist.PrefixStore(prefix, client)  # type: ignore[attr-defined]  # torch does not list it

    def set(self, key: str, value: str) -> None:
        """Set a key."""
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
