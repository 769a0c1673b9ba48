"""Many configurations in sequence; each result is stored at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.analyze.verdict.rounds import further_round
from loaderprobe.errors import DamagedRun
from loaderprobe.measure.ceilings import KIND_LONGEST_S, measure_ceiling
from loaderprobe.measure.pace import Durations
from loaderprobe.measure.runner import RAISE_BUDGET, RAISE_TIME_LIMIT, Order, Processes, Result
from loaderprobe.policy import Ask, Ended, follow
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.config import RunConfig, SweepSpec, alike_but_for
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.remark import Coded, Facts
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.system.host import utc_timestamp

# What a configuration is given without --budget: 15 of them then take less than 5 minutes.
USUAL_SECONDS = 17.0
# On an H100, warming up took 11 s, and a round of 16 workers with batches of 256 images 10 s.
USUAL_SECONDS_ON_GPU = 60.0
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


def plan_sweep(
    spec: SweepSpec, todo: Sequence[RunConfig], beside: tuple[Coded, ...] = (),
    further: Mapping[RunConfig, SweepResult] = {},
) -> tuple[Coded, ...]:  # fmt: skip
    """What is still to be measured of a sweep, in further rounds and `beside` the verdicts, and how long it takes."""
    auto, budget_s, made = spec.auto, spec.budget_s, list[Coded]()
    further_s = [result.needed_s for result in further.values() if result.needed_s is not None]
    if todo:
        least_s = sum(START_SECONDS + SCREENING_SEGMENTS * SEGMENT_SECONDS + _compiling(config) for config in todo)
        facts: Facts = {
            "configurations": len(todo), "rounds": max(config.rounds for config in todo), "least_s": least_s,
            "expected_s": sum(expected_seconds(spec, config) for config in todo), "open_s": OPEN_SECONDS,
            "ablated": "everywhere" if spec.thorough else "where_open",
            "experiments": "of_objects" if any(config.cache == "as-found" for config in todo) else "of_files",
        }  # fmt: skip
        time = "time_auto" if auto else "time_thorough" if spec.thorough else "time"
        if budget_s is not None:
            facts |= {"budget_s": budget_s} | ({} if auto else {"each_s": budget_s / len(todo)})
            left = len(todo) - int(len(todo) * budget_s / least_s)
            facts |= {"left": left} if left > 0 else {}
            time = "budget" if auto or budget_s >= least_s else "budget_short"
        made += [Coded(code="configurations", facts=facts), Coded(code=time, facts=facts)]
        if auto:
            more: Facts = {"most_workers": auto.most_workers} if auto.workers else {}
            made.append(Coded(code="more", facts=more | ({"factors": "factors"} if auto.prefetch_factor else {})))
    elif not further_s:
        made.append(Coded(code="verdicts_measured" if beside else "all_measured"))
    if further_s:
        made.append(Coded(code="further", facts={"further": len(further_s), "further_s": min(further_s)}))
    return (*made, *beside)


def usual_seconds(config: RunConfig) -> float:
    """What a configuration is given without a budget, in seconds; more for a GPU, for more rounds, for compiling."""
    on_gpu = config.compute.name.startswith("cuda")
    rounds_s = (USUAL_SECONDS_ON_GPU if on_gpu else USUAL_SECONDS) * max(1.0, config.rounds / USUAL_ROUNDS)
    return rounds_s + _compiling(config) + _of_ranks(config)


def _compiling(config: RunConfig) -> float:
    return COMPILE_SECONDS if config.compute.compile else 0.0


def _of_ranks(config: RunConfig) -> float:
    return RANKS_SECONDS * max(1.0, config.rounds / USUAL_ROUNDS) if config.ranks > 1 else 0.0


def expected_seconds(spec: SweepSpec, config: RunConfig) -> float:
    """What it is expected to take without a budget, in seconds."""
    segments = config.rounds * (SCREENING_SEGMENTS + ABLATION_SEGMENTS) if spec.thorough else 0
    all_s = START_SECONDS + segments * SEGMENT_SECONDS + _compiling(config) + _of_ranks(config)
    return max(usual_seconds(config), all_s)


# Of a budget; a round that has begun is ended, and the storage is measured after it.
DEALT = 0.95
# Of its usual time a configuration has this much in any case, whatever earlier ones took.
LEAST_SHARE = 0.5
# What is left for a configuration whose rounds differ, where it is a small part of all: a start and three segments.
FURTHER_SECONDS = START_SECONDS + 3 * SEGMENT_SECONDS
LONG = 10
# Without a budget, what further rounds of open verdicts may take beyond the usual times: the start of processes, and a
# slow storage, may use up those.
OPEN_SECONDS = 30.0
# Seconds beyond the whole budget until a child runs into the timeout.
GRACE_S = 30.0


@dataclass(slots=True, kw_only=True)
class Orders:
    """Has what is pending in a run measured, each order within the time limit and what is left of the budget."""

    run: RunDirectory
    processes: Processes
    clock: Clock
    on_stage: OnStage
    """Hears of configurations, or of studies, with the seconds of all of them that are over, of how many."""
    begin_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin_ns = self.clock.now_ns()

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of the budget; None without one."""
        budget_s = self.run.record.spec.budget_s
        return None if budget_s is None else budget_s - (self.clock.now_ns() - self.begin_ns) / 1e9

    def measured(self, ask: Ask[object], order: Order, label: str) -> Result | RunFailure:
        """The record that an order asks for; progress has `label` before the configuration, such as `2/7`.

        A timeout names the budget where that, and not --time-limit, set it.
        """
        limit_s = time_limit_s = self.run.record.spec.time_limit_s
        if (left_s := self.left_s) is not None:
            limit_s = min(time_limit_s, left_s + GRACE_S)

        def report(_stage: str, done: int, total: int) -> None:
            so_far = ask.done + (done / total if total else 0.0) * ask.takes
            self.on_stage(f"{label} {order.config.title()}", round(so_far), round(ask.total))

        report("start", 0, 0)
        result = self.processes.run(order, time_limit_s=limit_s, on_stage=report)
        if limit_s < time_limit_s and isinstance(result, RunFailure) and result.hint == RAISE_TIME_LIMIT:
            return replace(result, hint=RAISE_BUDGET)
        return result


