"""Which number of workers to measure next, or why to stop: a search that measures few of all settings.

First it looks at settings once. What a setting reached in its own visit limits all others: compute alone, the cores,
and what so many workers more can add at best; forecasts limit them too, and a larger number that gained nothing leaves
no gain to still larger ones. What none of these rules out is measured. Then those that may be the smallest within 2 %
of the best are measured in turns, until their ratios say which it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import get_args

from loaderprobe.analyze.effects import SWING, of_rounds
from loaderprobe.analyze.forecast.changes import ENOUGH_BATCHES, prefetch, worker_forecasts
from loaderprobe.analyze.forecast.fit import Storage, fit, point_of
from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.analyze.verdict.rates import WorkerCost, cores_in_training, rates_by_round
from loaderprobe.errors import LoaderprobeError
from loaderprobe.policy import Ask, Results, Stop
from loaderprobe.records.measurement import (
    NO_STEP,
    Activity,
    Measurement,
    Mode,
    base_mode,
    judged_activity,
    segment_seconds,
    segments_of,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.tune_workers import (
    WITHIN,
    ClosedCode,
    LimitCode,
    PrefetchSpeedup,
    StopCode,
    Waits,
    WorkersForecast,
    WorkersRow,
    WorkersSetting,
    WorkersVisit,
)
from loaderprobe.records.verdict import WORTH, Interval
from loaderprobe.stats import half_width, median

# How the rates of settings compare, where each was measured in several visits on a machine whose speed drifts.

Rates = Mapping[WorkersSetting, Mapping[int, float]]
"""Images/s by setting and turn."""


def rates_of(visits: Sequence[WorkersVisit]) -> dict[WorkersSetting, dict[int, float]]:
    """The rates by setting and turn."""
    found: dict[WorkersSetting, dict[int, float]] = {}
    for visit in visits:
        found.setdefault(visit.setting, {})[visit.turn] = visit.images_per_s
    return found


def pairs(rates: Rates, one: WorkersSetting, other: WorkersSetting) -> dict[int, float]:
    """Rate of `one` over that of `other`, in each later turn that measured both."""
    common = sorted(turn for turn in rates[one] if turn and turn in rates[other])
    return {turn: rates[one][turn] / rates[other][turn] for turn in common}


def over(rates: Rates, one: WorkersSetting, other: WorkersSetting) -> Interval:
    """Rate of `one` over that of `other`: the median of the turns that measured both, with its 95 % interval.

    Both are compared in turns because the machine's speed drifts: two visits one after the other mostly see the same.
    Without such a turn, their first visits are compared.
    """
    if one == other:
        return Interval(value=1.0, low=1.0, high=1.0)
    first = {0: _first(rates[one]) / _first(rates[other])}
    return of_rounds(pairs(rates, one, other) or first, band="turns").ratio


def best_of(rates: Rates, among: Sequence[WorkersSetting]) -> WorkersSetting:
    """The fastest of these settings; each is compared with the one that was measured in most turns."""
    often = max(len(rates[each]) for each in among)
    reference = max(
        (each for each in sorted(among) if len(rates[each]) == often), key=lambda each: median([*rates[each].values()])
    )
    return max(sorted(among), key=lambda each: over(rates, each, reference).value)


def _first(by_turn: Mapping[int, float]) -> float:
    return by_turn[min(by_turn)]


USUAL_FACTOR = 2
"""Of prefetching, as torch's."""
FACTORS = (2, 4, 8)
GRID_TURNS = 3
LEAST_TURNS = 2
MOST_TURNS = 5
# Workers that compute fill the cores; some more hide what else they wait for.
A_CORE = 2
# Workers that wait for storage or a network use no core meanwhile.
A_CORE_WAITING = 4
LEAST_MOST = 4
LEAST_MOST_WAITING = 8
WAITING = 0.5
"""Share of the workers' time."""
# Sending a sample may cost a worker as much as making it: the serial loader may be quicker than one worker.
SERIAL_SLOWER = 0.4


