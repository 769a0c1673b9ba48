"""Advice: only from forecasts, largest speed-up first, with what to type; and what would gain nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.caches import page_cache_hits
from loaderprobe.analyze.forecast.advice import (
    DataPlace,
    Recommendation,
    Surroundings,
    recommend,
    recommend_groups,
)
from loaderprobe.analyze.forecast.fit import Storage
from loaderprobe.analyze.verdict.experiments import Experiments, run_experiments
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.thresholds import WORTH
from loaderprobe.records.verdict import ActionCode
from loaderprobe.render.words import action_words, knee_words, remark_words
from tests.analyze.measured import FILES, measured
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import alike
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_phase

SLOW_DISK = Truth(bytes_per_s=20e6)


def advised(measurement: Measurement, truth: Truth, **around: Any) -> Recommendation:
    return recommend(measurement, run_experiments(measurement), Surroundings(storage=truth.storage(), **around))


MANY, FITS = (
    DataPlace(root="/data", size_bytes=10e9, memory_bytes=4e9),
    DataPlace(root="/data/my photos", size_bytes=1e9, memory_bytes=8e9),
)  # fmt: skip
FULL, CPU_BOUND, FAR = measured(SLOW_DISK, 4), Truth(bytes_per_s=1e10), Truth(model="latency", latency_s=0.02)
WAYS = (
    Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.004),
    Alternative(name="uint8", cpu_s=0.002, usual_cpu_s=0.004),
)
FEEDABLE, STARVED, COMPUTE_BOUND = (
    replace(CPU_BOUND, compute=900.0), replace(SLOW_DISK, compute=900.0), Truth(compute=100.0),
)  # fmt: skip
H100: dict[str, Any] = {"accelerators": {"mlperf-h100": 1786.0}}


def reserve(bytes_per_s: float) -> Storage:
    """What storage of far files gives to as many readers."""
    ceiling = FAR.storage().ceiling
    assert ceiling is not None
    return Storage(ceiling=replace(ceiling, phases=(replace(example_phase(4, bytes_per_s), cache="cold"),)))


def as_found() -> Measurement:
    """Files of which it is unknown what came from memory."""
    return replace(measured(SLOW_DISK, 1, cache="as-found"), storage_counts_reads=False)


# What was measured, on what; and by the code of the action: command or words, and speed-up; None where it is missing.
ADVISED: dict[str, tuple[Measurement, Surroundings, dict[ActionCode, tuple[str, float] | None]]] = {
    # Four workers on a disk for one: a disk four times as fast gains nearly as much as memory.
    "a full disk": (
        FULL, Surroundings(storage=SLOW_DISK.storage(), place=FITS),
        {"files_in_memory": ("'/data/my photos'", 5.0), "faster_storage": ("use storage", 3.97), "files_pinned": None},
    ),
    # Of 10 GB in a memory of 4 GB, 28 % can stay.
    "data beyond memory": (
        FULL, Surroundings(storage=SLOW_DISK.storage(), place=MANY),
        {
            "files_pinned": ("pin 28 % of the files in memory (2.80 GB,", 1 / 0.72),
            "files_in_memory": (
                "which holds 28 % of the files and answers 4.3 to 22 % of the reads",
                1 / (1 - page_cache_hits(0.28).value),
            ),
        },
    ),
    "far files of a storage that is used": (
        measured(FAR, 4), Surroundings(storage=reserve(40e6)), {"faster_storage": ("use storage", 5.85)},
    ),
    "with ten times as much to give": (measured(FAR, 4), Surroundings(storage=reserve(2e9)), {"faster_storage": None}),
    "files as found": (
        as_found(), Surroundings(storage=SLOW_DISK.storage()), {"files_in_memory": None, "files_pinned": None},
    ),
    "one worker where six feed the accelerator": (
        measured(FEEDABLE, 1), Surroundings(storage=FEEDABLE.storage()), {"workers": ("num_workers=6", 4.5)},
    ),
    "other decoders and bytes for floats": (
        replace(measured(CPU_BOUND, 1), alternatives=WAYS), Surroundings(storage=CPU_BOUND.storage()),
        {"decoder": ("--decoder torchvision", 5 / 4), "tensor": ("--tensor uint8", 5 / 3)},
    ),
    "a faster device on a slow disk": (
        measured(STARVED, 4), Surroundings(storage=STARVED.storage(), **H100),
        {
            "accelerator": None,
            "accelerator_gains_nothing": (
                "A faster accelerator gains nothing until the loader delivers more than 900 images/s.", 1.0,
            ),
        },
    ),
    "compute-bound": (
        measured(COMPUTE_BOUND, 4), Surroundings(storage=COMPUTE_BOUND.storage(), **H100),
        {
            "accelerator": ("", 4.0), "workers": None, "faster_storage": None,
            "input_gains_nothing": ("A faster input gains nothing: training reaches 100 % of compute alone.", 1.0),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVISED)
def test_what_gains_is_advised_with_what_to_type(name: str) -> None:
    """And what gains nothing is not, or is said to."""
    measurement, around, expected = ADVISED[name]
    made = {each.action.code: each for each in recommend(measurement, run_experiments(measurement), around).advice}
    for code, wanted in expected.items():
        if wanted is None:
            assert code not in made
            continue
        words, speedup = wanted
        found = made[code]
        assert words in f"{found.command} {action_words(found.action)}"
        assert found.speedup == pytest.approx(speedup, rel=0.05)
        assert (
            found.how == ("estimated" if speedup > 1 else "measured")
            and found.after.low <= found.after.value <= found.after.high
        )


def test_forecasts_that_cannot_be_made_are_refused() -> None:
    """Training at half of its prediction, or seen alone, and files of which it is unknown what came from memory."""
    found = run_experiments(FULL)
    halved = replace(found, end_to_end={n: each / 2 for n, each in found.predicted.items()})
    (forecast,) = recommend(FULL, halved, Surroundings()).forecasts
    words = "training ran at 50 % of its prediction, outside the noise band"
    assert (
        forecast.refused
        and remark_words(forecast.refused) == words
        and recommend(FULL, halved, Surroundings()).advice == ()
    )
    (forecast,) = recommend(FULL, replace(found, end_to_end={}, predicted={}), Surroundings()).forecasts
    assert forecast.refused and forecast.refused.code == "no_complete_round"
    forecasts = advised(as_found(), SLOW_DISK).forecasts
    refused = {each.changed for each in forecasts if each.refused and each.refused.code == "files_as_found"}
    assert refused == {"page_cache_share", "pinned_share", "disk_speed"}
    assert {"page_cache_share", "pinned_share"} <= {
        each.changed for each in advised(FULL, SLOW_DISK, place=MANY).forecasts
    }


def judged(measurements: Sequence[Measurement], truth: Truth | None = None) -> list[tuple[Measurement, Experiments]]:
    """With their experiments, on the storage of the truth."""
    ceiling = truth.storage().ceiling if truth else None
    return [(measurement, run_experiments(measurement, ceiling)) for measurement in measurements]


def test_measured_neighbours_are_measured_advice() -> None:
    """A sweep that tried 1, 2 and 4 workers advises 4 to the first two."""
    truth = replace(SLOW_DISK, bytes_per_s=80e6)
    members = [measured(truth, workers) for workers in (0, 1, 2, 4)]
    recommendations, (knee,) = recommend_groups(
        judged(members, truth), {FILES.fingerprint: Surroundings(storage=truth.storage())}, {}
    )
    assert (knee.workers, knee.bottleneck, knee.how) == (4, "storage", "measured")
    assert knee_words(knee) == "4 workers, 800 images/s; beyond it, storage is the limit."
    for member in members[:3]:
        (more,) = [each for each in recommendations[member.config.key].advice if each.command.startswith("num_workers")]
        assert (more.command, more.how) == ("num_workers=4", "measured")


@given(
    st.sampled_from(["token_bucket", "single_server", "latency"]), st.integers(0, 6), st.floats(0.001, 0.02),
    st.floats(0, 0.02), st.floats(5e6, 1e9), st.floats(20, 5000), st.booleans(),
)  # fmt: skip
def test_advice_is_sorted_worth_it_and_never_from_a_refused_forecast(
    model: Any, workers: int, cpu_s: float, latency_s: float, bytes_per_s: float, compute: float, synchronous: bool
) -> None:
    """Whatever the pipeline and the storage under it."""
    truth = Truth(
        model=model, cpu_s=cpu_s, latency_s=latency_s, bytes_per_s=bytes_per_s, compute=compute, synchronous=synchronous
    )
    found = advised(measured(truth, workers), truth)
    speedups = [each.speedup for each in found.advice]
    assert speedups == sorted(speedups, reverse=True)
    assert all(speedup == 1 or speedup >= WORTH for speedup in speedups)
    made = {each.images_per_s for each in found.forecasts if each.refused is None}
    assert all(each.after in made for each in found.advice if each.speedup > 1)
    assert all((each.images_per_s is None) == (each.refused is not None) for each in found.forecasts)


def test_no_forecast_mixes_ranks() -> None:
    """Each number of ranks has a knee of its own, from the numbers of workers that it was measured with."""
    truth = replace(SLOW_DISK, bytes_per_s=80e6)
    one = [measured(truth, workers) for workers in (1, 2)]
    two = [rank_run(alike(training=rate, baseline=rate), workers=workers) for workers, rate in ((1, 90.0), (2, 95.0))]
    around = {FILES.fingerprint: Surroundings(storage=truth.storage())}
    _, knees = recommend_groups(judged([*one, *two], truth), around, {})
    keys = [{each.config.key for each in members} for members in (one, two)]
    assert [set(knee.keys) for knee in knees] == keys


def test_accelerators_are_counted_for_each_rank() -> None:
    """A published rate is that of one accelerator, of which every rank has one; the pace of a benchmark is no rate."""
    made = rank_run(alike(training=58.0, baseline=700.0), compute=60.0, workers=4)
    recommendations, _ = recommend_groups(judged([made]), {}, {"a100-amp": 360.0, "mlperf-a100": 900.0})
    (faster,) = [each for each in recommendations[made.config.key].advice if each.action.code == "accelerator"]
    assert (faster.action.facts["images_per_s"], faster.action.facts["ranks"]) == (360.0, 2)
    assert faster.after.value == pytest.approx(700.0, rel=0.05)
