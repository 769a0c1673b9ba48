"""One configuration in one process, alone or as one of several ranks: what is run, round after round.

All of it is run inside one iterator of the loader; a `Recorder` keeps it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import lcm
from typing import Any, Protocol, Self

from loaderprobe.analyze.verdict.rounds import deciding
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.crew import ALONE, Crew
from loaderprobe.measure.further import CUT_SHORT, NO_TIME, Durations, Part, joined
from loaderprobe.measure.segments import (
    BLOCKED_SHARE,
    MIN_STEPS_OF_SLOW_DEVICE,
    OVERHEAD,
    Pace,
    Readiness,
    Steps,
    blocked_share,
    flush,
    load_only,
    pace_for,
    train,
    train_resident,
)
from loaderprobe.protocols import (
    Clock,
    Compute,
    Exchanging,
    Files,
    Loader,
    NextRound,
    PageCache,
    Profiling,
    Switched,
)
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import (
    NO_STEP,
    Access,
    Alternative,
    ComputeInfo,
    FirstPass,
    Measurement,
    Missing,
    Mode,
    Others,
    Segment,
    Series,
    Timeline,
    WorkerBatches,
)
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.waits import WaitSamples
from loaderprobe.system.host import utc_timestamp

# What a session measures with.

UNSEEN = Missing(name="waits", reason=Remark(code="workers_not_sampled"))


class Disturbance(Protocol):
    """Sees what other processes do to the machine while something is timed."""

    def begin(self) -> None: ...

    def end(self) -> Others | None:
        """It has ended: what others did since; None where that is not seen."""
        ...

    def missing(self) -> Sequence[Missing]:
        """Why it is not seen; nothing where it is."""
        ...


class NotWatched:
    """Of parts without one."""

    def begin(self) -> None:
        """Reads nothing."""

    def end(self) -> None:
        """Has seen nothing."""

    def missing(self) -> Sequence[Missing]:
        """It was not to be seen."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The independent parts of one measurement."""

    loader: Loader
    compute: Compute
    clock: Clock
    cache: PageCache
    location: StorageLocation
    cores_available: float
    read_devices: Callable[[], int | None]
    """Bytes that the devices under the data have read so far; None when not visible."""
    next_round: NextRound
    """What of a round decides, where there is no time for all of it."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
    disturbance: Disturbance = field(default_factory=NotWatched)
    """What other processes do meanwhile."""
    crew: Crew = ALONE
    """The ranks that measure in step with this process; usually none but itself."""


# The first steps of a device, which are slower than those after them.

# The first half dozen steps of a CPU took 1.4 times as long as those after them.
WARM_UP = Pace(min_s=0.0, min_batches=20, max_s=2.0)


def warm_up(on_device: Sequence[Any], config: RunConfig, compute: Compute, clock: Clock, pace: Pace = WARM_UP) -> None:
    """Train in turn on batches that stay on the device, until it is as fast as later; an emulated one always is."""
    if compute.info().specified_images_per_s is not None:
        return
    if config.compute.compile:
        # The first step compiles, for minutes.
        train_resident(on_device, compute, clock, Pace(max_batches=1))
    train_resident(on_device, compute, clock, pace)


# The profiler window of a session: its length, or the reason why there is none.

TIMELINE = "gpu_timeline"
# The first steps under a profiler are slow, and it may lose their first records.
WINDOW_WARM_UP = 3
USUAL_STEPS = 20
LEAST_STEPS = 5
# Assumed: seconds for a configuration's timeline. The steps without the profiler take as long again.
MOST_SECONDS = 45.0


def _none(code: str, **facts: float | str) -> Missing:
    return Missing(name=TIMELINE, reason=Remark(code=code, facts=facts))


NOT_ASKED = _none("window_not_asked")
OF_RANKS = _none("window_of_ranks")


def record_window(
    compute: Compute, config: RunConfig, segments: Sequence[Segment], feed: Callable[[int], Iterator[Any]], *,
    flushed: int, left_s: float | None, on_stage: Callable[[str], None],
) -> Timeline | Missing:  # fmt: skip
    """The window, or the reason why there is none: an error in it does not spoil the measurement.

    `feed(count)` flushes `flushed` batches and gives `count`; `left_s` is what is left of the budget.
    """
    step_s = seconds_a_step(segments, "warm" if config.cache == "warm" else "baseline")
    if not isinstance(compute, Profiling):
        return why_not_profiled(compute.info())
    if step_s is None:
        return _none("window_without_steps")
    if left_s is not None and left_s <= 0:
        return _none("window_without_time")
    limit_s = MOST_SECONDS if left_s is None else min(MOST_SECONDS, left_s / 2)
    steps = window_steps(config, step_s, flushed, limit_s)
    if isinstance(steps, Missing):
        return steps
    on_stage("profiler window")
    try:
        return compute.profile(feed, steps=steps, warm_up=WINDOW_WARM_UP, batch_size=config.compute.batch_size)
    except Exception as error:  # noqa: BLE001  # a profiler's trouble must not cost the measurement
        why = error.message if isinstance(error, LoaderprobeError) else f"{type(error).__name__}: {error}"
        return _none("window_failed", error=why)


def why_not_profiled(info: ComputeInfo) -> Missing:
    """The reason for a compute that records no kernels."""
    if info.name == NO_STEP:
        return _none("window_without_gpu")
    if info.specified_images_per_s is not None:
        return _none("window_emulated")
    if info.name == "step":
        return _none("window_own_step")
    return _none("window_other_device", device=info.device)


def seconds_wanted(compute: Compute, config: RunConfig, segments: Sequence[Segment], flushed: int) -> float:
    """Seconds for a window of the usual length and as many steps before it; 0 where there will be none."""
    step_s = seconds_a_step(segments, "warm" if config.cache == "warm" else "baseline")
    if not isinstance(compute, Profiling) or step_s is None:
        return 0.0
    steps = max(USUAL_STEPS, 2 * config.loader.batches_ahead) + flushed + WINDOW_WARM_UP
    return min(MOST_SECONDS, 2 * steps * step_s)


def seconds_a_step(segments: Sequence[Segment], mode: Mode) -> float | None:
    """Of the last segment that trained from the loader in this mode; None without one."""
    trained = [s for s in segments if s.activity == "training" and s.mode == mode and s.steps]
    if not trained:
        return None
    last = trained[-1]
    return (max(last.closed_ns, *last.finished_ns[-1:], 0) - last.begin_ns[0]) / last.steps / 1e9


def window_steps(config: RunConfig, step_s: float, flushed: int, limit_s: float) -> int | Missing:
    """Steps of the window: more than the batches made ahead, and as many as usual where time allows.

    A window of fewer than twice the batches ahead would use them up and look compute-bound. Returns the reason
    when so many steps would take longer than `limit_s`; `flushed` batches and the warm-up go before them.
    """
    least = max(LEAST_STEPS, 2 * config.loader.batches_ahead)
    usual = max(USUAL_STEPS, least)
    fit = int(limit_s / step_s) - flushed - WINDOW_WARM_UP if step_s > 0 else usual
    if fit < least:
        needed_s = (least + flushed + WINDOW_WARM_UP) * step_s
        return _none("window_too_long", steps=least, needed_s=needed_s, limit_s=limit_s)
    return min(usual, fit)


# What is seen of one configuration, kept until it is a `Measurement`.


@dataclass(slots=True)
class Recorder:
    """Segments, notes and the start of one configuration.

    A session that drives the loader feeds it, and so does one that only watches a training. Times are ns of one clock.
    """

    config: RunConfig
    access: Access = "files"
    first_pass: FirstPass | None = None
    sample_bytes: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    images: bool = True
    """False when batches hold no images."""
    stream: bool = False
    """True where the data set gives its samples in an order of its own."""
    earlier: Measurement | None = None
    """What was measured of this configuration before, which is continued."""
    joins: bool = True
    """False where the measurements of several ranks are joined before that with the earlier one, which is of all."""
    segments: list[Segment] = field(init=False, default_factory=list)
    notes: list[Remark] = field(init=False, default_factory=list)
    timeline: Timeline | Missing = field(init=False, default=NOT_ASKED)
    _started_utc: str = field(init=False)
    _started_ns: int = field(init=False)
    _first_batch_s: float = field(init=False, default=0.0)

    @property
    def rounds_before(self) -> int:
        """Rounds of the earlier measurement."""
        return 1 + max(segment.round for segment in self.earlier.segments) if self.earlier else 0

    def begin(self, now_ns: int) -> None:
        """The loader is asked for its first batch."""
        self._started_utc = utc_timestamp()
        self._started_ns = now_ns

    def got_first_batch(self, now_ns: int) -> None:
        """It came, which is part of no rate."""
        self._first_batch_s = self.seconds(now_ns)

    def seconds(self, now_ns: int) -> float:
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
            first_pass=self.first_pass,
            sample_bytes=self.sample_bytes,
            waits=None if isinstance(waits, Missing) else waits,
            images=self.images,
            stream=self.stream,
            modes=modes,
            alternatives=self.alternatives,
            timeline=None if isinstance(self.timeline, Missing) else self.timeline,
            notes=each_once(self.notes),
            wall_s=self.seconds(now_ns),
        )
        return joined(self.earlier, found) if self.earlier and self.joins else found


# Not timed: a device is slow in its first step after idling, and after a flush the loader has no batch ready. One wait
# of 200 ms made training of 8 steps of 150 ms look 14 % slower than it is.
FIRST_STEP = Pace(max_batches=1)
MOST_ROUNDS = 12

# Where the step is the loop of a script: what else it does in between is measured again.
ATTEMPTS = 4
MOST_TRIES = 12
"""Those after a single step among them."""
LEAST_STEPS_IN_A_ROW = 6
MOST_RESIDENT = 200
"""Steps of compute alone in a segment: more only wear out schedulers that count steps."""
AGAIN = Remark(code="measured_again")

# Where there are several ranks: each alone, without the input of one of them, and without the exchange of gradients.
ALONE_S = 2.0
"""For ranks alone, all for the same time: what one reads after the others have ended, it reads without them."""
UNKNOWN = -1

OnStage = Callable[[str, int, int], None]


class Interrupted(BaseException):
    """Something else than a step happened between two batches, so what was timed does not count."""

    def __init__(self, why: str, steps: int) -> None:
        """`steps` in a row came before it."""
        super().__init__(why)
        self.steps = steps


class GivenUp(BaseException):
    """The loop that takes the steps does not come back. No Exception, which would count as an error of the step."""


class _SpentError(Exception):
    """The budget is spent on what the script did between its steps."""


class Counted:
    """Batches that were taken, those of a segment that was broken off among them."""

    def __init__(self, inner: Iterator[Any], count: int) -> None:
        self._inner, self.count = inner, count

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = next(self._inner)
        self.count += 1
        return batch


class _ExchangeAlone:
    """A compute of which nothing but the exchange of gradients is left."""

    def __init__(self, compute: Any) -> None:
        self.step = lambda _: compute.exchange_alone()
        self.finish, self.info, self.copy = compute.finish, compute.info, compute.copy


@contextmanager
def _no_exchange(compute: Any) -> Iterator[None]:
    compute.exchange(on=False)
    try:
        yield
    finally:
        compute.exchange(on=True)


@dataclass(slots=True)
class Session:
    """Runs one configuration, and feeds the recorder. `on_stage(name, done, total)` is called before every segment.

    Each of several ranks has one; they call the same methods, and what they do is agreed on with `parts.crew`.
    """

    recorder: Recorder
    files: Files | PartFiles | None
    """None when the data set hides its files."""
    parts: Parts
    on_stage: OnStage
    budget_s: float | None = None
    thorough: bool = False
    begun_with: int = 0
    """Number of batches taken from the loader before."""
    pool: int = 0
    """Batches before the same are repeated; 0 where the files give it."""
    resident_batches: tuple[Any, ...] = ()
    """Batches for steps without the loader; if empty, the first batch."""
    period: int | None = None
    """Batches that an update of the model takes, where the step is the loop of a script; None for any other step."""
    more_s: float | None = field(init=False, default=None)
    """Seconds that `budget_s` lacked for `enough_rounds` whole ones; None where it ended nothing."""
    enough_rounds: int = field(init=False, default=0)
    _batches: Counted = field(init=False)
    _durations: Durations = field(init=False)
    _pace: Pace = field(init=False)
    _resident: list[Any] = field(init=False, default_factory=list)
    _stand_in: Sequence[Any] = field(init=False, default=())
    _ready: Readiness = field(init=False)
    _pair: tuple[int, int] = field(init=False, default=(UNKNOWN, UNKNOWN))
    """The slowest rank and one in the middle."""
    _alone_s: float = field(init=False, default=ALONE_S)
    """For which all ranks are alone next."""

    @property
    def config(self) -> RunConfig:
        return self.recorder.config

    @property
    def base_mode(self) -> Mode:
        """The mode of the configuration as asked."""
        return "warm" if self.config.cache == "warm" else "baseline"

    @property
    def taken(self) -> int:
        """Number of batches taken from the loader so far."""
        return self._batches.count

    @property
    def _to_flush(self) -> int:
        """Most batches that can be made, or in progress, ahead of a switch."""
        return self.config.loader.batches_begun

    @property
    def _lead_in(self) -> int:
        """Batches that ranks take in step before timing: who comes first has full buffers while it waits."""
        return self.config.loader.batches_ahead if self.parts.crew.size > 1 else 0

    def run(self) -> None:
        """Measure round after round, until more cannot change the verdict or the budget is spent."""
        self._begin()
        before, segments = self.parts.crew.agree(self.recorder.rounds_before), self.recorder.segments
        shuffle = random.Random(self.config.seed + before)
        with suppress(_SpentError):  # it ends with the rounds that there are
            for number in range(MOST_ROUNDS - before):
                plan = self._affordable(self._plan(number))
                if not plan or (number and not self._new_batches_for(plan)):
                    return
                total = max(self.config.rounds * len(plan), len(segments) + len(plan))
                for part in shuffle.sample(plan, len(plan)):
                    self._measure(part, number, total)

    def _measure(self, part: Part, number: int, total: int) -> None:
        """Add one segment of round `number`."""
        segments, without = self.recorder.segments, "" if part.without is None else f" without rank {part.without}"
        name = f"round {self.recorder.rounds_before + number + 1}: {part.mode} {part.activity}{without}"
        self.on_stage(name, len(segments), total)
        begun_ns = self.parts.clock.now_ns()
        segments.append(self._in_a_row(part, number))
        self._durations.add(part, (self.parts.clock.now_ns() - begun_ns) / 1e9)

    def _in_a_row(self, part: Part, number: int) -> Segment:
        """A segment of steps in a row. Raises BadValue where the loop of a script never makes enough of them."""
        why, attempts = "", 0
        for _ in range(MOST_TRIES):
            try:
                return self._segment(part, number)
            except Interrupted as interrupted:
                why = str(interrupted)
                # One step is the first batch of an evaluation over the same loader: no sign of a short epoch.
                counts = interrupted.steps > 1
                self._forget(interrupted.steps if attempts and counts else 0)
                attempts += counts
                if attempts == ATTEMPTS:
                    break
                if self._over(number):
                    self.recorder.notes.append(CUT_SHORT)
                    raise _SpentError from None
        raise BadValue(
            f"the script never trained {LEAST_STEPS_IN_A_ROW} steps in a row: {why}",
            hint="give it a larger data set, or more steps between its checks",
        )

    def _forget(self, undisturbed: int) -> None:
        """What was timed does not count, what was taken does. Short epochs make short segments."""
        self.parts.compute.finish()
        self.recorder.notes.append(AGAIN)
        if undisturbed:
            most = max(LEAST_STEPS_IN_A_ROW, undisturbed - 2)
            self._pace = replace(self._pace, max_batches=min(most, self._pace.max_batches or most))

    def _over(self, number: int) -> bool:
        """True where the budget is spent, and a whole round is there: all ranks were interrupted at the same step."""
        spent = self.budget_s is not None and self._spent_s() >= self.budget_s
        whole = any(segment.round < number for segment in self.recorder.segments)
        return bool(self.parts.crew.agree(int(spent and whole)))

    def profile(self) -> None:
        """Record the GPU in a profiler window outside all segments; or keep the reason why not."""
        segments, compute = self.recorder.segments, self.parts.compute
        if self.parts.crew.size > 1:
            # One rank whose profiler fails would leave the others waiting.
            self.recorder.timeline = OF_RANKS if isinstance(compute, Profiling) else why_not_profiled(compute.info())
            return
        self.recorder.timeline = record_window(
            compute,
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
        plan = [] if any(mode not in possible for mode, _ in asked) else [Part(*each) for each in asked]
        return [*plan, *self._among_ranks(plan, number)] if plan and self.config.ranks > 1 else plan

    def _among_ranks(self, plan: Sequence[Part], number: int) -> Iterator[Part]:
        """What only several ranks have. The first round begins with each alone, which shows the slowest."""
        alone = Part(self.base_mode, "alone")
        if UNKNOWN in self._pair:
            # As rank 0 knows from earlier rounds.
            first, second = pair_of(self.recorder.earlier) if self.recorder.earlier else (UNKNOWN, UNKNOWN)
            self._pair = self.parts.crew.agree(first), self.parts.crew.agree(second)
        if UNKNOWN in self._pair:
            self._measure(alone, number, self.config.rounds * len(plan))
            last = self.recorder.segments[-1]
            order = self.parts.crew.ascending(last.steps / max(1, last.closed_ns - last.begin_ns[0]))
            self._pair = order[0], order[len(order) // 2]
        else:
            yield alone
        for rank in self._pair:
            yield Part(self.base_mode, "loader_only", rank)
        if isinstance(self.parts.compute, Exchanging):
            yield Part("no_exchange", "training")
            yield Part("exchange", "training")

    def _new_batches_for(self, plan: Sequence[Part]) -> bool:
        """False where cold segments need new batches, and too few are left on any rank."""
        cold = sum(each.mode not in ("warm", "resident") for each in plan)
        short = self._ready.exhausted(cold, self._pace, self._to_flush + 1)
        if short:
            self.recorder.notes.append(Remark(code="all_batches_made"))
        return not self.parts.crew.any(short)

    def _spent_s(self) -> float:
        return self.recorder.seconds(self.parts.clock.now_ns())

    def _affordable(self, plan: list[Part]) -> list[Part]:
        """As much of the next round as rank 0 has time for."""
        crew = self.parts.crew
        return crew.kept(self._fitting(plan) if crew.leads else [], plan)

    def _fitting(self, plan: list[Part]) -> list[Part]:
        """As much of the next round as the budget has time for, at durations so far; the very first always fits."""
        segments = self.recorder.segments
        # Ranks begin the first round alone.
        begun = self.recorder.earlier or any(segment.activity != "alone" for segment in segments)
        if self.budget_s is None or not plan or not begun:
            return plan
        left_s = self.budget_s - self._spent_s() - self._window_s()
        done = len({segment.round for segment in segments}) + self.recorder.rounds_before
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
        if self.config.ranks > 1 or self.thorough:
            return []
        asked = tuple((each.mode, each.activity) for each in plan)
        return [Part(*each) for each in deciding(self.measurement((), ()), asked)]

    def _window_s(self) -> float:
        if self.parts.crew.size > 1:
            return 0.0  # there is none
        return seconds_wanted(self.parts.compute, self.config, self.recorder.segments, self._to_flush)

    def _begin(self) -> None:
        clock, earlier = self.parts.clock, self.recorder.earlier
        self.recorder.begin(clock.now_ns())
        # Further rounds are no slower than those before, which took no more than this.
        limits = (self.budget_s, earlier.wall_s if earlier else None)
        budget_s = min((limit for limit in limits if limit is not None), default=None)
        pace = pace_for(workers=self.config.loader.workers, rounds=self.config.rounds, budget_s=budget_s)
        self._pace = replace(pace, multiple=lcm(pace.multiple, self.period or 1))
        usual_s = OVERHEAD * self._pace.max_s
        self._durations = Durations.of(earlier) if earlier else Durations(usual_s=usual_s)
        recorder, loader, cache = self.recorder, self.parts.loader, self.parts.cache
        self._ready = Readiness(
            self.config, self.files, recorder.access, loader, cache, self._drop, self.pool, recorder.notes,
            sample_bytes=recorder.sample_bytes, read_ahead_bytes=self.parts.location.read_ahead_bytes,
        )  # fmt: skip
        self.on_stage("first batch", 0, 0)
        self._batches = Counted(self.parts.loader.batches(), self.begun_with)
        first = next(self._batches)
        self.recorder.got_first_batch(clock.now_ns())
        self._stand_in = resident = self.resident_batches or (first,)
        if self.parts.compute.info().specified_images_per_s is None:
            self.on_stage("warming up the device", 0, 0)
            self._resident = [self.parts.compute.copy(batch) for batch in resident]
            with suppress(Interrupted):  # only warming up is cut short
                warm_up(self._resident, self.config, self.parts.compute, clock, self._agreed(WARM_UP))

    def _segment(self, part: Part, number: int) -> Segment:
        mode, activity = part.mode, part.activity
        if part.without == self.parts.crew.rank:
            return self._without_input(part, number)
        if mode in ("resident", "no_exchange", "exchange"):
            return self._without_loader(part, number)
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
        self.parts.disturbance.begin()
        disk_before = self.parts.read_devices()
        first = self.taken
        if activity == "training":
            steps = train(self._batches, self.parts.compute, self.parts.clock, self._agreed(pace), instead)
        else:
            steps = self._load_only(part, pace)
        if mode not in ("warm", "no_transport"):
            self._ready.last_new = len(steps.begin_ns)
        return self._record(steps, part, number, first_batch=first, resident=resident, disk_before=disk_before)

    def _without_loader(self, part: Part, number: int) -> Segment:
        """Steps on batches that stay on the device, or of the exchange of gradients alone; no worker makes a batch."""
        compute, clock, batches = self.parts.compute, self.parts.clock, self._resident
        if part.mode == "exchange":
            compute, batches = _ExchangeAlone(compute), [None]
        with _no_exchange(compute) if part.mode == "no_exchange" else nullcontext():
            self._ready.rest(self.taken, clock)
            train_resident(batches[:1], compute, clock, self._agreed(FIRST_STEP))
            self.parts.disturbance.begin()
            steps = train_resident(batches, compute, clock, self._agreed(self._resident_pace()))
            return self._record(steps, part, number, first_batch=-1, resident=None, disk_before=None)

    def _without_input(self, part: Part, number: int) -> Segment:
        """This rank meets the others where they meet, and takes nothing; its workers rest."""
        crew, pace = self.parts.crew, self._paced(part.mode, 0)
        self._ready.rest(self.taken, self.parts.clock)
        crew.meet()
        for _ in range(self._lead_in):
            crew.meet()
        self.parts.disturbance.begin()
        disk_before = self.parts.read_devices()
        steps = crew.load(repeat(None), self.parts.clock, pace)
        return self._record(steps, part, number, first_batch=-1, resident=None, disk_before=disk_before)

    def _load_only(self, part: Part, pace: Pace) -> Steps:
        if part.activity != "alone":
            return self.parts.crew.load(self._batches, self.parts.clock, pace)
        least = max(MIN_STEPS_OF_SLOW_DEVICE, pace.multiple)
        pace = replace(pace, min_s=self._alone_s, max_s=self._alone_s, min_batches=least)
        return load_only(self._batches, self.parts.clock, pace)

    def _agreed(self, pace: Pace) -> Pace:
        """A pace of training, which all ranks keep."""
        return self.parts.crew.pace(pace, self.parts.compute)

    def _resident_pace(self) -> Pace:
        """Of compute alone, which no worker's period concerns."""
        if self.period is None:
            return replace(self._pace, multiple=1)
        most = min(MOST_RESIDENT, self._pace.max_batches or MOST_RESIDENT)
        whole = max(self.period, most // self.period * self.period)
        return replace(self._pace, multiple=self.period, max_batches=whole)

    def _drop(self, count: int) -> None:
        flush(self._batches, count)

    def _switch(self, part: Part) -> None:
        """Switch the workers to the mode of a segment, and drop batches made before, which would bias it."""
        self._flush(part)
        crew = self.parts.crew
        if part.activity == "alone":
            # Ranks meet here for the last time before: who waits after its lead-in begins with full buffers.
            self._alone_s = crew.agree(round(min(ALONE_S, self._pace.max_s) * 1e9)) / 1e9
            self._drop(self._lead_in)
            return
        crew.meet()
        for _ in range(self._lead_in):
            self._drop(1)
            crew.meet()

    def _flush(self, part: Part) -> None:
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
        """The pace of a mode: cold segments read each file once, and are longer where workers wait for storage.

        No segment is longer than the files of any rank allow.
        """
        pace = self._pace
        if "warm" not in (self.base_mode, mode) and blocked_share(self.parts.loader.records()) > BLOCKED_SHARE:
            pace = pace.for_blocked_workers()
        untimed = self._to_flush + self.config.loader.batches_ahead + untimed_steps + self._lead_in
        found = self._ready.limit(pace, mode, untimed)
        most = min((each for each in (pace.max_batches, found.max_batches) if each is not None), default=None)
        return replace(found, max_batches=self.parts.crew.least(most))

    def _prepare(self, mode: Mode, pace: Pace) -> None:
        records = self.parts.loader.records()
        images = max(sum(records.images), 1)
        self._ready.prepare(
            mode,
            taken=self.taken,
            pace=replace(pace, min_batches=pace.min_batches + self._lead_in),
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


def pair_of(measurement: Measurement) -> tuple[int, int]:
    """(the slowest rank, one in the middle) as they were chosen before: by their first segment alone."""
    places = [place for place, each in enumerate(measurement.segments) if each.activity == "alone"]
    if not places or not measurement.by_rank:
        return UNKNOWN, UNKNOWN
    rates = [each.steps[places[0]] / max(1, each.span_ns[places[0]]) for each in measurement.by_rank]
    order = sorted(range(len(rates)), key=lambda rank: rates[rank])
    return order[0], order[len(order) // 2]
