"""`plan` on stored runs and bandwidth results: what is taken from them, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.analyze.judge import verdict
from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.api.diagnose import DataSeen, conclude
from loaderprobe.api.origin import origin_now
from loaderprobe.api.watch import Watch
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, StorageCeiling
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.note import Note
from loaderprobe.records.plan_reason import PlanReason
from loaderprobe.render.json import result_json
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_location
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_bandwidth, example_operations, example_phase
from tests.said import said
from tests.stored import SMALL_FILES, full_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Emulated accelerators of 100,000 images/s on a disk of 20 MB/s; files of 100 kB."""
    return full_run(tmp_path / "run")


def cold_bandwidth(**changes: Any) -> BandwidthReport:
    """A ladder whose best step came from storage, below the limit of the probe."""
    phases = (example_phase(1, 60e6), example_phase(8, 290e6), example_phase(16, 288e6))
    return replace(example_bandwidth(), **({"phases": phases} | changes))


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
    assert missing == PlanReason(code="ceiling_not_measured")


def test_a_ladder_that_still_rises_is_a_lower_bound(run: RunDirectory) -> None:
    """More readers than the sweep had might get more."""
    assert not loaderprobe.plan(run.path).supplies[0].at_least
    phases = (example_phase(1, 20e6), example_phase(2, 40e6))
    run.save_ceiling(StorageCeiling(data=SMALL_FILES.fingerprint, phases=phases))
    assert loaderprobe.plan(run.path).supplies[0].at_least


def test_a_bandwidth_result_is_planned_from_its_file_and_as_it_is(tmp_path: Path) -> None:
    """Its files and its storage; workers and late steps are refused, and an accelerator must be named."""
    file = tmp_path / "bandwidth.json"
    file.write_text(result_json(cold_bandwidth()))
    plan = loaderprobe.plan(file, kind="mlperf-h100", accelerators=16)
    own = loaderprobe.plan(Bandwidth.of(cold_bandwidth()), kind="mlperf-h100", accelerators=16)
    assert plan.needs == own.needs and plan.supplies == own.supplies
    assert plan.supplies[0].limits[0].limit.value == pytest.approx(290e6 * 1.02, rel=1e-3)
    assert {part: why.code for part, why in plan.refused.items()} == {
        "cold_opens": "opens_not_measured", "workers": "bandwidth_without_workers",
        "cores": "bandwidth_without_workers", "stragglers": "bandwidth_without_steps",
    }  # fmt: skip
    with pytest.raises(BadValue, match="no accelerator"):
        loaderprobe.plan(file)


COLD_OPENS = example_operations({1: 300.0, 4: 1000.0, 16: 1010.0})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metadata": COLD_OPENS},
        {"metadata": example_operations({1: 300.0}, metadata="warm", drops=0)},
        {"phases": (example_phase(1, 60e6), example_phase(8, 290e6, at_least=True))},
        {"phases": (example_phase(1, 60e6, cache="mixed"), example_phase(8, 290e6))},
        {"phases": (example_phase(1, 60e6), example_phase(8, 290e6, cache="unproved"))},
        {"scratch": True},
    ],
)
def test_bandwidth_and_plan_feed_as_many(changes: dict[str, Any]) -> None:
    """Of the same result, for each accelerator, without options: one definition, one figure, one first limit."""
    report = cold_bandwidth(**changes)
    measured = BandwidthMeasurement(
        **{field.name: getattr(report, field.name) for field in fields(BandwidthMeasurement)}
    )
    rates = {"mlperf-a100": 400 / 0.435, "mlperf-h100": 400 / 0.224}
    feeds = {each.accelerator: each for each in judge_bandwidth(measured, rates).feeds}
    for name in rates:
        try:
            supplies = loaderprobe.plan(report, kind=name).supplies
        except BadValue:
            supplies = ()
        assert (name in feeds) == bool(supplies)
        for supply in supplies:
            assert feeds[name].count == pytest.approx(supply.feeds, rel=1e-3)
            assert (feeds[name].first_limit, feeds[name].at_least) == (supply.first_limit, supply.at_least)


def test_measured_cold_opens_are_a_limit_beside_bandwidth(tmp_path: Path) -> None:
    """1010 of them a second feed half an H100 at 90 % with 80 % in use, long before bandwidth gives out."""
    file = tmp_path / "bandwidth.json"
    file.write_text(result_json(cold_bandwidth(metadata=COLD_OPENS)))
    (supply,) = loaderprobe.plan(file, kind="mlperf-h100").supplies
    assert [limit.resource for limit in supply.limits] == ["opens", "bandwidth"]
    opens = supply.limits[0]
    assert (opens.limit.value, opens.limit.label, opens.at_least) == (1010.0, "measured", False)
    assert supply.feeds == pytest.approx(0.8 * 1010 / (0.9 * 400 / 0.224))
    assert supply.first_limit == "opens"
    short = tuple(replace(phase, short=True) for phase in COLD_OPENS)
    doubted = loaderprobe.plan(cold_bandwidth(metadata=short), kind="mlperf-h100").supplies[0]
    assert any(note.code == "opens_short" for note in doubted.notes) and supply.notes == ()
    noisy = tuple(replace(phase, ops_high=2 * phase.ops_per_s) for phase in COLD_OPENS)
    unsettled = loaderprobe.plan(cold_bandwidth(metadata=noisy), kind="mlperf-h100").supplies[0]
    assert unsettled.notes == (Note(code="opens_unsettled"),)
    shards = loaderprobe.plan(file, kind="mlperf-h100", layout="shards:1000").supplies[0]
    assert shards.first_limit == "bandwidth"


