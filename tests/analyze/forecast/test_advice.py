"""Advice: only from forecasts, largest speed-up first, with what to type; and what would gain nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.caches import page_cache_hits
from loaderprobe.analyze.forecast.advice import (
    DataPlace,
    Known,
    Recommendation,
    Surroundings,
    advise,
    recommend,
    recommend_groups,
)
from loaderprobe.analyze.forecast.fit import Storage, point_of
from loaderprobe.analyze.report import build_report
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import WORTH
from loaderprobe.render.words import action_words, forecast_words, knee_words, remark_words
from loaderprobe.testing import example_environment
from tests.analyze.measured import FILES, measured
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import alike
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_phase

SLOW_DISK = Truth(bytes_per_s=20e6)


def advised(measurement: Measurement, truth: Truth, **around: Any) -> Recommendation:
    return recommend(measurement, run_experiments(measurement), Surroundings(storage=truth.storage(), **around))


def test_a_measurement_becomes_a_point() -> None:
    """Rates, service times and measured modes are those that were scripted."""
    measurement = measured(SLOW_DISK, 1)
    point = point_of(measurement, run_experiments(measurement))
    assert not isinstance(point, Remark)
    assert (point.workers, point.compute, point.from_storage, point.unproved) == (1, 1e5, True, None)
    assert point.loader == pytest.approx(200)
    assert point.cpu_s == pytest.approx(0.004)
    assert point.blocked_s == pytest.approx(0.001)
    assert point.bytes_per_image == pytest.approx(100_000)
    assert point.measured == {"storage": pytest.approx(250)}


def test_what_other_threads_of_a_worker_compute_is_the_cost_of_sending() -> None:
    """A quarter more CPU time in the process than in the thread that makes the batches."""
    measurement = measured(SLOW_DISK, 1)
    records = measurement.worker_batches
    records = replace(records, process_cpu_ns=tuple(each * 5 // 4 for each in records.cpu_ns))
    measurement = replace(measurement, worker_batches=records)
    point = point_of(measurement, run_experiments(measurement))
    assert not isinstance(point, Remark)
    assert point.sending_s == pytest.approx(0.001)


def test_parts_that_do_not_make_the_whole_carry_no_advice() -> None:
    """Training at half of its prediction, in every round, is refused with that figure."""
    measurement = measured(SLOW_DISK, 2)
    found = run_experiments(measurement)
    found = replace(found, end_to_end={n: each / 2 for n, each in found.predicted.items()})
    (forecast,) = recommend(measurement, found, Surroundings()).forecasts
    assert forecast.refused
    words = "training ran at 50 % of its prediction, outside the noise band"
    assert remark_words(forecast.refused) == words
    assert advise(measurement, found) == ()


def test_a_full_disk_gets_cache_and_faster_storage() -> None:
    """Four workers on a disk for one: memory gives what was measured, a disk four times as fast nearly as much."""
    place = DataPlace(root="/data/my photos", size_bytes=1e9, memory_bytes=8e9)
    found = advised(measured(SLOW_DISK, 4), SLOW_DISK, place=place).advice
    cache, storage = [each for each in found if each.speedup > 1][:2]
    assert cache.how == "estimated"  # of training: the loader alone was measured on warm files
    assert cache.speedup == pytest.approx(1000 / 200, rel=0.01)
    assert "'/data/my photos'" in cache.command
    assert action_words(storage.action).startswith(
        ("use storage 3.9 times as fast (78", "use storage 4.0 times as fast (79")
    )
    assert storage.after.value == pytest.approx(4 / 0.005, rel=0.03)
    assert storage.bottleneck == "storage"
    assert cache.before.value == pytest.approx(200)
    assert cache.after.low <= cache.after.value <= cache.after.high


def test_no_faster_storage_where_it_has_reserve() -> None:
    """Storage that gives ten times as much to as many readers is not what the loader waits for."""
    truth = Truth(model="latency", latency_s=0.02)
    slow, kind = measured(truth, 4), truth.storage().ceiling
    assert kind is not None
    for bytes_per_s, advised_too in ((40e6, True), (2e9, False)):
        ceiling = replace(kind, phases=(replace(example_phase(4, bytes_per_s), cache="cold"),))
        around = Surroundings(storage=Storage(ceiling=ceiling))
        codes = {each.action.code for each in recommend(slow, run_experiments(slow), around).advice}
        assert ("faster_storage" in codes) is advised_too


def test_storage_gains_what_the_experiment_showed() -> None:
    """All files in memory is the experiment of free storage, so both have one figure; faster storage gains no more."""
    found = run_experiments(measured(SLOW_DISK, 4))
    tried = replace(found.speedups["storage"], value=1.5, low=1.4, high=1.6)
    found = replace(found, speedups={**found.speedups, "storage": tried})
    place = DataPlace(root="/data", size_bytes=1e9, memory_bytes=8e9)
    around = Surroundings(storage=SLOW_DISK.storage(), place=place)
    made = {each.action.code: each for each in recommend(measured(SLOW_DISK, 4), found, around).advice}
    memory, faster = made["files_in_memory"], made["faster_storage"]
    assert (memory.speedup, faster.speedup) == (1.5, 1.5)
    assert memory.after.value == pytest.approx(1.5 * memory.before.value)
    assert memory.after.low <= 1.4 * memory.before.value and memory.after.high >= 1.6 * memory.before.value


def test_a_rate_that_is_predicted_is_not_called_measured_and_has_a_range() -> None:
    """The loader was measured on warm files; what training makes of that is predicted, even where rounds agree."""
    found = run_experiments(measured(SLOW_DISK, 4))
    tried = replace(found.speedups["storage"], value=5.0, low=5.0, high=5.0)
    found = replace(found, speedups={**found.speedups, "storage": tried})
    place = DataPlace(root="/data", size_bytes=1e9, memory_bytes=8e9)
    around = Surroundings(storage=SLOW_DISK.storage(), place=place)
    made = recommend(measured(SLOW_DISK, 4), found, around)
    (memory,) = (each for each in made.advice if each.action.code == "files_in_memory")
    assert memory.how == "estimated" and "measured" not in forecast_words(memory)
    assert memory.after.low < 0.97 * memory.after.value and memory.after.high > 1.03 * memory.after.value
    (cached,) = (each for each in made.forecasts if each.changed == "page_cache_share" and each.to.startswith("100 %"))
    assert cached.how == "estimated"
    seen = recommend(measured(SLOW_DISK, 4), replace(found, seen_without=frozenset({"storage"})), around)
    (memory,) = (each for each in seen.advice if each.action.code == "files_in_memory")
    assert memory.how == "measured" and forecast_words(memory).endswith(", measured; then preprocessing is the limit")


def test_data_beyond_memory_are_pinned_or_left_to_the_page_cache() -> None:
    """Of 10 GB in a memory of 4 GB, 28 % can stay: pinned they are 28 % of the hits, in the page cache 4 to 22 %."""
    place = DataPlace(root="/data", size_bytes=10e9, memory_bytes=4e9)
    found = advised(measured(SLOW_DISK, 4), SLOW_DISK, place=place)
    pinned, page = [each for each in found.advice if each.action.code in ("files_pinned", "files_in_memory")]
    assert action_words(pinned.action).startswith("pin 28 % of the files in memory (2.80 GB,")
    assert "which holds 28 % of the files and answers 4.3 to 22 % of the reads" in action_words(page.action)
    assert pinned.speedup == pytest.approx(1 / 0.72, rel=0.05)
    assert page.speedup == pytest.approx(1 / (1 - page_cache_hits(0.28).value), rel=0.05)
    assert {"page_cache_share", "pinned_share"} <= {each.changed for each in found.forecasts}


def test_a_set_that_fits_is_kept_in_the_page_cache_alone() -> None:
    """Read once it stays, so nothing has to be pinned."""
    place = DataPlace(root="/data", size_bytes=1e9, memory_bytes=8e9)
    codes = {each.action.code for each in advised(measured(SLOW_DISK, 4), SLOW_DISK, place=place).advice}
    assert "files_in_memory" in codes and "files_pinned" not in codes


def test_workers_come_from_the_knee_with_what_to_type() -> None:
    """One worker where five feed the accelerator."""
    truth = Truth(bytes_per_s=1e10, compute=900.0)
    found = advised(measured(truth, 1), truth).advice
    (more,) = [each for each in found if each.command.startswith("num_workers")]
    assert (more.command, more.how, more.bottleneck) == ("num_workers=6", "estimated", "compute")
    assert more.speedup == pytest.approx(900 / 200, rel=0.01)


def test_measured_neighbours_are_measured_advice() -> None:
    """A sweep that tried 1, 2 and 4 workers advises 4 to the first two."""
    truth = replace(SLOW_DISK, bytes_per_s=80e6)
    members = [measured(truth, workers) for workers in (0, 1, 2, 4)]
    recommendations, (knee,) = recommend_groups(members, Known(storage={FILES.fingerprint: truth.storage()}))
    assert (knee.workers, knee.bottleneck, knee.how) == (4, "storage", "measured")
    assert knee_words(knee) == "4 workers, 800 images/s; beyond it, storage is the limit."
    for member in members[:3]:
        (more,) = [each for each in recommendations[member.config.key].advice if each.command.startswith("num_workers")]
        assert (more.command, more.how) == ("num_workers=4", "measured")


def test_measured_alternatives_say_which_option_to_type() -> None:
    """Another decoder and bytes instead of floats, each from its own CPU time."""
    ways = (
        Alternative(name="torchvision", cpu_s=0.003, usual_cpu_s=0.004),
        Alternative(name="uint8", cpu_s=0.002, usual_cpu_s=0.004),
    )
    truth = Truth(bytes_per_s=1e10)
    found = advised(replace(measured(truth, 1), alternatives=ways), truth).advice
    by_command = {each.command: each.speedup for each in found}
    assert by_command["--decoder torchvision"] == pytest.approx(5 / 4, rel=0.01)
    assert by_command["--tensor uint8"] == pytest.approx(5 / 3, rel=0.01)


def test_a_faster_device_is_wasted_on_a_slow_disk() -> None:
    """Where input is the limit, a faster accelerator is advised against, with the rate from which it would help."""
    truth = replace(SLOW_DISK, compute=900.0)
    found = advised(measured(truth, 4), truth, accelerators={"mlperf-h100": 1786.0}).advice
    (wasted,) = [each for each in found if each.speedup == 1]
    assert (
        action_words(wasted.action)
        == "A faster accelerator gains nothing until the loader delivers more than 900 images/s."
    )


def test_nothing_on_the_input_side_helps_a_compute_bound_training() -> None:
    """Training at what compute alone reaches gets a faster device, and no advice on the input."""
    truth = Truth(compute=100.0)
    found = advised(measured(truth, 4), truth, accelerators={"mlperf-h100": 1786.0}).advice
    assert action_words(found[-1].action) == "A faster input gains nothing: training reaches 100 % of compute alone."
    assert len(found) > 1
    assert all(each.action.code == "accelerator" for each in found[:-1])


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


def test_the_report_carries_knees_forecasts_and_advice() -> None:
    """One knee for the configurations that differ in workers, and in each row what was looked at."""
    members = [measured(SLOW_DISK, workers) for workers in (0, 1, 2)]
    ceiling = SLOW_DISK.storage().ceiling
    assert ceiling
    shown = build_report(
        name="run", created_utc="", command="", environment=example_environment(), files=[FILES],
        results=[(each.config, each) for each in members], ceilings={FILES.fingerprint: ceiling},
        accelerators={"mlperf-h100": 1786.0},
    )  # fmt: skip
    assert [knee.keys for knee in shown.summary.knees] == [tuple(each.config.key for each in members)]
    assert all(row.forecasts and row.advice for row in shown.summary.configurations)


def test_files_that_were_read_as_found_say_nothing_about_storage() -> None:
    """What came from memory is unknown, so neither disks nor caches are forecast; workers are."""
    found = advised(replace(measured(SLOW_DISK, 1, cache="as-found"), storage_counts_reads=False), SLOW_DISK)
    refused = {each.changed for each in found.forecasts if each.refused and each.refused.code == "files_as_found"}
    assert refused == {"page_cache_share", "pinned_share", "disk_speed"}
    assert not any(each.action.code in ("files_in_memory", "files_pinned") for each in found.advice)


def test_no_forecast_mixes_ranks() -> None:
    """Each number of ranks has a knee of its own, from the numbers of workers that it was measured with."""
    truth = replace(SLOW_DISK, bytes_per_s=80e6)
    one = [measured(truth, workers) for workers in (1, 2)]
    two = [rank_run(alike(training=rate, baseline=rate), workers=workers) for workers, rate in ((1, 90.0), (2, 95.0))]
    _, knees = recommend_groups([*one, *two], Known(storage={FILES.fingerprint: truth.storage()}))
    keys = [{each.config.key for each in members} for members in (one, two)]
    assert [set(knee.keys) for knee in knees] == keys


def test_accelerators_are_counted_for_each_rank() -> None:
    """A published rate is that of one accelerator, of which every rank has one; the pace of a benchmark is no rate."""
    made = rank_run(alike(training=58.0, baseline=700.0), compute=60.0, workers=4)
    recommendations, _ = recommend_groups([made], Known(accelerators={"a100-amp": 360.0, "mlperf-a100": 900.0}))
    (faster,) = [each for each in recommendations[made.config.key].advice if each.action.code == "accelerator"]
    assert (faster.action.facts["images_per_s"], faster.action.facts["ranks"]) == (360.0, 2)
    assert faster.after.value == pytest.approx(700.0, rel=0.05)
