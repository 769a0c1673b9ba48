"""One configuration in one process, alone or as one of several ranks: what is run, round after round.

All of it is run inside one iterator of the loader.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, lcm
from typing import Any

from loaderprobe.analyze.verdict.rates import rates_by_round
from loaderprobe.analyze.verdict.rounds import deciding
from loaderprobe.analyze.verdict.validity import read_elsewhere
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.further import CUT_SHORT, NO_TIME, joined
from loaderprobe.measure.pace import COMPUTE_ALONE, OVERHEAD, Durations, Part, pace_for
from loaderprobe.measure.segment_runner import WINDOW_WARM_UP, Counted, Parts, SegmentRunner
from loaderprobe.measure.segments import Readiness, batches_between_reads, flush
from loaderprobe.protocols import Exchanging, Files, OnStage, OwnThreads, Profiling
from loaderprobe.records import values
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import (
    NO_STEP,
    OWN_STEP,
    Access,
    Activity,
    Alternative,
    ComputeInfo,
    FirstPass,
    Measurement,
    Missing,
    Mode,
    Segment,
    Series,
    Timeline,
)
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.thresholds import MOST_TIMES, UTILIZATION
from loaderprobe.stats import mean
from loaderprobe.system.device import process_reads_counted
from loaderprobe.system.host import utc_timestamp

WINDOW_STEPS, LEAST_WINDOW_STEPS = 20, 5
"""Steps of the usual profiler window, and of the shortest."""
MOST_WINDOW_S = 45.0
"""Assumed: seconds for a configuration's timeline. The steps without the profiler take as long again."""
MOST_ROUNDS = 12
LONG_SEGMENTS = 3
"""A segment is made longer only while so many of its new length fit into the budget."""
LONGEST_BUDGET_S = 60.0
"""For that, where none is given."""

# Where the step is the loop of a script: what else it does in between is measured again.
ATTEMPTS = 4
MOST_TRIES = 12
"""Those after a single step among them."""
LEAST_STEPS_IN_A_ROW = 6
AGAIN = Remark(code="measured_again")


def _none(code: str, **facts: float | str) -> Missing:
    return Missing(name="gpu_timeline", reason=Remark(code=code, facts=facts))


NOT_ASKED = _none("window_not_asked")


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


