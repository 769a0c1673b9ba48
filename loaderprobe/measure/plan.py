"""The plan of a sweep, printed before it begins: what it measures, why, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.units import format_duration

# What a configuration is given without --budget: 15 of them then take less than 5 minutes.
USUAL_SECONDS = 17.0
# Starting CUDA and ten batches of 256 images take longer.
USUAL_SECONDS_ON_GPU = 40.0
COMPILE_SECONDS = 180.0
# The segments that only several ranks have: alone, without one of them, without and with nothing but the exchange.
RANKS_SECONDS = 30.0
USUAL_ROUNDS = 3
# Start of Python, torch and the workers: 4 s on two idle cores.
START_SECONDS = 4.0
# A segment with its flush and its eviction, on average over resolutions and worker counts.
SEGMENT_SECONDS = 2.0
SCREENING_SEGMENTS = 2
ABLATION_SEGMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the configurations that are still to be measured take."""

    configurations: int
    expected_s: float
    budget_s: float | None
    thorough: bool
    rounds: int
    beside: tuple[str, ...] = ()
    """What is measured beside the verdicts, a sentence each."""

    def sentences(self) -> tuple[str, ...]:
        """The plan as sentences for the user."""
        if not self.configurations:
            return (f"Plan: {'all verdicts are' if self.beside else 'everything is'} already measured.", *self.beside)
        counted = "1 configuration" if self.configurations == 1 else f"{self.configurations} configurations"
        screening = f"{counted}: the loader alone and in training, {self.rounds} rounds"
        costly = "the same with warm files, cached samples and no transport"
        decided = f"then {costly}" + ("" if self.thorough else ", where the cause is still open")
        where = "in training itself, where the prediction error is too large"
        return f"Plan: {screening}; {decided}; {where}.", self._time(), *self.beside

    def _time(self) -> str:
        expected = format_duration(self.expected_s)
        if self.budget_s is None and self.thorough:
            return f"It takes about {expected}; --budget SECONDS sets a limit."
        if self.budget_s is None:
            return f"It takes about {expected}; --budget SECONDS gives it more or less, --thorough measures everything."
        share = f"{format_duration(self.budget_s)}, {format_duration(self.budget_s / self.configurations)} each"
        least_s = self.configurations * (START_SECONDS + SCREENING_SEGMENTS * SEGMENT_SECONDS)
        if self.budget_s >= least_s:
            return f"It stays within the budget of {share}."
        fits = int(self.configurations * self.budget_s / least_s)
        return (
            f"The budget of {share}, is less than the {format_duration(least_s)} that one round of all would take: "
            f"segments get short, and {self.configurations - fits or 'none'} of them may be left for --resume."
        )


def plan_sweep(spec: SweepSpec, todo: Sequence[RunConfig], beside: tuple[str, ...] = ()) -> Plan:
    """The plan for what is still to be measured of a sweep, and beside it."""
    return Plan(
        configurations=len(todo),
        expected_s=sum(expected_seconds(spec, config) for config in todo),
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