# Of the budget, for looking at settings once: the rest is for comparing them in turns.
LOOKING = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The next visit."""

    setting: WorkersSetting
    turn: int


WorkersFound = WorkersVisit | LoaderprobeError | None
"""What came of a visit: also an error that other settings need not have, None where the serial loader has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPolicy:
    """What limits the search, and its next visit."""

    own: WorkersSetting | None
    """Of the loader as it was given: measured first, and in the first turns."""
    cores: float
    most: int | None = None
    """Workers at most; without it, by the cores and by what workers wait for."""
    budget_s: float = math.inf

    def search(self, results: Results[Planned, WorkersFound]) -> WorkersSearch:
        """What follows from the visits so far."""
        return WorkersSearch(
            asked=self,
            visits=[each for each in results.found if isinstance(each, WorkersVisit)],
            failed={each.what.setting: each.found for each in results.done if isinstance(each.found, LoaderprobeError)},
            serial=None not in results.found,
        )

    def next(self, results: Results[Planned, WorkersFound]) -> Ask[Planned] | Stop[StopCode]:
        """The next visit; none that would end after the budget. Raises the first error when every setting failed.

        Late, settings that were seen are compared before fewer workers are looked at.
        """
        search = self.search(results)
        planned = self._planned(search, late=results.spent_s > LOOKING * self.budget_s)
        if not isinstance(planned, Planned):
            return Stop(reason=planned)
        if search.visits and results.spent_s * (1 + 1 / len(search.visits)) > self.budget_s:
            return Stop(reason="budget")
        return Ask(what=planned, done=results.spent_s, total=self.budget_s)

    def _planned(self, search: WorkersSearch, *, late: bool) -> Planned | StopCode:
        if not search.rates:
            return Planned(setting=_begin(search), turn=0)
        look = _look(search)
        if look is None:
            return _in_turns(search)
        planned = _in_turns(search) if late and look < search.choice else None
        return planned if isinstance(planned, Planned) else Planned(setting=look, turn=0)