def test_opens_that_still_rise_are_a_lower_bound() -> None:
    """Also where the probe may be the limit, or one number of readers was tried; never from under a second."""
    for operations in (
        example_operations({1: 300.0, 4: 1000.0}), example_operations({4: 1000.0}),
        example_operations({1: 300.0, 4: 1000.0, 16: 1010.0}, at_least=True),
    ):  # fmt: skip
        (supply,) = loaderprobe.plan(cold_bandwidth(metadata=operations), kind="mlperf-h100").supplies
        assert supply.limits[0].resource == "opens" and supply.at_least
        short = tuple(replace(phase, short=True) for phase in operations)
        (supply,) = loaderprobe.plan(cold_bandwidth(metadata=short), kind="mlperf-h100").supplies
        assert not supply.at_least


@pytest.mark.parametrize(
    ("operations", "code", "why"),
    [
        ((), "opens_not_measured", "were not measured"),
        (example_operations({1: 2e5}, metadata="warm", drops=0), "opens_from_memory", "only bandwidth --drop-caches"),
        (
            example_operations({1: 2e5}, metadata="warm", drops=3),
            "opens_from_memory_after_drop",
            "from memory all the same",
        ),
        (
            example_operations({1: 200.0}, metadata="unproved", storage_bytes=None),
            "opens_unproved",
            "nothing counts",
        ),
    ],
)
def test_opens_that_were_not_cold_are_no_supply(operations: tuple[Any, ...], code: str, why: str) -> None:
    """Never a limit, whatever their rate; the plan says why on its page, and bandwidth still counts."""
    plan = loaderprobe.plan(cold_bandwidth(metadata=operations), kind="mlperf-h100")
    assert [limit.resource for limit in plan.supplies[0].limits] == ["bandwidth"]
    assert plan.refused["cold_opens"].code == code
    assert why in " ".join(plan.text(width=400).split())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scratch": True}, "read in blocks"),
        ({"mean_size_bytes": 0.0}, "are empty"),
        ({"phases": (example_phase(1, 60e6, block_bytes=1 << 20),)}, "read in blocks"),
    ],
)
def test_a_bandwidth_result_without_bytes_an_image_is_refused(changes: dict[str, Any], why: str) -> None:
    """A scratch file, empty files, shards."""
    with pytest.raises(BadValue, match=why):
        loaderprobe.plan(cold_bandwidth(**changes), kind="mlperf-h100")


def test_a_bandwidth_result_from_memory_feeds_nothing() -> None:
    """tmpfs; and one in which nothing was measured."""
    memory = replace(example_location("/dev/shm"), kind="memory", filesystem="tmpfs")
    for report, code in (
        (cold_bandwidth(location=memory), "files_in_memory"),
        (cold_bandwidth(phases=()), "ladder_not_measured"),
    ):
        plan = loaderprobe.plan(report, kind="mlperf-h100")
        assert plan.supplies == ()
        assert plan.refused["measured_storage"].code == code


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
    assert plan._repr_html_().count("<table>") >= 2


def test_the_ladder_and_the_rulers_are_in_the_plan() -> None:
    """The ladder by readers with the times of a file; reference designs beside the storages, and not among them."""
    found = loaderprobe.plan(cold_bandwidth(), kind="mlperf-h100", storage="s3-express")
    assert [(step.readers, step.bytes_per_s) for step in found.ramp] == [(1, 60e6), (8, 290e6), (16, 288e6)]
    assert all(step.p50_s and step.p99_s and step.p50_s <= step.p99_s for step in found.ramp)
    assert [ruler.name for ruler in found.rulers] == ["SuperPOD good", "SuperPOD better", "SuperPOD best"]
    assert [supply.name for supply in found.supplies] == ["measured here", "s3-express"]
    assert found.html().startswith("<!doctype html>")


def test_a_result_of_run_is_planned_from_its_directory_its_file_and_as_it_is(tmp_path: Path) -> None:
    """Its device, its files and its storage; the whole data set has the samples that it had."""
    raw = measured(Truth(bytes_per_s=20e6, compute=900.0), 2)
    data = DataSeen(hidden=None, size_bytes=1e9, root="/data/photos", samples=10_000)
    ceiling = StorageCeiling(data="", phases=(example_phase(2, 20e6),))
    found = replace(conclude(raw, verdict(raw), data, with_step=True), ceiling=ceiling)
    found.save(tmp_path / "found")
    plan = loaderprobe.plan(tmp_path / "found", accelerators=4)
    assert plan.supplies[0].first_limit == "bandwidth" and plan.epochs.seconds is not None
    ledger = {entry.name: entry.quantity for entry in plan.ledger}
    assert (ledger["rate"].value, ledger["images"].value, ledger["file_bytes"].value) == (900, 10_000, 100_000)
    for other in (found, tmp_path / "found" / "result.json"):
        assert loaderprobe.plan(other, accelerators=4).needs == plan.needs
    assert f"of {tmp_path}/found; files of 500x375" in " ".join(plan.text(width=400).split())
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
