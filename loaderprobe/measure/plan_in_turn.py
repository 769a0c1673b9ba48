"""The plan of a sweep against a run, printed before it begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaderprobe.measure.in_turn import START_OF_TURN_SECONDS, rounds_of
from loaderprobe.measure.plan import USUAL_ROUNDS, usual_seconds
from loaderprobe.records.config import RunConfig
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.units import format_duration

TRAINING_SECONDS = 2.5
"""A segment of training with its flush and its eviction."""
FEWEST_PAIRS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInTurn:
    """What is still to be measured of both sides."""

    configurations: int
    pairs: int
    """Of rounds, of all configurations together."""
    rounds: int
    """Pairs of each configuration in the end."""
    expected_s: float
    budget_s: float | None

    def sentences(self) -> tuple[str, ...]:
        """The plan as sentences for the user."""
        if not self.pairs:
            return ("Plan: everything is already measured.",)
        many = "1 configuration" if self.configurations == 1 else f"{self.configurations} configurations"
        turns = f"Plan: {many}, each as A and as B in turn (A B, B A), {self.rounds} pairs of rounds."
        return turns, self._time()

    def _time(self) -> str:
        expected = format_duration(self.expected_s)
        if self.budget_s is None:
            return f"It takes about {expected}; --rounds asks for more or fewer pairs, --budget SECONDS sets a limit."
        within = f"It stays within the budget of {format_duration(self.budget_s)} for both sides"
        shortest_s = 2 * self.pairs * (START_OF_TURN_SECONDS + TRAINING_SECONDS / 2)
        if self.budget_s >= shortest_s:
            return f"{within}."
        fits = int(self.rounds * self.budget_s / shortest_s)
        few = f", and fewer than {FEWEST_PAIRS} are not compared as pairs" if fits < FEWEST_PAIRS else ""
        return f"{within}, which has time for about {fits} of the {self.rounds} pairs{few}; the rest is for --resume."


def seconds_in_turn(a: RunDirectory, b: RunDirectory) -> float:
    """What the rounds that are left are expected to take without a budget, in seconds."""
    both = zip(a.record.spec.configs, b.record.spec.configs, strict=True)
    return sum(
        _seconds(config, min(rounds_of(a, one), rounds_of(b, other))) for one, other in both for config in (one, other)
    )


def _seconds(config: RunConfig, done: int) -> float:
    """Of one side: the usual rounds decide on the verdict, the others only train; each starts a process."""
    usual = min(config.rounds, USUAL_ROUNDS)
    deciding_s = max(0, usual - done) * usual_seconds(replace(config, rounds=usual)) / USUAL_ROUNDS
    return deciding_s + max(0, config.rounds - max(usual, done)) * (START_OF_TURN_SECONDS + TRAINING_SECONDS)
