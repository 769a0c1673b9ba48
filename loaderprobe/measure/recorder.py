"""What is seen of one configuration, kept until it is a `Measurement`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from loaderprobe.measure.further import joined
from loaderprobe.measure.window import NOT_ASKED
from loaderprobe.records.config import RunConfig
from loaderprobe.records.first_lap import FirstLap
from loaderprobe.records.measurement import (
    Access,
    Alternative,
    ComputeInfo,
    Measurement,
    Missing,
    Mode,
    Segment,
    Series,
    WorkerBatches,
)
from loaderprobe.records.note import Note, each_once
from loaderprobe.records.timeline import Timeline
from loaderprobe.records.waits import WaitSamples


@dataclass(slots=True)
class Recorder:
    """Segments, notes and the start of one configuration.

    A session that drives the loader feeds it, and so does one that only watches a training. Times are ns of one clock.
    """

    config: RunConfig
    access: Access = "files"
    first_lap: FirstLap | None = None
    sample_bytes: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    images: bool = True
    """False when batches hold no images."""
    earlier: Measurement | None = None
    """What was measured of this configuration before, which is continued."""
    joins: bool = True
    """False where the measurements of several ranks are joined before that with the earlier one, which is of all."""
    segments: list[Segment] = field(init=False, default_factory=list)
    notes: list[Note] = field(init=False, default_factory=list)
    timeline: Timeline | Missing = field(init=False, default=NOT_ASKED)
    _started_utc: str = field(init=False)
    _started_ns: int = field(init=False)
    _first_batch_s: float = field(init=False, default=0.0)

    @property
    def rounds_before(self) -> int:
        """Rounds of the earlier measurement."""
        return 1 + max(each.round for each in self.earlier.segments) if self.earlier else 0

    def begin(self, now_ns: int) -> None:
        """The loader is asked for its first batch."""
        self._started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_ns = now_ns

    def got_first_batch(self, now_ns: int) -> None:
        """It came, which is part of no rate."""
        self._first_batch_s = self.seconds(now_ns)

    def seconds(self, now_ns: int) -> float:
        """Since the beginning."""
        return (now_ns - self._started_ns) / 1e9

    def measurement(
        self, now_ns: int, *, compute: ComputeInfo, worker_batches: WorkerBatches, waits: WaitSamples | Missing,
        modes: tuple[Mode, ...], cores_available: float, storage_counts_reads: bool, storage_kind: str,
        series: Sequence[Series] = (), missing: Sequence[Missing] = (),
    ) -> Measurement:  # fmt: skip
        """All so far, with what was measured before. `modes` are those that this loader can be measured in."""
        unseen = [each for each in (self.timeline, waits) if isinstance(each, Missing)]
        found = Measurement(
            config=self.config,
            compute=compute,
            started_utc=self._started_utc,
            first_batch_s=self._first_batch_s,
            segments=tuple(self.segments),
            worker_batches=worker_batches,
            series=tuple(series),
            missing=(*missing, *unseen),
            cores_available=cores_available,
            storage_counts_reads=storage_counts_reads,
            storage_kind=storage_kind,
            access=self.access,
            first_lap=self.first_lap,
            sample_bytes=self.sample_bytes,
            waits=None if isinstance(waits, Missing) else waits,
            images=self.images,
            modes=modes,
            alternatives=self.alternatives,
            timeline=None if isinstance(self.timeline, Missing) else self.timeline,
            notes=each_once(self.notes),
            wall_s=self.seconds(now_ns),
        )
        return joined(self.earlier, found) if self.earlier and self.joins else found
