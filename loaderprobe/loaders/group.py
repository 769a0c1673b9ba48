"""The process group of a training, for code of the user's that makes a loader in one of several ranks.

Such code asks torch.distributed, or the variables that torchrun sets, which rank it is. Often a script has joined the
group before it makes its loader; so it is joined here already, and code that joins it itself finds that done.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

import torch
import torch.distributed as dist

from loaderprobe.loaders.ranks import store_at
from loaderprobe.records.place import Place


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
