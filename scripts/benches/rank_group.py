"""What ranks reach together: an emulated group with free input against its rate, and the time of a meeting.

Real processes over gloo on this host. Each group trains on one batch that costs nothing; its rate is that of the
device's own timeline. A meeting is one all-reduce of one number. Fails below 99.5 % of the rate that is specified.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from datetime import timedelta
from itertools import repeat
from queue import Queue
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.loaders.ranks import joined_at
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.crew import Crew, PaceAhead
from loaderprobe.measure.segments import Pace, train
from loaderprobe.protocols import ComputeArguments, Peers
from loaderprobe.records.ranks import Place
from loaderprobe.stats import median, quantile
from loaderprobe.testing import example_config
from scripts.benches.harness import parser

LEAST = 0.995
MEETINGS = 2000


def one(place: Place, rate: float, batch_size: int, seconds: float, told: Queue[tuple[float, list[float]]]) -> None:
    """One rank; rank 0 reports (images/s of one rank, seconds of each meeting)."""
    clock, at = SystemClock(), joined_at(place)
    config = example_config(compute=f"emulated:{rate:g}", batch_size=batch_size)
    peers = Peers(group=at.device, local_rank=place.local_rank, cores=1.0, store=at.store, timeout_s=place.timeout_s)
    compute = EmulatedCompute(ComputeArguments(spec=config.compute, loader=config.loader, clock=clock, peers=peers))
    took = []
    for _ in range(MEETINGS):
        begin_ns = clock.now_ns()
        at.group.most(0)
        took.append((clock.now_ns() - begin_ns) / 1e9)
    pace = PaceAhead.of(Pace(min_s=seconds, max_s=seconds), Crew(at.group).agree)
    batch = SimpleNamespace(shape=(batch_size,)), None
    ends = train(repeat(batch), compute, clock, pace).finished_ns
    if place.rank == 0:
        told.put((batch_size * (len(ends) - 1) * 1e9 / (ends[-1] - ends[0]), took))
    at.group.most(0)
    told.close()  # type: ignore[attr-defined]  # it is that of another process
    told.join_thread()  # type: ignore[attr-defined]
    os._exit(0)


def group(size: int, port: int, rate: float, batch_size: int, seconds: float) -> tuple[float, list[float]]:
    """All ranks of a group, to their ends."""
    context = multiprocessing.get_context("forkserver")
    told: Any = context.Queue()
    places = [
        Place(
            rank=rank, size=size, node=0, local_rank=rank, local_size=size, address="127.0.0.1", port=port,
            prefix=f"group-{size}-{rate:g}",
        )
        for rank in range(size)
    ]  # fmt: skip
    ranks = [context.Process(target=one, args=(place, rate, batch_size, seconds, told)) for place in places]
    for each in ranks:
        each.start()
    found: tuple[float, list[float]] = told.get(timeout=120)
    for each in ranks:
        each.join()
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--ranks", default="1,2,4", help="sizes of groups")
    options.add_argument("--rates", default="400,4000", help="images/s of each device, specified")
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--seconds", type=float, default=3.0, help="of each group")
    asked = options.parse_args()
    multiprocessing.set_forkserver_preload(["loaderprobe.loaders.ranks"])
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        "127.0.0.1", 0, None, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    worst = 1.0
    print("ranks  specified, images/s  reached  share    a meeting: median, 95 %, ms")
    for rate in map(float, asked.rates.split(",")):
        for size in map(int, asked.ranks.split(",")):
            reached, took = group(size, store.port, rate, asked.batch_size, asked.seconds)
            worst = min(worst, reached / rate)
            cost = f"{1e3 * median(took):.3f}  {1e3 * quantile(took, 0.95):.3f}"
            print(f"{size:5}  {size * rate:19,.0f}  {size * reached:7,.1f}  {reached / rate:.4f}  {cost}", flush=True)
    if worst < LEAST:
        sys.exit(f"a group reached {worst:.4f} of its rate, and {LEAST} is asked for")


if __name__ == "__main__":
    main()
