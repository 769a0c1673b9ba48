"""What is measured next: screening first, then only the modes that decide, and no longer than it takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import ablations, deciding, further_round, next_round
from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.records.thresholds import CERTAIN_LEAD
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import Cost, Round, alike, run
from tests.analyze.verdict.test_truths import (
    ALL_BESIDE,
    AS_FOUND,
    DISK,
    EVEN,
    LIMITED,
    SERIAL,
    UNCOUNTED,
    beside,
    cached,
    on_cpu,
    pipeline,
    times,
    unsteady,
)

DISK_BOUND = Cost(cpu_s=0.002, blocked_s=0.006, collate_s=0.0002)
DECODE_BOUND = Cost(cpu_s=0.008, blocked_s=0.0005, collate_s=0.0002)
TENSORS = Cost(cpu_s=0.006, blocked_s=0.0005, collate_s=0.003)
HIDDEN: dict[str, Any] = {"cache": "as-found", "facts": {"access": "none"}}
WARM_FILES = Cost(cpu_s=0.006, collate_s=0.003, cold=0.0)


def screened(cost: Cost, count: int = 3, **changes: Any) -> Measurement:
    """So many rounds as asked, at the rate of two such workers."""
    return run(alike(count, baseline=2 / (cost.cpu_s + cost.blocked_s + cost.delay_s)), cost, **changes)


def after(count: int, cost: Cost = EVEN, /, **costly: float) -> Measurement:
    """Three rounds as asked, and so many of the loader alone."""
    return run([*alike(baseline=250), *[{"baseline": 250.0, **costly}] * count], cost)


def begun(count: int) -> Measurement:
    """The first rounds of three."""
    screening = run(alike(3, baseline=250), DISK_BOUND)
    segments = tuple(segment for segment in screening.segments if segment.round < count)
    return run(alike(3, baseline=250), DISK_BOUND, facts={"segments": segments})


def noisy(count: int) -> Measurement:
    """Rounds that say the opposite of each other."""
    speedups = [0.85, 1.06, 1.3, 0.9, 1.07, 1.2][:count]
    rounds = [{"baseline": 250.0, "warm": 250.0 * each, "cached_samples": 250.0} for each in speedups]
    return run([*alike(baseline=250), *rounds], EVEN)


def without_in_training(count: int) -> Measurement:
    """So many rounds of training without each resource."""
    each = {"baseline": 250.0, "training": 150.0, "training_warm": 152.0, "training_cached_samples": 450.0}
    return run([*alike(baseline=250, training=150), *[each] * count], EVEN)


ALL_MODES = {"baseline": 250.0, "warm": 1000.0, "cached_samples": 333.0, "no_transport": 256.0}
UNCLEAR = {**ALL_MODES, "warm": 400.0, "cached_samples": 410.0}
BASE, BOTH = "baseline baseline+", "baseline warm cached_samples"
IN_TRAINING = "baseline baseline+ warm+ cached_samples+"
# The measurement, and what is measured next: modes of the loader alone, and with + of training.
ASKED: dict[str, tuple[Measurement, str]] = {
    "nothing yet": (begun(0), BASE),
    "the first round is open": (begun(1), f"{BASE} warm cached_samples"),
    "the second, too": (begun(2), f"{BASE} warm cached_samples"),
    "compute, which is not given": (
        run([{"baseline": 250.0, "training": 200.0, "resident": 200.0}], DISK_BOUND), f"{BASE} resident+",
    ),
    "an estimate, and nothing can be removed": (screened(DECODE_BOUND, **AS_FOUND), ""),
    "an estimate, however wide its lead": (screened(DECODE_BOUND), BOTH),
    "of a storage, which is bought on that word": (screened(DISK_BOUND), BOTH),
    "of a loader of one's own": (screened(DISK_BOUND, loader="own"), BOTH),
    "a free input gains nothing": (run(alike(baseline=250, training=100), EVEN, compute=100), ""),
    "compute at a fifth of the loader": (run(alike(1, baseline=600, training=100), EVEN, compute=100), ""),
    "at less": (run(alike(1, baseline=450, training=100), EVEN, compute=100), BASE),
    "training does not fit its parts": (run(alike(1, baseline=600, training=80), EVEN, compute=100), BASE),
    "as much waiting as decoding": (screened(EVEN), BOTH),
    "a disk that may be full": (screened(Cost(cpu_s=0.008, blocked_s=0.002)), BOTH),
    "tensors beside decoding": (screened(TENSORS), f"{BOTH} no_transport"),
    "transport that leads": (
        screened(Cost(cpu_s=0.006, blocked_s=0.0001, collate_s=0.0055)), "baseline no_transport",
    ),
    **{
        f"{count} costly rounds that are clear": (after(count, warm=500.0, cached_samples=255.0), asked)
        for count, asked in ((1, BOTH), (2, BOTH), (3, ""))
    },
    **{
        f"{count} that are not": (after(count, warm=400.0, cached_samples=410.0), asked)
        for count, asked in ((3, BOTH), (5, BOTH), (6, ""))
    },
    "transport becomes a contender": (
        after(3, Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.002), warm=400.0, cached_samples=260.0),
        f"{BOTH} no_transport",
    ),
    "3 rounds within noise": (noisy(3), BOTH),
    "6 rounds within noise": (noisy(6), ""),
    "training a little off": (run(alike(baseline=250, training=215), EVEN), IN_TRAINING),
    "training far off": (run(alike(baseline=250, training=150), EVEN), IN_TRAINING),
    "in two rounds": (run(alike(2, baseline=250, training=150), EVEN), IN_TRAINING),
    "in one": (run(alike(1, baseline=250, training=150), EVEN), f"{BASE} warm cached_samples"),
    "steps that explain it": (unsteady(1, 0.9, warm=False), f"{BASE} warm cached_samples"),
    "off, and nothing can be removed": (run(alike(baseline=250, training=215), DECODE_BOUND, **AS_FOUND), BASE),
    "after six rounds of that": (run(alike(6, baseline=250, training=215), DECODE_BOUND, **AS_FOUND), ""),
    **{
        f"{count} rounds of training without": (without_in_training(count), asked)
        for count, asked in ((1, IN_TRAINING), (2, IN_TRAINING), (3, ""))
    },
    "no bytes are counted": (screened(DISK_BOUND, **UNCOUNTED), BOTH),
    "nor needed": (run(alike(baseline=250, training=50), DISK_BOUND, compute=50, **UNCOUNTED), ""),
    "cold that was not cold": (screened(Cost(cpu_s=0.004, blocked_s=0.004, cold=0.5)), ""),
    "unknown files": (screened(EVEN, **HIDDEN), ""),
    "unknown files in large tensors": (screened(TENSORS, **HIDDEN), "baseline no_transport"),
    "a loader that cannot switch": (screened(EVEN, facts={"modes": ("baseline", "warm")}), "baseline warm"),
    "warm files": (run(alike(warm=333), WARM_FILES, cache="warm"), "warm cached_samples no_transport"),
    "others in each round": (beside(run(cached(1.8), EVEN), ALL_BESIDE), f"{BOTH} baseline+"),
    "a slower loader without": (
        run(alike(baseline=100.0, warm=61.0, cached_samples=250.0), SERIAL, workers=0), f"{BOTH} baseline+",
    ),
    "twice the rounds of that": (
        run(alike(6, baseline=100.0, warm=61.0, cached_samples=250.0), SERIAL, workers=0), "",
    ),
    "a slow first round": (
        run([{"baseline": 40.0, "training": 83.0}, *alike(2, baseline=100.0)], EVEN), f"{BASE} warm cached_samples",
    ),
    # Idle workers of a rank that waits for another show no estimate.
    "ranks": (rank_run(LIMITED[:1], DISK), f"{BASE} warm cached_samples no_transport"),
}  # fmt: skip
THOROUGH: dict[str, tuple[Measurement, str]] = {
    "what one round settles": (run(alike(1, baseline=600, training=100), EVEN, compute=100),
                               f"{BASE} warm cached_samples no_transport"),
    "what is certain": (on_cpu(), f"{BASE} resident+ warm cached_samples no_transport"),
    "one round of all": (run(alike(1, **ALL_MODES), DISK_BOUND), f"{BASE} warm cached_samples no_transport"),
    "three rounds of all": (run(alike(3, **ALL_MODES), DISK_BOUND), ""),
    "three that are not clear": (run(alike(3, **UNCLEAR), EVEN), f"{BOTH} no_transport"),
    "six that are not clear": (run(alike(6, **UNCLEAR), EVEN), ""),
    "unknown files": (screened(EVEN, **HIDDEN), "baseline no_transport"),
    "no workers": (run(alike(baseline=125), EVEN, workers=0), BOTH),
}  # fmt: skip


def asked(measurement: Measurement, *, thorough: bool = False) -> set[str]:
    """Modes of the loader alone, and with + of training."""
    plan = next_round(measurement, thorough=thorough)
    return {mode + ("+" if activity == "training" else "") for mode, activity in plan}


@pytest.mark.parametrize("name", ASKED)
def test_what_decides_is_measured_next(name: str) -> None:
    """And nothing that cannot matter, that is not possible, or that more rounds would not cure."""
    measurement, wanted = ASKED[name]
    assert asked(measurement) == set(wanted.split())


@pytest.mark.parametrize("name", THOROUGH)
def test_thorough_measures_every_mode(name: str) -> None:
    """In every round from the first, three rounds for what is clear, and six for what is not."""
    measurement, wanted = THOROUGH[name]
    assert asked(measurement, thorough=True) == set(wanted.split())


@pytest.mark.parametrize(
    ("measurement", "code", "facts"),
    [
        (screened(DECODE_BOUND, **AS_FOUND), "ablations_not_needed", None),
        (run(alike(baseline=250, training=100), EVEN, compute=100), "ablations_cannot_matter", None),
        (screened(EVEN), "ablations_not_possible", None),
        (without_in_training(3), "ablated_in_training", {"rounds": 3}),
        (after(3, warm=500.0, cached_samples=255.0), "ablated", {"storage": 3.0, "preprocessing": 3.0, "rounds": 3.0}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_was_removed_is_listed(measurement: Measurement, code: Any, facts: Any) -> None:
    """Each resource that was made free, with its number of rounds; or why none was."""
    found = ablations(measurement)
    assert found.code == code
    if facts:
        assert found.facts == facts
    elif code == "ablations_cannot_matter":
        assert set(found.facts) == {"input", "compute"}


def test_where_time_is_short_what_decides_is_measured() -> None:
    """Files from memory where workers wait, both modes where estimates are near, the screening where it did not fit."""
    base: list[tuple[Mode, Activity]] = [("baseline", "loader_only"), ("baseline", "training")]
    plan = (*base, ("warm", "loader_only"), ("cached_samples", "loader_only"))
    waiting = run(alike(1, baseline=250), Cost(cpu_s=0.001, blocked_s=0.007))
    assert set(deciding(waiting, plan)) == {*base, ("warm", "loader_only")}
    assert set(deciding(run(alike(1, baseline=250), EVEN), plan)) == set(plan)
    assert set(deciding(run(alike(1, baseline=250, training=500), EVEN), plan)) == set(base)
    assert deciding(waiting, tuple(base)) == tuple(base)


def test_a_rate_that_is_wide_gets_further_rounds() -> None:
    """Of what is judged, up to twice as many as were asked for; the verdict may need none."""

    def trained(*rates: float, count: int = 1) -> Measurement:
        return run([{"baseline": 1000.0, "training": each, "resident": each} for each in rates] * count, Cost())

    assert further_round(trained(100.0, 125.0, 80.0), thorough=False) == (("baseline", "training"),)
    assert asked(trained(100.0, 125.0, 80.0)) == set(), "in time that others leave, not before"
    assert further_round(trained(100.0, 125.0, 80.0, count=2), thorough=False) == ()
    assert further_round(trained(100.0, 101.0, 99.0), thorough=False) == ()
    settled = pipeline([{"baseline": 100.0, "training": 200.0}, *[times(1, 1.8)] * 3])
    assert not further_round(settled, thorough=False), "nor does a slow first round make the rate wide"


@given(
    cpu_s=st.floats(1e-4, 2e-2), blocked_s=st.floats(1e-5, 2e-2), workers=st.integers(0, 8),
    compute=st.floats(20, 1e5), thorough=st.booleans(), rounds=st.integers(1, 4), storage=st.floats(1.0, 5.0),
)  # fmt: skip
def test_every_configuration_comes_to_an_end(
    cpu_s: float, blocked_s: float, workers: int, compute: float, thorough: bool, rounds: int, storage: float
) -> None:
    """Whatever is asked is measured and asked again, and after twelve rounds at most nothing is asked any more."""
    cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s, collate_s=cpu_s / 5)
    rate = max(workers, 1) / (cpu_s + blocked_s)
    rates = {
        ("baseline", "loader_only"): ("baseline", rate), ("baseline", "training"): ("training", min(rate, compute)),
        ("warm", "loader_only"): ("warm", rate * storage),
        ("cached_samples", "loader_only"): ("cached_samples", rate * 1.5),
        ("no_transport", "loader_only"): ("no_transport", rate * 1.1),
    }  # fmt: skip
    seen: list[Round] = []
    measurement = run(
        [{"baseline": rate}], cost, compute=compute, workers=workers, rounds=rounds, facts={"segments": ()}
    )
    while plan := next_round(measurement, thorough=thorough):
        assert len(set(plan)) == len(plan)
        seen.append(dict(rates[each] for each in plan))
        measurement = run(seen, cost, compute=compute, workers=workers, rounds=rounds)
        assert len(seen) <= 12
    trained = sum("training" in each for each in seen)
    compute_speedup = verdict(measurement).speedups.compute
    settled = not thorough and compute_speedup is not None and compute_speedup.value >= CERTAIN_LEAD
    assert trained >= (1 if settled else rounds)
