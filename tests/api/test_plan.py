"""`plan` on stored results: its figures by the formulas of the guide, the first limit, caches, and what is refused."""

from __future__ import annotations

import csv
import json
import math
from contextlib import nullcontext
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.plan.sources import judge_bandwidth
from loaderprobe.analyze.report import COUNTS
from loaderprobe.api import quantities
from loaderprobe.api.diagnose import Diagnosis, diagnosis
from loaderprobe.api.load import Run, load_any
from loaderprobe.api.plan import Plan
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.diagnosis import DataFound, OwnMeasured
from loaderprobe.records.measurement import ComputeInfo, Measurement
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.plan import Amount, CatalogueEntry, Tier
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitKind
from loaderprobe.storage import catalogue as module
from loaderprobe.storage.catalogue import catalogue, entry_named, published
from tests.analyze.runs import FILE_BYTES, Cost, alike, looked
from tests.analyze.runs import run as scripted
from tests.cli.invoke import invoke
from tests.examples import bandwidth
from tests.examples.bandwidth import example_operations, example_phase, example_rank_bandwidth, example_ranks
from tests.fakes import example_location
from tests.said import all_said, said
from tests.stored import RUNS, full_run

H100 = 400 / 0.224
"""Images/s of `mlperf-h100`."""


def cold_bandwidth(**changes: Any) -> BandwidthReport:
    """A ladder whose best step came from storage, below the limit of the probe."""
    phases = (example_phase(1, 60e6), example_phase(8, 290e6), example_phase(16, 288e6))
    return replace(bandwidth.example_bandwidth(), **({"phases": phases} | changes))


@cache
def stored(name: str) -> Any:
    path = RUNS / name
    return load_any(path) if path.is_dir() else path


def plan(name: str = "storage", **asked: Any) -> Plan:
    return loaderprobe.plan(stored(name), **asked)


def value(found: Plan, name: Any, of: str = "at_utilization") -> float:
    need = found.need(name)
    assert need is not None, name
    quantity = getattr(need, of)
    assert quantity is not None, (name, of)
    return float(quantity.value)


BASES: dict[str, dict[str, Any]] = {
    "storage": {}, "causes": {}, "cpu": {}, "ranks": {}, "run": {}, "trace": {}, "diagnose": {"kind": "mlperf-h100"},
    "bandwidth": {"kind": "mlperf-h100"}, "rank-bandwidth": {"kind": 2500},
}  # fmt: skip
"""A result of each kind that a plan is made from, and what must be named for it."""


@pytest.mark.parametrize(("name", "what"), [("storage", "accelerator"), ("cpu", "machine")])
def test_a_plan_is_seventy_lines_of_what_it_is_for(name: str, what: str) -> None:
    """Of a CPU that trained it counts machines, and names how to plan for GPUs; what is not known is a list."""
    shown = plan(name).text()
    assert len(shown.splitlines()) <= 70 and f"\n{what}s " in shown
    assert ("For GPUs: " in shown) is (what == "machine")
    assert "Not known\n" in shown and "\n  checkpoints: --checkpoint 205MB:600\n" in shown


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(
    "asked",
    [
        {"accelerators": 64},
        {"accelerators": 3, "per_node": 2, "utilization": 0.8, "use": "70%", "layout": "shards:1251"},
        {"accelerators": 10, "growth": 1.1, "images": "1.28M", "mean_size": "115kB", "checkpoint": "2GB:1800"},
    ],
)
def test_needs_follow_from_the_inputs_by_the_formulas_of_the_guide(name: str, asked: dict[str, Any]) -> None:
    """N G u s a and its kin, whatever the plan was made from."""
    found = plan(name, **BASES[name], **asked)
    put = {name: quantity.value for name, quantity in found.inputs.items()}
    count, node = found.asked.accelerators, min(found.asked.per_node, found.asked.accelerators)
    rate, use = put["rate"] * put["utilization"], put["use"]
    opens = count * rate / found.asked.images_per_file
    read = count * rate * put["file_bytes"] * put["amplification"]
    for need, figure in (("read_bytes", read), ("opens", opens)):
        assert value(found, need) == pytest.approx(figure)
        assert value(found, need, "at_most") == pytest.approx(figure / put["utilization"])
        assert value(found, need, "to_buy") == pytest.approx(figure / use)
        assert value(found, need, "node") == pytest.approx(figure * node / count)
    if "images" in put:
        assert value(found, "capacity", "to_buy") == pytest.approx(put["images"] * put["file_bytes"] / use)
        assert found.epochs.seconds is not None
        assert found.epochs.seconds.value == pytest.approx(put["images"] / (count * rate))
    if "cpu_s" in put:
        workers = math.ceil(rate * (put["cpu_s"] + put["wait_s"] + put["other_s"]))
        assert value(found, "workers") == workers
        assert value(found, "cores") == pytest.approx(rate * put["cpu_s"] / 0.85 + 1)
        assert value(found, "read_time") == pytest.approx(workers / rate - put["cpu_s"] - put["other_s"])
    if found.asked.checkpoint is not None:
        # 2 GB in 1 % of half an hour.
        assert value(found, "checkpoint") == pytest.approx(2e9 / 18)
    for supply in found.supplies:
        limits = {"bandwidth": read, "opens": opens, "requests": value(found, "requests")}
        feeds = [use * each.limit.value / (limits[each.resource] / count) for each in supply.limits]
        assert supply.feeds == pytest.approx(min(feeds)) and supply.feeds == supply.limits[0].feeds


# Published rows of MLPerf Storage. Samples/s and MB/s of those follow from their utilization: agreement with them is
# consistency and no proof.

STEPS = {("resnet50", "a100"): 400 / 0.435, ("resnet50", "h100"): H100, ("retinanet", "b200"): 24 / 0.04755}
"""Images/s."""
RECORD_BYTES = {"resnet50": 114_660, "retinanet": 322_957}
LAYOUTS = {"resnet50": "shards:1251", "retinanet": "folder"}


