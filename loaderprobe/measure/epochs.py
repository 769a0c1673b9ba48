"""Whole epochs: the first with cold files, the others with what the page cache kept of those before.

Each epoch reads every file once in an order of its own, as a shuffling sampler makes it: in one order throughout, a
cache that holds less than all would keep nothing that is read again. The loader runs through from epoch to epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.segment_runner import warm_up
from loaderprobe.measure.segments import Steps, flush, train
from loaderprobe.measure.studies import pages_bytes
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import WorkerBatches
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsStudy:
    """Trains the epochs of one configuration; `memory` is what the page cache may take beside what runs now."""

    config: RunConfig
    files: FileSet
    order: FileSet
    """The same files epoch by epoch (`in_epochs`): what the loader serves. They were evicted before it began."""
    parts: Parts
    epochs: int
    memory: Callable[[], int | None]
    on_stage: OnStage

    def run(self) -> EpochsMeasured:
        started_utc = utc_timestamp()
        loader, compute, clock = self.parts.loader, self.parts.compute, self.parts.clock
        self.on_stage("first batch", 0, self.epochs)
        batches = loader.batches()
        warm_up([compute.copy(next(batches))], self.config, compute, clock)
        memory = [self.memory()]
        # Those were loaded while the device was being made; an epoch begins with an empty buffer.
        early = self.config.loader.batches_begun
        flush(batches, early)
        number = 1 + early
        each, found = _batches(self.files, self.config), list[Epoch]()
        for epoch in range(self.epochs):
            self.on_stage(f"epoch {epoch + 1}", epoch, self.epochs)
            steps = train(batches, compute, clock, _exactly((epoch + 1) * each - number))
            number = (epoch + 1) * each
            found.append(self._epoch(epoch * each, each, steps))
            # Processes grow while they train: the least that was left for files counts.
            memory.append(self.memory())
        return EpochsMeasured(
            config=self.config,
            started_utc=started_utc,
            set_bytes=pages_bytes(self.files),
            memory_bytes=min((left for left in memory if left is not None), default=None),
            epochs=tuple(found),
        )

    def _epoch(self, first: int, batches: int, steps: Steps) -> Epoch:
        size = self.config.compute.batch_size
        end_ns = max(steps.closed_ns, *steps.finished_ns[-1:])
        return Epoch(
            images=len(steps.begin_ns) * size,
            wall_s=(end_ns - steps.begin_ns[0]) / 1e9,
            delivered_bytes=self.order.delivered_bytes(first * size, batches * size),
            storage_bytes=self._from_storage(self.parts.loader.records(), range(first, first + batches)),
        )

    def _from_storage(self, records: WorkerBatches, numbers: range) -> int | None:
        """By the processes of this loader; None where that is not counted, or a record is lost."""
        if not process_reads_counted(self.parts.location):
            return None
        of = [read for batch, read in zip(records.batch, records.read_bytes, strict=True) if batch in numbers]
        return sum(of) if len(of) == len(numbers) else None


def _exactly(steps: int) -> Pace:
    """So many, however long they take."""
    return Pace(min_s=0.0, min_batches=steps, max_s=inf, max_batches=steps)
