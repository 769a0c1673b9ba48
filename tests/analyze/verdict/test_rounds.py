"""What is measured next: screening first, then only the modes that decide, and no longer than it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rounds import SETTLED_LEAD, ablations, next_round
from loaderprobe.records.measurement import Measurement, Mode
from loaderprobe.records.remark import Remark
from tests.analyze.runs import Cost, Round, alike, run

DISK_BOUND = Cost(cpu_s=0.002, blocked_s=0.006, collate_s=0.0002)
DECODE_BOUND = Cost(cpu_s=0.008, blocked_s=0.0005, collate_s=0.0002)
EVEN = Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.0002)
TENSORS = Cost(cpu_s=0.006, blocked_s=0.0005, collate_s=0.003)
UNCOUNTED: dict[str, Any] = {"storage_counts_reads": False, "storage_kind": "fuse"}


def asked(measurement: Measurement, *, thorough: bool = False) -> set[tuple[str, str]]:
    return set(next_round(measurement, thorough=thorough))


def loader_only(*modes: str) -> set[tuple[str, str]]:
    return {(mode, "loader_only") for mode in modes}


def screened(cost: Cost, count: int = 3, **changes: Any) -> Measurement:
    rate = 2 / (cost.cpu_s + cost.blocked_s + cost.delay_s)
    return run(alike(count, baseline=rate), cost, **changes)


def after(screening: Sequence[Round], *costly: Round, cost: Cost = EVEN, **changes: Any) -> Measurement:
    return run([*screening, *costly], cost, **changes)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_configuration_is_screened_first(count: int) -> None:
    """Three rounds of the loader alone and of training; what the first leaves open is measured beside the others."""
    screening = run(alike(3, baseline=250), DISK_BOUND)
    begun = tuple(segment for segment in screening.segments if segment.round < count)
    open_still = loader_only("warm", "cached_samples") if count else set()
    assert asked(run(alike(3, baseline=250), DISK_BOUND, facts={"segments": begun})) == {
        ("baseline", "loader_only"), ("baseline", "training"), *open_still
    }  # fmt: skip
    bound = run(alike(3, baseline=250, training=100), DISK_BOUND, compute=100, facts={"segments": ()})
    assert asked(bound) == {("baseline", "loader_only"), ("baseline", "training")}


def test_screening_measures_compute_where_it_is_not_given() -> None:
    """A device that is here takes part in every round of screening, on a batch that stays on it."""
    measurement = run([{"baseline": 250.0, "training": 200.0, "resident": 200.0}], DISK_BOUND)
    assert asked(measurement) == {("baseline", "loader_only"), ("baseline", "training"), ("resident", "training")}


def test_an_estimate_ends_it_only_where_nothing_can_be_run() -> None:
    """However wide its lead: files that are known are read warm, and read without decoding."""
    assert asked(screened(DECODE_BOUND)) == loader_only("baseline", "warm", "cached_samples")
    unprepared = screened(DECODE_BOUND, cache="as-found", facts={"access": "none", "modes": ("baseline",)})
    assert asked(unprepared) == set()
    assert verdict(unprepared).bound.side == "input"
    assert ablations(unprepared).code == "ablations_not_needed"


def test_compute_that_limits_at_any_loader_rate_ends_it() -> None:
    """Where even a free input gains nothing, no mode is worth its time."""
    measurement = run(alike(baseline=250, training=100), EVEN, compute=100)
    assert asked(measurement) == set()
    assert verdict(measurement).bound.cause == "compute"
    assert ablations(measurement).code == "ablations_cannot_matter"
    assert set(ablations(measurement).facts) == {"input", "compute"}


@pytest.mark.parametrize(("loader", "thorough", "more"), [(600, False, False), (450, False, True), (600, True, True)])
def test_one_round_settles_what_binds_by_far(loader: float, thorough: bool, more: bool) -> None:
    """Compute at a fifth of the loader's rate needs no second round, unless everything is to be measured."""
    measurement = run(alike(1, baseline=loader, training=100), EVEN, compute=100)
    assert bool(asked(measurement, thorough=thorough)) is more
    assert verdict(measurement).bound.cause == "compute"
    slow = run(alike(1, baseline=600, training=80), EVEN, compute=100)
    assert asked(slow), "training does not fit its parts"


def test_an_open_verdict_measures_the_modes_that_decide() -> None:
    """As much waiting as decoding: files from memory, and samples made before, but not transport, beside the base."""
    measurement = screened(EVEN)
    assert asked(measurement) == loader_only("baseline", "warm", "cached_samples")
    assert ablations(measurement).code == "ablations_not_possible"