def test_published_rows_are_met_at_their_own_utilization_and_draw_no_more_than_at_full_rate() -> None:
    """43 of ResNet-50 and 8 of RetinaNet within 1 %; taken for MB/s instead of MiB/s, each would miss."""
    rows = list(csv.DictReader(Path(__file__).with_name("published.tsv").read_text().splitlines(), delimiter="\t"))
    assert [sum(row["workload"] == name for row in rows) for name in RECORD_BYTES] == [43, 8]
    for row in rows:
        workload, samples_per_s = row["workload"], float(row["samples_per_s"])
        images = int(LAYOUTS[workload].partition(":")[2] or 1)
        found = plan(
            "bandwidth", kind=STEPS[workload, row["accelerator"]], mean_size=RECORD_BYTES[workload],
            accelerators=int(row["accelerators"]), utilization=float(row["au_percent"]) / 100, layout=LAYOUTS[workload],
        )  # fmt: skip
        read = value(found, "read_bytes") / found.inputs["amplification"].value
        assert value(found, "opens") == pytest.approx(samples_per_s / images, rel=0.01)
        assert read == pytest.approx(float(row["mib_per_s"]) * 2**20, rel=0.01)
        assert read != pytest.approx(float(row["mib_per_s"]) * 1e6, rel=0.03)
        assert samples_per_s <= value(found, "opens", "at_most") * images


OFFERS: tuple[tuple[dict[str, Any], str | None, float, bool], ...] = (
    ({"storage": "6GB/s,24kopens/s"}, "opens", 0.8 * 24_000 / (0.9 * H100), False),
    ({"storage": "6GB/s,24kopens/s", "layout": "shards:1251"}, "bandwidth", 0.8 * 6e9 / (0.9 * H100 * 115e3), False),
    ({"storage": "fsx-lustre-250:24TiB"}, "opens", 0.8 * 24_000 / (0.9 * H100), False),
    ({"storage": "fsx-lustre-250:24TiB", "layout": "shards:1251"}, "bandwidth", 26.0, False),
    # Eight nodes with 1.5 GB/s each have 12 GB/s; a network of 8 Gb/s gives out before that.
    ({"storage": "100GB/s,1.5GB/s/client"}, "client", 0.8 * 12e9 / (0.9 * H100 * 115e3), False),
    ({"storage": "100GB/s,1.5GB/s/client", "nic": "8Gb/s"}, "nic", 0.8 * 8e9 / (0.9 * H100 * 115e3), False),
    ({"storage": "5kIOPS"}, "requests", 0.8 * 5e3 / (0.9 * H100), False),
    ({"storage": "s3-standard:16"}, "opens", 0.8 * 16 * 5500 / (0.9 * H100), True),
)
"""Options, the first limit, how many of 64 H100 are fed with 115 kB an image, and whether it may be more."""


@pytest.mark.parametrize(("asked", "first", "feeds", "at_least"), OFFERS)
def test_the_limit_reached_first_is_named(asked: dict[str, Any], first: str, feeds: float, at_least: bool) -> None:
    """Each limit over the need of one accelerator, with 80 % of it in use."""
    found = plan("bandwidth", kind=H100, mean_size="115kB", accelerators=64, **asked)
    supply, amplification = found.supplies[-1], found.inputs["amplification"].value
    expected = feeds / amplification if first in ("bandwidth", "client", "nic") else feeds
    assert (supply.first_limit, supply.at_least) == (first, at_least)
    assert supply.feeds == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("limit", [{"storage": "100GB/s,1.5GB/s/client"}, {"nic": "12Gb/s"}])
@pytest.mark.parametrize("per_node", [1, 3, 8])
def test_what_is_enough_for_some_accelerators_is_enough_for_fewer(limit: dict[str, str], per_node: int) -> None:
    """A node that is partly filled has more to spare, which is of no use to those that are full."""
    asked = {"kind": H100, "mean_size": "115kB", "per_node": per_node, "storage": "100GB/s", **limit}
    supplies = [plan("bandwidth", accelerators=count, **asked).supplies[-1] for count in range(1, 20)]
    enough = [(supply.feeds or 0.0) >= count for count, supply in enumerate(supplies, 1)]
    assert enough == sorted(enough, reverse=True) and enough[0]


def test_published_limits_have_a_day_and_what_is_missing_is_said() -> None:
    """Stale a year after they were read, to the day; the opens of a small FSx are not guessed."""
    days = (datetime(2027, 11, day, tzinfo=UTC) for day in (20, 21))
    early, late = (plan(storage="fsx-lustre-250:2TiB", now=day) for day in days)
    assert [found.created_utc[:10] for found in (early, late)] == ["2027-11-20", "2027-11-21"]
    assert [found.supplies[1].stale for found in (early, late)] == [False, True]
    assert ["12 months" in found.text() for found in (early, late)] == [False, True]
    assert {limit.resource for limit in early.supplies[1].limits} == {"bandwidth", "client"}
    assert any("opens at this size" in note for note in all_said(early.supplies[1].notes))


def cached(accelerators: int, cache: str) -> tuple[float | None, list[float]]:
    """The share of ImageNet that fits, and hits in epochs 2, 3 and 10."""
    found = plan("bandwidth", kind=H100, accelerators=accelerators, mean_size=100_000, images="1M", cache=cache)
    read = value(found, "read_bytes")
    for epoch in found.epochs.cached:
        assert epoch.read_bytes_per_s == pytest.approx((1 - epoch.hits) * read)
    return found.epochs.cache_share, [epoch.hits for epoch in found.epochs.cached]


@pytest.mark.parametrize(
    ("accelerators", "cache", "share", "hits"),
    [
        (8, "none", None, []),
        (8, "pinned:50GB", 0.5, [0.5, 0.5, 0.5]),
        # 15 % of half the set; in epoch 2 the kernel may answer a third less.
        (8, "page:50GB", 0.5, [0.65 * 0.1534, 0.1534, 0.1534]),
        (8, "page:900GB", 1.0, [1.0, 1.0, 1.0]),
        # Eight nodes: each has read an eighth of what it reads in epoch 2.
        (64, "page:900GB", 1.0, [1 / 8, 1 - (7 / 8) ** 2, 1 - (7 / 8) ** 9]),
        (64, "page:50GB", 0.5, [0.65 * 0.1534, 0.1534, 0.1534]),
        (64, "pinned:50GB", 0.5, [0.5, 0.5, 0.5]),
    ],
)
def test_caches_answer_by_two_formulas(accelerators: int, cache: str, share: float | None, hits: list[float]) -> None:
    """Half of the set in memory is half of the hits only where it is pinned."""
    found = cached(accelerators, cache)
    assert found[0] == share and found[1] == pytest.approx(hits, abs=1e-4)


