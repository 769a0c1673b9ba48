"""Training that begins with a full buffer: what a short benchmark measures that starts its loader first.

Steady training, training from a full buffer, steady training: what drifts in a straight line meanwhile cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaderprobe.measure.pace import Pace, Part
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.segment_runner import Counted, SegmentRunner
from loaderprobe.measure.segments import Readiness, comes_to_rest, flush, train
from loaderprobe.measure.studies import batches_read, untimed
from loaderprobe.protocols import OnStage, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Segment, asked_mode
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled
from loaderprobe.system.host import utc_timestamp

LEAST_BUFFERS = 2
"""With fewer, a full buffer is most of what would be seen."""
MOST_SECONDS = 10.0
STEADY = Pace(min_s=3.0, min_batches=12, max_s=5.0)
FILL_S = 60.0


@dataclass(frozen=True, slots=True)
class PrefilledStudy:
    """Runs it for one configuration, with segments as a session times them."""

    config: RunConfig
    files: FileSet
    parts: Parts
    on_stage: OnStage

    def run(self) -> Prefilled:
        """Before, prefilled, after; or the reason why not."""
        started_utc, steady = utc_timestamp(), list[Segment]()
        why, prefilled = self._impossible(), None
        if why is None:
            part, runner = Part(asked_mode(self.config), "training"), self._begun()
            self.on_stage("steady training", 0, 3)
            steady.append(runner.run(part, 0))
            self.on_stage("filling the buffer", 1, 3)
            prefilled = self._from_full_buffer(runner, part)
            why = None if prefilled else Remark(code="buffer_not_filled", facts={"within_s": FILL_S})
        if why is None:
            self.on_stage("steady training", 2, 3)
            steady.append(runner.run(part, 0))
        return Prefilled(
            config=self.config, started_utc=started_utc, steady=() if why else tuple(steady), prefilled=prefilled,
            reason=why,
        )  # fmt: skip

    def _impossible(self) -> Remark | None:
        """Why a full buffer cannot be studied; None where it can."""
        if not isinstance(self.parts.loader, Switched):
            return Remark(code="buffer_not_told")
        loader = self.config.loader
        least = (untimed(loader) + LEAST_BUFFERS * loader.batches_ahead) * self.config.compute.batch_size
        if self.config.cache == "cold" and self.files.count < least:
            return Remark(code="too_few_for_buffer", facts={"images": self.files.count, "least": least})
        return None

    def _begun(self) -> SegmentRunner:
        loader, cache = self.parts.loader, self.parts.cache
        self.on_stage("first batch", 0, 3)
        batches = Counted(loader.batches(), 0)
        ready = Readiness(self.config, self.files, "files", loader, cache, lambda count: flush(batches, count))
        pace = replace(STEADY, multiple=max(1, self.config.loader.workers))
        runner = SegmentRunner(self.config, self.parts, batches, pace, ready, None)
        runner.stand_in = (next(batches),)
        runner.warm_up()
        return runner

    def _from_full_buffer(self, runner: SegmentRunner, part: Part) -> Segment | None:
        """None where the buffer does not fill."""
        most = batches_read(self.config.loader)
        if self.config.cache == "cold":
            most = min(most, self.files.count // self.config.compute.batch_size)
        steps = most - untimed(self.config.loader)
        pace = Pace(min_s=0.0, min_batches=steps, max_s=MOST_SECONDS, max_batches=steps)
        runner.ready.prepare(part.mode, taken=runner.batches.count, pace=pace, cores=self.parts.cores_available)
        # Those were made from other files than those of the segment.
        flush(runner.batches, self.config.loader.batches_begun)
        compute, clock, loader = self.parts.compute, self.parts.clock, self.parts.loader
        assert isinstance(loader, Switched)
        if not comes_to_rest(loader, runner.batches.count, clock, round(FILL_S * 1e9)):
            return None
        resident = runner.ready.resident(runner.batches.count)
        return runner.timed(part, 0, lambda: train(runner.batches, compute, clock, pace), resident=resident)