@dataclass(frozen=True, kw_only=True)
class WorkersSearch:
    """What follows from the visits so far."""

    asked: WorkersPolicy
    visits: Sequence[WorkersVisit]
    failed: Mapping[WorkersSetting, LoaderprobeError] = field(default_factory=dict)
    """Settings whose workers died, or that raised."""
    serial: bool = True
    """False where the serial loader cannot be measured."""

    @cached_property
    def rates(self) -> dict[WorkersSetting, dict[int, float]]:
        """Images/s by setting and turn, of those that did not fail."""
        return {each: rates for each, rates in rates_of(self.visits).items() if each not in self.failed}

    @cached_property
    def first(self) -> dict[WorkersSetting, WorkersVisit]:
        """The first visit of each setting, which measured what limits it."""
        return {visit.setting: visit for visit in reversed(self.visits)}

    @cached_property
    def best(self) -> WorkersSetting:
        """The fastest so far. Raises ValueError without a visit."""
        return best_of(self.rates, list(self.rates))

    @cached_property
    def choice(self) -> WorkersSetting:
        """The smallest that is within 2 % of the fastest so far."""
        return next(each for each in sorted(self.rates) if over(self.rates, each, self.best).value >= WITHIN)

    @property
    def counts(self) -> list[int]:
        """The numbers of workers that are considered: 0, 1, 2, 3, 4, 6, 8, 12 and so on, and that of the loader."""
        cores = max(1, math.ceil(self.asked.cores))
        most = self.asked.most
        if most is None:
            usual, waiting = max(LEAST_MOST, A_CORE * cores), max(LEAST_MOST_WAITING, A_CORE_WAITING * cores)
            most = waiting if any(visit.blocked_share >= WAITING for visit in self.visits) else usual
        ladder = {1, most, *(size for power in range(1, 12) for size in (2**power, 3 * 2 ** (power - 1)))}
        found = {count for count in ladder if 1 <= count <= most}
        if self.asked.own:
            found.add(self.asked.own.workers)
        return sorted(({0} if self.serial else set()) | found)

    @property
    def grid_visits(self) -> int:
        """The visits of an exhaustive search: each number with each prefetch factor, in three turns."""
        return GRID_TURNS * sum(len(FACTORS) if count else 1 for count in self.counts)

    def at_most(self, count: int) -> tuple[float, ClosedCode]:
        """The most that so many workers can reach, over the fastest so far; and what limits them."""
        found: list[tuple[float, ClosedCode]] = [(math.inf, "linear")]
        for setting in self.rates:
            # Other visits saw the machine at another speed.
            seen = over(self.rates, setting, self.best).value * (1.0 if setting == self.best else 1 + SWING)
            found += [(seen * ratio, code) for ratio, code in self.limits(setting, count)]
        return min(found)

    def limits(self, setting: WorkersSetting, count: int) -> list[tuple[float, ClosedCode]]:
        """By how much another number of workers can be faster than this setting, by each limit that it measured."""
        visit, more = self.first[setting], count > setting.workers
        found: list[tuple[float, ClosedCode]] = []
        if visit.compute_images_per_s:
            found.append((max(1.0, visit.compute_images_per_s / visit.images_per_s), "compute"))
        if visit.cores_in_use and more:
            found.append((max(1.0, self.asked.cores / visit.cores_in_use), "cores"))
        if setting.workers and more:
            found.append((count / setting.workers, "linear"))
        # The serial loader is bounded by the forecast of one worker, which also sends what it makes.
        by_forecast, slower = (count, 1.0) if count else (1, SERIAL_SLOWER)
        found += [
            (each.images_per_s.high / visit.images_per_s / slower, "forecast")
            for each in visit.forecasts
            if each.workers == by_forecast
        ]
        return found

    def closed(self, count: int) -> ClosedCode | None:
        """Why this number of workers need not be measured; None where it must be."""
        if any(each.workers <= count for each in self.failed if each.workers):
            return "failed"
        if any(visit.fed_workers is not None and count > visit.fed_workers for visit in self.visits):
            return "no_data"
        most, code = self.at_most(count)
        if count > self.best.workers:
            return code if most < 1 / WITHIN else "no_gain" if self._no_gain_below(count) else None
        if count > self.choice.workers:
            return "no_gain"
        return code if most < WITHIN else "slower" if self._slower_above(count) else None

    def _no_gain_below(self, count: int) -> bool:
        """True when, of two smaller numbers that were measured, the larger gained nothing."""
        some = [each for each in sorted(self.rates) if 1 <= each.workers < count]
        return any(
            over(self.rates, more, fewer).value <= 1 / WITHIN
            for fewer in some
            for more in some
            if more.workers > fewer.workers
        )

    def _slower_above(self, count: int) -> bool:
        """True when a larger number, short of the choice, was already slower than what drift explains."""
        least = WITHIN / (1 + SWING) if count else SERIAL_SLOWER
        between = [each for each in self.rates if count < each.workers < self.choice.workers]
        return any(over(self.rates, each, self.best).value < least for each in between)

    @property
    def unseen(self) -> list[int]:
        """Numbers of workers that were never measured, and did not fail."""
        seen = {each.workers for each in (*self.rates, *self.failed)}
        return [count for count in self.counts if count not in seen]


def _begin(search: WorkersSearch) -> WorkersSetting:
    """The loader as given, else about as many workers as cores; fewer where that failed."""
    own = search.asked.own
    if own and own not in search.failed:
        return own
    fewest = min((each.workers for each in search.failed), default=max(search.counts) + 1)
    some = [count for count in search.unseen if count < fewest]
    if not some:
        raise next(iter(search.failed.values()))
    enough = [count for count in some if count >= search.asked.cores and count]
    return setting_of(enough[0] if enough else some[-1])


