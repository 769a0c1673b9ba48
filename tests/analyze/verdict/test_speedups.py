"""Speedups from whole measurements: measured or estimated, valid or missing, each with its reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.effects import OPEN_LEAD
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import WORTH
from loaderprobe.render.verdict_words import sentence
from tests.analyze.runs import BATCH, FILE_BYTES, FILES, Cost, alike, reordered, run, scaled
from tests.examples.bandwidth import example_phase

SLOW_DISK = Cost(cpu_s=0.002, blocked_s=0.006)
UNCOUNTED: dict[str, Any] = {"storage_counts_reads": False, "storage_kind": "fuse"}
MODES = ("warm", "cached_samples", "no_transport")
seconds = st.floats(1e-4, 2e-2)
ablated = st.sampled_from([MODES[:count] for count in range(4)])
spread = st.lists(st.floats(0.9, 1.1), min_size=3, max_size=5)


def made(
    cost: Cost, *, workers: int, measured: tuple[str, ...] = (), wobble: list[float] | None = None,
    synchronous: bool = False, compute: float = 1e5, costs: dict[str, Cost] | None = None, **changes: Any,
) -> Measurement:  # fmt: skip
    """What workers of these costs deliver, in the baseline and the `measured` modes; training is as predicted."""
    processes = max(workers, 1)
    whole = cost.cpu_s + cost.delay_s + cost.blocked_s
    left = {
        "baseline": whole,
        "warm": whole - cost.blocked_s,
        "cached_samples": cost.blocked_s + 1e-5,
        "no_transport": whole - cost.collate_s,
    }
    rounds = []
    for factor in wobble or [1.0, 1.0, 1.0]:
        rates = {mode: processes / left[mode] * factor for mode in ("baseline", *measured)}
        loader = rates["baseline"]
        rates["training"] = 1 / (1 / loader + 1 / compute) if synchronous and not workers else min(loader, compute)
        rounds.append(rates)
    return run(rounds, cost, costs, compute=compute, synchronous=synchronous, workers=workers, **changes)


def test_measured_modes_give_measured_speedups() -> None:
    """The loader at 1000, 300 and 260 images/s without a resource, beside 250: speed-ups of 4, 1.2 and 1.04."""
    found = run_experiments(run(alike(baseline=250, warm=1000, cached_samples=300, no_transport=260), SLOW_DISK))
    assert {name: speedup.value for name, speedup in found.speedups.items()} == pytest.approx(
        {"storage": 4, "preprocessing": 1.2, "transport": 1.04, "compute": 1}, rel=1e-6
    )
    assert set(found.how.values()) == {"measured"}


def test_without_transport_the_training_thread_works_as_it_did_without_it() -> None:
    """A step of 10 ms and 6 ms of receiving, 1 ms of it left in T: training goes from 16 to 11 ms a batch."""
    found = run_experiments(
        run(
            alike(baseline=5000, training=BATCH / 0.016, no_transport=5000), Cost(),
            receive_s={"baseline": 0.006, "no_transport": 0.001}, compute=BATCH / 0.010, synchronous=True,
        )
    )  # fmt: skip
    assert found.speedups["transport"].value == pytest.approx(16 / 11, rel=1e-6)


def test_modes_that_were_not_measured_are_estimated_from_the_workers_time() -> None:
    """Of 8 ms an image, 4 go without storage, 3 without preprocessing, 1 without putting batches together."""
    found = run_experiments(run(alike(baseline=250), Cost(cpu_s=0.004, blocked_s=0.004, collate_s=0.001)))
    assert set(found.how.values()) == {"estimated", "measured"}
    assert found.speedups["storage"].value == pytest.approx(2, rel=1e-6)
    assert found.speedups["preprocessing"].value == pytest.approx(8 / 5, rel=1e-6)
    assert found.speedups["transport"].value == pytest.approx(8 / 7, rel=1e-6)


def test_no_estimate_goes_beyond_what_the_cores_can_do() -> None:
    """Two workers on one core whose CPU time takes 80 % of it: a speed-up of 1.25 without storage, not 2.5."""
    found = run_experiments(
        run(alike(baseline=200), Cost(cpu_s=0.004, blocked_s=0.006), facts={"cores_available": 1.0}, workers=2)
    )
    assert found.speedups["storage"].value == pytest.approx(1.25, rel=1e-6)


def test_an_estimate_heeds_the_ceiling_of_the_storage() -> None:
    """Storage at its limit gives nothing more to workers that need not decode: the disk is the limit."""
    busy = run(alike(baseline=200), Cost(cpu_s=0.006, blocked_s=0.004), workers=2)
    phase = example_phase(2, 200.0 * FILE_BYTES)
    ceiling = StorageCeiling(data=FILES.fingerprint, phases=(phase,))
    assert run_experiments(busy, ceiling).speedups["preprocessing"].value == pytest.approx(1, rel=1e-3)
    # Both could have been measured, so neither estimate carries a word.
    assert (verdict(busy, ceiling).bound.side, verdict(busy, ceiling).bound.cause) == ("input", "inconclusive")
    assert verdict(busy).bound.candidates == ("preprocessing", "storage")


def test_the_serial_loader_has_no_transport() -> None:
    """Without workers the speed-up of free transport is 1, exactly and measured; the others add up on one thread."""
    found = run_experiments(run(alike(baseline=100), Cost(cpu_s=0.006, blocked_s=0.002), workers=0))
    assert (found.speedups["transport"].value, found.how["transport"]) == (1.0, "measured")
    assert found.speedups["storage"].value == pytest.approx(10 / 8, rel=1e-6)
    assert found.speedups["preprocessing"].value == pytest.approx(10 / 4, rel=1e-6)


def test_the_cost_of_recording_is_a_share_of_the_workers_cpu_time() -> None:
    """20 us beside 32 ms of CPU time a batch are 0.06 %."""
    assert verdict(run(alike(baseline=250), SLOW_DISK)).instrument_cpu_fraction == pytest.approx(0.02 / 32)


def test_a_compute_bound_training_may_still_profit_from_input() -> None:
    """A serial loader adds to each step: the reason names preprocessing, which would help too."""
    serial = run(
        alike(baseline=200, training=1 / (1 / 200 + 1 / 60)), Cost(cpu_s=0.004, blocked_s=0.001), workers=0,
        compute=60, synchronous=True,
    )  # fmt: skip
    found = verdict(serial)
    assert found.bound.cause == "compute"
    facts = found.bound.reason.facts
    assert (facts["input"], facts["input_how"]) == ("preprocessing", "estimated")
    assert facts["input_speedup"] == pytest.approx(1.23, abs=0.005)
    alone = verdict(run(alike(baseline=250, training=100), Cost(cpu_s=0.008), compute=100))
    assert alone.bound.reason.code == "largest_speedup" and "input" not in alone.bound.reason.facts


def test_a_warm_configuration_measures_its_modes_warm() -> None:
    """Q and T beside a warm base are judged warm, and storage has nothing to give."""
    cost = Cost(cpu_s=0.008, cold=0.0)
    found = run_experiments(run(alike(warm=250, cached_samples=2000, no_transport=270), cost, cache="warm"))
    assert found.speedups["storage"].value == 1.0
    assert found.speedups["preprocessing"].value == pytest.approx(8, rel=1e-6)
    assert not found.missing
    spoilt = run(alike(warm=250, cached_samples=2000), cost, {"cached_samples": replace(cost, cold=0.5)}, cache="warm")
    assert run_experiments(spoilt).missing["preprocessing"].facts["files"] == "warm"


def test_compute_that_was_not_measured_again_is_taken_from_the_other_rounds() -> None:
    """Rounds that only take resources away carry speed-ups all the same, at the usual rate of compute."""
    screening = [{"baseline": 250.0, "training": 200.0, "resident": 200.0}] * 3
    found = run_experiments(
        run([*screening, *[{"baseline": 250.0, "cached_samples": 900.0}] * 3], SLOW_DISK, {"cached_samples": Cost()})
    )
    assert found.ratios["preprocessing"] == pytest.approx(dict.fromkeys((3, 4, 5), 1.0), rel=1e-6)


def test_files_as_found_leave_storage_to_an_estimate() -> None:
    """Where the files are not known nothing is missing, and the verdict is marked as estimated."""
    found = verdict(run(alike(baseline=250), SLOW_DISK, cache="as-found", facts={"access": "none"}))
    assert found.speedups.storage is not None
    assert (found.speedups.storage.how, found.bound.cause) == ("estimated", "storage")
    assert found.bound.reason.facts["how"] == "estimated"
    assert "speedups.storage" not in found.unavailable


@pytest.mark.parametrize(
    ("warm_ms", "cause", "words"),
    [(0.05, "storage", "counts no bytes"), (3.0, "inconclusive", "waits do not separate")],
)
def test_where_no_bytes_are_counted_waiting_separates_cold_from_warm(warm_ms: float, cause: str, words: str) -> None:
    """Six ms an image beside 0.05 are cold; beside 3 ms the state is unknown, and both are said."""
    warm = Cost(cpu_s=0.002, blocked_s=warm_ms / 1e3)
    found = verdict(run(alike(baseline=250, warm=1000), SLOW_DISK, {"warm": warm}, facts=UNCOUNTED))
    assert found.bound.cause == cause
    assert words in sentence([found.bound])
    told = next(each for each in found.bound.evidence if each.metric == "cold_over_warm_wait")
    assert told.value == pytest.approx(6 / warm_ms, rel=1e-3)
    assert told.threshold == 3.0


def test_where_no_bytes_are_counted_reads_without_decoding_must_wait_too() -> None:
    """Cached samples that wait as little as warm files were not cold, and its speed-up is missing."""
    costs = {"cached_samples": Cost(cpu_s=0.0, blocked_s=0.0001), "warm": Cost(cpu_s=0.002, blocked_s=0.0001)}
    found = run_experiments(run(alike(baseline=250, warm=1000, cached_samples=9000), SLOW_DISK, costs, facts=UNCOUNTED))
    assert set(found.missing) == {"preprocessing"}


def test_where_no_bytes_are_counted_cold_needs_warm_beside_it() -> None:
    """Without a warm segment no wait proves what was cold, so storage is missing."""
    found = run_experiments(run(alike(baseline=250), SLOW_DISK, facts=UNCOUNTED))
    assert found.missing["storage"].code == "no_warm_segment"


@pytest.mark.parametrize(("waited_s", "known"), [(0.0001, True), (0.001, False)])
def test_where_no_bytes_are_counted_warm_means_not_waiting(waited_s: float, known: bool) -> None:
    """Workers that wait under 5 % of their time on warm files read from memory; beyond that it is unknown."""
    found = run_experiments(run(alike(warm=250), Cost(cpu_s=0.008, blocked_s=waited_s), cache="warm", facts=UNCOUNTED))
    assert ("storage" in found.speedups) is known


@given(seconds, seconds, st.integers(0, 8), spread, ablated, st.integers(1, 10))
def test_scaling_all_times_scales_no_verdict(
    cpu_s: float, blocked_s: float, workers: int, wobble: list[float], measured: tuple[str, ...], power: int
) -> None:
    """A machine that is slower in everything gets the same words and speed-ups."""
    measurement = made(
        Cost(cpu_s=cpu_s, blocked_s=blocked_s, collate_s=cpu_s / 8), workers=workers, wobble=wobble,
        measured=measured, compute=300.0,
    )  # fmt: skip
    one, other = verdict(measurement), verdict(scaled(measurement, 2**power))
    assert (one.bound.side, one.bound.cause, one.bound.candidates) == (
        other.bound.side, other.bound.cause, other.bound.candidates
    )  # fmt: skip
    assert one.speedups == other.speedups


@given(seconds, seconds, st.integers(0, 8), spread, ablated, st.data())
def test_the_order_of_rounds_changes_nothing(
    cpu_s: float, blocked_s: float, workers: int, wobble: list[float], measured: tuple[str, ...], data: st.DataObject
) -> None:
    """Permuting rounds leaves verdict and speed-ups as they are."""
    measurement = made(
        Cost(cpu_s=cpu_s, blocked_s=blocked_s), workers=workers, wobble=wobble, measured=measured, compute=300.0
    )
    order = data.draw(st.permutations(range(len(wobble))))
    one, other = verdict(measurement), verdict(reordered(measurement, order))
    assert (one.bound.cause, one.bound.candidates, one.speedups) == (
        other.bound.cause,
        other.bound.candidates,
        other.speedups,
    )


@given(seconds, seconds, st.floats(1.0, 10.0), st.integers(0, 8), st.booleans(), st.booleans())
def test_slower_storage_never_lowers_its_speedup(
    cpu_s: float, blocked_s: float, slower: float, workers: int, synchronous: bool, measured: bool
) -> None:
    """Workers that wait longer for the same files gain no less without storage, measured or estimated."""
    values = []
    for factor in (1.0, slower):
        cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s * factor)
        found = run_experiments(
            made(cost, workers=workers, synchronous=synchronous, measured=("warm",) if measured else (), compute=300.0)
        )
        values.append(found.speedups["storage"].value)
    assert values[1] >= values[0] * (1 - 1e-5)


@given(
    seconds, seconds, st.integers(1, 8), st.sampled_from(["warm", "cached_samples", "no_transport"]),
    st.floats(0.06, 0.79), st.floats(50, 1e4),
)  # fmt: skip
def test_an_invalid_mode_never_yields_a_firm_word_that_needs_it(
    cpu_s: float, blocked_s: float, workers: int, mode: str, share: float, compute: float
) -> None:
    """A warm mode that was not warm, or a cold one that was not cold, leaves only words that hold without it."""
    cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s, collate_s=cpu_s / 4)
    measurement = made(
        cost, workers=workers, measured=MODES, costs={mode: replace(cost, cold=share)}, compute=compute
    )  # fmt: skip
    resource = {"warm": "storage", "cached_samples": "preprocessing", "no_transport": "transport"}[mode]
    found, experiments = verdict(measurement), run_experiments(measurement)
    assert resource in experiments.missing
    assert getattr(found.speedups, resource) is None
    assert found.unavailable[f"speedups.{resource}"]
    assert resource not in (found.bound.cause, *found.bound.candidates)
    if found.bound.cause != "inconclusive":
        most = min(experiments.free_input_speedup, experiments.bounds.get(resource, math.inf))
        assert most < WORTH or max(speedup.value for speedup in experiments.speedups.values()) > most


@given(seconds, seconds, st.integers(0, 8), st.floats(50, 1e4))
def test_unproved_cold_never_makes_storage_the_cause(
    cpu_s: float, blocked_s: float, workers: int, compute: float
) -> None:
    """Where bytes are not counted and no warm mode was measured, no word names an input cause."""
    found = verdict(made(Cost(cpu_s=cpu_s, blocked_s=blocked_s), workers=workers, compute=compute, facts=UNCOUNTED))
    assert found.bound.cause in ("compute", "balanced", "inconclusive")


@given(seconds, seconds, st.floats(0.0, 0.9), st.integers(0, 8), st.floats(50, 1e4), st.booleans())
def test_estimates_make_firm_words_only_by_a_wide_margin(
    cpu_s: float, blocked_s: float, collate: float, workers: int, compute: float, synchronous: bool
) -> None:
    """An estimated speed-up that names the cause leads every other speed-up worth a word by half again."""
    cost = Cost(cpu_s=cpu_s, blocked_s=blocked_s, collate_s=collate * cpu_s)
    measurement = made(cost, workers=workers, compute=compute, synchronous=synchronous)
    cause = verdict(measurement).bound.cause
    speedups = run_experiments(measurement).speedups
    cause = "preprocessing" if cause == "cpu" else cause
    if cause in speedups and speedups[cause].how == "estimated":
        others = [speedup.value for name, speedup in speedups.items() if name != cause and speedup.value >= WORTH]
        assert all(speedups[cause].value >= OPEN_LEAD * other * (1 - 1e-6) for other in others)


def test_a_device_that_training_keeps_busy_leaves_nothing_for_the_input() -> None:
    """Whatever the loader alone shows, an input cannot gain more than training was seen to lack."""
    found = run_experiments(run(alike(baseline=57, training=60), Cost(cpu_s=0.017, blocked_s=0.0175), compute=60))
    assert found.speedups["preprocessing"].value == pytest.approx(1.0)
    assert found.free_input_speedup == pytest.approx(1.0)