def test_decoding_that_leads_on_a_disk_that_may_be_full_is_not_clear() -> None:
    """Workers that wait 20 % of their time may be waiting for a disk at its limit, so both are measured."""
    assert asked(screened(Cost(cpu_s=0.008, blocked_s=0.002))) == loader_only("baseline", "warm", "cached_samples")


def test_transport_is_measured_where_it_contends() -> None:
    """Large tensors beside decoding: T beside W and Q; where decoding alone leads, not T."""
    assert asked(screened(TENSORS)) == loader_only("baseline", "warm", "cached_samples", "no_transport")
    assert ("no_transport", "loader_only") not in asked(screened(DECODE_BOUND))


def test_transport_that_leads_by_far_is_measured_too() -> None:
    """An estimate allows no firm word where the experiment can be run."""
    measurement = screened(Cost(cpu_s=0.006, blocked_s=0.0001, collate_s=0.0055))
    assert ("no_transport", "loader_only") in asked(measurement)
    assert verdict(measurement).bound.reason.code == "estimate_not_measured"


@pytest.mark.parametrize("loader", ["torch", "own"])
def test_storage_is_never_named_by_an_estimate(loader: str) -> None:
    """Storage is bought on that word, and a long wait need not be storage: files from memory have to show it."""
    assert asked(screened(DISK_BOUND, loader=loader)) == loader_only("baseline", "warm", "cached_samples")


@pytest.mark.parametrize(("count", "more"), [(1, True), (2, True), (3, False)])
def test_costly_rounds_end_when_speedups_differ_clearly(count: int, more: bool) -> None:
    """Three rounds at least, and no more when one speed-up leads beyond the noise."""
    measurement = after(alike(baseline=250), *[{"baseline": 250.0, "warm": 500.0, "cached_samples": 255.0}] * count)
    assert bool(asked(measurement)) is more


@pytest.mark.parametrize(("count", "more"), [(3, True), (5, True), (6, False)])
def test_ambiguous_speedups_get_six_costly_rounds_and_no_more(count: int, more: bool) -> None:
    """Two measured speed-ups within 15 % go on until there have been six rounds, and then both are named."""
    measurement = after(alike(baseline=250), *[{"baseline": 250.0, "warm": 400.0, "cached_samples": 410.0}] * count)
    assert asked(measurement) == (loader_only("baseline", "warm", "cached_samples") if more else set())
    assert verdict(measurement).bound.candidates == ("preprocessing", "storage")


def test_a_mode_that_becomes_a_contender_joins_the_others() -> None:
    """When storage turns out to gain little more than transport is estimated to, transport is measured too."""
    cost = Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.002)
    measurement = after(
        alike(baseline=250), *[{"baseline": 250.0, "warm": 400.0, "cached_samples": 260.0}] * 3, cost=cost
    )
    assert asked(measurement) == loader_only("baseline", "warm", "cached_samples", "no_transport")


def test_where_the_prediction_fails_training_is_measured_without_each_resource() -> None:
    """Beside training as asked, whether it is a little or far from the prediction; three rounds of that are enough."""
    in_training = {
        ("warm", "training"),
        ("cached_samples", "training"),
        ("baseline", "training"),
        ("baseline", "loader_only"),
    }
    assert asked(run(alike(baseline=250, training=215), EVEN)) == in_training
    assert asked(run(alike(baseline=250, training=150), EVEN)) == in_training
    # A second round in doubt is enough; one is not.
    assert asked(run(alike(2, baseline=250, training=150), EVEN)) == in_training
    assert asked(run(alike(1, baseline=250, training=150), EVEN)) != in_training
    unprepared: dict[str, Any] = {"access": "none", "modes": ("baseline",)}
    again = run(alike(baseline=250, training=215), DECODE_BOUND, cache="as-found", facts=unprepared)
    assert asked(again) == {("baseline", "loader_only"), ("baseline", "training")}
    assert asked(run(alike(6, baseline=250, training=215), DECODE_BOUND, cache="as-found", facts=unprepared)) == set()


