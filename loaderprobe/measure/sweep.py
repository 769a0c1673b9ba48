"""Many configurations in sequence; each result is stored at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loaderprobe.errors import DamagedRun
from loaderprobe.measure.further import Durations
from loaderprobe.measure.runner import Event, Order, named_limit
from loaderprobe.protocols import Clock, NextRound
from loaderprobe.records.config import RunConfig, StudyPlan, SweepPlan, SweepSpec
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.run_directory import RunDirectory

# The plan of a sweep, made before it begins: what it measures, and how long it takes.

# What a configuration is given without --budget: 15 of them then take less than 5 minutes.
USUAL_SECONDS = 17.0
# Starting CUDA and ten batches of 256 images take longer.
USUAL_SECONDS_ON_GPU = 40.0
COMPILE_SECONDS = 180.0
# The segments that only several ranks have: alone, without one of them, without and with nothing but the exchange.
RANKS_SECONDS = 60.0
USUAL_ROUNDS = 3
# Start of Python, torch and the workers: 4 s on two idle cores.
START_SECONDS = 4.0
# A segment with its flush and its eviction, on average over resolutions and worker counts.
SEGMENT_SECONDS = 2.0
SCREENING_SEGMENTS = 2
ABLATION_SEGMENTS = 3


def plan_sweep(spec: SweepSpec, todo: Sequence[RunConfig], beside: tuple[StudyPlan, ...] = ()) -> SweepPlan:
    """The plan for what is still to be measured of a sweep, and beside it."""
    return SweepPlan(
        configurations=len(todo),
        expected_s=sum(expected_seconds(spec, config) for config in todo),
        least_s=len(todo) * (START_SECONDS + SCREENING_SEGMENTS * SEGMENT_SECONDS),
        budget_s=spec.budget_s,
        thorough=spec.thorough,
        rounds=max((config.rounds for config in todo), default=0),
        beside=beside,
    )


def usual_seconds(config: RunConfig) -> float:
    """What a configuration is given without a budget, in seconds; more for a GPU, for more rounds, for compiling."""
    on_gpu = config.compute.name.startswith("cuda")
    rounds_s = (USUAL_SECONDS_ON_GPU if on_gpu else USUAL_SECONDS) * max(1.0, config.rounds / USUAL_ROUNDS)
    return rounds_s + (COMPILE_SECONDS if config.compute.compile else 0.0) + _of_ranks(config)


def _of_ranks(config: RunConfig) -> float:
    return RANKS_SECONDS * max(1.0, config.rounds / USUAL_ROUNDS) if config.ranks > 1 else 0.0


def expected_seconds(spec: SweepSpec, config: RunConfig) -> float:
    """What it is expected to take without a budget, in seconds."""
    if not spec.thorough:
        return usual_seconds(config)
    segments = config.rounds * (SCREENING_SEGMENTS + ABLATION_SEGMENTS)
    return START_SECONDS + segments * SEGMENT_SECONDS + _of_ranks(config)


# Of a budget; a round that has begun is ended, and the storage is measured after it.
DEALT = 0.95
# Of its usual time a configuration has this much in any case, whatever earlier ones took.
LEAST_SHARE = 0.5
# Seconds beyond the whole budget until a child runs into the timeout.
GRACE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a sweep."""

    number: int
    """Number of this configuration among those to measure, from 1."""
    total: int
    config: RunConfig
    stage: str
    share: float
    """Completed share of the sweep, 0 to 1; of its time, once some configurations get further rounds."""
    left_s: float
    """Estimated seconds left, from the configurations so far."""
    study: str = ""
    """What is measured beside the verdicts, in words; empty for the configurations themselves."""


OnProgress = Callable[[Progress], None]
Run = Callable[..., Measurement | RunFailure]
Kept = Callable[[Order, Measurement], None]
"""Hears of each measurement that was kept."""


def pending(run: RunDirectory) -> list[RunConfig]:
    """The configurations that have no measurement yet; failed ones are tried again."""
    return [config for config in run.record.spec.configs if not run.has_measurement(config.key)]


