"""A serial loader whose threads spin is measured on one thread as well, and what that gains is the first advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.forecast.advice import Recommendation, Surroundings, recommend
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rounds import MOST_PAIRS, next_round, one_thread_notes, spinning
from loaderprobe.records.measurement import NO_STEP, Measurement, segment_seconds
from loaderprobe.render.words import remark_words
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


def on_one_thread(measurement: Measurement) -> set[str]:
    """The activities that the next round measures on one thread."""
    return {activity for mode, activity in next_round(measurement, thorough=False) if mode == "one_thread"}


def test_what_spins_is_measured_on_one_thread_in_the_same_round() -> None:
    """The loader alone and training, once the first round has shown it; its other threads take a core."""
    assert spinning(serial([USUAL])) == pytest.approx(1.0)
    assert on_one_thread(serial([USUAL])) == {"loader_only", "training"}


@pytest.mark.parametrize(
    "measurement",
    [
        serial([USUAL], segments=()),
        serial([USUAL], cores=1.0),
        serial([USUAL], modes=("baseline", "warm", "cached_samples")),
        serial([USUAL], workers=2),
    ],
    ids=["nothing seen yet", "one core busy", "not possible", "workers"],
)
def test_nothing_else_is(measurement: Measurement) -> None:
    """Without other threads at work there is nothing to try."""
    assert not on_one_thread(measurement)


def test_what_gains_nothing_is_not_repeated() -> None:
    """One pair shows that; a gain is measured twice."""
    assert not on_one_thread(serial([USUAL, pair(101.0, 80.0)]))
    assert on_one_thread(serial([USUAL, pair(250.0, 160.0)]))
    assert not on_one_thread(serial([USUAL, *[pair(250.0, 160.0)] * MOST_PAIRS]))


def test_a_gain_is_the_first_advice() -> None:
    """Training with both rates, as measured; what is typed leaves the step its threads."""
    measurement = serial([USUAL, pair(250.0, 160.0), pair(240.0, 152.0)], cores=BESIDE)
    first = recommended(measurement).advice[0]
    assert (first.action.code, first.how) == ("one_thread", "measured")
    assert (first.before.value, first.after.value) == pytest.approx((80, 156))
    assert first.before.value < first.after.low <= first.after.value <= first.after.high
    assert "next(batches)" in first.command
    (note,) = one_thread_notes(measurement)
    assert note.facts["loader_per_s"] == pytest.approx(100)
    assert note.facts["one_thread_per_s"] == pytest.approx(245)
    assert (note.facts["training_per_s"], note.facts["one_thread_training_per_s"]) == pytest.approx((80, 156))


def test_without_a_step_the_loader_gains() -> None:
    """Two rounds that gain more than their steps vary by are enough."""
    rounds = [{"baseline": 100.0}, *[{"baseline": 100.0, "one_thread": 107.0}] * 2]
    measurement = serial(rounds)
    alone = replace(measurement, compute=replace(measurement.compute, name=NO_STEP, specified_images_per_s=None))
    first = recommended(alone).advice[0]
    assert first.action.code == "one_thread"
    assert (first.before.value, first.after.value) == pytest.approx((100, 107))


@pytest.mark.parametrize(
    "pairs",
    [[pair(101.0, 80.0)], [pair(130.0, 95.0)], [pair(130.0, 95.0), pair(99.0, 80.0)], [pair(130.0, 70.0)] * 2],
    ids=["no gain", "one round alone", "rounds differ", "the step loses"],
)
def test_no_gain_is_no_advice(pairs: Sequence[Mapping[str, float]]) -> None:
    """Nor is one that a single round shows, unless it is large, or that the step pays for."""
    assert "one_thread" not in {each.action.code for each in recommended(serial([USUAL, *pairs])).advice}


def test_a_core_that_is_freed_at_the_same_rate_is_a_note() -> None:
    """With the CPU time of both; a loader that is faster with its threads uses them, and nothing is said."""
    (note,) = one_thread_notes(serial([USUAL, pair(101.0, 81.0)]))
    words = remark_words(note)
    assert "2 cores busy for 100 images/s, and 1 for 101 images/s" in words
    assert "In those rounds training ran at 80.0 and 81.0 images/s" in words
    assert one_thread_notes(serial([USUAL, pair(60.0, 55.0)])) == ()
    assert one_thread_notes(serial([USUAL])) == ()


def test_the_cause_is_what_it_was() -> None:
    """One thread takes no resource away: verdict and speed-ups are those of the other modes."""
    plain, tried = verdict(serial([USUAL] * 3)), verdict(serial([pair(250.0, 160.0)] * 3))
    assert (tried.bound, tried.speedups, tried.images_per_s) == (plain.bound, plain.speedups, plain.images_per_s)