@pytest.mark.parametrize(("count", "more"), [(1, True), (2, True), (3, False)])
def test_three_rounds_of_training_without_each_resource_are_enough(count: int, more: bool) -> None:
    """Where one of them leads; and the verdict then needs no law of how parts make a whole."""
    rounds = [
        *alike(baseline=250, training=150),
        *[{"baseline": 250.0, "training": 150.0, "training_warm": 152.0, "training_cached_samples": 450.0}] * count,
    ]
    measurement = run(rounds, EVEN)
    assert bool(asked(measurement)) is more
    if not more:
        assert verdict(measurement).bound.cause == "preprocessing"
        assert ablations(measurement) == Remark(code="ablated_in_training", facts={"rounds": 3})


def test_where_no_bytes_are_counted_warm_segments_are_needed() -> None:
    """Cold reads that only waiting can tell have W measured beside them, however clear the estimates."""
    assert ("warm", "loader_only") in asked(screened(DISK_BOUND, facts=UNCOUNTED))
    assert asked(run(alike(baseline=250, training=50), DISK_BOUND, compute=50, facts=UNCOUNTED)) == set()


def test_cold_that_was_not_cold_is_not_measured_further() -> None:
    """No costly mode can cure a base that was not what it was to be."""
    assert asked(screened(Cost(cpu_s=0.004, blocked_s=0.004, cold=0.5))) == set()


def test_files_as_found_allow_only_transport_to_be_measured() -> None:
    """Nothing can be warmed or read that is not known: T alone is left, and only where it contends."""
    hidden: dict[str, Any] = {"cache": "as-found", "facts": {"access": "none"}}
    assert asked(screened(EVEN, **hidden)) == set()
    assert asked(screened(TENSORS, **hidden)) == loader_only("baseline", "no_transport")
    assert asked(screened(EVEN, **hidden), thorough=True) == loader_only("baseline", "no_transport")


def test_a_loader_that_cannot_switch_is_only_asked_for_what_it_can_do() -> None:
    """Modes that a loader does not have are never asked for."""
    modes: tuple[Mode, ...] = ("baseline", "warm")
    assert asked(screened(EVEN, facts={"modes": modes})) == loader_only("baseline", "warm")


def test_a_warm_base_and_the_serial_loader_lack_modes() -> None:
    """Warm files have no W beside them, and without workers there is no T."""
    cost = Cost(cpu_s=0.006, collate_s=0.003, cold=0.0)
    assert asked(run(alike(warm=333), cost, cache="warm"), thorough=False) == loader_only(
        "warm", "cached_samples", "no_transport"
    )
    assert asked(run(alike(baseline=125), EVEN, workers=0), thorough=True) == loader_only(
        "baseline", "warm", "cached_samples"
    )


def test_thorough_measures_every_mode_with_the_screening() -> None:
    """Every mode in every round from the first, three rounds for what is clear, and six for what is not."""
    every = {("baseline", "training"), *loader_only("baseline", "warm", "cached_samples", "no_transport")}
    assert (
        asked(run(alike(1, baseline=250, warm=1000, cached_samples=333, no_transport=256), DISK_BOUND), thorough=True)
        == every
    )
    assert (
        asked(run(alike(3, baseline=250, warm=1000, cached_samples=333, no_transport=256), DISK_BOUND), thorough=True)
        == set()
    )
    unclear = alike(3, baseline=250, warm=400, cached_samples=410, no_transport=256)
    assert asked(run(unclear, EVEN), thorough=True) == loader_only("baseline", "warm", "cached_samples", "no_transport")
    assert asked(run(unclear * 2, EVEN), thorough=True) == set()


def test_measured_ablations_are_listed() -> None:
    """Each resource that was made free, with its number of rounds."""
    measurement = after(alike(baseline=250), *[{"baseline": 250.0, "warm": 500.0, "cached_samples": 255.0}] * 3)
    assert ablations(measurement) == Remark(code="ablated", facts={"storage": 3.0, "preprocessing": 3.0})


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
    settled = not thorough and compute_speedup is not None and compute_speedup.value >= SETTLED_LEAD
    assert trained >= (1 if settled else rounds)


@pytest.mark.parametrize(("count", "more"), [(3, True), (6, False)])
def test_a_speedup_within_noise_gets_more_rounds(count: int, more: bool) -> None:
    """Rounds that say the opposite of each other are repeated, as long as that may help."""
    speedups = [0.85, 1.06, 1.3, 0.9, 1.07, 1.2][:count]
    measurement = after(
        alike(baseline=250),
        *[{"baseline": 250.0, "warm": 250.0 * speedup, "cached_samples": 250.0} for speedup in speedups],
    )
    assert bool(asked(measurement)) is more
