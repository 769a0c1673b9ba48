"""The plan of a sweep against a run, made before it begins."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.measure.in_turn import START_OF_TURN_SECONDS, pairs_left, rounds_of
from loaderprobe.measure.plan import START_SECONDS, USUAL_ROUNDS, usual_seconds
from loaderprobe.records.config import RunConfig
from loaderprobe.records.sweep_plan import PlanInTurn
from loaderprobe.store.run_directory import RunDirectory

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
