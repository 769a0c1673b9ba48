"""Two runs measured in turn: A B, then B A, round by round, so that drift of the machine reaches both alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from loaderprobe.measure.runner import Order
from loaderprobe.measure.segments import OVERHEAD, SEGMENTS_A_ROUND
from loaderprobe.measure.sweep import (
    DEALT,
    START_SECONDS,
    USUAL_ROUNDS,
    OnProgress,
    Orders,
    Run,
    Task,
    usual_seconds,
)
from loaderprobe.policy import Ask, Ended, Results, Stop, follow
from loaderprobe.protocols import Clock
from loaderprobe.records.config import PlanInTurn, RunConfig
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.stats import mean
from loaderprobe.store.run_directory import RunDirectory

# Start of the workers and of the device, and the end of both: 1 to 3 s on two cores.
START_OF_TURN_SECONDS = 2.0

T = TypeVar("T")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTask(Task):
    """A round of one side."""

    place: int
    """Of the configuration, among those of its side."""
    side: int
    """0 for A."""
    pairs: int
    """That there are of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurnPolicy:
    """Pairs of rounds, A B and B A, until each configuration has as many as asked, or the budget is spent.

    Both rounds of a pair follow each other; if A begins one, B begins the next. All configurations get a first pair
    before any gets a second. A configuration that fails on one side is left out from then on.
    """

    configs: Sequence[tuple[RunConfig, RunConfig]]
    """Each as A and as B."""
    have: Sequence[int]
    """Pairs of rounds that each had before."""
    budget_s: float | None = None
    """For both sides together."""

    @property
    def total(self) -> int:
        """Rounds to measure, of both sides."""
        return 2 * sum(max(0, a.rounds - have) for (a, _), have in zip(self.configs, self.have, strict=True))

    def next(self, results: Results[TurnTask, bool]) -> Ask[TurnTask] | Stop[Ended]:
        """The other side of a pair that was begun, else the next pair that there is time for; false is a failure."""
        done = results.done
        if len(done) % 2:
            return self._turn(results, done[-1].what.place, 1 - done[-1].what.side, done[-1].what.pairs)
        pairs = [(a.what.place, a.found and b.found, a.took_s + b.took_s) for a, b in batched(done)]
        failed = {place for place, whole, _ in pairs if not whole}
        have = [before + sum(at == place for at, _, _ in pairs) for place, before in enumerate(self.have)]
        left = [
            (have[place], place)
            for place, (a, _) in enumerate(self.configs)
            if have[place] < a.rounds and place not in failed
        ]
        if not left:
            return Stop(reason="complete")
        number, place = min(left)
        took_s = [each for at, _, each in pairs if at == place]
        # The first of each needs only some time, the others as much as those before.
        if self.budget_s is not None and results.spent_s + mean(took_s or [0.0]) >= DEALT * self.budget_s:
            return Stop(reason="no_time")
        return self._turn(results, place, 0 if begins_with_a(place, number) else 1, number)

    def _turn(self, results: Results[TurnTask, bool], place: int, side: int, pairs: int) -> Ask[TurnTask]:
        number, config, round_s = len(results.done), self.configs[place][side], self._round_s()
        segment_s = OVERHEAD if round_s is None else round_s / SEGMENTS_A_ROUND
        usual_s = results.spent_s / number if number else START_OF_TURN_SECONDS + segment_s
        turn = TurnTask(
            config=config, number=number + 1, total=self.total, budget_s=round_s, place=place, side=side, pairs=pairs
        )
        return Ask(what=turn, done=number * usual_s, takes=usual_s, total=self.total * usual_s)

    def _round_s(self) -> float | None:
        """Seconds for the segments of a round; None where they may have their usual length."""
        if self.budget_s is None:
            return None
        return max(DEALT * self.budget_s / self.total - START_OF_TURN_SECONDS, 0.0)


def batched(done: Sequence[T]) -> Iterator[tuple[T, T]]:
    """Each two."""
    return zip(done[::2], done[1::2], strict=True)


def measure_in_turn(
    a: RunDirectory, b: RunDirectory, *, clock: Clock, on_progress: OnProgress, run_one: Run, on_kept: Kept
) -> None:
    """Add rounds to both runs by `InTurnPolicy`, each in a process of its own.

    The configurations of `b` are those of `a` with some options changed, at the same places. A pair is kept when both
    of its rounds are there. On KeyboardInterrupt all pairs are kept.
    """
    runs, spec = (a, b), a.record.spec
    configs = list(zip(spec.configs, b.record.spec.configs, strict=True))
    have = [min(rounds_of(a, one), rounds_of(b, other)) for one, other in configs]
    orders = Orders(
        clock=clock, on_progress=on_progress, time_limit_s=spec.time_limit_s, budget_s=spec.budget_s,
        begin_ns=clock.now_ns(),
    )  # fmt: skip
    pair: list[tuple[TurnTask, Order, Measurement | RunFailure]] = []

    def measure(ask: Ask[TurnTask]) -> bool:
        turn, run = ask.what, runs[ask.what.side]
        order = Order(
            config=turn.config, files=run.files(turn.config.data), budget_s=turn.budget_s, begin_ns=clock.now_ns(),
            thorough=spec.thorough, earlier=_pairs_before(run, turn), in_turn=True,
        )  # fmt: skip
        found = orders.measured(ask, order, run_one)
        pair.append((turn, order, found))
        if len(pair) == 2:
            keep()
            pair.clear()
        return isinstance(found, Measurement)

    def keep() -> None:
        if any(isinstance(found, RunFailure) and turn.pairs for turn, _, found in pair):
            return  # the pairs before stay what they are
        for turn, _, found in pair:
            runs[turn.side].save(found)
        for turn, order, found in pair:
            if isinstance(found, Measurement):
                on_kept(runs[turn.side], order, found)

    follow(InTurnPolicy(configs=configs, have=have, budget_s=spec.budget_s), measure, clock=clock)


def _pairs_before(run: RunDirectory, turn: TurnTask) -> Measurement | None:
    """What a side has, without rounds of that side alone: they are no part of a pair."""
    found = run.result(turn.config.key) if turn.pairs else None
    if not isinstance(found, Measurement):
        return None
    return replace(found, segments=tuple(segment for segment in found.segments if segment.round < turn.pairs))


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
