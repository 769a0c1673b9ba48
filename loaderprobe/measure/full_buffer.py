"""Training that begins with a full buffer: what a short benchmark measures that starts its loader first.

Steady training, training from a full buffer, steady training: what drifts in a straight line meanwhile cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.segment_runner import FIRST_STEP, asked_mode, warm_up
from loaderprobe.measure.segments import Readiness, flush, train
from loaderprobe.measure.studies import BUFFERS, STEPS, untimed
from loaderprobe.protocols import OnStage, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Mode, Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled
from loaderprobe.system.host import utc_timestamp

LEAST_BUFFERS = 2
"""With fewer, a full buffer is most of what would be seen."""
MOST_SECONDS = 10.0
STEADY = Pace(min_s=3.0, min_batches=12, max_s=5.0)
FILL_S = 60.0
LOOK_S = 0.002


@dataclass(slots=True)
class PrefilledStudy:
    """Runs it for one configuration; `steps` from a full buffer, `seconds` for them at most."""

    config: RunConfig
    files: FileSet
    parts: Parts
    on_stage: OnStage
    steps: int = STEPS
    seconds: float = MOST_SECONDS
    _taken: int = field(init=False, default=0)
    _batches: Iterator[Any] = field(init=False)
    _ready: Readiness = field(init=False)

    @property
    def _mode(self) -> Mode:
        return asked_mode(self.config)

    def run(self) -> Prefilled:
        """Before, prefilled, after; or the reason why not."""
        started_utc = utc_timestamp()
        why = self._impossible()
        if why is not None:
            return Prefilled(config=self.config, started_utc=started_utc, reason=why)
        self._begin()
        self.on_stage("steady training", 0, 3)
        before = self._steady()
        self.on_stage("filling the buffer", 1, 3)
        prefilled = self._prefilled()
        if prefilled is None:
            why = Remark(code="buffer_not_filled", facts={"within_s": FILL_S})
            return Prefilled(config=self.config, started_utc=started_utc, reason=why)
        self.on_stage("steady training", 2, 3)
        steady = before, self._steady()
        return Prefilled(config=self.config, started_utc=started_utc, steady=steady, prefilled=prefilled)

    def _impossible(self) -> Remark | None:
        """Why a full buffer cannot be studied; None where it can."""
        if not isinstance(self.parts.loader, Switched):
            return Remark(code="buffer_not_told")
        least = images_for(self.config, LEAST_BUFFERS * self.config.loader.batches_ahead)
        if self.config.cache == "cold" and self.files.count < least:
            return Remark(code="too_few_for_buffer", facts={"images": self.files.count, "least": least})
        return None

    def _begin(self) -> None:
        parts = self.parts.loader, self.parts.cache
        self._ready = Readiness(self.config, self.files, "files", *parts, self._drop)
        self.on_stage("first batch", 0, 3)
        self._batches = self.parts.loader.batches()
        first = next(self._batches)
        self._taken = 1
        warm_up([self.parts.compute.copy(first)], self.config, self.parts.compute, self.parts.clock)

    def _steady(self) -> Segment:
        """As a session times training: after a flush, from an empty buffer."""
        self._prepare(STEADY)
        train(self._batches, self.parts.compute, self.parts.clock, FIRST_STEP)
        self._taken += 1
        pace = replace(STEADY, multiple=max(1, self.config.loader.workers))
        return self._timed(self._ready.limit(pace, self._mode, untimed(self.config.loader) + 1))

    def _prefilled(self) -> Segment | None:
        steps = max(self.steps, BUFFERS * self.config.loader.batches_ahead)
        if self.config.cache == "cold":
            steps = min(steps, fitting(self.config, self.files))
        pace = Pace(min_s=0.0, min_batches=steps, max_s=self.seconds, max_batches=steps)
        self._prepare(pace)
        return self._timed(pace) if self._filled() else None

    def _prepare(self, pace: Pace) -> None:
        self._ready.prepare(self._mode, taken=self._taken, pace=pace, cores=self.parts.cores_available)
        # Those were made from other files than those of the segment.
        self._drop(self.config.loader.batches_begun)

    def _filled(self) -> bool:
        """Wait until the workers have made all they may; False when that takes too long."""
        clock, loader = self.parts.clock, self.parts.loader
        end_ns = clock.now_ns() + round(FILL_S * 1e9)
        assert isinstance(loader, Switched)
        while not loader.still(self._taken):
            if clock.now_ns() > end_ns:
                return False
            clock.sleep(LOOK_S)
        return True

    def _timed(self, pace: Pace) -> Segment:
        first = self._taken
        resident = self._ready.resident(first)
        disk = self.parts.read_devices()
        steps = train(self._batches, self.parts.compute, self.parts.clock, pace)
        count = len(steps.begin_ns)
        self._taken += count
        after = self.parts.read_devices()
        return steps.segment(
            mode=self._mode,
            activity="training",
            round=0,
            first_batch=first,
            batch_size=self.config.compute.batch_size,
            delivered_bytes=self.files.delivered_bytes(
                first * self.config.compute.batch_size, count * self.config.compute.batch_size
            ),
            disk_bytes=None if disk is None or after is None else after - disk,
            resident_before=resident,
        )

    def _drop(self, count: int) -> None:
        flush(self._batches, count)
        self._taken += count


def images_for(config: RunConfig, steps: int) -> int:
    """Images of a set that lets each file be read once in so many steps from a full buffer."""
    return (untimed(config.loader) + steps) * config.compute.batch_size


def fitting(config: RunConfig, files: FileSet) -> int:
    """Steps from a full buffer for which a set has files."""
    return files.count // config.compute.batch_size - untimed(config.loader)