def pending(run: RunDirectory) -> list[RunConfig]:
    """The configurations that have no measurement yet; failed ones are tried again."""
    return [config for config in run.record.spec.configs if not run.has_measurement(config.key)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep goes by, of one result."""

    needed_s: float | None = None
    """Seconds that the least of one more round takes; None where nothing more is asked, or the last brought nothing."""
    is_open: bool = False
    """True while no cause can be named."""
    is_uneven: bool = False
    """True where its rounds differ by a factor: something else happened in one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    """Each configuration once; then further rounds for those that the budget ended too early.

    The budget is divided evenly over the remaining configurations, so after a slow one the later ones get
    shorter segments. Configurations that have not begun when it is spent stay pending. Without a budget the
    usual times of all are divided so, and none is left out; open verdicts get `OPEN_SECONDS` beyond them. Nothing is
    divided where all is to be measured. Time that is left then goes to further rounds while one more fits into it: once
    to each whose rounds differ by a factor, then to open verdicts, each once before any twice, the cheapest first, then
    to clear ones. Of a long sweep the time of one is left for that.
    """

    spec: SweepSpec
    todo: list[RunConfig]
    """Grows by what `more` returns."""
    more: Callable[[], Sequence[RunConfig]] = tuple
    """Is asked, once all have a result, which configurations follow."""
    earlier: Mapping[RunConfig, SweepResult] = field(default_factory=dict)
    """Those measured before, which get further rounds only."""

    @property
    def to_come(self) -> int:
        """Configurations that are still going to be added, about; 0 where all are known beforehand."""
        if self.spec.auto is None:
            return 0
        known = dict.fromkeys((*self.spec.configs, *self.todo))
        alike = {alike_but_for(config, "workers", "prefetch_factor") for config in known}
        return max(0, self.spec.auto.likely * len(alike) - len(known))

    @property
    def whole_s(self) -> float | None:
        """Seconds for all configurations together; None where each may take all it needs."""
        if self.spec.budget_s is not None:
            return DEALT * self.spec.budget_s
        return None if self.spec.thorough else sum(usual_seconds(config) for config in self.todo)

    def next(self, done: Sequence[tuple[RunConfig, SweepResult]], spent_s: float) -> Ask[RunConfig] | Ended:
        """The next configuration without a result, else the next that has time for more."""
        number = len({config for config, _ in done} - self.earlier.keys())
        if number >= len(self.todo):
            self.todo.extend(self.more())
        if number >= len(self.todo):
            return self._further(done, spent_s)
        budget_s = self._dealt_s(number, spent_s)
        if budget_s is not None and budget_s <= 0:
            return "no_time"
        usual_s = spent_s / number if number else budget_s or expected_seconds(self.spec, self.todo[0])
        total_s = (len(self.todo) + self.to_come) * usual_s
        return Ask(what=self.todo[number], done=number * usual_s, takes=usual_s, total=total_s, budget_s=budget_s)

    def _dealt_s(self, number: int, spent_s: float) -> float | None:
        """Seconds for the configuration of this number; None where it may take all it needs."""
        if self.whole_s is None:
            return None
        kept_s = FURTHER_SECONDS if self.whole_s >= LONG * FURTHER_SECONDS else 0.0
        left, left_s = len(self.todo) - number, self.whole_s - kept_s - spent_s
        if self.spec.budget_s is not None:
            return left_s / (left + self.to_come)
        return max(LEAST_SHARE * self.whole_s / len(self.todo), left_s / left)

    def _further(self, done: Sequence[tuple[RunConfig, SweepResult]], spent_s: float) -> Ask[RunConfig] | Ended:
        if self.whole_s is None:
            return "complete"
        times = Counter([*self.earlier, *(config for config, _ in done)])
        last = {**self.earlier, **dict(done)}
        left_s = self.whole_s - spent_s
        needed = {config: result.needed_s for config, result in last.items() if result.needed_s is not None}
        # The kind of storage shows more than another round of a clear verdict; it is asked once.
        reads = any(config.cache in ("cold", "as-found") for config in self.spec.configs)
        kept_s = KIND_LONGEST_S if reads and not self.earlier else 0.0
        open_s = left_s + (OPEN_SECONDS if self.spec.budget_s is None else 0.0)
        groups = (
            (left_s, [config for config in needed if last[config].is_uneven and times[config] == 1]),
            (open_s, [config for config in needed if last[config].is_open]),
            (left_s - kept_s, [config for config in needed if not last[config].is_open]),
        )
        for left_s, group in groups:
            fitting = [config for config in group if needed[config] <= left_s]
            if fitting:
                chosen = min(fitting, key=lambda config: (times[config], needed[config]))
                share_s = left_s / sum(times[config] == times[chosen] for config in fitting)
                budget_s = max(needed[chosen], share_s)
                total_s = max(self.whole_s, spent_s + budget_s)  # an open verdict has more
                return Ask(what=chosen, done=spent_s, takes=budget_s, total=total_s, budget_s=budget_s)
        return "complete"


def may_go_on(run: RunDirectory, measured: Iterable[RunConfig]) -> dict[RunConfig, SweepResult]:
    """Those of these configurations of which a further round may tell more."""
    results = ((config, run.result(config.key)) for config in measured)
    by_config = {config: _further_of(run, result) for config, result in results if isinstance(result, Measurement)}
    return {config: result for config, result in by_config.items() if result.needed_s is not None}


def _further_of(run: RunDirectory, measurement: Measurement) -> SweepResult:
    """What a further round takes, and what it is for."""
    plan = further_round(measurement, thorough=run.record.spec.thorough)
    if not plan:
        return SweepResult()
    needed_s = START_SECONDS + Durations.of(measurement).of_least(plan)
    judged = Judged(measurement=measurement)
    return SweepResult(needed_s=needed_s, is_open=judged.is_open, is_uneven=judged.is_uneven)


def sweep(
    orders: Orders, more: Callable[[], Sequence[RunConfig]], further: Mapping[RunConfig, SweepResult] = {}
) -> None:
    """Measure the pending configurations of a run by `SweepPolicy`, and store each result at once.

    Right after it, the storage is measured where it may matter. `more` is asked, once all have a result, which
    configurations follow; those of `further` get more rounds. On KeyboardInterrupt all results are kept.
    """
    run, clock = orders.run, orders.clock
    spec = run.record.spec

    def added() -> Sequence[RunConfig]:
        """They are kept as asked for before they are measured."""
        if configs := more():
            run.ask(replace(run.record.spec, configs=(*run.record.spec.configs, *configs)))
        return configs

    policy = SweepPolicy(spec=spec, todo=pending(run), more=added, earlier=further)

    def measure(ask: Ask[RunConfig]) -> SweepResult:
        """One order. A measurement is kept before anything else can be interrupted; a failure leaves an earlier one."""
        config = ask.what
        before = run.result(config.key)
        earlier = before if isinstance(before, Measurement) else None
        try:
            files = run.files(config.data)
        except DamagedRun as error:
            if not earlier:
                run.save(_without_files(config, error))
            return SweepResult()
        order = Order(
            config=config, files=files, budget_s=ask.budget_s, begin_ns=clock.now_ns(), thorough=spec.thorough,
            earlier=earlier,
        )  # fmt: skip
        configs = run.record.spec.configs
        label = f"{configs.index(config) + 1}/{len(configs)}"
        result = orders.measured(ask, order, label)
        if isinstance(result, Measurement):
            run.save(result)
            measure_ceiling(run, order, result)
            # Where time is not divided, all was measured at once; no more is asked of what brought nothing.
            gained = len(result.segments) > (len(earlier.segments) if earlier else 0)
            return _further_of(run, result) if gained and policy.whole_s is not None else SweepResult()
        if earlier is None and isinstance(result, RunFailure):
            where = f"the log in failures/{config.key}.json of the run for"
            run.save(replace(result, hint=result.hint.replace("the log for", where)))
        return SweepResult()

    follow(policy, measure, clock=clock)


def _without_files(config: RunConfig, error: DamagedRun) -> RunFailure:
    """A configuration whose list of files cannot be used; the others go on."""
    return RunFailure(
        config=config,
        stage="reading the run",
        reason=error.message,
        hint="measure its data again, into a new directory",
        started_utc=utc_timestamp(),
        wall_s=0.0,
    )
