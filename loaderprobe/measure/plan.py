"""The plan of a sweep, made before it begins: what it measures, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.records.sweep_plan import StudyPlan, SweepPlan

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