@dataclass(slots=True)
class Session:
    """Runs one configuration, and keeps what it measures. `on_stage(name, done, total)` is called before every segment.

    Each of several ranks has one; they call the same methods, and what they do is agreed on with `parts.collectives`.
    What was measured, what it took and what is left of the budget decide together on the next round, so they stay in
    one class; how a segment is run is `SegmentRunner`'s.
    """

    config: RunConfig
    files: Files | PartFiles | None
    """None when the data set hides its files."""
    parts: Parts
    on_stage: OnStage
    budget_s: float | None = None
    beyond_s: Callable[[Measurement], float] = lambda _: 0.0
    """Seconds beyond the budget that a further round may take, by what was measured so far."""
    thorough: bool = False
    begun_with: int = 0
    """Number of batches taken from the loader before."""
    pool: int = 0
    """Batches before the same are repeated; 0 where the files give it."""
    resident_batches: tuple[Any, ...] = ()
    """Batches for steps without the loader; if empty, the first batch."""
    period: int | None = None
    """Batches that an update of the model takes, where the step is the loop of a script; None for any other step."""
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
    segments: list[Segment] = field(init=False, default_factory=list)
    notes: list[Remark] = field(init=False, default_factory=list)
    timeline: Timeline | Missing = field(init=False, default=NOT_ASKED)
    first_batch_s: float = field(init=False, default=0.0)
    """For the first batch, which is part of no rate."""
    more_s: float | None = field(init=False, default=None)
    """Seconds that `budget_s` lacked for `enough_rounds` whole ones; None where it ended nothing."""
    enough_rounds: int = field(init=False, default=0)
    _lacks_s: dict[Part, float] = field(init=False, default_factory=dict)
    """Seconds by which a segment of a part is shorter than the chunks of its stream, for want of time."""
    _durations: Durations = field(init=False)
    _runner: SegmentRunner = field(init=False)
    _until_s: float = field(init=False, default=0.0)
    """Seconds that the round being measured may end in: the budget, or what goes beyond it."""
    _pair: tuple[int, int] | None = field(init=False, default=None)
    """The slowest rank and one in the middle; None while they are not known."""
    _started_utc: str = field(init=False)
    _started_ns: int = field(init=False)
    """When the loader was asked for its first batch."""

    @property
    def _rounds_before(self) -> int:
        return 1 + max(segment.round for segment in self.earlier.segments) if self.earlier else 0

    def run(self) -> None:
        """Measure round after round, until more cannot change the verdict or the budget is spent."""
        self._begin()
        before, segments, collectives = self._rounds_before, self.segments, self.parts.collectives
        shuffle = random.Random(self.config.seed + before)
        with suppress(_SpentError):  # it ends with the rounds that there are
            for number in range(max(MOST_ROUNDS, MOST_TIMES * self.config.rounds) - before):
                wanted = self._plan(number)
                # As much as rank 0 has time for.
                plan = collectives.kept(self._fitting(wanted) if collectives.is_coordinator else [], wanted)
                if not plan or (number and not self._new_batches_for(plan)):
                    return
                total = max(self.config.rounds * len(plan), len(segments) + len(plan))
                for part in shuffle.sample(plan, len(plan)):
                    self._measure(part, number, total)

    def _measure(self, part: Part, number: int, total: int) -> None:
        segments, without = self.segments, "" if part.without is None else f" without rank {part.without}"
        name = f"round {self._rounds_before + number + 1}: {part.mode} {part.activity}{without}"
        self.on_stage(name, len(segments), total)
        begun_ns = self.parts.clock.now_ns()
        segments.append(self._in_a_row(part, number))
        self.parts.loader.records()  # what was read once is kept: later batches take the place of these
        while longer := self._longer(part, number, begun_ns):
            self._runner.longer[part], begun_ns = longer, self.parts.clock.now_ns()
            segments[-1] = self._in_a_row(part, number)
            self.parts.loader.records()
        timed_s = segments[-1].seconds
        self._durations.add(part, timed_s, (self.parts.clock.now_ns() - begun_ns) / 1e9 - timed_s)

    def _longer(self, part: Part, number: int, begun_ns: int) -> tuple[int, float] | None:
        """Least batches, and most seconds, of a part whose first segment was served from what was read before it.

        Of a stream: two chunks of each worker, or twice as many batches while no two reads of one are known. None
        where the segment has its share of the reads, or three of those would not fit.
        """
        least, last = self._runner.longer.get(part, (0, 0.0))[0], self.segments[-1]
        eligible = self.stream and part.loads and self._runner.ready.is_cold(part.mode)
        if number or self.earlier or not eligible or self.parts.collectives.size > 1 or last.steps < least:
            return None
        segments = [segment for segment in self.segments if segment is last or segment.mode == "warm"]
        reason = read_elsewhere(replace(self.measurement(), segments=tuple(segments)))
        if reason is None or reason.code != "read_before":
            return None
        since = range(self._runner.ready.evicted_at, last.first_batch + last.steps)
        distance = batches_between_reads(self.parts.loader.records(), since)
        wanted, took_s = 2 * (distance or last.steps), (self.parts.clock.now_ns() - begun_ns) / 1e9
        timed_s = last.seconds * wanted / last.steps
        longer_s = took_s - last.seconds + timed_s
        fits = self._spent_s() + LONG_SEGMENTS * longer_s < (self.budget_s or LONGEST_BUDGET_S)
        if wanted > least and not fits:
            self._lacks_s[part] = longer_s - took_s
        return (wanted, LONG_SEGMENTS * timed_s) if fits and wanted > least else None

    def _in_a_row(self, part: Part, number: int) -> Segment:
        """A segment of steps in a row. Raises BadValue where the loop of a script never makes enough of them."""
        why, attempts = "", 0
        for _ in range(MOST_TRIES):
            try:
                return self._runner.run(part, number)
            except Interrupted as interrupted:
                why = str(interrupted)
                # One step is the first batch of an evaluation over the same loader: no sign of a short epoch.
                counts = interrupted.steps > 1
                self._forget(interrupted.steps if attempts and counts else 0)
                attempts += counts
                if attempts == ATTEMPTS:
                    break
                if self._over(number):
                    self.notes.append(CUT_SHORT)
                    raise _SpentError from None
        raise BadValue(
            f"the script never trained {LEAST_STEPS_IN_A_ROW} steps in a row: {why}",
            hint="give it a larger data set, or more steps between its checks",
        )

    def _forget(self, undisturbed: int) -> None:
        """What was timed does not count, what was taken does. Short epochs make short segments."""
        self.parts.compute.finish()
        self.notes.append(AGAIN)
        if undisturbed:
            self._runner.shorten(max(LEAST_STEPS_IN_A_ROW, undisturbed - 2))

    def _over(self, number: int) -> bool:
        """True where time is spent, and a whole round is there: all ranks were interrupted at the same step."""
        budget_s = inf if self.budget_s is None else self.budget_s
        whole = any(segment.round < number for segment in self.segments)
        if whole and self._spent_s() >= budget_s >= self._until_s:
            self._until_s = budget_s + self.beyond_s(self.measurement())
        spent = whole and self._spent_s() >= max(budget_s, self._until_s)
        return bool(self.parts.collectives.agree(int(spent)))

    def profile(self) -> None:
        """Record the GPU in a profiler window outside all segments; or keep the reason why not."""
        self.timeline = self._window()

    def _window(self) -> Timeline | Missing:
        """Where there is one, an error in it does not spoil the measurement."""
        compute, config, step_s = self.parts.compute, self.config, self._step_s()
        if not isinstance(compute, Profiling):
            return why_not_profiled(compute.info())
        if self.parts.collectives.size > 1:
            # One rank whose profiler fails would leave the others waiting.
            return _none("window_of_ranks")
        if step_s is None:
            return _none("window_without_steps")
        left_s = inf if self.budget_s is None else self.budget_s - self._spent_s()
        if left_s <= 0:
            return _none("window_without_time")
        steps = window_steps(config, step_s, min(MOST_WINDOW_S, left_s / 2))
        if isinstance(steps, Missing):
            return steps
        self.on_stage("profiler window", len(self.segments), len(self.segments))
        try:
            return compute.profile(
                self._runner.feed, steps=steps, warm_up=WINDOW_WARM_UP, batch_size=config.compute.batch_size
            )
        except Exception as error:  # noqa: BLE001  # a profiler's trouble must not cost the measurement
            why = error.message if isinstance(error, LoaderprobeError) else f"{type(error).__name__}: {error}"
            return _none("window_failed", error=why)

    def _step_s(self) -> float | None:
        """Seconds of a step, by the last segment that trained from the loader as asked; None without one."""
        trained = (s for s in reversed(self.segments) if s.activity == "training" and s.mode == self.config.mode)
        return next((segment.span_ns / segment.steps / 1e9 for segment in trained if segment.steps), None)

    def measurement(self, series: Sequence[Series] = (), missing: Sequence[Missing] = ()) -> Measurement:
        """The measurement so far, with what was measured before. Call it before the loader is left."""
        parts = self.parts
        waits = parts.waits()
        unseen = [record for record in (self.timeline, waits) if isinstance(record, Missing)]
        measured = Measurement(
            **values(self, "config", "first_batch_s", "access", "first_pass", "sample_bytes", "images", "stream"),
            compute=parts.compute.info(),
            started_utc=self._started_utc,
            segments=tuple(self.segments),
            worker_batches=parts.loader.records(),
            series=tuple(series),
            missing=(*missing, *parts.disturbance.missing(), *unseen),
            cores_available=parts.cores_available,
            storage_counts_reads=process_reads_counted(parts.location),
            storage_kind=parts.location.kind,
            waits=None if isinstance(waits, Missing) else waits,
            modes=self._runner.ready.modes(),
            own_threads=isinstance(parts.loader, OwnThreads),
            alternatives=self.alternatives,
            timeline=None if isinstance(self.timeline, Missing) else self.timeline,
            notes=each_once(self.notes),
            wall_s=self._spent_s(),
        )
        # Those of several ranks are joined before that with the earlier one, which is of all.
        return joined(self.earlier, measured) if self.earlier and self.config.ranks == 1 else measured

    def _plan(self, number: int) -> list[Part]:
        """The segments of round `number`; none when no possible segment would change the verdict."""
        pairs = self.parts.collectives.next_round(self.measurement(), self.earlier, thorough=self.thorough)
        possible = {*self._runner.ready.modes(), "resident"}
        plan = [] if any(mode not in possible for mode, _ in pairs) else [Part(*pair) for pair in pairs]
        return [*plan, *self._among_ranks(plan, number)] if plan and self.config.ranks > 1 else plan

    def _among_ranks(self, plan: Sequence[Part], number: int) -> list[Part]:
        """What only several ranks have. The first round begins with each alone, which shows the slowest."""
        alone, parts = Part(self.config.mode, "alone"), list[Part]()
        if self._pair is None and self.earlier:
            self._pair = pair_of(self.earlier)
        if self._pair is None:
            self._measure(alone, number, self.config.rounds * len(plan))
            last = self.segments[-1]
            order = self.parts.collectives.ascending(last.steps / max(1, last.closed_ns - last.begin_ns[0]))
            self._pair = order[0], order[len(order) // 2]
        else:
            parts.append(alone)
        parts += [Part(self.config.mode, "loader_only", rank) for rank in self._pair]
        if isinstance(self.parts.compute, Exchanging):
            parts += [Part("no_exchange", "training"), Part("exchange", "training")]
        return parts

    def _new_batches_for(self, plan: Sequence[Part]) -> bool:
        """False where cold segments need new batches, and too few are left on any rank."""
        cold = sum(part.mode not in ("warm", "resident") for part in plan)
        short = self._runner.ready.exhausted(cold, self._runner.pace)
        if short:
            self.notes.append(Remark(code="all_batches_made"))
        return not self.parts.collectives.any(short)

    def _spent_s(self) -> float:
        return (self.parts.clock.now_ns() - self._started_ns) / 1e9

    def _fitting(self, plan: list[Part]) -> list[Part]:
        """As much of the next round as the budget has time for, at durations so far; the very first always fits."""
        # Ranks begin the first round alone.
        begun = self.earlier or any(segment.activity != "alone" for segment in self.segments)
        if self.budget_s is None or not plan or not begun:
            return plan
        left_s = self.budget_s - self._spent_s() - self._window_s()
        done = len({segment.round for segment in self.segments}) + self._rounds_before
        # What only ranks have is in every round.
        twice = 1 + (done + 1 < self.config.rounds and self.config.ranks == 1)
        shorter, beyond_s = self._shorter(plan), 0.0
        fitting = self._durations.fitting(plan, left_s, shorter=shorter, times=twice)
        if len(fitting) < len(plan):
            beyond_s = self.beyond_s(self.measurement())
            fitting = self._durations.fitting(plan, left_s + beyond_s, shorter=shorter, times=twice)
        self._until_s = self.budget_s + beyond_s
        if len(fitting) < len(plan):
            self.notes.append(CUT_SHORT if fitting else NO_TIME)
            self.enough_rounds = max(self.config.rounds, done + 1)
            lacks_s = max(LONG_SEGMENTS, self.enough_rounds) * sum(self._lacks_s.values())
            self.more_s = max(0.0, (self.enough_rounds - done) * self._durations.of_round(plan) + lacks_s - left_s)
        return fitting

    def _shorter(self, plan: list[Part]) -> list[Part]:
        """The part of a round that decides; all ranks measure all of it."""
        if self.config.ranks > 1 or self.thorough:
            return []
        pairs = tuple((part.mode, part.activity) for part in plan)
        return [Part(*decisive) for decisive in deciding(self.measurement(), pairs)]

    def _window_s(self) -> float:
        """Seconds kept for a profiler window of the usual length, and as many steps before it.

        None are kept where there will be none, and where an input limits, for there it changes no verdict.
        """
        step_s, profiles = self._step_s(), isinstance(self.parts.compute, Profiling)
        if not profiles or step_s is None or self.parts.collectives.size > 1 or self._limited_by_input():
            return 0.0
        return min(MOST_WINDOW_S, 2 * (WINDOW_STEPS + self.config.loader.batches_begun + WINDOW_WARM_UP) * step_s)

    def _limited_by_input(self) -> bool:
        """True where training and the loader alone both stay far below compute alone."""
        measured, base = self.measurement(), self.config.mode
        parts: tuple[tuple[Mode, Activity], ...] = ((base, "training"), (base, "loader_only"), COMPUTE_ALONE[:2])
        rates = [list(rates_by_round(measured, mode, activity).values()) for mode, activity in parts]
        return all(rates) and max(mean(rates[0]), mean(rates[1])) < UTILIZATION * mean(rates[2])

    def _begin(self) -> None:
        parts, earlier = self.parts, self.earlier
        self._started_utc, self._started_ns = utc_timestamp(), parts.clock.now_ns()
        # Further rounds are no slower than those before, which took no more than this.
        limits = (self.budget_s, earlier.wall_s if earlier else None)
        budget_s = min((limit for limit in limits if limit is not None), default=None)
        pace = pace_for(workers=self.config.loader.workers, rounds=self.config.rounds, budget_s=budget_s)
        pace = replace(pace, multiple=lcm(pace.multiple, self.period or 1))
        self._durations = Durations.of(earlier) if earlier else Durations(usual_s=OVERHEAD * pace.max_s)
        self.on_stage("first batch", 0, 0)
        batches = Counted(parts.loader.batches(), self.begun_with)
        ready = Readiness(
            self.config, self.files, self.access, parts.loader, parts.cache, lambda count: flush(batches, count),
            self.pool, self.notes, sample_bytes=self.sample_bytes, read_ahead_bytes=parts.location.read_ahead_bytes,
        )  # fmt: skip
        self._runner = SegmentRunner(self.config, parts, batches, pace, ready, self.period)
        first = next(batches)
        self.first_batch_s = self._spent_s()
        self._runner.stand_in = self.resident_batches or (first,)
        if parts.compute.info().specified_images_per_s is None:
            self.on_stage("warming up the device", 0, 0)
            with suppress(Interrupted):  # only warming up is cut short
                self._runner.warm_up()


def pair_of(measurement: Measurement) -> tuple[int, int] | None:
    """(the slowest rank, one in the middle) as all ranks know them from before: by their first segment alone."""
    alone = [number for number, segment in enumerate(measurement.segments) if segment.activity == "alone"]
    if not alone or not measurement.by_rank:
        return None
    rates = [rank.steps[alone[0]] / max(1, rank.span_ns[alone[0]]) for rank in measurement.by_rank]
    order = sorted(range(len(rates)), key=lambda rank: rates[rank])
    return order[0], order[len(order) // 2]


def why_not_profiled(info: ComputeInfo) -> Missing:
    """The reason for a compute that records no kernels."""
    if info.name == NO_STEP:
        return _none("window_without_gpu")
    if info.specified_images_per_s is not None:
        return _none("window_emulated")
    if info.name == OWN_STEP:
        return _none("window_own_step")
    return _none("window_other_device", device=info.device)


def window_steps(config: RunConfig, step_s: float, limit_s: float) -> int | Missing:
    """Steps of the window: twice the batches made ahead, or as many as usual, where time allows.

    Fewer may use up what was made ahead, and look compute-bound. Returns the reason when the least would take longer
    than `limit_s`; a flush and the warm-up go before them.
    """
    usual, before = max(WINDOW_STEPS, 2 * config.loader.batches_ahead), config.loader.batches_begun + WINDOW_WARM_UP
    fit = int(limit_s / step_s) - before if step_s > 0 else usual
    if fit < LEAST_WINDOW_STEPS:
        needed_s = (LEAST_WINDOW_STEPS + before) * step_s
        return _none("window_too_long", steps=LEAST_WINDOW_STEPS, needed_s=needed_s, limit_s=limit_s)
    return min(usual, fit)
