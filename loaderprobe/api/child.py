"""The process that measures: `python -m loaderprobe.api.child LINK PARENT` is the forkserver of a sweep.

It imports what its children need and forks one for each configuration, in which `measure` joins and runs the parts.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from loaderprobe.analyze.verdict.rounds import further_round, next_round, round_in_turn
from loaderprobe.api.assembly import alternatives, join_parts, make_compute, make_loader
from loaderprobe.api.own_child import measure_own
from loaderprobe.api.rank_child import RankChild
from loaderprobe.api.study_child import study
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.forkserver import ForkServer, serve
from loaderprobe.measure.order import Order
from loaderprobe.measure.pace import Pace, pace_for
from loaderprobe.measure.recorder import Recorder
from loaderprobe.measure.session import OnStage, Session
from loaderprobe.plugins import resolve
from loaderprobe.protocols import Clock, OnGpu
from loaderprobe.records.config import ComputeSpec
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.place import Place
from loaderprobe.samplers import sampling
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.system.device import locate
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.launcher import VISIBLE, own_gpu
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import threads_of


def forkserver() -> ForkServer:
    """The forkserver whose children run `measure`; entering it starts this module as a program."""
    return ForkServer([sys.executable, "-P", "-m", "loaderprobe.api.child"])


def measure(order: Order, scratch: Path, on_stage: OnStage) -> Measurement:
    """Build the parts of the order and run them: alone, or as one of several ranks."""
    clock, config, place = SystemClock(), order.config, order.place
    if place is not None and config.compute.kind == "cuda":
        _see_own_gpu(config.compute, place)
    files = order.files if place is None else order.files.shard(place.rank, place.size)
    location = locate(Path(files.root))
    others = _alternatives(order, files, on_stage)
    on_stage("starting the loader", 0, 0)
    with ExitStack() as stack:
        # Workers start before the device does: a process that has used CUDA cannot fork.
        loader = stack.enter_context(make_loader(config, files, scratch))
        rank = None if place is None else RankChild(order, place, on_stage)
        stack.enter_context(rank.named() if rank else nullcontext())
        on_stage("starting the device", 0, 0)
        compute = make_compute(config, clock, rank.peers if rank else None)
        looking = stack.enter_context(WaitsSampler(lambda: threads_of(loader.workers()), scratch))
        gpu = compute.uuid() if isinstance(compute, OnGpu) else None
        # What belongs to a whole node is read by its first rank.
        seen = (location.devices, gpu) if place is None or place.local_rank == 0 else ((), None)
        samplers = stack.enter_context(sampling(clock, seen[0], loader.workers, seen[1]))
        decide = round_in_turn if order.in_turn else further_round if order.earlier else next_round
        # The forkserver, by whose other children nothing else is done.
        own = (os.getppid(),)
        parts = join_parts(loader, compute, clock, LinuxPageCache(), location, looking.samples, decide, own)
        given: dict[str, Any] = {
            "recorder": Recorder(config, alternatives=others, earlier=order.earlier, joins=rank is None),
            "files": files,
            "on_stage": on_stage,
            "budget_s": _left_s(order, clock),
            "turn": _turn(order),
            "thorough": order.thorough,
        }
        session = rank.session(parts, gpu or "", **given) if rank else Session(parts=parts, **given)
        session.run()
        if order.earlier is None or order.earlier.timeline is None:
            session.profile()
        measured = session.measurement(*samplers.collected())
        return rank.together(measured) if rank else measured


def _see_own_gpu(compute: ComputeSpec, place: Place) -> None:
    """Before anything touches CUDA: the loader's pinning thread starts before the device, and would open GPU 0."""
    number = int(compute.argument) if compute.argument.isdecimal() else 0
    found = own_gpu(os.environ, number + place.local_rank, len(list_gpus()[0]))
    if found is not None:
        os.environ[VISIBLE] = found


def _alternatives(order: Order, files: FileSet, on_stage: OnStage) -> tuple[Alternative, ...]:
    """Other decoders, measured once, by rank 0; all ranks report the same stages, which shows who is behind."""
    if order.earlier is not None:
        return order.earlier.alternatives
    on_stage("alternative decoders", 0, 0)
    return alternatives(order.config, files) if order.place is None or order.place.rank == 0 else ()


def _turn(order: Order) -> Pace | None:
    """The pace of a round in turn; None where the verdict asks for rounds."""
    workers = order.config.loader.workers
    return pace_for(workers=workers, rounds=1, budget_s=order.budget_s) if order.in_turn else None


def _left_s(order: Order, clock: Clock) -> float | None:
    """Seconds left for the session; None where all is measured that is asked for, as in a round in turn."""
    if order.budget_s is None or order.in_turn:
        return None
    return order.budget_s - (clock.now_ns() - order.begin_ns) / 1e9


def main(link_fd: int, parent: int) -> None:
    """Import what children need, then serve until the sweep ends."""

    def measure_or_study(order: Order, scratch: Path, on_stage: OnStage) -> Any:
        if order.own:
            return measure_own(order, on_stage)
        return (study if order.study else measure)(order, scratch, on_stage)

    with suppress(Exception):  # whatever it is, the child that needs it meets it too, and says so
        resolve("loader", "torch")
        resolve("compute", "cpu")
    serve(link_fd, parent, measure_or_study)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
