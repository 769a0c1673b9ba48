"""A serial loader whose threads spin is measured on one thread as well, and what that gains is the first advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.forecast.advice import Recommendation, Surroundings, recommend
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rounds import next_round, one_thread_notes
from loaderprobe.records.measurement import NO_STEP, Measurement, segment_seconds
from loaderprobe.records.thresholds import MOST_PAIRS
from tests.analyze.runs import Cost, run

DECODING = Cost(cpu_s=0.01, cold=1.0)
USUAL = {"baseline": 100.0, "training": 80.0, "resident": 400.0}
SPINS, BESIDE = 2.0, 1.2


def serial(
    rounds: Sequence[Mapping[str, float]], *, cores: float = SPINS, workers: int = 0, **facts: Any
) -> Measurement:
    """The training thread is busy throughout; its process keeps `cores` busy, and on one thread a single one."""
    changes: dict[str, Any] = {"prefetch_factor": 2} if workers else {}
    found = run(
        rounds, DECODING, {"one_thread": DECODING}, synchronous=True, workers=workers, **changes,
        facts={"modes": ("baseline", "warm", "cached_samples", "one_thread"), **facts},
    )  # fmt: skip
    own = min(cores, 1.0)

    def busy(mode: str) -> float:
        return own if mode == "one_thread" else cores

    return replace(
        found,
        segments=tuple(
            replace(
                each,
                thread_cpu_ns=round(own * 1e9 * segment_seconds(each)),
                process_cpu_ns=round(busy(each.mode) * 1e9 * segment_seconds(each)),
            )
            for each in found.segments
        ),
    )


def pair(loader: float, training: float) -> dict[str, float]:
    return {**USUAL, "one_thread": loader, "training_one_thread": training}


def recommended(measurement: Measurement) -> Recommendation:
    return recommend(measurement, run_experiments(measurement), Surroundings())


def without_step() -> Measurement:
    """Two rounds of the loader alone that gain more than their steps vary by."""
    made = serial([{"baseline": 100.0}, *[{"baseline": 100.0, "one_thread": 107.0}] * 2])
    return replace(made, compute=replace(made.compute, name=NO_STEP, specified_images_per_s=None))


# Whether it is measured next, advised first, and noted.
TRIED: dict[str, tuple[Measurement, bool, bool, bool]] = {
    "a round in which other threads took a core": (serial([USUAL]), True, False, False),
    "nothing seen yet": (serial([USUAL], segments=()), False, False, False),
    "one core is busy": (serial([USUAL], cores=1.0), False, False, False),
    "not possible": (serial([USUAL], modes=("baseline", "warm", "cached_samples")), False, False, False),
    "workers": (serial([USUAL], workers=2), False, False, False),
    "a pair without a gain": (serial([USUAL, pair(101.0, 81.0)]), False, False, True),
    "a pair that gains is repeated": (serial([USUAL, pair(250.0, 160.0)]), True, True, True),
    "twice": (serial([USUAL, *[pair(250.0, 160.0)] * MOST_PAIRS]), False, True, True),
    "a small gain in one pair": (serial([USUAL, pair(130.0, 95.0)]), True, False, True),
    "rounds that differ": (serial([USUAL, pair(130.0, 95.0), pair(99.0, 80.0)]), False, False, True),
    "the step loses": (serial([USUAL, *[pair(130.0, 70.0)] * 2]), False, False, False),
    "threads that are used": (serial([USUAL, pair(60.0, 55.0)]), False, False, False),
    "the loader without a step": (without_step(), False, True, True),
}


@pytest.mark.parametrize("name", TRIED)
def test_what_spins_is_measured_on_one_thread_and_advised_where_it_gains(name: str) -> None:
    """One pair shows that nothing is gained; a gain is measured twice, and what the step pays for is none."""
    measurement, next_one, advised, noted = TRIED[name]
    asked = {activity for mode, activity in next_round(measurement, thorough=False) if mode == "one_thread"}
    assert asked == ({"loader_only", "training"} if next_one else set())
    if measurement.segments:
        codes = [each.action.code for each in recommended(measurement).advice]
        assert codes[:1] == ["one_thread"] if advised else "one_thread" not in codes
        assert bool(one_thread_notes(measurement)) is noted
