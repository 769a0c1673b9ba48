"""Two runs measured in turn: A B, then B A, round by round, so that drift of the machine reaches both alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from loaderprobe.measure.runner import Event, Order, named_limit
from loaderprobe.measure.segments import OVERHEAD, SEGMENTS_A_ROUND
from loaderprobe.measure.sweep import (
    DEALT,
    GRACE_S,
    START_SECONDS,
    USUAL_ROUNDS,
    OnProgress,
    Progress,
    Run,
    usual_seconds,
)
from loaderprobe.protocols import Clock
from loaderprobe.records.config import PlanInTurn, RunConfig
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.stats import mean
from loaderprobe.store.run_directory import RunDirectory

# Start of the workers and of the device, and the end of both: 1 to 3 s on two cores.
START_OF_TURN_SECONDS = 2.0

Kept = Callable[[RunDirectory, Order, Measurement], None]
"""Hears of each round that was kept."""


def rounds_of(run: RunDirectory, config: RunConfig) -> int:
    """Rounds that a run has of a configuration."""
    found = run.result(config.key)
    return 1 + max(each.round for each in found.segments) if isinstance(found, Measurement) and found.segments else 0


def begins_with_a(place: int, number: int) -> bool:
    """Whether A begins the pair of this number of a configuration.

    Two pairs are A B B A or B A A B, in which a steady drift cancels; which of them is drawn, since a load that comes
    and goes as sides do would else be taken for a difference.
    """
    drawn = random.Random(f"{place} {number // 2}").random() < 0.5
    return drawn == (number % 2 == 0)


def pairs_left(a: RunDirectory, b: RunDirectory) -> int:
    """Pairs of rounds that are still to be measured, of all configurations."""
    both = zip(a.record.spec.configs, b.record.spec.configs, strict=True)
    return sum(max(0, one.rounds - min(rounds_of(a, one), rounds_of(b, other))) for one, other in both)


def measure_in_turn(
    a: RunDirectory, b: RunDirectory, *, clock: Clock, on_progress: OnProgress, run_one: Run, on_kept: Kept
) -> None:
    """Add pairs of rounds to every configuration of both runs until each has as many as asked, or the budget is spent.

    The configurations of `b` are those of `a` with some options changed, at the same places. Both rounds of a pair
    follow each other, each in a process of its own; if A begins one, B begins the next. All configurations get a first
    pair before any gets a second. A pair is kept when both of its rounds are there. A configuration that fails on one
    side is left out from then on. On KeyboardInterrupt all pairs are kept.
    """
    _InTurn(
        runs=(a, b), clock=clock, begin_ns=clock.now_ns(), on_progress=on_progress, run_one=run_one, on_kept=on_kept,
        total=2 * pairs_left(a, b),
    ).measure()  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _InTurn:
    runs: tuple[RunDirectory, RunDirectory]
    clock: Clock
    begin_ns: int
    on_progress: OnProgress
    run_one: Run
    on_kept: Kept
    total: int
    """Rounds to measure, of both sides."""
    done: int = 0
    _took_s: dict[int, list[float]] = field(init=False, default_factory=dict)
    """Seconds of the pairs of each configuration, by its place."""
    _failed: set[int] = field(init=False, default_factory=set)
    _have: list[int] = field(init=False)
    """Pairs of rounds of each configuration."""

    def __post_init__(self) -> None:
        both = zip(*(run.record.spec.configs for run in self.runs), strict=True)
        a, b = self.runs
        self._have = [min(rounds_of(a, one), rounds_of(b, other)) for one, other in both]

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return (self.clock.now_ns() - self.begin_ns) / 1e9

    @property
    def budget_s(self) -> float | None:
        """Seconds for both sides together."""
        return self.runs[0].record.spec.budget_s

    def measure(self) -> None:
        """Pass after pass over all configurations, a pair each."""
        round_s = self._round_s()
        for number in range(max(config.rounds for config in self.runs[0].record.spec.configs)):
            for place in self._todo(number):
                if not self._affordable(place):
                    return
                begin_ns = self.clock.now_ns()
                self._pair(place, number, round_s)
                self._took_s.setdefault(place, []).append((self.clock.now_ns() - begin_ns) / 1e9)

    def _todo(self, number: int) -> Iterator[int]:
        """Places of the configurations that lack the pair of this number."""
        for place, config in enumerate(self.runs[0].record.spec.configs):
            if place not in self._failed and number < config.rounds and self._have[place] <= number:
                yield place

    def _affordable(self, place: int) -> bool:
        """True while there is time for a pair like those before; the first of each needs only some."""
        if self.budget_s is None:
            return True
        return self.spent_s + mean(self._took_s.get(place, [0.0])) < DEALT * self.budget_s

    def _round_s(self) -> float | None:
        """Seconds for the segments of a round; None where they may have their usual length."""
        if self.budget_s is None or not self.total:
            return None
        return max(DEALT * self.budget_s / self.total - START_OF_TURN_SECONDS, 0.0)

    def _pair(self, place: int, number: int, round_s: float | None) -> None:
        """One round of either side."""
        earlier = self._pairs_before(place)
        sides = (0, 1) if begins_with_a(place, number) else (1, 0)
        found: dict[int, tuple[Order, Measurement | RunFailure]] = {}
        for side in sides:
            order = self._order(side, place, round_s, earlier[side])
            found[side] = order, self._measured(order)
            self.done += 1
        self._keep(place, found, begun=earlier[0] is not None)

    def _pairs_before(self, place: int) -> list[Measurement | None]:
        """What each side has, without rounds of one side alone: they are no part of a pair."""
        found = [run.result(run.record.spec.configs[place].key) for run in self.runs]
        pairs = self._have[place]
        return [
            replace(each, segments=tuple(segment for segment in each.segments if segment.round < pairs))
            if isinstance(each, Measurement) and pairs
            else None
            for each in found
        ]

    def _keep(self, place: int, found: dict[int, tuple[Order, Measurement | RunFailure]], *, begun: bool) -> None:
        failed = any(isinstance(result, RunFailure) for _, result in found.values())
        if failed:
            self._failed.add(place)
        if failed and begun:
            return  # the pairs before stay what they are
        for side, (_, result) in found.items():
            self.runs[side].save(result)
        self._have[place] += not failed
        for side, (order, result) in found.items():
            if isinstance(result, Measurement):
                self.on_kept(self.runs[side], order, result)

    def _order(self, side: int, place: int, round_s: float | None, earlier: Measurement | None) -> Order:
        run = self.runs[side]
        config = run.record.spec.configs[place]
        return Order(
            config=config, files=run.files(config.data), budget_s=round_s, begin_ns=self.clock.now_ns(),
            thorough=run.record.spec.thorough, earlier=earlier, in_turn=True,
        )  # fmt: skip

    def _measured(self, order: Order) -> Measurement | RunFailure:
        limit_s = asked_s = self.runs[0].record.spec.time_limit_s
        if self.budget_s is not None:
            limit_s = min(limit_s, self.budget_s - self.spent_s + GRACE_S)
        self._report(order, Event(stage="start"))
        found = self.run_one(
            order, clock=self.clock, time_limit_s=limit_s, on_event=lambda event: self._report(order, event)
        )
        return named_limit(found, by_budget=limit_s < asked_s)

    def _report(self, order: Order, event: Event) -> None:
        usual_s = self.spent_s / self.done if self.done else _usual_s(order)
        self.on_progress(
            Progress(
                number=self.done + 1, total=self.total, config=order.config, stage=event.stage,
                share=self.done / self.total, left_s=(self.total - self.done) * usual_s,
            )
        )  # fmt: skip


def _usual_s(order: Order) -> float:
    segment_s = OVERHEAD if order.budget_s is None else order.budget_s / SEGMENTS_A_ROUND
    return START_OF_TURN_SECONDS + segment_s


# The plan of a sweep against a run, made before it begins.

TRAINING_SECONDS = 2.5
"""A segment of training with its flush and its eviction."""
DECIDING_SEGMENTS = 3
"""Of a round that decides on the verdict: the loader alone, training, and some ablation."""
SHORTEST_SECONDS = 1.25
"""The same, as short as a budget makes it."""


def plan_in_turn(a: RunDirectory, b: RunDirectory) -> PlanInTurn:
    """What is still to be measured of both."""
    spec = a.record.spec
    both = zip(spec.configs, b.record.spec.configs, strict=True)
    left = [(config, min(rounds_of(a, one), rounds_of(b, other))) for one, other in both for config in (one, other)]
    return PlanInTurn(
        configurations=len(spec.configs),
        pairs=pairs_left(a, b),
        rounds=max(each.rounds for each in spec.configs),
        expected_s=sum(_seconds(config, done) for config, done in left),
        least_s=sum(_least_seconds(config, done) for config, done in left),
        budget_s=spec.budget_s,
    )


def _seconds(config: RunConfig, done: int) -> float:
    """Of the rounds that are left of one side, without a budget: each starts a process."""
    deciding, training = _left(config, done)
    usual_s = usual_seconds(replace(config, rounds=min(config.rounds, USUAL_ROUNDS))) - START_SECONDS
    starts_s = (deciding + training) * START_OF_TURN_SECONDS
    return starts_s + deciding * usual_s / USUAL_ROUNDS + training * TRAINING_SECONDS


def _least_seconds(config: RunConfig, done: int) -> float:
    """The same with segments as short as they may be."""
    deciding, training = _left(config, done)
    starts_s = (deciding + training) * START_OF_TURN_SECONDS
    return starts_s + (deciding * DECIDING_SEGMENTS + training) * SHORTEST_SECONDS


def _left(config: RunConfig, done: int) -> tuple[int, int]:
    """Rounds that are left: (the usual ones, which decide on the verdict; the others, which only train)."""
    usual = min(config.rounds, USUAL_ROUNDS)
    return max(0, usual - done), max(0, config.rounds - max(usual, done))