def setting_of(count: int) -> WorkersSetting:
    """So many workers, with the usual prefetch factor."""
    return WorkersSetting(workers=count, prefetch_factor=USUAL_FACTOR if count else 0)


def _look(search: WorkersSearch) -> WorkersSetting | None:
    """The next setting to look at for the first time: more workers, then fewer, then another prefetch factor."""
    left = [count for count in search.unseen if search.closed(count) is None]
    more = [count for count in left if count > search.best.workers]
    if more:
        return setting_of(_of_more(search, more))
    fewer = [count for count in left if count < search.choice.workers]
    if fewer:
        return setting_of(_of_fewer(search, fewer))
    return _further_ahead(search)


def _of_more(search: WorkersSearch, more: Sequence[int]) -> int:
    """The number that a forecast calls enough; else the largest up to twice as many as the best so far."""
    expected = _enough_by_forecast(search)
    if expected in more:
        return expected
    return max((count for count in more if count <= 2 * max(1, search.best.workers)), default=more[0])


def _of_fewer(search: WorkersSearch, fewer: Sequence[int]) -> int:
    """The number that a forecast calls enough; else the middle one, upwards."""
    expected = _enough_by_forecast(search)
    return expected if expected in fewer else fewer[len(fewer) // 2]


def _enough_by_forecast(search: WorkersSearch) -> int:
    """The smallest number within 2 % of the best, by the forecast from the fastest so far; -1 where there is none."""
    values = {each.workers: each.images_per_s.value for each in search.first[search.best].forecasts}
    best = max(values.values(), default=0.0)
    return next((count for count in sorted(values) if values[count] >= WITHIN * best), -1)


def _further_ahead(search: WorkersSearch) -> WorkersSetting | None:
    """The smallest larger prefetch factor that the times of batches recommend, where it was not measured yet.

    First the usual one, where the loader was given with a larger one.
    """
    usual = setting_of(search.choice.workers)
    if usual > search.choice or usual in search.failed:
        return None
    if usual not in search.first:
        return usual
    speedups = {each.prefetch_factor: each.speedup for each in search.first[usual].prefetch_speedups}
    best = max(speedups.values(), default=0.0)
    if best < WORTH:  # by the times of single batches
        return None
    factor = next(each for each in sorted(speedups) if speedups[each] >= WITHIN * best)
    setting = replace(usual, prefetch_factor=factor)
    return None if setting in search.first or setting in search.failed else setting


def _in_turns(search: WorkersSearch) -> Planned | StopCode:
    """The next visit of those between which there is still a choice, one after the other in each turn."""
    doubts = rivals(search)
    turn = max(1, *(visit.turn for visit in search.visits))
    if not doubts and len([t for t in search.rates[search.choice] if t]) >= LEAST_TURNS:
        return "decided"
    while turn <= MOST_TURNS:
        members = {search.choice, *doubts}
        if search.asked.own in search.rates and search.asked.own and turn <= LEAST_TURNS:
            members.add(search.asked.own)
        left = sorted((each for each in members if turn not in search.rates[each]), reverse=turn % 2 == 0)
        if left and len(search.visits) < search.grid_visits // 2:
            return Planned(setting=left[0], turn=turn)
        turn += 1
    return "alike" if doubts else "decided"


def rivals(search: WorkersSearch) -> list[WorkersSetting]:
    """Smaller settings that may be good enough, and larger ones that may be better by more than 2 %."""
    return [each for each in search.rates if each != search.choice and _in_doubt(search, each)]


def _in_doubt(search: WorkersSearch, other: WorkersSetting) -> bool:
    ratio = over(search.rates, other, search.choice)
    if other < search.choice:
        return ratio.high >= WITHIN
    return min(ratio.high, *(most for most, _ in _caps(search, other))) > 1 / WITHIN


def _caps(search: WorkersSearch, other: WorkersSetting) -> list[tuple[float, ClosedCode]]:
    found = search.limits(search.choice, other.workers)
    measured = [each for each in found if each[1] in ("compute", "cores")]
    return [*measured, (math.inf, "linear")]


# What a finished search says of each setting, and what limits the chosen one.

# Within noise of its limit.
OF_COMPUTE, OF_CORES, OF_THREAD = 0.93, 0.9, 0.85
BLOCKED = 0.5


def rows_of(search: WorkersSearch, *, stop: StopCode) -> tuple[WorkersRow, ...]:
    """One row for each setting that was measured, failed, or was ruled out; in their order."""
    left: ClosedCode = "interrupted" if stop == "interrupted" else "budget"
    measured = [_measured(search, each) for each in search.rates]
    failed = [
        WorkersRow(setting=each, state="failed", failure=error.message, hint=error.hint)
        for each, error in search.failed.items()
    ]
    closed = [_closed(search, count, left) for count in search.unseen]
    return tuple(sorted((*measured, *failed, *closed), key=lambda row: row.setting))


def _measured(search: WorkersSearch, setting: WorkersSetting) -> WorkersRow:
    rates = list(search.rates[setting].values())
    return WorkersRow(
        setting=setting,
        state="chosen" if setting == search.choice else "measured",
        visits=len(rates),
        images_per_s=rate_of(rates),
        over_chosen=over(search.rates, setting, search.choice),
        paired=setting == search.choice or bool(pairs(search.rates, setting, search.choice)),
    )


def _closed(search: WorkersSearch, count: int, left: ClosedCode) -> WorkersRow:
    most, _ = search.at_most(count)
    code = search.closed(count) or left
    known = code in ("compute", "cores", "linear", "forecast") and math.isfinite(most)
    chosen = over(search.rates, search.best, search.choice).value
    return WorkersRow(setting=setting_of(count), state="closed", closed=code, at_most=most * chosen if known else None)


def rate_of(rates: Sequence[float]) -> Interval:
    """The median over the visits, with the 95 % interval of their spread; of two visits, both."""
    middle = median(rates)
    if len(rates) <= 2:
        return Interval(value=middle, low=min(rates), high=max(rates))
    half = half_width(rates)
    return Interval(value=middle, low=max(0.0, middle - half), high=middle + half)


def limit_of(search: WorkersSearch) -> LimitCode:
    """What limits the chosen setting, by what its first visit measured."""
    visit, asked = search.first[search.choice], search.asked
    if visit.compute_images_per_s and visit.images_per_s >= OF_COMPUTE * visit.compute_images_per_s:
        return "compute"
    if visit.cores_in_use and visit.cores_in_use >= OF_CORES * asked.cores:
        return "cores"
    if visit.thread_share is not None and visit.thread_share >= OF_THREAD:
        return "transport"
    if search.choice.workers == max(search.counts) and search.choice.workers:
        return "workers"
    if visit.blocked_share >= BLOCKED and visit.blocked_by:
        return visit.blocked_by
    return "unknown"


# One visit to a setting: what it measures, and what the measurement says about this and other settings.

LATER_ROUNDS = 2
"""Of a visit in a later turn, which measures the rate alone."""
Round = tuple[tuple[Mode, Activity], ...]


def first_round(measurement: Measurement, *, thorough: bool) -> Round:
    """One round: the loader alone and, with a step, training and compute alone."""
    del thorough
    if measurement.segments:
        return ()
    base = base_mode(measurement)
    if measurement.compute.name == NO_STEP:
        return ((base, "loader_only"),)
    both: Round = ((base, "loader_only"), (base, "training"))
    return both if measurement.compute.specified_images_per_s is not None else (*both, ("resident", "training"))


def later_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The rate alone, twice."""
    del thorough
    judged = (base_mode(measurement), judged_activity(measurement))
    return () if len(segments_of(measurement, *judged)) >= LATER_ROUNDS else (judged,)


def visit_of(measurement: Measurement, setting: WorkersSetting, turn: int) -> WorkersVisit:
    """What a measurement of `setting` found; beyond the rate only in turn 0, which `first_round` measures."""
    base, activity = base_mode(measurement), judged_activity(measurement)
    rate = median(list(rates_by_round(measurement, base, activity).values()))
    if turn:
        return WorkersVisit(setting=setting, turn=turn, images_per_s=rate)
    found = run_experiments(measurement)
    has_compute = measurement.compute.name != NO_STEP
    return WorkersVisit(
        setting=setting,
        turn=turn,
        images_per_s=rate,
        compute_images_per_s=found.compute if has_compute else None,
        cores_in_use=cores_in_training(measurement, segments_of(measurement, base, activity)),
        thread_share=_thread_share(measurement) if setting.workers else None,
        core_wait_share=found.cost.run_delay_s / found.cost.wall_s if found.cost and found.cost.wall_s else 0.0,
        blocked_share=_blocked_share(found.cost),
        blocked_by=_blocked_by(found.cost),
        fed_workers=_fed(measurement, setting),
        forecasts=_forecasts(measurement, found),
        prefetch_speedups=_prefetch_speedups(measurement, found),
    )


def _thread_share(measurement: Measurement) -> float | None:
    loader_only = segments_of(measurement, base_mode(measurement), "loader_only")
    seconds = sum(segment_seconds(segment) for segment in loader_only)
    return sum(segment.thread_cpu_ns for segment in loader_only) / 1e9 / seconds if seconds else None


def _blocked_share(cost: WorkerCost | None) -> float:
    return cost.blocked_s / cost.wall_s if cost and cost.wall_s else 0.0


def _blocked_by(cost: WorkerCost | None) -> Waits | None:
    if cost is None or cost.waiting is None or not cost.waiting.waited:
        return None
    waits: tuple[Waits, ...] = get_args(Waits)
    return max(waits, key=cost.waiting.share)


def _fed(measurement: Measurement, setting: WorkersSetting) -> int | None:
    """Where an iterable data set has shares for fewer workers, it is measured with those."""
    workers = measurement.config.loader.workers
    return workers if 0 < workers < setting.workers else None


def _forecasts(measurement: Measurement, found: Experiments) -> tuple[WorkersForecast, ...]:
    """Of numbers of workers that were not measured here."""
    point = point_of(measurement, found)
    if isinstance(point, Remark):
        return ()
    made = worker_forecasts((point,), Storage())
    return tuple(
        WorkersForecast(workers=count, images_per_s=each.images_per_s)
        for count, each in made.items()
        if each.images_per_s and count != point.workers
    )


def _prefetch_speedups(measurement: Measurement, found: Experiments) -> tuple[PrefetchSpeedup, ...]:
    """What other prefetch factors are worth, where batches were seen often enough to say how their times vary."""
    point = point_of(measurement, found)
    fitted = point if isinstance(point, Remark) else fit((point,), point, Storage())
    before = measurement.config.loader.prefetch_factor
    if isinstance(point, Remark) or isinstance(fitted, Remark) or not before:
        return ()
    records = measurement.worker_batches
    wall_s = {number: wall / 1e9 for number, wall in zip(records.batch, records.wall_ns, strict=True)}
    rounds = [
        [wall_s[n] for n in range(s.first_batch, s.first_batch + s.steps) if n in wall_s]
        for s in segments_of(measurement, found.base, "loader_only")
    ]
    if not any(len(each) >= ENOUGH_BATCHES for each in rounds):
        return ()
    made = {factor: prefetch(fitted, factor, before, rounds).images_per_s for factor in FACTORS if factor > before}
    return tuple(
        PrefetchSpeedup(prefetch_factor=factor, speedup=rate.value / point.training)
        for factor, rate in made.items()
        if rate
    )
