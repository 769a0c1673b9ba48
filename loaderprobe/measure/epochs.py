"""Whole epochs: the first with cold files, the others with what the page cache kept of those before.

Each epoch reads every file once in an order of its own, as a shuffling sampler makes it: in one order throughout, a
cache that holds less than all would keep nothing that is read again. The loader runs through from epoch to epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.segment_runner import warm_up
from loaderprobe.measure.segments import flush, train
from loaderprobe.measure.studies import pages_bytes
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.studies import Epoch, EpochsMeasured
from loaderprobe.system.device import process_reads_counted
from loaderprobe.system.host import utc_timestamp


def in_epochs(files: FileSet, config: RunConfig, epochs: int) -> FileSet:
    """The files once for each epoch, each time in another order; what fills no batch is left out of an epoch."""
    whole = _batches(files, config) * config.compute.batch_size
    chosen: list[int] = []
    for number in range(epochs):
        order = list(range(files.count))
        random.Random(config.seed + number).shuffle(order)
        chosen += order[:whole]
    return files.chosen(chosen)


def _batches(files: FileSet, config: RunConfig) -> int:
    return files.count // config.compute.batch_size


def study_epochs(
    config: RunConfig, files: FileSet, order: FileSet, parts: Parts, *, epochs: int,
    memory: Callable[[], int | None], on_stage: OnStage,
) -> EpochsMeasured:  # fmt: skip
    """Train the epochs of one configuration.

    `order` are the files epoch by epoch (`in_epochs`), which the loader serves; they were evicted before it began.
    `memory` is what the page cache may take beside what runs now.
    """
    started_utc = utc_timestamp()
    loader, compute, clock = parts.loader, parts.compute, parts.clock
    on_stage("first batch", 0, epochs)
    batches = loader.batches()
    warm_up([compute.copy(next(batches))], config, compute, clock)
    left = [memory()]
    # Those were loaded while the device was being made; an epoch begins with an empty buffer.
    early = config.loader.batches_begun
    flush(batches, early)
    number, each, size = 1 + early, _batches(files, config), config.compute.batch_size
    found: list[Epoch] = []
    for epoch in range(epochs):
        on_stage(f"epoch {epoch + 1}", epoch, epochs)
        first, end = epoch * each, (epoch + 1) * each
        steps = train(batches, compute, clock, _exactly(end - number))
        number = end
        end_ns = max(steps.closed_ns, *steps.finished_ns[-1:])
        found.append(
            Epoch(
                images=len(steps.begin_ns) * size,
                wall_s=(end_ns - steps.begin_ns[0]) / 1e9,
                delivered_bytes=order.delivered_bytes(first * size, each * size),
                storage_bytes=_from_storage(parts, range(first, end)),
            )
        )
        # Processes grow while they train: the least that was left for files counts.
        left.append(memory())
    return EpochsMeasured(
        config=config,
        started_utc=started_utc,
        set_bytes=pages_bytes(files),
        memory_bytes=min((free for free in left if free is not None), default=None),
        epochs=tuple(found),
    )


def _from_storage(parts: Parts, numbers: range) -> int | None:
    """Bytes of these batches, by the processes of the loader; None where that is not counted, or a record is lost."""
    if not process_reads_counted(parts.location):
        return None
    records = parts.loader.records()
    of = [read for batch, read in zip(records.batch, records.read_bytes, strict=True) if batch in numbers]
    return sum(of) if len(of) == len(numbers) else None


def _exactly(steps: int) -> Pace:
    return Pace(min_s=0.0, min_batches=steps, max_s=inf, max_batches=steps)
