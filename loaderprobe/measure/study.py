"""What is studied beside a verdict: training from a full buffer, and whole epochs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import inf

from loaderprobe.measure.pace import Pace, Part
from loaderprobe.measure.segment_runner import WARM_UP, Counted, Parts, SegmentRunner, warm_up
from loaderprobe.measure.segments import Readiness, comes_to_rest, flush, train
from loaderprobe.measure.studies import batches_read, pages_bytes, untimed
from loaderprobe.protocols import OnStage, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Epoch, EpochsMeasured, Prefilled
from loaderprobe.system.device import process_reads_counted

# Training that begins with a full buffer: what a short benchmark measures that starts its loader first.
#
# Steady training, training from a full buffer, steady training: what drifts in a straight line meanwhile cancels.

LEAST_BUFFERS = 2
"""With fewer, a full buffer is most of what would be seen."""
MOST_SECONDS = 10.0
STEADY = Pace(min_s=3.0, min_batches=12, max_s=5.0)
FILL_S = 60.0


def study_prefilled(config: RunConfig, files: FileSet, parts: Parts, on_stage: OnStage) -> Prefilled:
    """Before, prefilled, after, with segments as a session times them; or the reason why not."""
    loader = config.loader
    if not isinstance(parts.loader, Switched):
        return Prefilled(config=config, reason=Remark(code="buffer_not_told"))
    least = (untimed(loader) + LEAST_BUFFERS * loader.batches_ahead) * config.compute.batch_size
    if config.cache == "cold" and files.count < least:
        few = Remark(code="too_few_for_buffer", facts={"images": files.count, "least": least})
        return Prefilled(config=config, reason=few)
    on_stage("first batch", 0, 3)
    batches = Counted(parts.loader.batches(), 0)
    ready = Readiness(config, files, "files", parts.loader, parts.cache, lambda count: flush(batches, count))
    pace = replace(STEADY, multiple=max(1, loader.workers))
    runner = SegmentRunner(config, parts, batches, pace, ready, None)
    runner.stand_in = (next(batches),)
    runner.warm_up()
    part = Part(config.mode, "training")
    on_stage("steady training", 0, 3)
    before = runner.run(part, 0)
    on_stage("filling the buffer", 1, 3)
    prefilled = _from_full_buffer(runner, parts.loader, files, part)
    if prefilled is None:
        return Prefilled(config=config, reason=Remark(code="buffer_not_filled", facts={"within_s": FILL_S}))
    on_stage("steady training", 2, 3)
    after = runner.run(part, 0)
    return Prefilled(config=config, steady=(before, after), prefilled=prefilled)


def _from_full_buffer(runner: SegmentRunner, loader: Switched, files: FileSet, part: Part) -> Segment | None:
    """None where the buffer does not fill."""
    config, parts, batches = runner.config, runner.parts, runner.batches
    most_batches = batches_read(config.loader)
    if config.cache == "cold":
        most_batches = min(most_batches, files.count // config.compute.batch_size)
    steps = most_batches - untimed(config.loader)
    pace = Pace(min_s=0.0, min_batches=steps, max_s=MOST_SECONDS, max_batches=steps)
    runner.ready.prepare(part.mode, taken=batches.count, pace=pace, cores=parts.cores_available)
    # Those were made from other files than those of the segment.
    flush(batches, config.loader.batches_begun)
    if not comes_to_rest(loader, batches.count, parts.clock, round(FILL_S * 1e9)):
        return None
    resident = runner.ready.resident(batches.count)
    return runner.timed(part, 0, lambda: train(batches, parts.compute, parts.clock, pace.enough), resident=resident)


# Whole epochs: the first with cold files, the others with what the page cache kept of those before.
#
# Each epoch reads every file once in an order of its own, as a shuffling sampler makes it: in one order throughout, a
# cache that holds less than all would keep nothing that is read again. The loader runs through from epoch to epoch.


def in_epochs(files: FileSet, config: RunConfig, epochs: int) -> FileSet:
    """The files once for each epoch, each time in another order; what fills no batch is left out of an epoch."""
    whole = files.count // config.compute.batch_size * config.compute.batch_size
    chosen: list[int] = []
    for number in range(epochs):
        order = list(range(files.count))
        random.Random(config.seed + number).shuffle(order)
        chosen += order[:whole]
    return files.chosen(chosen)


def study_epochs(
    config: RunConfig, files: FileSet, order: FileSet, parts: Parts, *, epochs: int,
    memory: Callable[[], int | None], on_stage: OnStage,
) -> EpochsMeasured:  # fmt: skip
    """Train the epochs of one configuration.

    `order` are the files epoch by epoch (`in_epochs`), which the loader serves; they were evicted before it began.
    `memory` is what the page cache may take beside what runs now.
    """
    loader, compute, clock = parts.loader, parts.compute, parts.clock
    on_stage("first batch", 0, epochs)
    batches = loader.batches()
    warm_up([compute.copy(next(batches))], config, compute, clock, WARM_UP.enough)
    left = [memory()]
    # Those were loaded while the device was being made; an epoch begins with an empty buffer.
    early = config.loader.batches_begun
    flush(batches, early)
    number, size = 1 + early, config.compute.batch_size
    epoch_steps = files.count // size
    trained: list[Epoch] = []
    for epoch in range(epochs):
        on_stage(f"epoch {epoch + 1}", epoch, epochs)
        first, end = epoch * epoch_steps, (epoch + 1) * epoch_steps
        pace = Pace(min_s=0.0, min_batches=end - number, max_s=inf, max_batches=end - number)
        steps = train(batches, compute, clock, pace.enough)
        number = end
        end_ns = max(steps.closed_ns, *steps.finished_ns[-1:])
        trained.append(
            Epoch(
                images=len(steps.begin_ns) * size,
                wall_s=(end_ns - steps.begin_ns[0]) / 1e9,
                delivered_bytes=order.delivered_bytes(first * size, epoch_steps * size),
                storage_bytes=_from_storage(parts, range(first, end)),
            )
        )
        # Processes grow while they train: the least that was left for files counts.
        left.append(memory())
    return EpochsMeasured(
        config=config,
        set_bytes=pages_bytes(files),
        memory_bytes=min((free for free in left if free is not None), default=None),
        epochs=tuple(trained),
    )


def _from_storage(parts: Parts, numbers: range) -> int | None:
    """Bytes of these batches, by the processes of the loader; None where that is not counted, or a record is lost."""
    if not process_reads_counted(parts.location):
        return None
    records = parts.loader.records()
    of = [read for batch, read in zip(records.batch, records.read_bytes, strict=True) if batch in numbers]
    return sum(of) if len(of) == len(numbers) else None
