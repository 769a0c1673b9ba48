"""The launcher of the ranks of a placement: torchrun's agent, in a process of its own, which says how ranks ended.

`python -m loaderprobe.compute.placement_launcher ORDER PARENT MODULE` starts `python -m MODULE ORDER LAUNCHER` for each
rank. Nothing listens on a port: the agent and the ranks meet by files. The parent gives the environment for that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from loaderprobe.records.ranks import LauncherEnd, RankEnd, RankOrder
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.system.process import die_with_parent


def launch(order_path: Path, parent: int, module: str) -> int:
    """Run all ranks to their end; returns the exit code."""
    die_with_parent(parent)
    order = decode("rank-order", order_path.read_bytes(), RankOrder, str(order_path))
    start = elastic_launch(_config(order), sys.executable)
    try:
        start("-P", "-m", module, str(order_path), str(os.getpid()))
    except ChildFailedError as error:
        ends = tuple(_end(order, rank, each) for rank, each in sorted(error.failures.items()))
        write_atomically(order.ends, encode("launcher-end", LauncherEnd(failed=ends)))
        return 1
    return 0


def _config(order: RankOrder) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=order.placement.ranks,
        run_id="devices",
        rdzv_backend="c10d",
        rdzv_endpoint=str(Path(order.scratch) / "rendezvous"),
        rdzv_configs={"store_type": "file"},
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(order.logs), redirects=Std.ALL),
    )


def _end(order: RankOrder, rank: int, failure: ProcessFailure) -> RankEnd:
    logs = sorted(order.logs.glob(f"*/attempt_0/{failure.local_rank}/stderr.log"))
    return RankEnd(rank=rank, exit_code=failure.exitcode, log=str(logs[0]) if logs else "")


if __name__ == "__main__":
    sys.exit(launch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
