"""One configuration in one process: what is run, round after round, inside one iterator; a `Recorder` keeps it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loaderprobe.measure.further import CUT_SHORT, NO_TIME, Durations, Part
from loaderprobe.measure.pace import BLOCKED_SHARE, OVERHEAD, Pace, pace_for
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.readiness import Readiness
from loaderprobe.measure.recorder import Recorder
from loaderprobe.measure.segments import Steps, blocked_share, flush, load_only, train, train_resident
from loaderprobe.measure.warm_up import WARM_UP, warm_up
from loaderprobe.measure.window import WINDOW_WARM_UP, record_window, seconds_wanted
from loaderprobe.protocols import Files, Switched
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import Measurement, Missing, Mode, Segment, Series
from loaderprobe.records.note import Note

# Not timed: a device is slow in its first step after idling, and after a flush the loader has no batch ready. One wait
# of 200 ms made training of 8 steps of 150 ms look 14 % slower than it is.
FIRST_STEP = Pace(max_batches=1)
MOST_ROUNDS = 12

OnStage = Callable[[str, int, int], None]


@dataclass(slots=True)
class Session:
    """Runs one configuration, and feeds the recorder. `on_stage(name, done, total)` is called before every segment."""

    recorder: Recorder
    files: Files | PartFiles | None
    """None when the data set hides its files."""
    parts: Parts
    on_stage: OnStage
    budget_s: float | None = None
    thorough: bool = False
    taken: int = 0
    """Number of batches taken from the loader so far."""
    pool: int = 0
    """Batches before the same are repeated; 0 where the files give it."""
    held: tuple[Any, ...] = ()
    """Batches for steps without the loader; if empty, the first batch."""
    turn: Pace | None = None
    """The pace of the one round that is asked for; None for as many as the verdict needs."""
    more_s: float | None = field(init=False, default=None)
    """Seconds that `budget_s` lacked for `enough_rounds` whole ones; None where it ended nothing."""
    enough_rounds: int = field(init=False, default=0)
    _batches: Iterator[Any] = field(init=False)
    _durations: Durations = field(init=False)
    _pace: Pace = field(init=False)
    _resident: list[Any] = field(init=False, default_factory=list)
    _stand_in: Sequence[Any] = field(init=False, default=())
    _ready: Readiness = field(init=False)

    @property
    def config(self) -> RunConfig:
        """What is run."""
        return self.recorder.config

    @property
    def base_mode(self) -> Mode:
        """The mode of the configuration as asked."""
        return "warm" if self.config.cache == "warm" else "baseline"

    @property
    def _to_flush(self) -> int:
        """Most batches that can be made, or in progress, ahead of a switch."""
        return self.config.loader.batches_begun

    def run(self) -> None:
        """Measure round after round, until more cannot change the verdict or the budget is spent."""
        self._begin()
        before, segments = self._rounds_before(), self.recorder.segments
        shuffle = random.Random(self.config.seed + before)
        for number in range(1 if self.turn else MOST_ROUNDS - before):
            plan = self._affordable(self._plan(number))
            if not plan or (number and not self._new_batches_for(plan)):
                return
            total = max(self.config.rounds * len(plan), len(segments) + len(plan))
            for part in shuffle.sample(plan, len(plan)):
                self._measure(part, number, total)

    def _rounds_before(self) -> int:
        return self.recorder.rounds_before

    def _measure(self, part: Part, number: int, total: int) -> None:
        """Add one segment of round `number`."""
        segments, without = self.recorder.segments, "" if part.without is None else f" without rank {part.without}"
        name = f"round {self.recorder.rounds_before + number + 1}: {part.mode} {part.activity}{without}"
        self.on_stage(name, len(segments), total)
        begun_ns = self.parts.clock.now_ns()
        segments.append(self._segment(part, number))
        self._durations.add(part, (self.parts.clock.now_ns() - begun_ns) / 1e9)

    def profile(self) -> None:
        """Record the GPU in a profiler window outside all segments; or keep the reason why not."""
        segments = self.recorder.segments
        self.recorder.timeline = record_window(
            self.parts.compute,
            self.config,
            segments,
            self._feed,
            flushed=self._to_flush,
            left_s=None if self.budget_s is None else self.budget_s - self._spent_s(),
            on_stage=lambda name: self.on_stage(name, len(segments), len(segments)),
        )

    def _feed(self, count: int) -> Iterator[Any]:
        """`count` batches as in a segment of the configuration as asked, from files in the same cache state."""
        self._prepare(self.base_mode, replace(self._pace, min_batches=count))
        first, size = self.taken, self.config.compute.batch_size
        self._switch(Part(self.base_mode, "training"))
        known = self._ready.whole()
        for number in range(count):
            if number == WINDOW_WARM_UP - 1 and known is not None and self.base_mode == "baseline":
                # A small set comes round within the window: what was read so far is cold again.
                self.parts.cache.evict(known.absolute(first * size, (self.taken - first) * size))
            self.taken += 1
            # Without a name of its own here, a batch is released when its step is over.
            yield next(self._batches)

    def measurement(self, series: Sequence[Series], missing: Sequence[Missing]) -> Measurement:
        """The measurement so far, with what was measured before. Call it before the loader is left."""
        parts = self.parts
        return self.recorder.measurement(
            parts.clock.now_ns(),
            compute=parts.compute.info(),
            worker_batches=parts.loader.records(),
            waits=parts.waits(),
            modes=self._ready.modes(),
            cores_available=parts.cores_available,
            storage_counts_reads=parts.location.counts_reads,
            storage_kind=parts.location.kind,
            series=series,
            missing=(*missing, *parts.disturbance.missing()),
        )

    def _plan(self, number: int) -> list[Part]:
        """The segments of round `number`; none when no possible segment would change the verdict."""
        asked = self.parts.next_round(self.measurement((), ()), thorough=self.thorough)
        possible = {*self._ready.modes(), "resident"}
        return [] if any(mode not in possible for mode, _ in asked) else [Part(*each) for each in asked]

    def _new_batches_for(self, plan: Sequence[Part]) -> bool:
        """False where cold segments need new batches, and too few are left."""
        cold = sum(each.mode not in ("warm", "resident") for each in plan)
        short = self._ready.exhausted(cold, self._pace, self._to_flush + 1)
        if short:
            self.recorder.notes.append(Note(code="all_batches_made"))
        return not short

    def _spent_s(self) -> float:
        return self.recorder.seconds(self.parts.clock.now_ns())

    def _affordable(self, plan: list[Part]) -> list[Part]:
        """As much of the next round as the budget has time for, at durations so far; the very first always fits."""
        segments = self.recorder.segments
        # Ranks begin the first round alone.
        begun = self.recorder.earlier or any(each.activity != "alone" for each in segments)
        if self.budget_s is None or not plan or not begun:
            return plan
        left_s = self.budget_s - self._spent_s() - self._window_s()
        done = len({each.round for each in segments}) + self.recorder.rounds_before
        # What only ranks have is in every round.
        twice = 1 + (done + 1 < self.config.rounds and self.config.ranks == 1)
        fitting = self._durations.fitting(plan, left_s, shorter=self._shorter(plan), times=twice)
        if len(fitting) < len(plan):
            self.recorder.notes.append(CUT_SHORT if fitting else NO_TIME)
            self.enough_rounds = max(self.config.rounds, done + 1)
            self.more_s = max(0.0, (self.enough_rounds - done) * self._durations.of_round(plan) - left_s)
        return fitting

    def _shorter(self, plan: list[Part]) -> list[Part]:
        """The part of a round that decides; all ranks measure all of it."""
        if self.config.ranks > 1 or self.turn or self.thorough:
            return []
        asked = tuple((each.mode, each.activity) for each in plan)
        return [Part(*each) for each in self.parts.deciding(self.measurement((), ()), asked)]

    def _window_s(self) -> float:
        return seconds_wanted(self.parts.compute, self.config, self.recorder.segments, self._to_flush)

    def _begin(self) -> None:
        clock, earlier = self.parts.clock, self.recorder.earlier
        self.recorder.begin(clock.now_ns())
        # Further rounds are no slower than those before, which took no more than this.
        limits = (self.budget_s, earlier.wall_s if earlier else None)
        budget_s = min((each for each in limits if each is not None), default=None)
        usual = pace_for(workers=self.config.loader.workers, rounds=self.config.rounds, budget_s=budget_s)
        self._pace = self.turn or usual
        usual_s = OVERHEAD * self._pace.max_s
        self._durations = Durations.of(earlier) if earlier else Durations(usual_s=usual_s)
        recorder, loader, cache = self.recorder, self.parts.loader, self.parts.cache
        self._ready = Readiness(
            self.config, self.files, recorder.access, loader, cache, self._drop, self.pool, recorder.notes,
            sample_bytes=recorder.sample_bytes, read_ahead_bytes=self.parts.location.read_ahead_bytes,
        )  # fmt: skip
        self.on_stage("first batch", 0, 0)
        self._batches = self.parts.loader.batches()
        first = next(self._batches)
        self.taken += 1
        self.recorder.got_first_batch(clock.now_ns())
        self._stand_in = held = self.held or (first,)
        if self.parts.compute.info().specified_images_per_s is None:
            self.on_stage("warming up the device", 0, 0)
            self._resident = [self.parts.compute.copy(batch) for batch in held]
            warm_up(self._resident, self.config, self.parts.compute, clock, self._agreed(WARM_UP))

    def _segment(self, part: Part, number: int) -> Segment:
        mode, activity = part.mode, part.activity
        if mode == "resident":
            return self._compute_alone(part, number)
        pace = self._paced(mode, untimed_steps=int(activity == "training"))
        self._prepare(mode, pace)
        resident = self._ready.resident(self.taken)
        self._switch(part)
        # What the kernel reads ahead of a shard must be as much when timing begins as when it ends.
        self._drop(self._ready.untimed(mode, self._to_flush))
        # Without transport, the step uses an earlier batch.
        instead = self._stand_in if mode == "no_transport" else ()
        if activity == "training":
            train(self._batches, self.parts.compute, self.parts.clock, self._agreed(FIRST_STEP), instead)
            self.taken += 1
        self.parts.disturbance.begin()
        disk_before = self.parts.read_devices()
        first = self.taken
        if activity == "training":
            steps = train(self._batches, self.parts.compute, self.parts.clock, self._agreed(pace), instead)
        else:
            steps = self._load_only(part, pace)
        self.taken = first + len(steps.begin_ns)
        if mode not in ("warm", "no_transport"):
            self._ready.last_new = len(steps.begin_ns)
        return self._record(steps, part, number, first_batch=first, resident=resident, disk_before=disk_before)

    def _compute_alone(self, part: Part, number: int) -> Segment:
        """Steps on batches that stay on the device, while no worker makes another."""
        compute, clock = self.parts.compute, self.parts.clock
        self._ready.rest(self.taken, clock)
        train_resident(self._resident[:1], compute, clock, self._agreed(FIRST_STEP))
        self.parts.disturbance.begin()
        steps = train_resident(self._resident, compute, clock, self._agreed(self._resident_pace()))
        return self._record(steps, part, number, first_batch=-1, resident=None, disk_before=None)

    def _load_only(self, part: Part, pace: Pace) -> Steps:
        return load_only(self._batches, self.parts.clock, pace)

    def _agreed(self, pace: Pace) -> Pace:
        """Several ranks keep the same pace; alone, it is as it is."""
        return pace

    def _resident_pace(self) -> Pace:
        """Of compute alone, which no worker's period concerns."""
        return replace(self._pace, multiple=1)

    def _drop(self, count: int) -> None:
        flush(self._batches, count)
        self.taken += count

    def _switch(self, part: Part) -> None:
        """Switch the workers to the mode of a segment, and drop batches made before, which would bias it."""
        loader, most = self.parts.loader, self._to_flush
        if not isinstance(loader, Switched):
            self._drop(most)
            return
        loader.switch(part.mode)
        switched_ns = self.parts.clock.now_ns()
        end = self.taken + most
        while self.taken < end and loader.begun_before(self.taken, switched_ns):
            self._drop(1)

    def _paced(self, mode: Mode, untimed_steps: int) -> Pace:
        """The pace of a mode: cold segments read each file once, and are longer where workers wait for storage."""
        pace = self._pace
        if "warm" not in (self.base_mode, mode) and blocked_share(self.parts.loader.records()) > BLOCKED_SHARE:
            pace = pace.for_blocked_workers()
        return self._ready.limit(pace, mode, self._to_flush + self.config.loader.batches_ahead + untimed_steps)

    def _prepare(self, mode: Mode, pace: Pace) -> None:
        records = self.parts.loader.records()
        images = max(sum(records.images), 1)
        self._ready.prepare(
            mode,
            taken=self.taken,
            pace=pace,
            to_flush=self._to_flush,
            cpu_s=sum(records.cpu_ns) / images / 1e9,
            read_bytes=sum(records.read_bytes) / images,
            cores=self.parts.cores_available,
        )
        self._ready.evicted_at = self.taken

    def _record(
        self, steps: Steps, part: Part, number: int, *, first_batch: int, resident: float | None,
        disk_before: int | None,
    ) -> Segment:  # fmt: skip
        """`first_batch` is -1 where no batch was taken."""
        others = self.parts.disturbance.end()
        disk_after = self.parts.read_devices() if disk_before is not None else None
        known = first_batch >= 0
        delivered, distinct = self._ready.delivered(first_batch, len(steps.begin_ns)) if known else (None, None)
        return steps.segment(
            mode=part.mode,
            activity=part.activity,
            without=part.without,
            round=number,
            first_batch=first_batch,
            batch_size=self.config.compute.batch_size,
            delivered_bytes=delivered,
            distinct_bytes=distinct,
            disk_bytes=disk_after - disk_before if disk_after is not None and disk_before is not None else None,
            resident_before=resident,
            others=others,
        )