@pytest.mark.parametrize("storage", ["0.03GB/s", "0.1GB/s", "0.16GB/s"])
def test_the_cache_that_makes_a_storage_enough_answers_as_much(storage: str) -> None:
    """Asked for as `--cache`: pinned in each epoch that is shown, the page cache from epoch 3 on, as is said."""
    found = plan(images="1M", storage=storage)
    wanted = found.supplies[-1].cache
    assert wanted and wanted.pinned_bytes and wanted.page_bytes
    assert "page cache, from epoch 3 on" in found.text(width=400)
    for kind, size in (("pinned", wanted.pinned_bytes), ("page", wanted.page_bytes)):
        cached = plan(images="1M", cache=f"{kind}:{math.ceil(size)}B").epochs.cached
        enough = [each.epoch for each in cached if each.hits >= wanted.hits - 1e-6]
        assert enough == ([2, 3, 10] if kind == "pinned" else [3, 10])


@pytest.mark.parametrize(
    ("name", "asked", "nodes", "readers", "origin"),
    [
        ("storage", {"accelerators": 64}, 8, 8 * 27, "workers"),
        ("storage", {"accelerators": 3}, 1, 3 * 27, "workers"),
        ("bandwidth", {"kind": H100, "accelerators": 16}, 2, 5, "reads_in_flight"),
        ("bandwidth", {"kind": H100, "accelerators": 16, "storage": "5GB/s,2ms"}, 2, 33, "reads_in_flight"),
        ("storage", {"accelerators": 64, "storage": "5GB/s,2ms"}, 8, 8 * 27, "workers"),
        ("storage", {"accelerators": 64, "storage": "5GB/s,50ms"}, 8, 804, "reads_in_flight"),
        ("trace", {"accelerators": 16}, 2, 64, "assumed"),
        # A machine that trains on its CPU is a node of its own, unless another number is asked for.
        ("cpu", {"accelerators": 16}, 16, 1, "workers"),
        ("cpu", {"accelerators": 16, "per_node": 8}, 2, 8, "workers"),
    ],
)
def test_the_test_on_delivery(name: str, asked: dict[str, Any], nodes: int, readers: int, origin: str) -> None:
    """As readers get it, without what storage reads besides; so many readers can, at the time of a read (Little)."""
    found = plan(name, **asked)
    node = min(found.asked.per_node, found.asked.accelerators)
    test, images_per_s = found.acceptance, node * found.inputs["rate"].value * 0.9 / 0.8
    assert (test.nodes, test.readers, test.readers_from) == (nodes, readers, origin)
    assert test.files_per_s == pytest.approx(images_per_s)
    assert test.bytes_per_s == pytest.approx(images_per_s * found.inputs["file_bytes"].value)
    assert all(test.readers >= images_per_s * each.latency_s.high for each in found.supplies if each.latency_s)
    assert plan(name, **asked, layout="shards:10").acceptance.files_per_s is None


@pytest.mark.parametrize("name", ["cpu", "run"])
def test_a_plan_from_a_cpu_is_none_for_gpus(name: str) -> None:
    """Nothing is to buy for its rate; a plan for GPUs is one command away."""
    page = plan(name).text()
    assert page.startswith("No plan for GPUs: this run trained on the CPU\n") and "Buy" not in page
    assert "loaderprobe plan RUN --kind mlperf-h100\n" in page and "8 machines training on the CPU" in page
    assert plan(name, kind=H100).text().startswith("Buy ")


NO_WORKERS = {"workers": "bandwidth_without_workers", "cores": "bandwidth_without_workers"}
NO_OPENS: dict[str, dict[str, Any]] = {
    "opens_not_measured": {},
    "opens_asked": {"metadata": example_operations({1: 2e5}, metadata="asked")},
    "opens_from_memory": {"metadata": example_operations({1: 2e5}, metadata="warm", drops=0)},
    "opens_from_memory_after_drop": {"metadata": example_operations({1: 2e5}, metadata="warm", drops=3)},
    "opens_unproved": {"metadata": example_operations({1: 200.0}, metadata="unproved", storage_bytes=None)},
}
NO_STORAGE = {
    "no_storage_behind_files": cold_bandwidth(location=replace(example_location("/dev/shm"), kind="memory")),
    "ladder_not_measured": cold_bandwidth(phases=()),
    "reads_not_cold": example_rank_bandwidth(example_ranks(20e6, cache="mixed")),
    "reads_unproved": example_rank_bandwidth(example_ranks(10e6, 10e6, cache="unproved")),
}
NOT_KNOWN: tuple[tuple[Any, dict[str, Any], dict[str, str]], ...] = (
    ("storage", {}, {}),
    ("storage", {"layout": "shards:10"}, {"reads_in_flight": "read_in_shard_not_timed"}),
    ("run", {}, {"measured_storage": "no_ceiling", "reads_in_flight": "read_not_timed"}),
    (
        "trace", {}, {
            "measured_storage": "trace_without_storage", "workers": "trace_without_workers",
            "cores": "trace_without_workers", "reads_in_flight": "read_not_timed",
        },
    ),
    ("rank-bandwidth", {"kind": 2500}, {"cold_opens": "opens_not_measured", **NO_WORKERS}),
    *((cold_bandwidth(**changes), {"kind": H100}, {"cold_opens": code, **NO_WORKERS})
      for code, changes in NO_OPENS.items()),
    *((report, {"kind": H100}, {"measured_storage": code, **NO_WORKERS, "reads_in_flight": "read_not_timed"})
      for code, report in NO_STORAGE.items()),
)  # fmt: skip


@pytest.mark.parametrize(("source", "asked", "codes"), NOT_KNOWN)
def test_what_is_not_known_is_refused_with_a_reason(source: Any, asked: dict[str, Any], codes: dict[str, str]) -> None:
    """In one order, on the page too. What is not from storage feeds nothing; opens that were not cold are no limit."""
    found = loaderprobe.plan(stored(source) if isinstance(source, str) else source, **asked)
    assert {part: why.code for part, why in found.refused.items()} == codes and list(found.refused) == list(codes)
    assert found.need("read_bytes") is not None
    limits = {limit.resource for supply in found.supplies for limit in supply.limits}
    assert ("bandwidth" in limits) == ("measured_storage" not in codes)
    assert not limits & ({"opens"} if "cold_opens" in codes else set())
    page = " ".join(found.text(width=400).split())
    assert all(said(why) in page for why in found.refused.values())


