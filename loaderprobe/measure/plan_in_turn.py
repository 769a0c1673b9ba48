"""The plan of a sweep against a run, made before it begins."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.measure.in_turn import START_OF_TURN_SECONDS, pairs_left, rounds_of
from loaderprobe.measure.plan import USUAL_ROUNDS, usual_seconds
from loaderprobe.records.config import RunConfig
from loaderprobe.records.sweep_plan import PlanInTurn
from loaderprobe.store.run_directory import RunDirectory

TRAINING_SECONDS = 2.5
"""A segment of training with its flush and its eviction."""


def plan_in_turn(a: RunDirectory, b: RunDirectory) -> PlanInTurn:
    """What is still to be measured of both."""
    spec, pairs = a.record.spec, pairs_left(a, b)
    return PlanInTurn(
        configurations=len(spec.configs),
        pairs=pairs,
        rounds=max(each.rounds for each in spec.configs),
        expected_s=seconds_in_turn(a, b),
        least_s=2 * pairs * (START_OF_TURN_SECONDS + TRAINING_SECONDS / 2),
        budget_s=spec.budget_s,
    )


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