def sweep(
    run: RunDirectory, *, clock: Clock, on_progress: OnProgress, run_one: Run, next_round: NextRound,
    is_open: Callable[[Measurement], bool], on_kept: Kept = lambda order, measured: None,
) -> None:  # fmt: skip
    """Measure the pending configurations of `run`, and store each result at once; `on_kept` hears of it then.

    The budget is divided evenly over the remaining configurations, so after a slow one the later ones get
    shorter segments. Configurations that have not begun when it is spent stay pending. Without a budget the
    usual times of all are divided so, and none is left out; nothing is divided where all is to be measured. Time that
    is left then goes to the configurations of which `next_round` still asks something, those first whose verdict
    `is_open`. On KeyboardInterrupt all results are kept.
    """
    going = _Sweep(
        run=run,
        todo=pending(run),
        clock=clock,
        begin_ns=clock.now_ns(),
        on_progress=on_progress,
        run_one=run_one,
        next_round=next_round,
        is_open=is_open,
        on_kept=on_kept,
    )
    if going.measure_each():
        going.spend_the_rest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Further:
    """A configuration that the budget ended too early, and the seconds that the least of one more round takes."""

    number: int
    measured: Measurement
    needed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    run: RunDirectory
    todo: list[RunConfig]
    clock: Clock
    begin_ns: int
    on_progress: OnProgress
    run_one: Run
    next_round: NextRound
    is_open: Callable[[Measurement], bool]
    on_kept: Kept

    @property
    def spec(self) -> SweepSpec:
        """What was asked."""
        return self.run.record.spec

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return (self.clock.now_ns() - self.begin_ns) / 1e9

    @property
    def whole_s(self) -> float | None:
        """Seconds for all configurations together; None where each may take all it needs."""
        if self.spec.budget_s is not None:
            return DEALT * self.spec.budget_s
        return None if self.spec.thorough else sum(usual_seconds(config) for config in self.todo)

    def measure_each(self) -> bool:
        """Measure every configuration once; False when the budget was spent before."""
        for index, config in enumerate(self.todo):
            spent_s, budget_s = self.spent_s, self._dealt_s(index)
            if budget_s is not None and budget_s <= 0:
                return False
            usual_s = spent_s / index if index else budget_s or expected_seconds(self.spec, config)

            def report(event: Event, index: int = index, usual_s: float = usual_s) -> None:
                done = index + (event.done / event.total if event.total else 0.0)
                self._report(index, event, done / len(self.todo), (len(self.todo) - done) * usual_s)

            report(Event(stage="start"))
            found = self._measured(config, budget_s, report)
            if isinstance(found, RunFailure):
                self.run.save(found)
        return True

    def spend_the_rest(self) -> None:
        """Add rounds to what the budget ended too early, open verdicts first, while one more fits into it."""
        whole_s = self.whole_s
        if whole_s is not None:
            for is_open in (True, False):
                while self._round_of_further(is_open, whole_s):
                    pass

    def _round_of_further(self, is_open: bool, whole_s: float) -> bool:
        """Continue each of these once, the cheapest first; True when that was something."""
        gained = False
        cut_short = sorted(self._cut_short(is_open), key=lambda each: each.needed_s)
        for index, each in enumerate(cut_short):
            left_s = whole_s - self.spent_s
            if each.needed_s > left_s:
                break
            share_s = max(each.needed_s, left_s / (len(cut_short) - index))
            gained |= self._continue(each, share_s, whole_s)
        return gained

    def _cut_short(self, is_open: bool) -> Iterator[_Further]:
        for number, config in enumerate(self.todo):
            measured = self.run.result(config.key)
            if isinstance(measured, Measurement) and measured.segments and self.is_open(measured) == is_open:
                plan = self.next_round(measured, thorough=self.spec.thorough)
                needed_s = START_SECONDS + Durations.of(measured).of_least(plan)
                if plan:
                    yield _Further(number=number, measured=measured, needed_s=needed_s)

    def _continue(self, further: _Further, budget_s: float, whole_s: float) -> bool:
        """Add what `budget_s` seconds have time for; True when that was something. A failure changes nothing."""

        def report(event: Event) -> None:
            spent_s = min(self.spent_s, whole_s)
            self._report(further.number, event, spent_s / whole_s, whole_s - spent_s)

        earlier = further.measured
        found = self._measured(earlier.config, budget_s, report, earlier)
        return isinstance(found, Measurement) and len(found.segments) > len(earlier.segments)

    def _measured(
        self, config: RunConfig, budget_s: float | None, report: Callable[[Event], None],
        earlier: Measurement | None = None,
    ) -> Measurement | RunFailure:  # fmt: skip
        """A measurement is kept before anything else can be interrupted."""
        try:
            files = self.run.files(config.data)
        except DamagedRun as error:
            return _without_files(config, error)
        order = Order(
            config=config,
            files=files,
            budget_s=budget_s,
            begin_ns=self.clock.now_ns(),
            thorough=self.spec.thorough,
            earlier=earlier,
        )
        left_s = None if self.spec.budget_s is None else self.spec.budget_s - self.spent_s + GRACE_S
        limit_s = self.spec.time_limit_s if left_s is None else min(self.spec.time_limit_s, left_s)
        found = self.run_one(order, clock=self.clock, time_limit_s=limit_s, on_event=report)
        if isinstance(found, Measurement):
            self.run.save(found)
            self.on_kept(order, found)
        return named_limit(found, by_budget=limit_s < self.spec.time_limit_s)

    def _report(self, index: int, event: Event, share: float, left_s: float) -> None:
        self.on_progress(
            Progress(
                number=index + 1,
                total=len(self.todo),
                config=self.todo[index],
                stage=event.stage,
                share=share,
                left_s=left_s,
            )
        )

    def _dealt_s(self, index: int) -> float | None:
        """Seconds for the configuration of this index; None where it may take all it needs."""
        if self.whole_s is None:
            return None
        share_s = (self.whole_s - self.spent_s) / (len(self.todo) - index)
        if self.spec.budget_s is not None:
            return share_s
        return max(LEAST_SHARE * self.whole_s / len(self.todo), share_s)


def _without_files(config: RunConfig, error: DamagedRun) -> RunFailure:
    """A configuration whose list of files cannot be used; the others go on."""
    return RunFailure(
        config=config,
        stage="reading the run",
        reason=error.message,
        hint="measure its data again, into a new directory",
        exit_code=None,
        signal=None,
        log=(),
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        wall_s=0.0,
    )
