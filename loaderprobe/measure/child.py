"""The process that measures: a forkserver that imports what its children need, and forks one for each configuration.

`python -m loaderprobe.measure.child LINK PARENT` is the forkserver; in its child, `measure` joins and runs the parts.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from loaderprobe.analyze.verdict.rounds import further_round, next_round
from loaderprobe.measure.assembly import alternatives, make_compute, make_loader
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.epochs import EpochsStudy, in_epochs
from loaderprobe.measure.full_buffer import PrefilledStudy
from loaderprobe.measure.parts import UNSEEN, Parts, join_parts
from loaderprobe.measure.ranks.child import RankChild, read_rank
from loaderprobe.measure.runner import Order, serve
from loaderprobe.measure.session import Recorder, Session
from loaderprobe.measure.user.function import measure_own
from loaderprobe.plugins import resolve
from loaderprobe.protocols import Clock, OnGpu, OnStage
from loaderprobe.records.config import ComputeSpec
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.ranks import Place
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.samplers import sampling
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.system.device import locate
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.launcher import VISIBLE, own_gpu
from loaderprobe.system.limits import file_memory_bytes
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import threads_of


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
        decide = further_round if order.earlier else next_round
        # The forkserver, by whose other children nothing else is done.
        own = (os.getppid(),)
        parts = join_parts(loader, compute, clock, LinuxPageCache(), location, looking.samples, decide, own)
        session = Session(
            recorder=Recorder(config, alternatives=others, earlier=order.earlier, joins=rank is None),
            files=files,
            parts=rank.joined(parts, gpu or "") if rank else parts,
            on_stage=on_stage,
            budget_s=_left_s(order, clock),
            thorough=order.thorough,
        )
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


def _left_s(order: Order, clock: Clock) -> float | None:
    """Seconds left for the session; None where all is measured that is asked for."""
    if order.budget_s is None:
        return None
    return order.budget_s - (clock.now_ns() - order.begin_ns) / 1e9


def study(order: Order, scratch: Path, on_stage: OnStage) -> Prefilled | EpochsMeasured:
    """Measure what the order asks for beside the verdict."""
    with ExitStack() as stack:
        if order.study == "prefilled":
            parts = _parts(order, order.files, scratch, stack)
            return PrefilledStudy(order.config, order.files, parts, on_stage).run()
        everything = order.files.absolute(0, order.files.count)
        cache = LinuxPageCache()
        on_stage("making the files cold", 0, order.epochs)
        cache.evict(everything)
        resident = cache.resident(everything)
        served = in_epochs(order.files, order.config, order.epochs)
        return EpochsStudy(
            config=order.config,
            files=order.files,
            order=served,
            parts=_parts(order, served, scratch, stack),
            epochs=order.epochs,
            resident_before=resident,
            memory=file_memory_bytes,
            on_stage=on_stage,
        ).run()


def _parts(order: Order, files: FileSet, scratch: Path, stack: ExitStack) -> Parts:
    """Its loader serves `files`, and ends with the stack."""
    clock = SystemClock()
    # Workers start before the device does: a process that has used CUDA cannot fork.
    loader = stack.enter_context(make_loader(order.config, files, scratch))
    compute = make_compute(order.config, clock)
    location = locate(Path(order.files.root))
    return join_parts(loader, compute, clock, LinuxPageCache(), location, lambda: UNSEEN)


def main(link_fd: int, parent: int) -> None:
    """Import what children need, then serve until the sweep ends."""

    def measure_or_study(order: Order, scratch: Path, on_stage: OnStage) -> Any:
        if order.own:
            return measure_own(order, on_stage)
        if order.read:
            return read_rank(order, on_stage)
        return (study if order.study else measure)(order, scratch, on_stage)

    with suppress(Exception):  # whatever it is, the child that needs it meets it too, and says so
        resolve("loader", "torch")
        resolve("compute", "cpu")
    serve(link_fd, parent, measure_or_study)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