REFUSED: tuple[tuple[Any, dict[str, Any], str], ...] = (
    ("storage", {"kind": "measured"}, "no accelerator was measured"),
    ("storage", {"data": "64x48"}, "no measured data set '64x48'"),
    ("run", {"data": "500x375"}, "only a sweep has"),
    ("trace", {"data": "500x375"}, "only a sweep has"),
    ("bandwidth", {}, "no accelerator"),
    ("bandwidth", {"kind": 1, "data": "500x375"}, "only a sweep has"),
    ("diagnose", {}, "compute alone was not measured"),
    ("watch", {}, "only watched"),
    ("layers", {}, "nothing is planned from"),
    (cold_bandwidth(scratch=True), {"kind": H100}, "read in blocks"),
    (cold_bandwidth(mean_size_bytes=0.0), {"kind": H100}, "are empty"),
    (cold_bandwidth(phases=(example_phase(1, 60e6, block_bytes=1 << 20),)), {"kind": H100}, "read in blocks"),
    (example_rank_bandwidth(example_ranks(20e6, block_bytes=131_072)), {"kind": H100}, "read in blocks"),
)


@pytest.mark.parametrize(("name", "asked", "why"), REFUSED)
def test_what_cannot_be_planned_from_is_a_bad_value(name: Any, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(BadValue, match=why) as caught:
        loaderprobe.plan(RUNS / name if isinstance(name, str) else name, **asked)
    assert caught.value.hint


def test_a_path_a_file_and_a_result_in_memory_are_planned_alike() -> None:
    """And nothing is written."""
    for name, file in (("storage", ""), ("run", "result.json"), ("trace", "result.json")):
        before = {path: path.stat().st_mtime_ns for path in (RUNS / name).rglob("*")}
        plans = [loaderprobe.plan(source) for source in (RUNS / name, RUNS / name / file, stored(name))]
        assert all(found.needs == plans[0].needs and found.supplies == plans[0].supplies for found in plans)
        assert {path: path.stat().st_mtime_ns for path in (RUNS / name).rglob("*")} == before


@pytest.mark.parametrize("files", ["warm", "unproved", "mixed"])
def test_a_ceiling_that_was_not_cold_feeds_nothing(tmp_path: Path, files: Any) -> None:
    """The need stands; what storage feeds is refused, as of one damaged or missing; one that rises is a lower bound."""
    run = full_run(tmp_path / "run")
    data = run.record.spec.configs[0].data
    assert not loaderprobe.plan(run.path).supplies[0].at_least
    phases = (example_phase(1, 20e6), example_phase(2, 40e6))
    run.save_ceiling(StorageCeiling(data=data, phases=phases))
    assert loaderprobe.plan(run.path).supplies[0].at_least
    phases = (example_phase(1, 20e6, cache=files), example_phase(2, 20e6, cache=files))
    run.save_ceiling(StorageCeiling(data=data, phases=phases))
    found = loaderprobe.plan(run.path)
    assert found.supplies == () and found.need("read_bytes") is not None
    why = found.refused["measured_storage"]
    expected = ("reads_unproved", {}) if files == "unproved" else ("reads_not_cold", {"files": files})
    assert (why.code, why.facts) == expected
    path = run.path / "ceilings" / f"{data}.json"
    path.write_text("{")
    damaged = loaderprobe.plan(run.path).refused["measured_storage"]
    assert damaged.code == "unavailable" and "is damaged" in said(damaged)
    path.unlink()
    assert loaderprobe.plan(run.path).refused["measured_storage"] == Remark(code="no_ceiling")


def test_a_plan_shows_itself() -> None:
    """One line at the prompt, a frame of its needs, HTML in a notebook; no other data set where a run has one."""
    found = plan()
    assert repr(found).startswith("<Plan: Storage plan for ") and "\n" not in repr(found) and str(found) == found.text()
    table = found.to_frame()
    assert list(table["need"]) == [need.name for need in found.needs]
    assert table["at_utilization"][0] == found.needs[0].at_utilization.value
    assert found._repr_html_().count("<table") >= 2
    assert found.source.other_data == () and "also in the run" not in found.text()


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
    measured = BandwidthMeasurement(**{each.name: getattr(report, each.name) for each in fields(BandwidthMeasurement)})
    rates = {"mlperf-a100": 400 / 0.435, "mlperf-h100": H100}
    feeds = {each.accelerator: each for each in judge_bandwidth(measured, rates, bandwidth.ORIGIN).feeds}
    for name in rates:
        try:
            supplies = loaderprobe.plan(report, kind=name).supplies
        except BadValue:
            supplies = ()
        assert (name in feeds) == bool(supplies)
        for supply in supplies:
            assert feeds[name].count == pytest.approx(supply.feeds, rel=1e-3)
            assert (feeds[name].first_limit, feeds[name].at_least) == (supply.first_limit, supply.at_least)


ONCE: dict[str, Any] = {"notes": ()}


@pytest.mark.parametrize(
    ("changes", "layout", "doubt", "mark"),
    [
        (ONCE, None, " if names are cached: cold opens are not known", "●"), (ONCE, "shards:1251", "", "●"),
        (ONCE | {"metadata": COLD_OPENS}, None, "", "●"), (ONCE | {"path": "s3://bucket/train"}, None, "", "●"),
        ({}, "shards:1251", " if more data come as fast: cached reads are not known", "○"),
        ({}, None, " if names are cached and more data come as fast", "○"),
    ],
)  # fmt: skip
def test_enough_is_said_with_what_is_not_known(changes: Any, layout: str | None, doubt: str, mark: str) -> None:
    """Cold names may be slower than reads of files whose names are in memory; shards and objects have next to none. A
    cache may have served files that one step read more than once."""
    page = loaderprobe.plan(cold_bandwidth(**changes), kind=10, accelerators=1, layout=layout).text(width=400)
    assert page.startswith(f"Storage here feeds all 1{doubt}\n") and f" {mark} " in page.partition("planned: 1")[0]
    assert ("maybe cached" in page) == (not changes)


@pytest.mark.parametrize(("now", "later"), [(3, 4), (10, 11)])
def test_accelerators_are_whole_and_said_with_those_before_growth(now: int, later: int) -> None:
    page = plan(accelerators=now, growth=1.1).text(width=400)
    assert f"for {later} x mlperf-h100 ({now} now, times 1.1 for growth)" in page


def test_a_listing_that_was_cut_tells_no_number_of_images() -> None:
    """Nothing is planned that depends on it, and the page says why; a cache needs the number, which can be given."""
    found = cold_bandwidth(notes=(Remark(code="listing_cut", facts={"objects": 100_000}),))
    asked: dict[str, Any] = {"kind": "mlperf-h100", "cache": "page:12GB"}
    with pytest.raises(BadValue, match="size of the set"):
        loaderprobe.plan(found, **asked)
    unknown = loaderprobe.plan(found, kind="mlperf-h100")
    assert unknown.need("capacity") is None and unknown.epochs.seconds is None and "images" not in unknown.inputs
    assert "only the first 100000 objects" in unknown.text(width=400).replace(",", "")
    assert value(loaderprobe.plan(found, images="1M", **asked), "capacity") == 1e6 * found.mean_size_bytes


def of_ranks(*phases: Any) -> Any:
    """What the storage gives to these steps."""
    (supply,) = loaderprobe.plan(example_rank_bandwidth(*phases), kind="mlperf-h100").supplies
    return supply


def test_the_readers_of_all_ranks_are_the_ladder() -> None:
    """Twice as many that gain nothing are the storage's limit, else it is at least that, beside a slow rank; as many
    readers that get more in four ranks than in one show no limit: the plateau would be that of a process."""
    lower, one = (example_ranks(20e6), example_ranks(10.2e6, 10.2e6)), example_ranks(20e6, readers=8)
    level = of_ranks(*lower, example_ranks(*[5.1e6] * 4), one)
    assert level.limits[0].limit.value == pytest.approx(20.4e6) and not level.limits[0].at_least and level.notes == ()
    assert level.source == "4 readers of whole files in 2 ranks"
    climbs = of_ranks(*lower, example_ranks(15e6, 15e6, 15e6, 8e6), one)
    assert climbs.limits[0].at_least and [note.code for note in climbs.notes] == ["clients_at_least", "ranks_uneven"]
    assert climbs.notes[1].facts == {
        "rank": "3", "host": "node0", "share": pytest.approx(8 / 15), "bytes_per_s": pytest.approx(32e6),
    }  # fmt: skip
    (limit,) = of_ranks(example_ranks(*[20e6] * 4), example_ranks(50e6, readers=8)).limits
    assert limit.limit.value == pytest.approx(80e6) and limit.at_least


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_several_nodes_got_is_not_multiplied_by_the_nodes(nodes: int) -> None:
    """From one machine, the storage may be that machine's own; from several at once it is one for all."""
    found = example_rank_bandwidth(example_ranks(20e6, 20e6, nodes=nodes))
    page = loaderprobe.plan(found, kind="mlperf-h100", accelerators=64).text(width=400)
    assert ("from one machine" in page) == (nodes == 1)


READ: tuple[tuple[Any, tuple[Any, ...], list[Any]], ...] = (
    (lambda text: quantities.share(text, "-"), ("90%", " 90 %", "0.9", 0.9), [0.9] * 4),
    (lambda text: quantities.count(text, "-"), ("64", 64, "1.28M", "60k"), [64, 64, 1_280_000, 60_000]),
    (lambda text: quantities.size(text, "-"), ("115kB", "1MiB", 2048, 115_000.4), [115_000, 2**20, 2048, 115_000]),
    (
        lambda text: quantities.byte_rate(text, "-"),
        ("12.5GB/s", "100Gb/s", "100Gbit/s", "1MiB/s", "1KiB/s", "1MB/s", 12.5e9),
        [12.5e9, 12.5e9, 12.5e9, 2**20, 2**10, 1e6, 12.5e9],
    ),
    (quantities.layout, ("folder", "shards:1251"), [1, 1251]),
    (
        quantities.storage_figures,
        ("5GB/s,60kopens/s,2ms,1.5GB/s/client,100kIOPS", "300us, 40Gb/s", "1GB/s/node,500files/s"),
        [
            {"bandwidth": 5e9, "opens": 6e4, "latency": 0.002, "client": 1.5e9, "requests": 1e5},
            {"latency": 3e-4, "bandwidth": 5e9}, {"client": 1e9, "opens": 500.0},
        ],
    ),
)  # fmt: skip


@pytest.mark.parametrize(("read", "texts", "found"), READ)
def test_values_are_read_with_their_units(read: Any, texts: tuple[Any, ...], found: list[Any]) -> None:
    """MB is 10^6 bytes, MiB 2^20; a small b is a bit; a rate of a client is another figure than that of the whole."""
    for text, figure in zip(texts, found, strict=True):
        assert read(text) == pytest.approx(figure)


BAD: dict[str, tuple[Any, ...]] = {
    "utilization": ("0%", "101%", "-5%", "90", "nan", "inf", "", "much", 0, 1.5, math.nan), "use": ("-10%",),
    "accelerators": ("0", "-1", "1.5", "1e9", "nan", "", "many", "\u00b2", "999999999999999", 0, -3, 2.5, math.inf),
    "per_node": ("0",), "images": ("0",), "checkpoint": ("2GB",), "kind": ("abacus", "0", "nan", "measured"),
    "growth": ("0", "0.5", "1001", "nan", "inf", "", "twice", -1),
    "mean_size": ("0", "-1MB", "1e300", "1e400", "", "MB", "999999999TB", "\u00b2GB", math.nan, math.inf, -1),
    "nic": ("0GB/s", "5GB", "-1GB/s", "1kiB/s", "nan", "inf", "fast", "1e300", "", math.nan),
    "layout": ("shards", "shards:1", "shards:0", "folder:3", "tar", "", "shards:x"),
    "cache": ("page", "page:", "pinned:0", "none:5GB", "memory:1TB", "", "page:-1GB"),
    "storage": (
        "5", "5GB", "5GB/s,6GB/s", "2ms", "0GB/s", "5GB/s,", "5GB/s,0ms", "5GB/s,quick", "1GB/s/day", "5 apples/s",
        "", "floppy", "fsx-lustre-250", "fsx-lustre-250:-1TiB", "azure-lustre-250:1TiB", "efs-elastic:4TiB",
        "efs-elastic:4", "gcp-parallelstore:11TiB", "gcp-parallelstore:101TiB", "s3-standard:0", "s3-standard:1.5",
        "../../etc/passwd",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, texts in BAD.items() for value in texts])
def test_impossible_values_are_bad_values(name: str, value: Any) -> None:
    """Zero, negative, beyond all reason, not a number, infinite, empty, words, no unit, twice the same."""
    with pytest.raises(BadValue):
        plan("bandwidth", **{"kind": 1, name: value})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Emulated accelerators of 100,000 images/s on a disk of 20 MB/s; files of 100 kB."""
    return loaderprobe.load(full_run(tmp_path / "run").path)


@pytest.fixture
def of_shards(run: Run) -> Run:
    """The same in two tar files of 16 images each."""
    (path,) = (run.path / "files").iterdir()
    record = json.loads(path.read_text())
    shards = {f"{number}.tar": 1_600_000 for number in range(2)}
    record["files"] |= {"layout": "tar", "places": [[0, number] for number in range(32)], "whole_bytes": shards}
    path.write_text(json.dumps(record))
    return loaderprobe.load(run.path)


def test_of_shards_their_opens_are_planned(of_shards: Run) -> None:
    """As on the first page; blocks of shards do not say what a folder gives, or how long a worker waits for a file."""
    found, folder = (loaderprobe.plan(of_shards.path, accelerators=64, layout=each) for each in (None, "folder"))
    (first_page,) = of_shards.report().needs
    assert value(found, "opens") == first_page.needs[-1].files_per_s == pytest.approx(value(folder, "opens") / 16)
    assert found.acceptance.files_per_s is None and "shards of 16 images read" in found.text()
    same = loaderprobe.plan(of_shards.path, layout="shards:99")
    assert [each.label for each in same.supplies] == ["measured"] and "workers" not in same.refused
    assert folder.supplies == () and folder.refused["measured_storage"].code == "measured_in_shards"
    assert folder.refused["workers"].code == "file_wait_unknown" and folder.need("cores") is not None


@pytest.mark.parametrize(
    ("asked", "at_least"),
    [
        ({}, False), ({"layout": "folder"}, False), ({"layout": "shards:1251"}, True),
        ({"mean_size": "50kB"}, False), ({"mean_size": "200kB"}, True),
    ],
)  # fmt: skip
def test_what_was_measured_of_other_files_is_no_firm_limit(run: Run, asked: dict[str, Any], at_least: bool) -> None:
    """Larger reads may get more bytes/s; of an image of another kind it is assumed that a worker takes as long."""
    found = loaderprobe.plan(run.path, **asked)
    (limit,) = (each for each in found.supplies[0].limits if each.resource == "bandwidth")
    assert limit.at_least == at_least
    # Of files of another size, the files/s are a limit of their own, and a read takes another time.
    other = "mean_size" in asked
    assert len(found.supplies[0].limits) == 1 + other and (found.supplies[0].latency_s is None) == other
    (cold,) = loaderprobe.plan(cold_bandwidth(metadata=COLD_OPENS), kind=1, **asked).supplies
    assert [each.limit.value for each in cold.limits if each.resource == "opens"] == [1010.0]
    assert found.inputs["cpu_s"].weakest == ("measured" if asked in ({}, {"layout": "folder"}) else "assumed")


@pytest.mark.parametrize("count", COUNTS)
def test_needs_on_the_first_page_are_those_of_the_plan(run: Run, count: int) -> None:
    """Bandwidth, opens, cores and what the storage feeds are the same figures, to the last digit."""
    (found,), asked = run.report().needs, loaderprobe.plan(run.path, accelerators=count)
    need = next(need for need in found.needs if need.accelerators == count)
    assert need.read_bytes_per_s == value(asked, "read_bytes") and need.files_per_s == value(asked, "opens")
    assert found.supply and found.cores == value(asked, "cores")
    (supply,) = asked.supplies
    assert (found.supply.feeds, found.supply.at_least) == (supply.feeds, supply.at_least)
    assert found.supply.limit.value == supply.limits[0].limit.value


def test_the_command_says_what_python_does(tmp_path: Path) -> None:
    """The largest of everything has finite figures; a page is where it is asked for; the schema needs no run."""
    largest = invoke(
        "plan", RUNS / "storage", "-n", 10**7, "--per-node", 1, "--growth", 1000, "--kind", "999999999", "--mean-size",
        "900TB", "--images", "999999999999999", "--cache", "page:900TB", "--checkpoint", "900TB:1",
        "--storage", "0.001B/s,0.001us", "--json",
    )  # fmt: skip
    assert largest.exit_code == 0 and "Infinity" not in largest.stdout and "NaN" not in largest.stdout
    assert json.loads(largest.stdout)["supplies"][-1]["feeds"] > 0
    done = invoke("plan", RUNS / "storage", "--html", tmp_path / "plan.html")
    assert (done.exit_code, done.stdout) == (0, f"Plan: {tmp_path / 'plan.html'}\n")
    assert (tmp_path / "plan.html").read_text().count("<svg") >= 2
    missing = invoke("plan", RUNS / "storage", "--html", tmp_path / "none" / "plan.html")
    assert missing.exit_code != 0 and missing.stdout == "" and "--html" in missing.stderr
    assert json.loads(invoke("plan", "--schema").stdout)["title"] == "loaderprobe/plan 3"
    shown = invoke("plan", "--catalogue").stdout
    assert "s3-standard" in shown and "12.5 GB/s" in shown, "of a client, which stands beside its tiers"
    assert invoke("plan", "--catalogue", "--md").stdout.startswith("# Storage catalogue")
    assert {entry["name"] for entry in json.loads(invoke("plan", "--catalogue", "--json").stdout)} > {"gcs"}


DEVICE = ComputeInfo(name="step", device="H200", synchronous=False, specified_images_per_s=None, source="your own step")


def measured(count: int = 3, **facts: Any) -> Measurement:
    """So many rounds on a device of 500 images/s."""
    rounds = alike(count, baseline=250.0, training=250.0, resident=500.0)
    return scripted(rounds, Cost(blocked_s=0.004), facts={"compute": DEVICE, **facts})


def hidden(access: str, **facts: Any) -> Measurement:
    """The same of a data set whose files are not known batch by batch."""
    found = measured(access=access, **facts)
    return replace(found, segments=tuple(replace(each, delivered_bytes=None) for each in found.segments))


def diagnosed(found: Measurement, samples: int | None = None) -> Diagnosis:
    """The result of `run` with a loader of one's own."""
    ceiling = StorageCeiling(data="0" * 16, phases=(example_phase(2, 40e6),))
    data = DataFound(hidden=None, size_bytes=None, root="", samples=samples)
    own = OwnMeasured(config=found.config, measurement=found, data=data, ceiling=ceiling)
    return diagnosis(own, "loaderprobe run")


def planned(found: Measurement, samples: int | None = None, **asked: Any) -> Plan:
    """For one of its accelerators, in use for 80 % of the time."""
    made: Plan = loaderprobe.plan(diagnosed(found, samples), accelerators=1, utilization=0.8, **asked)
    return made


def of_cold(share: float) -> Measurement:
    """Of the bytes that were delivered, storage gave such a share."""
    rounds = alike(baseline=250.0, training=250.0, resident=500.0)
    return scripted(rounds, Cost(blocked_s=0.004, cold=share), facts={"compute": DEVICE})


SMALL_OFFER: dict[str, Any] = {"samples": 400, "storage": "50MB/s,10opens/s"}
FULL_RATE = 500 * FILE_BYTES
OWN: dict[str, tuple[Measurement, dict[str, Any], dict[str, float | None]]] = {
    **{
        f"{access}: bytes from storage, without what is read besides": (
            hidden(access), {}, {"file_bytes": FILE_BYTES, "amplification": 1, "opens": None},
        )
        for access in ("parts", "fresh")
    },
    # HDF5, LMDB and mapped arrays stay open; of known files each is opened.
    "samples that are made again of known files": (measured(access="fresh"), {}, {"opens": 500}),
    # How often is known where a layout is named; and the set has the bytes of its samples, without read-ahead.
    **{
        f"large files, {layout}, samples of {sample_bytes} bytes": (
            hidden("parts", sample_bytes=sample_bytes), {**SMALL_OFFER, "layout": layout},
            {"opens": opens, "read_bytes": FULL_RATE, "capacity": 400 * (sample_bytes or FILE_BYTES)},
        )
        for sample_bytes in (None, FILE_BYTES / 2)
        for layout, opens in ((None, None), ("folder", 500.0), ("shards:100", 5.0))
    },
    # What storage must give never falls below the bytes that are delivered; read-ahead adds to them.
    "caches that hid reads": (of_cold(0.9), {}, {"read_bytes": FULL_RATE}),
    "reading ahead": (of_cold(1.2), {}, {"read_bytes": 1.2 * FULL_RATE}),
}  # fmt: skip
"""What was measured, what is asked for, and inputs and needs at the full rate of 500 images/s; None is refused."""


@pytest.mark.parametrize("name", OWN)
def test_a_loader_of_ones_own_needs_what_it_was_seen_to_read(name: str) -> None:
    """Bytes, opens and the size of the set; an offer of few opens/s gives out first only where each image is a file."""
    measurement, asked, figures = OWN[name]
    found = planned(measurement, **asked)
    for figure, wanted in figures.items():
        if figure in found.inputs:
            assert found.inputs[figure].value == wanted, figure
        elif wanted is None:
            assert found.need(figure) is None and figure in found.refused  # type: ignore[arg-type]  # a need
        else:
            of = "at_utilization" if figure == "capacity" else "at_most"
            assert value(found, figure, of) == pytest.approx(wanted), figure
    assert (Remark(code="bytes_as_read") in found.notes) == ("from storage" in found.inputs["file_bytes"].source)
    if "storage" in asked:
        assert (found.supplies[-1].first_limit == "opens") == (figures["opens"] == 500)
        assert ("Buy 50.0 MB/s and" in found.document().headline) == (figures["opens"] is not None)


def test_the_rate_of_one_round_has_a_range_as_that_of_more_has() -> None:
    """A single round shows no noise, but has some: more than three that agree."""
    one, three = (planned(measured(count)).inputs["rate"] for count in (1, 3))
    assert (one.value, three.value) == (500, 500) and one.high > three.high > 500 > three.low > one.low


HOLD = " if the rates of this run hold"
FREE: dict[str, Any] = {"warm": 800.0, "cached_samples": 260.0, "no_transport": 255.0}
"""Storage is the limit."""


@pytest.mark.parametrize(
    ("rounds", "asked", "doubts", "headline"),
    [
        (alike(3, baseline=250.0, training=250.0, resident=500.0, **FREE), {}, [], " MB/s and "),
        (alike(baseline=800.0, training=750.0, resident=500.0), {}, ["run_not_sure", "faster_than_alone"], HOLD),
        (alike(baseline=800.0, training=750.0, resident=500.0), {"kind": 500}, ["run_not_sure"], " opens/s"),
        ([{"baseline": 250.0, "training": 250.0, "resident": rate} for rate in (300.0, 500.0, 900.0)], {}, None, " ±"),
    ],
)
def test_a_plan_passes_on_how_sure_its_run_was(
    rounds: Any, asked: dict[str, Any], doubts: list[str] | None, headline: str
) -> None:
    """In the answer, where the rate is from the run; beside the rate, in each form."""
    found = planned(scripted(rounds, Cost(blocked_s=0.004), facts={"compute": DEVICE}), **asked)
    codes = [doubt.code for doubt in found.source.doubts]
    assert doubts in (None, codes) and headline in found.document().headline
    assert (HOLD in found.document().headline) == (bool(codes) and not asked)
    assert [doubt["code"] for doubt in json.loads(found.json())["source"]["doubts"]] == codes
    rate = found.inputs["rate"]
    assert asked or "faster_than_alone" not in codes or rate.high > 750, "the rate that training reached"
    for page in (found.text(width=400), found.markdown(), found.html()):
        assert ("How sure that run itself is: low" in page) == ("run_not_sure" in codes)
        assert ("Training ran at 150 % of that" in page) == ("faster_than_alone" in codes)


UNEVEN = (150.0, 250.0, 400.0)


@pytest.mark.parametrize(
    ("rounds", "wide"),
    [
        ([{"baseline": rate, "training": rate, "resident": 500.0} for rate in UNEVEN], True),
        (
            [{"baseline": rate, "training": rate, "resident": 5000.0, "warm": 4 * rate, "cached_samples": 1.1 * rate,
              "no_transport": rate} for rate in UNEVEN], False,
        ),
    ],
)  # fmt: skip
def test_the_range_of_a_plan_is_no_narrower_than_that_of_training(rounds: Any, wide: bool) -> None:
    """Unless input surely limits training, and so makes it vary."""
    result = diagnosed(scripted(rounds, Cost(blocked_s=0.004), facts={"compute": DEVICE}))
    rate, trained = loaderprobe.plan(result).inputs["rate"], result.row.images_per_s
    assert trained is not None and trained.half > 0.4 * trained.value
    assert (rate.half >= 0.4 * rate.value, "as sure as training" in rate.source) == (wide, wide)


@pytest.mark.parametrize(("kind", "refused"), [("storage", None), ("lock", Remark(code="waits_for_lock"))])
def test_workers_that_wait_for_a_lock_are_not_counted(kind: WaitKind, refused: Remark | None) -> None:
    """More of them would wait longer; their cores are known all the same."""
    waiting = scripted(alike(baseline=400.0), Cost(cpu_s=0.001, blocked_s=0.009), compute=2234.0, workers=4)
    storage_plan = planned(looked(waiting, kind))
    assert storage_plan.refused.get("workers") == refused
    assert (storage_plan.need("workers") is None) is (refused is not None)
    assert storage_plan.need("cores") is not None


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loader_with_its_own_threads_needs_as_many_cores_as_workers_that_do_the_same(ranks: int) -> None:
    """10 ms an image, whose training thread computes for 0.1 ms of them. Its workers are not counted. As many cores
    need workers that wait so long for a command: as many workers, and none of it is a wait for a file."""
    facts = {"cores_available": 4.0, "ranks": ranks}
    in_workers = scripted(alike(baseline=400.0), Cost(cpu_s=0.01), compute=2234.0, workers=4, facts=facts)
    batches = replace(in_workers.worker_batches, process_cpu_ns=in_workers.worker_batches.cpu_ns)
    cpu_ns = tuple(each // 100 for each in batches.cpu_ns)
    in_commands = replace(in_workers, worker_batches=replace(batches, cpu_ns=cpu_ns))
    own, of_workers = planned(replace(in_commands, own_threads=True)), planned(in_workers)
    commands = planned(looked(in_commands, "running", subject="a child process"))
    assert own.need("cores") == of_workers.need("cores") == commands.need("cores")
    assert commands.need("workers") == of_workers.need("workers")
    assert commands.inputs["wait_s"] == of_workers.inputs["wait_s"]
    assert own.need("workers") is None and own.refused["workers"] == Remark(code="file_wait_unknown")
    # One thread a worker computes for 10 ms in 4 ms: batches were ready before.
    too_fast = planned(scripted(alike(baseline=1000.0), Cost(cpu_s=0.01), compute=2234.0, workers=4, facts=facts))
    assert too_fast.inputs["other_s"].value == 0 and too_fast.need("workers") == of_workers.need("workers")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (hidden("none"), "hides its files"),
        (hidden("parts", storage_counts_reads=False), "counts no bytes"),
        (replace(hidden("fresh"), storage_kind="memory"), "were warm, not cold"),
    ],
)
def test_bytes_that_are_not_known_are_refused_with_the_reason(found: Measurement, why: str) -> None:
    """Unless they are given."""
    with pytest.raises(BadValue, match=why) as caught:
        planned(found)
    assert "--mean-size" in caught.value.hint
    assert planned(found, mean_size="50kB").inputs["file_bytes"].value == 50_000


