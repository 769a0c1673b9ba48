"""`plan` on stored runs and bandwidth results: what is taken from them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.api.diagnose import conclude
from loaderprobe.api.run import Watch
from loaderprobe.api.shown import origin_now
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.diagnosis import DataFound
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.remark import Remark
from loaderprobe.store.run_directory import RunDirectory
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_phase
from tests.said import said
from tests.stored import SMALL_FILES, full_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Emulated accelerators of 100,000 images/s on a disk of 20 MB/s; files of 100 kB."""
    return full_run(tmp_path / "run")


def test_a_sweep_gives_its_rate_its_files_and_its_storage(run: RunDirectory) -> None:
    """And is not touched: nothing is measured, nothing written."""
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    plan = loaderprobe.plan(run.path, accelerators=4)
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    ledger = {entry.name: entry.quantity for entry in plan.ledger}
    assert (ledger["rate"].value, ledger["rate"].label) == (100_000.0, "given")
    assert (ledger["file_bytes"].value, ledger["file_bytes"].label) == (100_000.0, "measured")
    assert ledger["cpu_s"].value == pytest.approx(0.004)
    opens = plan.need("opens")
    assert opens is not None and opens.at_utilization.value == pytest.approx(4 * 0.9 * 100_000)
    # What the ladder delivered, times the 1.02 bytes that were read for each.
    (supply,) = plan.supplies
    assert supply.limits[0].limit.value == pytest.approx(20e6 * 1.02)
    assert supply.feeds == pytest.approx(0.8 * 20e6 * 1.02 / (0.9 * 100_000 * 100_000 * 1.0), rel=0.05)


def test_what_was_not_asked_for_is_assumed(run: RunDirectory) -> None:
    """Utilization and use have defaults; the same values are given when they are asked for."""

    def labels(**asked: Any) -> list[str]:
        found = {entry.name: entry.quantity.label for entry in loaderprobe.plan(run.path, **asked).ledger}
        return [found["utilization"], found["use"]]

    assert labels() == ["assumed", "assumed"]
    assert labels(utilization=0.9, use=0.8) == ["given", "given"]


def test_a_run_in_memory_and_its_path_are_planned_alike(run: RunDirectory) -> None:
    """`load` first, or not."""
    by_path, by_run = (loaderprobe.plan(each) for each in (run.path, loaderprobe.load(run.path)))
    assert replace(by_path, created_utc="") == replace(by_run, created_utc="")


def test_a_plan_is_of_the_day_that_it_is_given(run: RunDirectory) -> None:
    """Published figures are stale a year after they were read, and the plan has its own date."""
    early, late = (
        loaderprobe.plan(run.path, storage="fsx-lustre-250:24TiB", now=datetime(year, 2, 28, tzinfo=UTC))
        for year in (2027, 2037)
    )
    assert [each.created_utc[:10] for each in (early, late)] == ["2027-02-28", "2037-02-28"]
    assert [each.stale for plan in (early, late) for each in plan.supplies if each.stale] == [True]


