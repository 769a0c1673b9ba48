"""A study in the child of a sweep: its parts are built and run here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from loaderprobe.api.assembly import join_parts, make_compute, make_loader
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Order
from loaderprobe.measure.session import UNSEEN, OnStage, Parts
from loaderprobe.measure.studies import EpochsStudy, PrefilledStudy, in_epochs
from loaderprobe.protocols import Judging
from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.system.device import locate
from loaderprobe.system.limits import file_memory_bytes
from loaderprobe.system.pagecache import LinuxPageCache


def study(order: Order, scratch: Path, on_stage: OnStage, judging: Judging) -> Prefilled | EpochsMeasured:
    """Measure what the order asks for beside the verdict."""
    with ExitStack() as stack:
        if order.study == "prefilled":
            parts = _parts(order, order.files, scratch, stack, judging)
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
            parts=_parts(order, served, scratch, stack, judging),
            epochs=order.epochs,
            resident_before=resident,
            memory=file_memory_bytes,
            on_stage=on_stage,
        ).run()


def _parts(order: Order, files: FileSet, scratch: Path, stack: ExitStack, judging: Judging) -> Parts:
    """Its loader serves `files`, and ends with the stack."""
    clock = SystemClock()
    # Workers start before the device does: a process that has used CUDA cannot fork.
    loader = stack.enter_context(make_loader(order.config, files, scratch))
    compute = make_compute(order.config, clock)
    location = locate(Path(order.files.root))
    return join_parts(loader, compute, clock, LinuxPageCache(), location, lambda: UNSEEN, judging)
