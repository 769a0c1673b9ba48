"""What accelerators ask of storage and cores, on the first page and by `plan`: one figure each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.analyze.report import COUNTS, REFERENCE, outlooks
from loaderprobe.records.config import with_options
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import Outlook
from loaderprobe.store.run_directory import RunDirectory
from tests.stored import SMALL_FILES, full_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Emulated accelerators of 100,000 images/s on a disk of 20 MB/s; files of 100 kB."""
    return full_run(tmp_path / "run")


def outlook(run: RunDirectory) -> Outlook:
    (found,) = loaderprobe.load(run.path).report().summary.needs
    return found


@pytest.mark.parametrize("count", COUNTS)
def test_needs_are_those_of_the_plan(run: RunDirectory, count: int) -> None:
    """Bandwidth, opens, cores and what the storage feeds are the same figures, to the last digit."""
    found, plan = outlook(run), loaderprobe.plan(run.path, accelerators=count)
    need = next(each for each in found.needs if each.accelerators == count)
    bandwidth, opens, cores = plan.need("read_bytes"), plan.need("opens"), plan.need("cores")
    assert bandwidth and opens and cores and found.supply
    assert need.read_bytes_per_s == bandwidth.at_utilization.value
    assert need.files_per_s == opens.at_utilization.value
    assert found.cores == cores.at_utilization.value
    assert found.supply.feeds == plan.supplies[0].feeds
    assert found.supply.read_bytes_per_s == plan.supplies[0].limits[0].limit.value
    assert found.supply.at_least == plan.supplies[0].at_least


def of_a_cpu(run: RunDirectory, accelerators: dict[str, float]) -> tuple[Outlook, ...]:
    """Of the same run, had a CPU trained."""
    rows = [row for row in loaderprobe.load(run.path).report().summary.configurations if row.verdict]
    results = [(row, run.result(row.key)) for row in rows]
    changed = [
        (
            replace(row, config=with_options(row.config, compute="cpu"), emulated=False),
            replace(
                result,
                config=with_options(result.config, compute="cpu"),
                compute=replace(result.compute, specified_images_per_s=None),
            ),
        )
        for row, result in results
        if isinstance(result, Measurement)
    ]
    measurements = {row.key: result for row, result in changed}
    ceilings = {SMALL_FILES.fingerprint: found} if (found := run.ceiling(SMALL_FILES.fingerprint)) else {}
    return outlooks([row for row, _ in changed], measurements, [SMALL_FILES], ceilings, accelerators)


def test_a_cpu_is_no_accelerator_to_plan_for(run: RunDirectory) -> None:
    """Its own rate says nothing of one: the reference is planned for, and where that is not known, nothing."""
    (found,) = of_a_cpu(run, {REFERENCE: 2000.0})
    assert (found.accelerator, found.compute, found.specified) == (REFERENCE, "cpu", True)
    assert found.needs[0].files_per_s == pytest.approx(0.9 * 2000)
    assert of_a_cpu(run, {}) == ()


def test_a_measured_device_has_its_own_name(run: RunDirectory) -> None:
    """An accelerator that was measured is called what the machine calls it; its rate is that of compute alone."""
    rows = [row for row in loaderprobe.load(run.path).report().summary.configurations if row.verdict][-1:]
    result = run.result(rows[0].key)
    assert isinstance(result, Measurement)
    real = replace(result.compute, specified_images_per_s=None, device="NVIDIA H100 80GB HBM3")
    alone = [replace(each, mode="resident", first_batch=-1) for each in result.segments if each.activity == "training"]
    measured = replace(result, compute=real, segments=(*result.segments, *alone))
    found = outlooks(rows, {rows[0].key: measured}, [SMALL_FILES], {}, {})
    ((name, specified),) = [(each.accelerator, each.specified) for each in found]
    assert (name, specified) == ("NVIDIA H100 80GB HBM3", False)
    assert found[0].supply is None and found[0].missing == Remark(code="no_ceiling")
