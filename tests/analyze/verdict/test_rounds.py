"""What is measured next: rounds, again after disturbances, and on one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.advice import Recommendation, recommend
from loaderprobe.analyze.forecast import Surroundings
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.judge import ablations, verdict
from loaderprobe.analyze.verdict.one_thread import one_thread_notes
from loaderprobe.analyze.verdict.rounds import deciding, further_round, next_round
from loaderprobe.analyze.verdict.validity import is_disturbed
from loaderprobe.records.measurement import Activity, Measurement, Mode, Others
from loaderprobe.records.thresholds import CERTAIN_LEAD, MOST_PAIRS
from tests.analyze.runs import Cost, Round, alike, rank_run, run
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
    others,
    pipeline,
    times,
    unsteady,
    without_step,
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
    # All modes in every round from the first, three rounds for what is clear, and six for what is not.
    "thorough: what one round settles": (
        run(alike(1, baseline=600, training=100), EVEN, compute=100), f"{BASE} warm cached_samples no_transport",
    ),
    "thorough: what is certain": (on_cpu(), f"{BASE} resident+ warm cached_samples no_transport"),
    "thorough: one round of all": (
        run(alike(1, **ALL_MODES), DISK_BOUND), f"{BASE} warm cached_samples no_transport",
    ),
    "thorough: three rounds of all": (run(alike(3, **ALL_MODES), DISK_BOUND), ""),
    "thorough: three that are not clear": (run(alike(3, **UNCLEAR), EVEN), f"{BOTH} no_transport"),
    "thorough: six that are not clear": (run(alike(6, **UNCLEAR), EVEN), ""),
    "thorough: unknown files": (screened(EVEN, **HIDDEN), "baseline no_transport"),
    "thorough: no workers": (run(alike(baseline=125), EVEN, workers=0), BOTH),
}  # fmt: skip


def asked(measurement: Measurement, *, thorough: bool = False) -> set[str]:
    """Modes of the loader alone, and with + of training."""
    plan = next_round(measurement, thorough=thorough)
    return {mode + ("+" if activity == "training" else "") for mode, activity in plan}


@pytest.mark.parametrize("name", ASKED)
def test_what_decides_is_measured_next(name: str) -> None:
    """And nothing that cannot matter, that is not possible, or that more rounds would not cure."""
    measurement, wanted = ASKED[name]
    assert asked(measurement, thorough=name.startswith("thorough")) == set(wanted.split())


SERIAL_INPUT = run(
    [{"baseline": 100.0, "training": 47.0}] * 3, Cost(cpu_s=0.005, blocked_s=0.005), workers=0, synchronous=True,
    compute=88.5, facts={"modes": ("baseline",)},
)  # fmt: skip
"""Compute leads each half of it, and not both together."""
REMOVED: list[tuple[Measurement, str, dict[str, float]]] = [
    (screened(DECODE_BOUND, **AS_FOUND), "ablations_not_needed", {}),
    (
        run(alike(baseline=250, training=100), EVEN, compute=100),
        "ablations_cannot_matter",
        {"input": 1, "compute": 2.5},
    ),
    (screened(EVEN), "ablations_not_possible", {}),
    (SERIAL_INPUT, "ablations_not_possible", {}),
    (without_in_training(3), "ablated_in_training", {"rounds": 3}),
    (after(3, warm=500.0, cached_samples=255.0), "ablated", {"storage": 3, "preprocessing": 3, "rounds": 3}),
]


@pytest.mark.parametrize(
    ("measurement", "code", "facts"), REMOVED, ids=lambda given: given if isinstance(given, str) else ""
)
def test_what_was_removed_is_listed(measurement: Measurement, code: str, facts: dict[str, float]) -> None:
    """Each resource that was made free, with its number of rounds; or why none was."""
    found = ablations(measurement)
    assert found.code == code and (not facts or found.facts == pytest.approx(facts))


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
    compute_speedup = verdict(measurement).speedups["compute"]
    settled = not thorough and compute_speedup is not None and compute_speedup.value >= CERTAIN_LEAD
    assert trained >= (1 if settled else rounds)


def seen(*each: Others | None, **facts: Any) -> Measurement:
    """As many segments as are given, on two cores unless said otherwise."""
    found = run(alike(4, baseline=100, warm=200), Cost(cpu_s=0.005), facts={"cores_available": 2.0, **facts})
    segments = found.segments[: len(each)]
    return replace(found, segments=tuple(replace(s, others=o) for s, o in zip(segments, each, strict=True)))


def reads(others_bytes: int, **facts: Any) -> Measurement:
    """Of 100 MB that the devices read, own processes read all but these."""
    found = seen(others(own_read_bytes=100 * 10**6 - others_bytes))
    return replace(found, segments=(replace(found.segments[0], disk_bytes=100 * 10**6),), **facts)


def beside_many(share: float) -> Measurement:
    """On 64 cores, of which own processes use 8."""
    return seen(others(share, cores=64, own_cpu_ns=8 * 10**9), cores_available=64.0)


# Cores that stay idle are in the way of none; of 8 cores a quota allows 2: the other 6 are free for others.
DISTURBED: dict[str, tuple[Measurement, bool]] = {
    "38 % of two cores": (seen(others(0.38)), True),
    "5 %": (seen(others(0.05)), False),
    "15 % stolen": (seen(others(steal_ns=3 * 10**8)), True),
    "7 %": (seen(others(steal_ns=15 * 10**7)), False),
    "most cores are idle": (beside_many(0.3), False),
    "nearly none is": (beside_many(0.8), True),
    "not read": (seen(None), False),
    "cores that may not be used": (seen(others(0.5, cores=8)), False),
    "and some that may": (seen(others(0.9, cores=8)), True),
    "no other reads": (reads(0), False),
    "5 %, of what was read": (reads(5 * 10**6), False),
    "20 %, of what was read": (reads(20 * 10**6), True),
    "those of ranks are not known": (reads(20 * 10**6, ranks=2), False),
    "nor those of this storage": (reads(20 * 10**6, storage_counts_reads=False), False),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_what_others_take_disturbs_where_few_cores_are_left(name: str) -> None:
    """Or from a tenth of what devices read; waiting of own threads is no sign of others."""
    measurement, is_so = DISTURBED[name]
    assert any(is_disturbed(measurement, segment) for segment in measurement.segments) is is_so


DECODING = Cost(cpu_s=0.01, cold=1.0)
USUAL = {"baseline": 100.0, "training": 80.0, "resident": 400.0}
SPINS = 2.0


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
                thread_cpu_ns=round(own * 1e9 * each.seconds),
                process_cpu_ns=round(busy(each.mode) * 1e9 * each.seconds),
            )
            for each in found.segments
        ),
    )


def pair(loader: float, training: float) -> dict[str, float]:
    return {**USUAL, "one_thread": loader, "training_one_thread": training}


def recommended(measurement: Measurement) -> Recommendation:
    return recommend(run_experiments(measurement), Surroundings())


ALONE = without_step(serial([{"baseline": 100.0}, *[{"baseline": 100.0, "one_thread": 107.0}] * 2]))
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
    "small gains of the loader without a step": (ALONE, False, True, True),
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
