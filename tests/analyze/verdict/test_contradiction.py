"""Consistency before firmness: rounds that contradict themselves, or that others disturbed, name no cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import deciding, further_round, next_round
from loaderprobe.analyze.verdict.validity import counted
from loaderprobe.records.measurement import Activity, Measurement, Mode, Others
from tests.analyze.runs import Cost, Round, alike, run

SERIAL = Cost(cpu_s=0.012, blocked_s=0.002)
EVEN = Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.0002)
Asked = set[tuple[str, str]]


def asked(measurement: Measurement) -> Asked:
    return set(next_round(measurement, thorough=False))


def ablated(count: int = 3, **rates: float) -> list[Round]:
    return alike(count, **{"baseline": 100.0, "warm": 100.0, "cached_samples": 250.0, **rates})


def two_workers(count: int = 3, *, cached: float) -> list[Round]:
    """As fast as two workers are at the cost `EVEN`; cached samples make it so many times as fast."""
    return alike(count, baseline=250.0, warm=250.0, cached_samples=250.0 * cached)


def reason(measurement: Measurement) -> str:
    return verdict(measurement).bound.reason.code


@pytest.mark.parametrize(
    ("warm", "cached", "code"),
    [
        (100.0, 252.0, "largest_speedup"),
        # Seen: 64 samples/s as asked, 39 with files in memory, 161 with cached samples.
        (61.0, 252.0, "slower_without"),
        # What slowed one segment so much cannot make a lead of 5.
        (61.0, 500.0, "largest_speedup"),
        # Within the noise band.
        (93.0, 252.0, "largest_speedup"),
        # Nor is it balanced.
        (61.0, 100.0, "slower_without"),
    ],
)
def test_a_loader_that_is_slower_without_a_resource_was_disturbed(warm: float, cached: float, code: str) -> None:
    """Files from memory take no longer: no firm word but where its lead is more than the disturbance can make."""
    found = run(ablated(warm=warm, cached_samples=cached), SERIAL, workers=0)
    assert reason(found) == code
    if code == "slower_without":
        bound = verdict(found).bound
        assert bound.cause == "inconclusive"
        assert bound.reason.facts["resource"] == "storage"
        assert bound.reason.facts["rate_share"] == pytest.approx(0.61, rel=0.01)


def test_a_cached_sample_that_is_slower_than_the_pipeline_was_disturbed_too() -> None:
    """Whatever was removed."""
    found = run(ablated(warm=160.0, cached_samples=70.0), SERIAL, workers=0)
    assert verdict(found).bound.reason.facts["resource"] == "preprocessing"


def test_what_was_disturbed_is_measured_again() -> None:
    """The screening and the modes, up to twice the rounds; good ones then make the word firm."""
    disturbed = ablated(warm=61.0)
    modes = {("baseline", "loader_only"), ("baseline", "training"), ("warm", "loader_only"),
             ("cached_samples", "loader_only")}  # fmt: skip
    assert asked(run(disturbed, SERIAL, workers=0)) == modes
    assert asked(run(disturbed * 2, SERIAL, workers=0)) == set()
    assert asked(run(ablated(), SERIAL, workers=0)) == set()
    better = run([*disturbed[:2], *ablated(4)], SERIAL, workers=0)
    assert verdict(better).bound.cause == "preprocessing"


@pytest.mark.parametrize(("cached", "code"), [(2.52, "interval_too_wide"), (20.0, "largest_speedup")])
def test_an_interval_as_wide_as_its_value_is_no_rate(cached: float, code: str) -> None:
    """Seen: a serial loader at 71/s, 0 to 160, was firmly preprocessing at 2.52 times; only a far lead stands that."""
    rates = (35.0, 71.0, 115.0)
    found = run(
        [{"baseline": r, "training": r, "warm": r, "cached_samples": cached * r} for r in rates], SERIAL, workers=0
    )
    assert verdict(found).images_per_s.too_wide
    assert reason(found) == code
    assert (("cached_samples", "loader_only") in asked(found)) is (code == "interval_too_wide")


def test_a_lead_below_the_spread_between_rounds_names_both() -> None:
    """The speed-up of storage is 1.6 times that of preprocessing on average, but not in each round."""
    rounds = [
        {"baseline": 250.0, "training": 250.0, "warm": 250.0 * warm, "cached_samples": 500.0}
        for warm in (1.9, 3.3, 5.2)
    ]
    bound = verdict(run(rounds, EVEN)).bound
    assert (bound.cause, bound.candidates) == ("either", ("storage", "preprocessing"))
    assert bound.reason.code == "lead_within_spread"
    assert bound.reason.facts["lead"] == pytest.approx(1.6, rel=0.01)
    steady = [{**each, "warm": 800.0} for each in rounds]
    assert verdict(run(steady, EVEN)).bound.cause == "storage"


def test_two_rounds_that_differ_by_more_than_the_speedup_are_within_noise() -> None:
    """A speed-up of 1 and one of 3 are 2 on average, and say nothing."""
    rounds = [
        {"baseline": 250.0, "training": 250.0, "warm": warm, "cached_samples": 250.0, "no_transport": 250.0}
        for warm in (250.0, 750.0)
    ]
    assert reason(run(rounds, EVEN)) == "within_noise"


@pytest.mark.parametrize(("spread", "code"), [(0.08, "within_noise"), (0.01, "largest_speedup")])
def test_a_small_speedup_needs_an_interval_above_1(spread: float, code: str) -> None:
    """Seen on a token bucket: compute 1.11 (1.00 to 1.26) of three rounds, and a device that was no limit."""
    rates = [150 * (1.11 + each) for each in (-spread, 0.0, spread)]
    rounds = [{"baseline": rate, "training": 150.0} for rate in rates]
    assert reason(run(rounds, Cost(cpu_s=0.012), compute=150.0)) == code


def others(cores_used: float, cores: int = 2) -> Others:
    return Others(span_ns=10**9, cores=cores, cpu_ns=round(cores_used * 1e9), own_cpu_ns=10**9, steal_ns=0)


def beside_others(measurement: Measurement, used: Mapping[tuple[int, Mode, Activity], float]) -> Measurement:
    """Others use so many of two cores during these segments, and nothing during the rest."""
    return replace(
        measurement,
        cores_available=2.0,
        segments=tuple(
            replace(each, others=others(used.get((each.round, each.mode, each.activity), 0.0)))
            for each in measurement.segments
        ),
    )


WARM_BESIDE: dict[tuple[int, Mode, Activity], float] = {(n, "cached_samples", "loader_only"): 1.0 for n in range(3)}


def test_pairs_of_unlike_conditions_do_not_count_where_enough_others_do() -> None:
    """Of five rounds, two had a neighbour beside one segment only: their ratios are left out."""
    rounds = [*two_workers(2, cached=0.6), *two_workers(3, cached=1.8)]
    seen = beside_others(run(rounds, EVEN), {(n, "cached_samples", "loader_only"): 1.0 for n in range(2)})
    judged = verdict(seen)
    assert judged.bound.cause == "preprocessing"
    assert judged.speedups.preprocessing is not None
    assert judged.speedups.preprocessing.low == pytest.approx(1.8, rel=0.02)
    assert counted(counted(seen)) == counted(seen)


def test_disturbed_rounds_are_measured_again_unless_the_lead_is_far() -> None:
    """A neighbour on one of two cores makes no speed-up of 4; one of 1.8 is not believed when no round was without."""
    near, far = (run(two_workers(cached=times), EVEN) for times in (1.8, 4.0))
    assert asked(near) == set()
    assert ("cached_samples", "loader_only") in asked(beside_others(near, WARM_BESIDE))
    assert reason(beside_others(near, WARM_BESIDE)) == "rounds_disturbed"
    assert asked(beside_others(far, WARM_BESIDE)) == set()
    assert verdict(beside_others(far, WARM_BESIDE)).bound.cause == "preprocessing"


BESIDE_ALL: dict[tuple[int, Mode, Activity], float] = {
    (n, mode, "loader_only"): 1.0 for n in range(6) for mode in ("baseline", "warm", "cached_samples")
}


@pytest.mark.parametrize(
    ("cached", "delay_s", "quiet"),
    # Nothing is worth removing, or workers wait for cores that they do not fill: seen of a token bucket of 20 MB/s.
    [(1.0, 0.0, "no_speedup"), (4.0, 0.004, "all_cores_busy")],
)
def test_what_others_hold_the_cores_for_says_nothing_of_the_loader(cached: float, delay_s: float, quiet: str) -> None:
    """Others beside every segment hide what a resource would gain: no firm word, and the rounds are measured again."""
    found = run(two_workers(cached=cached), replace(EVEN, delay_s=delay_s))
    beside = {(n, mode, "training"): 1.0 for n in range(6) for mode in ("baseline", "cached_samples")} | BESIDE_ALL
    once = {each: used for each, used in beside.items() if each[0]}
    assert reason(beside_others(found, {})) == quiet
    assert reason(beside_others(found, beside)) == "rounds_disturbed"
    assert verdict(beside_others(found, beside)).bound.cause == "inconclusive"
    assert ("baseline", "loader_only") in asked(beside_others(found, beside))
    assert reason(beside_others(found, once)) == quiet


def test_a_slow_first_round_is_no_round() -> None:
    """Connections were set up in it: it is left out once another is there, and one more is measured."""
    slow: Round = {"baseline": 40.0, "training": 83.0}
    rounds = [slow, *alike(2, baseline=100.0)]
    found = run(rounds, EVEN)
    assert {each.round for each in counted(found).segments} == {1, 2}
    assert verdict(found).images_per_s.value == pytest.approx(100.0)
    assert ("baseline", "training") in asked(found)
    settled = run([{"baseline": 100.0, "training": 200.0}, *two_workers(cached=1.8)], EVEN)
    assert not further_round(settled, thorough=False), "nor does it make the rate wide"


@pytest.mark.parametrize("rates", [(90.0, 100.0, 100.0), (40.0, 60.0, 110.0), (100.0, 40.0, 100.0)])
def test_a_first_round_that_is_not_slow_stays(rates: tuple[float, ...]) -> None:
    """Nor does one go where later ones differ as much, and later ones never do."""
    found = run([{"baseline": rate, "training": rate} for rate in rates], EVEN)
    assert counted(found) == found


def test_a_first_round_that_read_more_was_colder_and_stays() -> None:
    """Later ones came from memory in part: the first is the one that was asked for."""
    found = run([{"baseline": 40.0, "training": 40.0}, *alike(2, baseline=100.0)], EVEN)
    records = found.worker_batches
    first = {n for s in found.segments if s.round for n in range(s.first_batch, s.first_batch + s.steps)}
    read = tuple(r // 2 if n in first else r for n, r in zip(records.batch, records.read_bytes, strict=True))
    warmer = replace(found, worker_batches=replace(records, read_bytes=read))
    assert counted(warmer) == warmer


def test_where_time_is_short_what_decides_is_measured() -> None:
    """Files from memory where workers wait, both modes where estimates are near, the screening where it did not fit."""
    base: list[tuple[Mode, Activity]] = [("baseline", "loader_only"), ("baseline", "training")]
    plan = (*base, ("warm", "loader_only"), ("cached_samples", "loader_only"))
    waiting = run(alike(1, baseline=250), Cost(cpu_s=0.001, blocked_s=0.007))
    assert set(deciding(waiting, plan)) == {*base, ("warm", "loader_only")}
    assert set(deciding(run(alike(1, baseline=250), EVEN), plan)) == set(plan)
    assert set(deciding(run(alike(1, baseline=250, training=500), EVEN), plan)) == set(base)
    assert deciding(waiting, tuple(base)) == tuple(base)


def test_bytes_from_storage_explain_a_misfit_where_samples_have_no_file() -> None:
    """Seen: a database read with 199 kB an image from storage alone, 174 kB in training: 131 % is 115 %."""
    rounds = alike(2, baseline=71.0, training=93.0, warm=128.0)
    found = run(rounds, Cost(cpu_s=0.004, blocked_s=0.025), facts={"access": "parts"})
    assert reason(found) == "outside_noise_band"
    trained = {
        n for s in found.segments if s.activity == "training" for n in range(s.first_batch, s.first_batch + s.steps)
    }
    records = found.worker_batches
    read = tuple(
        round(r / 1.144) if n in trained else r for n, r in zip(records.batch, records.read_bytes, strict=True)
    )
    sizes = tuple(replace(each, delivered_bytes=None, distinct_bytes=None) for each in found.segments)
    smaller = replace(found, segments=sizes, worker_batches=replace(records, read_bytes=read))
    assert verdict(smaller).bound.cause == "storage"
