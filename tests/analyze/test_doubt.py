"""Where a firm word would be more than was seen, a weaker one is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.rates import segment_rate
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Bound
from tests.analyze.runs import Cost, alike, run

WAITING = Cost(cpu_s=0.002, blocked_s=0.006)
HIDDEN: dict[str, Any] = {"access": "none", "storage_counts_reads": False, "modes": ("baseline", "no_transport")}


def bound(measurement: Measurement) -> Bound:
    return verdict(measurement).bound


def storage_speedups(*speedups: float) -> Measurement:
    """Rounds in which files from memory gained so much, and nothing else anything."""
    return run(
        [
            {
                "baseline": 250.0,
                "training": 250.0,
                "warm": 250.0 * speedup,
                "cached_samples": 250.0,
                "no_transport": 250.0,
            }
            for speedup in speedups
        ],
        WAITING,
    )


@pytest.mark.parametrize("speedups", [(0.85, 1.06, 1.30), (0.9, 1.052, 1.06), (1.2,), (1.2, 1.3)])
def test_a_speedup_within_the_noise_band_is_not_firm(speedups: tuple[float, ...]) -> None:
    """Nor is a small one of fewer than three rounds, which do not tell noise from a speed-up."""
    assert bound(storage_speedups(*speedups)).cause == "inconclusive"


@pytest.mark.parametrize("speedups", [(1.18, 1.2, 1.22), (3.0,)])
def test_a_speedup_beyond_it_is(speedups: tuple[float, ...]) -> None:
    """Rounds that agree, or one that leaves no doubt."""
    assert bound(storage_speedups(*speedups)).cause == "storage"


def test_rounds_that_contradict_each_other_are_inconclusive() -> None:
    """Training at half, at all and at twice of what its parts predict averages to no verdict."""
    found = bound(run([{"baseline": 250.0, "training": each} for each in (125.0, 250.0, 500.0)], WAITING, compute=1e5))
    assert found.cause == "inconclusive"
    assert found.reason.code == "rounds_differ"


def test_waiting_that_nothing_shows_to_be_for_storage_is_not_called_so() -> None:
    """A data set without files that sleeps is no reason to buy a disk."""
    asleep = Cost(cpu_s=0.001, blocked_s=0.01, cold=0.0)
    found = verdict(run(alike(baseline=180), asleep, cache="as-found", facts=HIDDEN))
    assert found.bound.cause == "inconclusive"
    assert found.unavailable["speedups.storage"].code == "wait_unexplained"


def test_hidden_files_that_are_read_may_be_called_storage() -> None:
    """Bytes that came from storage say what the workers wait for."""
    reading = Cost(cpu_s=0.001, blocked_s=0.01)
    found = run_experiments(run(alike(baseline=180), reading, cache="as-found", facts=HIDDEN))
    assert found.speedups["storage"].how == "estimated"
    assert found.speedups["storage"].value > 5


def test_a_burst_is_no_rate() -> None:
    """Six workers return six batches at once, after a second: that is six batches a second."""
    (segment, *_) = run(alike(baseline=100, training=100), WAITING).segments
    second = 10**9
    at_once = (second,) * 6
    burst = replace(
        segment, begin_ns=(0, *at_once[1:]), ready_ns=at_once, copied_ns=at_once, end_ns=at_once,
        finished_ns=tuple(second + n for n in range(6)), closed_ns=second,
    )  # fmt: skip
    assert segment_rate(burst, synchronous=False, workers=6) == pytest.approx(6 * segment.batch_size, rel=0.01)