def _entry(**changes: Any) -> CatalogueEntry:
    fields: dict[str, Any] = {
        "name": "x", "family": "file", "unit": "TiB", "least_size": 2.0, "most_size": 10.0,
        "read_bytes_per_s": Amount(base=1e9, per_unit=1e8, at_most=1.5e9), "read_on": "2025-11-22", "source": "a page",
    }  # fmt: skip
    return CatalogueEntry(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Fsx Lustre"}, {"name": ""}, {"source": ""}, {"read_on": "yesterday"}, {"least_size": float("nan")},
        {"client_bytes_per_s": -1.0}, {"latency_s": (0.1, float("inf"))},
    ],
)  # fmt: skip
def test_impossible_entries_cannot_be_made(changes: dict[str, Any]) -> None:
    """Plug-ins make them, too."""
    with pytest.raises(BadValue):
        _entry(**changes)
    with pytest.raises(BadValue):
        Amount(base=0.0)
    with pytest.raises(BadValue):
        Tier(name="250", read_bytes_per_s_per_unit=-5.0)


def test_it_is_short_dated_and_sourced() -> None:
    """At most 15 entries, each name once, none read in the future; each has a limit that can give out."""
    entries = published()
    names = [name for entry in entries for name in entry.names]
    assert 10 <= len(entries) <= 15
    assert len(names) == len(set(names))
    for entry in entries:
        assert date(2026, 1, 1) <= date.fromisoformat(entry.read_on) <= date(2027, 12, 31) and entry.source
        assert entry.tiers or entry.read_bytes_per_s or entry.opens_per_s or entry.requests_per_s, entry.name
    # GiB/s are 2^30, MB/s 10^6: as each vendor writes.
    assert entry_named(published(), "efs-elastic").read_bytes_per_s == Amount(base=20 * 2.0**30)
    assert entry_named(published(), "gcp-filestore-zonal").read_bytes_per_s == Amount(per_unit=260 * 2.0**20)
    assert entry_named(published(), "gcp-parallelstore").read_bytes_per_s == Amount(per_unit=1.15 * 2.0**30)
    assert entry_named(published(), "fsx-lustre-250").tiers[1].read_bytes_per_s_per_unit == 250e6


class PlugIns:
    """The catalogues of a package: its own entry, one that is taken, something else, and one that raises."""

    own = staticmethod(lambda: [_entry(name="acme")])
    taken = staticmethod(lambda: list(published()[:1]))
    wrong = staticmethod(lambda: ["fast"])
    broken = staticmethod(lambda: 1 / 0)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("own", None, ""),
        ("taken", BadValue, "'acme' adds fsx-lustre"),
        ("wrong", MissingPart, "'acme'"),
        ("broken", MissingPart, "'acme'"),
        ("none_such", MissingPart, "'acme'"),
    ],
)
def test_a_plug_in_adds_entries_and_a_broken_one_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, error: type[LoaderprobeError] | None, says: str
) -> None:
    """After those that come with loaderprobe."""
    point = EntryPoint("acme", f"{__name__}:PlugIns.{name}", "loaderprobe.catalogues")
    monkeypatch.setattr(module, "entry_points", lambda group: [point] if group == point.group else [])
    with pytest.raises(error, match=says) if error else nullcontext():
        assert catalogue() == (*published(), *PlugIns.own())
