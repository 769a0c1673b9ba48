"""Training that begins with a full buffer: what a short benchmark measures that starts its loader first.

Steady training, training from a full buffer, steady training: what drifts in a straight line meanwhile cancels.
"""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.measure.pace import Pace, Part
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.segment_runner import Counted, SegmentRunner
from loaderprobe.measure.segments import Readiness, comes_to_rest, flush, train
from loaderprobe.measure.studies import batches_read, untimed
from loaderprobe.protocols import OnStage, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled
from loaderprobe.system.host import utc_timestamp

LEAST_BUFFERS = 2
"""With fewer, a full buffer is most of what would be seen."""
MOST_SECONDS = 10.0
STEADY = Pace(min_s=3.0, min_batches=12, max_s=5.0)
FILL_S = 60.0


def study_prefilled(config: RunConfig, files: FileSet, parts: Parts, on_stage: OnStage) -> Prefilled:
    """Before, prefilled, after, with segments as a session times them; or the reason why not."""
    started_utc, loader = utc_timestamp(), config.loader

    def without(why: Remark) -> Prefilled:
        return Prefilled(config=config, started_utc=started_utc, reason=why)

    if not isinstance(parts.loader, Switched):
        return without(Remark(code="buffer_not_told"))
    least = (untimed(loader) + LEAST_BUFFERS * loader.batches_ahead) * config.compute.batch_size
    if config.cache == "cold" and files.count < least:
        return without(Remark(code="too_few_for_buffer", facts={"images": files.count, "least": least}))
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
        return without(Remark(code="buffer_not_filled", facts={"within_s": FILL_S}))
    on_stage("steady training", 2, 3)
    after = runner.run(part, 0)
    return Prefilled(config=config, started_utc=started_utc, steady=(before, after), prefilled=prefilled)


def _from_full_buffer(runner: SegmentRunner, loader: Switched, files: FileSet, part: Part) -> Segment | None:
    """None where the buffer does not fill."""
    config, parts, batches = runner.config, runner.parts, runner.batches
    most = batches_read(config.loader)
    if config.cache == "cold":
        most = min(most, files.count // config.compute.batch_size)
    steps = most - untimed(config.loader)
    pace = Pace(min_s=0.0, min_batches=steps, max_s=MOST_SECONDS, max_batches=steps)
    runner.ready.prepare(part.mode, taken=batches.count, pace=pace, cores=parts.cores_available)
    # Those were made from other files than those of the segment.
    flush(batches, config.loader.batches_begun)
    if not comes_to_rest(loader, batches.count, parts.clock, round(FILL_S * 1e9)):
        return None
    resident = runner.ready.resident(batches.count)
    return runner.timed(part, 0, lambda: train(batches, parts.compute, parts.clock, pace), resident=resident)
