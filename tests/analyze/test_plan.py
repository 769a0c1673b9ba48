"""What a plan takes from a result of `run`, whose files are known by its batches' bytes, and from the catalogue."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.plan.needs import cores_of, demand
from loaderprobe.analyze.plan.plan import as_asked, catalogue_offer, given_offer, make_plan, workers_of
from loaderprobe.analyze.plan.sources import workload_of_run
from loaderprobe.analyze.plan.workload import PlanWorkload, known
from loaderprobe.errors import BadValue
from loaderprobe.records.catalogue import Amount, CatalogueEntry, Tier
from loaderprobe.records.measurement import ComputeInfo, Measurement
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.plan import PlanSource
from loaderprobe.records.remark import Remark
from loaderprobe.records.supply import Asked
from loaderprobe.render.plan import plan_document
from loaderprobe.storage.catalogue import entry_named, published
from tests.analyze.runs import FILE_BYTES, Cost, alike, run
from tests.examples.bandwidth import example_phase

DEVICE = ComputeInfo(name="step", device="H200", synchronous=False, specified_images_per_s=None, source="your own step")
GIVEN = known(50_000.0, "B", "given", "mean_size")


def measured(count: int = 3, **facts: Any) -> Measurement:
    """So many rounds on a device of 500 images/s."""
    rounds = alike(count, baseline=250.0, training=250.0, resident=500.0)
    return run(rounds, Cost(blocked_s=0.004), facts={"compute": DEVICE, **facts})


def hidden(access: str, **facts: Any) -> Measurement:
    """The same of a data set whose files are not known batch by batch."""
    found = measured(access=access, **facts)
    return replace(found, segments=tuple(replace(each, delivered_bytes=None) for each in found.segments))


def workload(found: Measurement, **changes: Any) -> PlanWorkload:
    """As `plan` asks for it."""
    asked: dict[str, Any] = {"samples": None, "other": None, "given": None, **changes}
    return workload_of_run(found, verdict(found), asked.pop("ceiling", None), **asked)


@pytest.mark.parametrize("access", ["parts", "fresh"])
def test_parts_of_files_count_by_what_came_from_storage(access: str) -> None:
    """With a note, and without counting what is read besides twice."""
    found = workload(hidden(access))
    assert found.file_bytes.value == FILE_BYTES and "from storage" in found.file_bytes.source
    assert found.amplification.value == 1 and Remark(code="bytes_as_read") in found.notes


@pytest.mark.parametrize(("found", "opens"), [(hidden("fresh"), 0), (measured(access="fresh"), 1)])
def test_samples_that_are_made_anew_open_files_where_these_are_known(found: Measurement, opens: int) -> None:
    """HDF5, LMDB and mapped arrays stay open; of known files each is opened."""
    assert workload(found).images_an_open == opens


@pytest.mark.parametrize("sample_bytes", [None, FILE_BYTES / 2])
@pytest.mark.parametrize(("layout", "opens"), [(None, None), (1, 400.0), (100, 4.0)])
def test_large_files_that_are_read_in_parts_are_not_opened_for_each_image(
    sample_bytes: float | None, layout: int | None, opens: float | None
) -> None:
    """How often is known where a layout is named; and the set has the bytes of its samples, without read-ahead."""
    run_of = hidden("parts", sample_bytes=sample_bytes)
    found = workload(run_of, samples=400, ceiling=StorageCeiling(data="0" * 16, phases=(example_phase(2, 40e6),)))
    asked = Asked(accelerators=1, utilization=0.8, images_per_file=found.images_an_open if layout is None else layout)
    found = as_asked(found, asked.images_per_file, images=None, file_bytes=None)
    source = PlanSource(kind="run", path="", accelerator="H200")
    offer = given_offer("50MB/s,10opens/s", {"bandwidth": 50e6, "opens": 10.0})
    made = make_plan(found, asked, [offer], source, loaderprobe="", created_utc="2026-11-22T00:00")
    needs = {need.name: need.at_utilization.value for need in made.needs}
    assert needs.get("opens") == opens and ("opens" in made.refused) == (opens is None)
    assert needs["capacity"] == 400 * (sample_bytes or FILE_BYTES)
    assert needs["read_bytes"] == pytest.approx(0.8 * 500 * FILE_BYTES)
    assert (made.supplies[-1].first_limit == "opens") == (opens == 400.0)
    assert ("Buy 50.0 MB/s and" in plan_document(made).headline) == (opens is not None)


@pytest.mark.parametrize(("cold", "expected"), [(0.9, 1.0), (1.2, 1.2)])
def test_a_need_holds_without_the_caches_that_hid_reads(cold: float, expected: float) -> None:
    """What storage must give never falls below the bytes that are delivered; read-ahead adds to them."""
    rounds = alike(baseline=250.0, training=250.0, resident=500.0)
    found = workload(run(rounds, Cost(blocked_s=0.004, cold=cold), facts={"compute": DEVICE}))
    assert demand(found, 1.0)["read_bytes"].value == pytest.approx(expected * 500 * FILE_BYTES)


def test_the_rate_of_one_round_has_a_range_as_that_of_more_has() -> None:
    """A single round shows no noise, but has some: more than three that agree."""
    one, three = (workload(measured(count)).rate for count in (1, 3))
    assert (one.value, three.value) == (500, 500) and one.high > three.high > 500 > three.low > one.low


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loader_with_its_own_threads_needs_as_many_cores_as_workers_that_do_the_same(ranks: int) -> None:
    """10 ms an image, whose training thread computes for 0.1 ms of them. Its workers are not counted."""
    facts = {"cores_available": 4.0, "ranks": ranks}
    in_workers = run(alike(baseline=400.0), Cost(cpu_s=0.01), compute=2234.0, workers=4, facts=facts)
    batches = replace(in_workers.worker_batches, process_cpu_ns=in_workers.worker_batches.cpu_ns)
    cpu_ns = tuple(each // 100 for each in batches.cpu_ns)
    in_threads = replace(in_workers, worker_batches=replace(batches, cpu_ns=cpu_ns), own_threads=True)
    own = workload(in_threads)
    assert cores_of(own, 0.9) == cores_of(workload(in_workers), 0.9)
    assert workers_of(own, 0.9) is None and own.refused["workers"] == Remark(code="file_wait_unknown")


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
        workload(found)
    assert "--mean-size" in caught.value.hint
    assert workload(found, given=GIVEN).file_bytes == GIVEN


TODAY = date(2026, 11, 22)


def _entry(**changes: Any) -> CatalogueEntry:
    fields: dict[str, Any] = {
        "name": "x", "family": "file", "unit": "TiB", "least_size": 2.0, "most_size": 10.0,
        "read_bytes_per_s": Amount(base=1e9, per_unit=1e8, at_most=1.5e9), "read_on": "2025-11-22", "source": "a page",
    }  # fmt: skip
    return CatalogueEntry(**(fields | changes))


@pytest.mark.parametrize("size", [None, 1.0, 11.0])
def test_a_size_that_is_not_sold_is_a_bad_value(size: float | None) -> None:
    """None, too small, too large; and `efs-elastic:5TiB` means nothing."""
    with pytest.raises(BadValue):
        catalogue_offer(_entry(), "x", size, TODAY)
    with pytest.raises(BadValue, match="not bought by size"):
        catalogue_offer(entry_named(published(), "efs-elastic"), "efs-elastic", 5, TODAY)


def test_figures_of_the_catalogue_are_stale_after_twelve_months() -> None:
    """To the day."""
    assert catalogue_offer(_entry(), "x", 2, TODAY).stale
    assert not catalogue_offer(_entry(read_on="2025-11-23"), "x", 2, TODAY).stale


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
