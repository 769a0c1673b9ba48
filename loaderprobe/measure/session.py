"""One configuration, in one process: rounds of shuffled modes inside one iterator, to a `Measurement`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from loaderprobe.measure.pace import BLOCKED_SHARE, Pace, pace_for
from loaderprobe.measure.segments import Steps, blocked_share, drain, flush, train, train_resident
from loaderprobe.measure.window import NOT_ASKED, WINDOW_WARM_UP, no_timeline, record_window, seconds_wanted
from loaderprobe.protocols import Clock, Compute, Loader, NextRound, PageCache, Switched
from loaderprobe.records.config import BatchFiles, FileSet, RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Activity, Alternative, Measurement, Missing, Mode, Segment, Series
from loaderprobe.records.timeline import Timeline

# The first half dozen steps of a CPU took 1.4 times as long as those after them.
WARM_UP = Pace(min_s=0.0, min_batches=20, max_s=2.0)
RESIDENCY_FILES = 256
MIN_COLD_BATCHES = 3
# Warm more than the fastest rate the cores allow would consume: that is reckoned from the images so far, and on others
# (small ones, or of another quality) the cores are faster.
WARM_MARGIN = 2.0
MOST_ROUNDS = 12

OnStage = Callable[[str, int, int], None]


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
    next_round: NextRound


@dataclass(slots=True)
class Session:
    """Runs one configuration. `on_stage(name, done, total)` hears of every segment before it begins."""

    config: RunConfig
    files: FileSet | BatchFiles | None
    """None when the data set hides its files: no cache is prepared then, and nothing is cold or warm by intent."""
    parts: Parts
    on_stage: OnStage
    budget_s: float | None = None
    thorough: bool = False
    taken: int = 0
    """Batches that have been taken from the loader before."""
    alternatives: tuple[Alternative, ...] = ()
    images: bool = True
    """False when batches hold no images."""
    _batches: Iterator[Any] = field(init=False)
    _segments: list[Segment] = field(init=False, default_factory=list)
    _notes: list[str] = field(init=False, default_factory=list)
    _pace: Pace = field(init=False)
    _resident: Any = field(init=False, default=None)
    _started_utc: str = field(init=False)
    _started_ns: int = field(init=False)
    _first_batch_s: float = field(init=False, default=0.0)
    _timeline: Timeline | str = field(init=False, default=NOT_ASKED)

    @property
    def base_mode(self) -> Mode:
        """The mode that is the configuration as asked."""
        return "W" if self.config.cache == "warm" else "C"

    @property
    def _to_flush(self) -> int:
        """At most as many batches are made ahead of a switch, and being made."""
        return self.config.workers * (self.config.prefetch_factor + 1)

    def run(self) -> None:
        """Measure round after round, until more would tell nothing new or the budget is spent."""
        self._begin()
        shuffle = random.Random(self.config.seed)
        begun_ns = self.parts.clock.now_ns()
        for number in range(MOST_ROUNDS):
            plan = self._plan()
            if not plan or not self._time_for(len(plan), begun_ns):
                return
            total = max(self.config.rounds * len(plan), len(self._segments) + len(plan))
            for mode, activity in shuffle.sample(plan, len(plan)):
                self.on_stage(f"round {number + 1}: {mode} {activity}", len(self._segments), total)
                self._segments.append(self._segment(mode, activity, number))

    def profile(self) -> None:
        """See what the GPU does, in a window outside all segments; or keep the reason why not."""
        self._timeline = record_window(
            self.parts.compute,
            self.config,
            self._segments,
            self._feed,
            flushed=self._to_flush,
            left_s=None if self.budget_s is None else self.budget_s - self._spent_s(),
            on_stage=lambda name: self.on_stage(name, len(self._segments), len(self._segments)),
        )

    def _feed(self, count: int) -> Iterator[Any]:
        """So many batches as in a segment of the configuration as asked, in files that are as cold as they were."""
        self._prepare_cache(self.base_mode, replace(self._pace, min_batches=count))
        first, size = self.taken, self.config.batch_size
        self._switch(self.base_mode)
        for number in range(count):
            if number == WINDOW_WARM_UP - 1 and self.files is not None and self.base_mode == "C":
                # A small set comes round within the window: what was read so far is cold again.
                self.parts.cache.evict(self.files.absolute(first * size, (self.taken - first) * size))
            self.taken += 1
            # Without a name of its own here, a batch is released when its step is over.
            yield next(self._batches)

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
            missing=(*missing, *([no_timeline(self._timeline)] if isinstance(self._timeline, str) else [])),
            cores_available=self.parts.cores_available,
            storage_counts_reads=self.parts.location.counts_reads,
            storage_kind=self.parts.location.kind,
            files_known=self.files is not None,
            images=self.images,
            modes=self._modes(),
            alternatives=self.alternatives,
            timeline=None if isinstance(self._timeline, str) else self._timeline,
            notes=tuple(dict.fromkeys(self._notes)),
            wall_s=self._spent_s(),
        )

    def _plan(self) -> list[tuple[Mode, Activity]]:
        """The segments of the next round; none when nothing that can be done here would tell more."""
        asked = self.parts.next_round(self.measurement((), ()), thorough=self.thorough)
        possible = {*self._modes(), "resident"}
        return [] if any(mode not in possible for mode, _ in asked) else list(asked)

    def _modes(self) -> tuple[Mode, ...]:
        """Without files to prepare there is no W; Q would read nothing."""
        loader = self.parts.loader
        modes: frozenset[Mode] = loader.modes() if isinstance(loader, Switched) else frozenset({"C", "W"})
        return tuple(sorted(mode for mode in modes if self.files is not None or mode not in ("W", "Q")))

    def _spent_s(self) -> float:
        return (self.parts.clock.now_ns() - self._started_ns) / 1e9

    def _time_for(self, segments: int, begun_ns: int) -> bool:
        """True when so many segments like those so far fit into the budget; the first round always does."""
        if self.budget_s is None or not self._segments:
            return True
        each_s = (self.parts.clock.now_ns() - begun_ns) / 1e9 / len(self._segments)
        window_s = seconds_wanted(self.parts.compute, self.config, self._segments, self._to_flush)
        if self._spent_s() + each_s * segments + window_s <= self.budget_s:
            return True
        self._notes.append("the budget left no time for another round")
        return False

    def _begin(self) -> None:
        clock = self.parts.clock
        self._started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_ns = clock.now_ns()
        self._pace = pace_for(workers=self.config.workers, rounds=self.config.rounds, budget_s=self.budget_s)
        self.on_stage("first batch", 0, 0)
        self._batches = self.parts.loader.batches()
        first = next(self._batches)
        self.taken += 1
        self._first_batch_s = (clock.now_ns() - self._started_ns) / 1e9
        if self.parts.compute.info().given_images_per_s is None:
            self.on_stage("warming up the device", 0, 0)
            self._resident = self.parts.compute.copy(first)
            if self.config.compile:
                # The first step compiles, for minutes.
                train_resident(self._resident, self.parts.compute, clock, Pace(max_batches=1))
            train_resident(self._resident, self.parts.compute, clock, WARM_UP)

    def _segment(self, mode: Mode, activity: Activity, number: int) -> Segment:
        if activity == "train" and self._resident is not None:
            # The first step after a pause is slow, and would weigh more in the shorter segment.
            train_resident(self._resident, self.parts.compute, self.parts.clock, Pace(max_batches=1))
        if mode == "resident":
            alone = replace(self._pace, multiple=1)
            steps = train_resident(self._resident, self.parts.compute, self.parts.clock, alone)
            return self._record(steps, mode, activity, number, first_batch=-1, resident=None, disk_before=None)
        pace = self._paced(mode)
        self._prepare_cache(mode, pace)
        resident = self._residency(self.taken)
        self._switch(mode)
        disk_before = self.parts.read_devices()
        first = self.taken
        if activity == "drain":
            steps = drain(self._batches, self.parts.clock, pace)
        else:
            steps = train(self._batches, self.parts.compute, self.parts.clock, pace)
        self.taken = first + len(steps.begin_ns)
        return self._record(
            steps, mode, activity, number, first_batch=first, resident=resident, disk_before=disk_before
        )

    def _switch(self, mode: Mode) -> None:
        """Switch the workers, and drop what was made before: it would flatter what comes after."""
        loader, most = self.parts.loader, self._to_flush
        if not isinstance(loader, Switched):
            flush(self._batches, most)
            self.taken += most
            return
        loader.switch(mode)
        switched_ns = self.parts.clock.now_ns()
        end = self.taken + most
        while self.taken < end and loader.begun_before(self.taken, switched_ns):
            flush(self._batches, 1)
            self.taken += 1

    def _paced(self, mode: Mode) -> Pace:
        """Cold segments read each file once; where workers wait for storage, they look for longer."""
        pace = self._pace
        if self.base_mode == "W" or mode == "W":
            return pace
        if blocked_share(self.parts.loader.records()) > BLOCKED_SHARE:
            pace = pace.for_blocked_workers()
        if self.files is None:
            return pace
        untimed = self._to_flush + self.config.batches_ahead
        once = self.files.count // self.config.batch_size - untimed
        once -= once % pace.multiple
        least = max(pace.multiple, MIN_COLD_BATCHES)
        if once < least:
            self._notes.append(
                f"the {self.files.count} images are too few to read each only once in a segment: "
                f"{self.config.batch_size * (untimed + least)} are needed"
            )
            once = least
        return replace(pace, max_batches=once)

    def _prepare_cache(self, mode: Mode, pace: Pace) -> None:
        if self.files is None:
            return
        size = self.config.batch_size
        if mode != "W" and self.base_mode == "C":
            self.parts.cache.evict(self.files.absolute(0, self.files.count))
            return
        steps_needed = self.config.batches_ahead + self._to_flush + pace.min_batches
        # A warm configuration also trains on warm files, for as long as a segment may last.
        seconds = pace.min_s if self.base_mode == "C" else pace.max_s
        images = min(self.files.count, max(steps_needed * size, self._images_within(seconds)))
        self.parts.cache.warm(self.files.absolute(self.taken * size, images))

    def _images_within(self, seconds: float) -> int:
        """At most as many images as the cores can preprocess in that time."""
        records = self.parts.loader.records()
        cpu_s = sum(records.cpu_ns) / max(sum(records.images), 1) / 1e9
        hands = min(max(self.config.workers, 1), self.parts.cores_available)
        most = self.files.count if self.files is not None else 0
        return round(WARM_MARGIN * hands * seconds / cpu_s) if cpu_s > 0 else most

    def _residency(self, first_batch: int) -> float | None:
        if self.files is None:
            return None
        count = min(RESIDENCY_FILES, self.files.count)
        ahead = (first_batch + self.config.batches_ahead) * self.config.batch_size
        return self.parts.cache.resident(self.files.absolute(ahead, count))

    def _record(
        self, steps: Steps, mode: Mode, activity: Activity, number: int, *,
        first_batch: int, resident: float | None, disk_before: int | None,
    ) -> Segment:  # fmt: skip
        disk_after = self.parts.read_devices() if disk_before is not None else None
        size = self.config.batch_size
        return steps.segment(
            mode=mode,
            activity=activity,
            round=number,
            first_batch=first_batch,
            batch_size=size,
            delivered_bytes=self._delivered(mode, first_batch * size, len(steps.begin_ns) * size),
            disk_bytes=disk_after - disk_before if disk_after is not None and disk_before is not None else None,
            resident_before=resident,
        )

    def _delivered(self, mode: Mode, first: int, count: int) -> int | None:
        if mode == "resident" or self.files is None:
            return None
        return self.files.delivered_bytes(first, count)