def test_a_stored_run_has_the_same_page_on_every_day(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan is of the day on which it began."""
    page = loaderprobe.load(run.path).html()
    monkeypatch.setattr("loaderprobe.system.host.utc_now", lambda: datetime(2037, 1, 1, tzinfo=UTC))
    assert loaderprobe.load(run.path).html() == page


def test_a_run_that_began_on_no_date_has_a_page_without_a_plan(run: RunDirectory) -> None:
    """With the reason: a file that was edited, or written by something else."""
    record = run.path / "run.json"
    began = loaderprobe.load(run.path).report().summary.run.created_utc
    record.write_text(record.read_text().replace(began, "yesterday"))
    assert "when the run began, is no date" in loaderprobe.load(run.path).html()


def test_another_accelerator_replaces_the_rate_and_its_steps_are_unknown(run: RunDirectory) -> None:
    """By name or by images/s; late steps of the measured one say nothing of it."""
    plan = loaderprobe.plan(run.path, kind="mlperf-h100")
    assert plan.source.accelerator == "mlperf-h100"
    assert plan.ledger[0].quantity.value == pytest.approx(400 / 0.224)
    assert plan.refused["stragglers"].code == "steps_of_another"
    assert loaderprobe.plan(run.path, kind=2500).ledger[0].quantity.value == 2500
    assert loaderprobe.plan(run.path, kind="emulated:2500").ledger[0].quantity.value == 2500


def test_what_was_not_measured_is_a_bad_value(run: RunDirectory) -> None:
    """A real accelerator in an emulated run; a data set that the run does not have."""
    with pytest.raises(BadValue, match="no accelerator was measured"):
        loaderprobe.plan(run.path, kind="measured")
    with pytest.raises(BadValue, match="no measured data set '64x48'") as caught:
        loaderprobe.plan(run.path, data="64x48")
    assert "500x375" in caught.value.hint


def test_a_measured_rate_has_the_interval_of_its_rounds(tmp_path: Path) -> None:
    """From the segments whose batch stays on the device."""
    run = full_run(tmp_path / "run")
    config = run.record.spec.configs[2]
    made = run.result(config.key)
    assert isinstance(made, Measurement)
    trained = [segment for segment in made.segments if segment.activity == "training"]
    resident = [
        replace(segment, mode="resident", first_batch=-1, finished_ns=tuple(ns + ns * number // 100 for ns in stamps))
        for number, segment in enumerate(trained)
        if (stamps := segment.finished_ns)
    ]
    compute = replace(made.compute, specified_images_per_s=None, source="resident batch")
    run.save(replace(made, segments=(*made.segments, *resident), compute=compute))
    plan = loaderprobe.plan(run.path, kind="measured")
    rate = plan.ledger[0].quantity
    assert rate.label == "measured" and rate.low < rate.value < rate.high
    opens = plan.need("opens")
    assert opens is not None and opens.at_utilization.high > opens.at_utilization.value


@pytest.mark.parametrize("cache", ["warm", "unproved", "mixed"])
def test_a_ceiling_that_was_not_cold_feeds_nothing(run: RunDirectory, cache: str) -> None:
    """The need stands; what the storage feeds is refused."""
    phases = (example_phase(1, 20e6, cache=cache), example_phase(2, 20e6, cache=cache))
    run.save_ceiling(StorageCeiling(data=SMALL_FILES.fingerprint, phases=phases))
    plan = loaderprobe.plan(run.path)
    assert plan.supplies == () and plan.need("read_bytes") is not None
    why = plan.refused["measured_storage"]
    expected = ("reads_unproved", {}) if cache == "unproved" else ("reads_not_cold", {"files": cache})
    assert (why.code, why.facts) == expected


def test_a_missing_or_damaged_ceiling_is_a_reason(run: RunDirectory) -> None:
    """As a run that never measured one."""
    path = run.path / "ceilings" / f"{SMALL_FILES.fingerprint}.json"
    path.write_text("{")
    damaged = loaderprobe.plan(run.path).refused["measured_storage"]
    assert damaged.code == "unavailable" and "is damaged" in said(damaged)
    path.unlink()
    missing = loaderprobe.plan(run.path).refused["measured_storage"]
    assert missing == Remark(code="no_ceiling")


def test_a_ladder_that_still_rises_is_a_lower_bound(run: RunDirectory) -> None:
    """More readers than the sweep had might get more."""
    assert not loaderprobe.plan(run.path).supplies[0].at_least
    phases = (example_phase(1, 20e6), example_phase(2, 40e6))
    run.save_ceiling(StorageCeiling(data=SMALL_FILES.fingerprint, phases=phases))
    assert loaderprobe.plan(run.path).supplies[0].at_least


def test_options_replace_what_was_measured(run: RunDirectory) -> None:
    """Size, number and layout of the files, growth, and storages to compare, in the order given."""
    plan = loaderprobe.plan(
        run.path, accelerators=10, growth=1.1, mean_size="50kB", images="1.28M", layout="shards:100",
        storage=["5GB/s,2ms", "fsx-lustre-250:24TiB"], cache="pinned:32GB", use="70%", nic="100Gb/s",
    )  # fmt: skip
    assert (plan.asked.accelerators, plan.asked.nic_bytes_per_s, plan.asked.use_given) == (11, 12.5e9, True)
    opens = plan.need("opens")
    assert opens is not None and opens.at_utilization.value == pytest.approx(11 * 0.9 * 100_000 / 100)
    assert [supply.label for supply in plan.supplies] == ["measured", "given", "published"]
    assert plan.epochs.cache_share == pytest.approx(0.5)


def test_a_plan_shows_itself(run: RunDirectory) -> None:
    """One line at the prompt, the page when printed, a frame of its needs, HTML in a notebook."""
    plan = loaderprobe.plan(run.path)
    assert repr(plan).startswith("<Plan: 8 ") and "\n" not in repr(plan)
    assert str(plan).startswith("Storage plan for ") and plan.markdown().startswith("# Storage plan for ")
    table = plan.to_frame()
    assert list(table["need"]) == [need.name for need in plan.needs]
    assert table["at_utilization"][0] == plan.needs[0].at_utilization.value
    assert plan._repr_html_().count("<table") >= 2


def test_a_result_of_run_is_planned_from_its_directory_its_file_and_as_it_is(tmp_path: Path) -> None:
    """Its device, its files and its storage; the whole data set has the samples that it had."""
    raw = measured(Truth(bytes_per_s=20e6, compute=900.0), 2)
    data = DataFound(hidden=None, size_bytes=1e9, root="/data/photos", samples=10_000)
    ceiling = StorageCeiling(data="", phases=(example_phase(2, 20e6),))
    found = replace(conclude(raw, verdict(raw), data, with_step=True), ceiling=ceiling)
    found.save(tmp_path / "found")
    plan = loaderprobe.plan(tmp_path / "found", accelerators=4)
    assert plan.supplies[0].first_limit == "bandwidth" and plan.epochs.seconds is not None
    ledger = {entry.name: entry.quantity for entry in plan.ledger}
    assert (ledger["rate"].value, ledger["images"].value, ledger["file_bytes"].value) == (900, 10_000, 100_000)
    for other in (found, tmp_path / "found" / "result.json"):
        assert loaderprobe.plan(other, accelerators=4).needs == plan.needs
    assert "of found; files of 500x375" in " ".join(plan.text(width=400).split())
    half = loaderprobe.plan(found, kind=450, mean_size="50kB").need("read_bytes")
    whole = loaderprobe.plan(found).need("read_bytes")
    assert half and whole and half.at_most.value == pytest.approx(whole.at_most.value / 4, rel=0.05)
    with pytest.raises(BadValue, match="one data set"):
        loaderprobe.plan(found, data="500x375")


def test_other_results_are_refused_by_what_they_are(tmp_path: Path) -> None:
    """A training that was only watched; a comparison."""
    Watch(
        origin=origin_now("run"), loader="Photos", workers=2, batch_size=8, intervals=(), bound=None, on_gpu=False,
        overhead_s=0.0,
    ).save(tmp_path / "watched")  # fmt: skip
    with pytest.raises(BadValue, match="only watched") as caught:
        loaderprobe.plan(tmp_path / "watched")
    assert "without --watch" in caught.value.hint
    run = full_run(tmp_path / "run").path
    loaderprobe.compare(run, run).save(tmp_path / "compared")
    with pytest.raises(BadValue, match="nothing is planned from"):
        loaderprobe.plan(tmp_path / "compared")
