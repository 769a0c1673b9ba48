"""One configuration, in one process: rounds of shuffled modes inside one iterator, to a `Measurement`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from loaderprobe.measure.pace import BLOCKED_SHARE, Pace, pace_for
from loaderprobe.measure.segments import Steps, drain, flush, train, train_resident
from loaderprobe.protocols import Clock, Compute, Loader, PageCache
from loaderprobe.records.config import FileSet, RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Activity, Measurement, Missing, Mode, Segment, Series, WorkerBatches

WARM_UP_STEPS = 20
# The first half dozen steps of a CPU took 1.4 times as long as those after them.
WARM_UP_SECONDS = 2.0
RESIDENCY_FILES = 256
MIN_COLD_BATCHES = 3
# Warm a little more than the fastest rate the cores allow would consume.
WARM_MARGIN = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one measurement, which know nothing of each other."""

    loader: Loader
    compute: Compute
    clock: Clock
    cache: PageCache
    location: StorageLocation
    cores_available: float
    read_devices: Callable[[], int | None]
    """Bytes that the devices under the data have read so far; None when not visible."""


@dataclass(slots=True)
class Session:
    """Runs one configuration. `on_stage(name, done, total)` hears of every segment before it begins."""

    config: RunConfig
    files: FileSet
    parts: Parts
    on_stage: Callable[[str, int, int], None]
    budget_s: float | None = None
    _batches: Iterator[Any] = field(init=False)
    _taken: int = field(init=False, default=0)
    _segments: list[Segment] = field(init=False, default_factory=list)
    _notes: list[str] = field(init=False, default_factory=list)
    _pace: Pace = field(init=False)
    _resident: Any = field(init=False, default=None)
    _started_utc: str = field(init=False)
    _started_ns: int = field(init=False)
    _first_batch_s: float = field(init=False, default=0.0)

    @property
    def base_mode(self) -> Mode:
        """The mode that is the configuration as asked."""
        return "C" if self.config.cache == "cold" else "W"

    @property
    def _to_flush(self) -> int:
        """Batches made ahead of a switch, and those being made."""
        return self.config.workers * (self.config.prefetch_factor + 1)

    def plan(self) -> list[tuple[Mode, Activity]]:
        """The segments of one round, in no order. A given rate needs no resident batch."""
        segments: list[tuple[Mode, Activity]] = [(self.base_mode, "drain"), (self.base_mode, "train")]
        if self.base_mode == "C":
            segments.append(("W", "drain"))
        if self.parts.compute.info().given_images_per_s is None:
            segments.append(("resident", "train"))
        return segments

    def run(self) -> None:
        """Measure all rounds. The loader must be entered; its workers start here."""
        plan = self.plan()
        total = self.config.rounds * len(plan)
        self._pace = pace_for(
            workers=self.config.workers,
            rounds=self.config.rounds,
            segments_a_round=len(plan),
            budget_s=self.budget_s,
        )
        self._begin(total)
        shuffle = random.Random(self.config.seed)
        for number in range(self.config.rounds):
            for mode, activity in shuffle.sample(plan, len(plan)):
                done = len(self._segments)
                self.on_stage(f"round {number + 1} of {self.config.rounds}: {mode} {activity}", done, total)
                self._segments.append(self._segment(mode, activity, number))

    def measurement(self, series: Sequence[Series], missing: Sequence[Missing]) -> Measurement:
        """What was seen. Call it while the loader is still entered."""
        return Measurement(
            config=self.config,
            compute=self.parts.compute.info(),
            started_utc=self._started_utc,
            first_batch_s=self._first_batch_s,
            segments=tuple(self._segments),
            worker_batches=self.parts.loader.records(),
            series=tuple(series),
            missing=tuple(missing),
            cores_available=self.parts.cores_available,
            storage_counts_reads=self.parts.location.counts_reads,
            storage_kind=self.parts.location.kind,
            notes=tuple(dict.fromkeys(self._notes)),
            wall_s=(self.parts.clock.now_ns() - self._started_ns) / 1e9,
        )

    def _begin(self, total: int) -> None:
        clock = self.parts.clock
        self._started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_ns = clock.now_ns()
        self.on_stage("first batch", 0, total)
        self._batches = self.parts.loader.batches()
        first = next(self._batches)
        self._taken = 1
        self._first_batch_s = (clock.now_ns() - self._started_ns) / 1e9
        if self.parts.compute.info().given_images_per_s is None:
            self.on_stage("warming up the device", 0, total)
            self._resident = self.parts.compute.copy(first)
            train_resident(self._resident, self.parts.compute, clock, self._warm_up())

    def _warm_up(self) -> Pace:
        return Pace(min_s=0.0, min_batches=WARM_UP_STEPS, max_s=WARM_UP_SECONDS)

    def _segment(self, mode: Mode, activity: Activity, number: int) -> Segment:
        if activity == "train" and self._resident is not None:
            # The first step after a pause is slow, and would weigh more in the shorter segment.
            train_resident(self._resident, self.parts.compute, self.parts.clock, Pace(max_batches=1))
        if mode == "resident":
            steps = train_resident(
                self._resident, self.parts.compute, self.parts.clock, replace(self._pace, multiple=1)
            )
            return self._record(steps, mode, activity, number, first_batch=-1, resident=None, disk_before=None)
        pace = self._paced(mode)
        self._prepare_cache(mode, self._taken + self.config.batches_ahead, pace)
        first = self._taken + self._to_flush
        resident = self._residency(first)
        flush(self._batches, self._to_flush)
        disk_before = self.parts.read_devices()
        if activity == "drain":
            steps = drain(self._batches, self.parts.clock, pace)
        else:
            steps = train(self._batches, self.parts.compute, self.parts.clock, pace)
        self._taken = first + len(steps.begin_ns)
        return self._record(
            steps, mode, activity, number, first_batch=first, resident=resident, disk_before=disk_before
        )

    def _paced(self, mode: Mode) -> Pace:
        """Cold segments read each file once; where workers wait for storage, they look for longer."""
        pace = self._pace
        if mode != "C":
            return pace
        untimed = self._to_flush + self.config.batches_ahead
        once = len(self.files.paths) // self.config.batch_size - untimed
        once -= once % pace.multiple
        if once < max(pace.multiple, MIN_COLD_BATCHES):
            self._notes.append(
                f"the {len(self.files.paths)} files are too few to read each only once in a segment: "
                f"{self.config.batch_size * (untimed + max(pace.multiple, MIN_COLD_BATCHES))} are needed"
            )
            once = max(pace.multiple, MIN_COLD_BATCHES)
        if blocked_share(self.parts.loader.records()) > BLOCKED_SHARE:
            pace = pace.for_blocked_workers()
        return replace(pace, max_batches=once)

    def _prepare_cache(self, mode: Mode, first_batch: int, pace: Pace) -> None:
        size = self.config.batch_size
        if mode == "C":
            self.parts.cache.evict(self.files.absolute(0, len(self.files.paths)))
            return
        steps_needed = self._to_flush + pace.min_batches
        # A warm configuration also trains on warm files, for as long as a segment may last.
        seconds = pace.min_s if self.base_mode == "C" else pace.max_s
        images = min(len(self.files.paths), max(steps_needed * size, self._images_within(seconds)))
        self.parts.cache.warm(self.files.absolute(first_batch * size, images))

    def _images_within(self, seconds: float) -> int:
        """At most as many images as the cores can preprocess in that time."""
        records = self.parts.loader.records()
        cpu_s = sum(records.cpu_ns) / max(sum(records.images), 1) / 1e9
        hands = min(max(self.config.workers, 1), self.parts.cores_available)
        return round(WARM_MARGIN * hands * seconds / cpu_s) if cpu_s > 0 else len(self.files.paths)

    def _residency(self, first_batch: int) -> float | None:
        count = min(RESIDENCY_FILES, len(self.files.paths))
        return self.parts.cache.resident(self.files.absolute(first_batch * self.config.batch_size, count))

    def _record(
        self, steps: Steps, mode: Mode, activity: Activity, number: int, *,
        first_batch: int, resident: float | None, disk_before: int | None,
    ) -> Segment:  # fmt: skip
        disk_after = self.parts.read_devices() if disk_before is not None else None
        size = self.config.batch_size
        delivered = (
            self.files.delivered_bytes(first_batch * size, len(steps.begin_ns) * size) if mode != "resident" else None
        )
        return Segment(
            mode=mode,
            activity=activity,
            round=number,
            first_batch=first_batch,
            batch_size=size,
            begin_ns=tuple(steps.begin_ns),
            ready_ns=tuple(steps.ready_ns),
            copied_ns=tuple(steps.copied_ns),
            end_ns=tuple(steps.end_ns),
            finished_ns=steps.finished_ns,
            closed_ns=steps.closed_ns,
            thread_cpu_ns=steps.thread_cpu_ns,
            delivered_bytes=delivered,
            disk_bytes=disk_after - disk_before if disk_after is not None and disk_before is not None else None,
            resident_before=resident,
        )


def blocked_share(records: WorkerBatches) -> float:
    """Share of the workers' wall time spent waiting for storage: wall minus CPU minus run delay."""
    wall = sum(records.wall_ns)
    return 1 - (sum(records.cpu_ns) + sum(records.run_delay_ns)) / wall if wall else 0.0
