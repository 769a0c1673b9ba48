"""The storage plan that a report includes without being asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.api.load import Run, load
from loaderprobe.api.plan import IMAGENET_IMAGES, Plan, default_plan, plan, report_page, save_report
from loaderprobe.records.remark import Remark
from tests.stored import full_run


@pytest.fixture
def generated(tmp_path: Path) -> Run:
    """Emulated accelerators on a data set that loaderprobe made."""
    return load(full_run(tmp_path / "run").path)


@pytest.fixture
def run(generated: Run) -> Run:
    """The same, of files that were found."""
    report = generated.report()
    data = tuple(replace(each, generated=False) for each in report.summary.run.data)
    summary = replace(report.summary, run=replace(report.summary.run, data=data))
    return Run(generated.directory, replace(report, summary=summary))


def test_the_run_s_own_accelerators_are_planned_for(run: Run) -> None:
    """64 of them, with what the run found and measured; the page says so, and how to ask for others."""
    found = default_plan(run)
    assert isinstance(found, Plan)
    assert (found.asked.accelerators, found.source.accelerator) == (64, "100000")
    assert [supply.label for supply in found.supplies] == ["measured"]
    page = report_page(run)
    assert "Chosen for this report: 64 accelerators" in page and "images, as found" in page
    assert f"loaderprobe plan {run.path} --accelerators 256" in page
    assert page.count("<h1>") == 1 and page.count('id="plan"') == 1


def test_a_generated_set_is_planned_as_imagenet(generated: Run) -> None:
    """It has as many images as the sweep needed: `plan` says what stands in, and so does the report."""
    found = default_plan(generated)
    assert isinstance(found, Plan)
    for each in (found, plan(generated)):
        images = each.inputs["images"]
        assert (images.value, images.label) == (IMAGENET_IMAGES, "assumed")
        assert "ImageNet" in images.source and "generated" in images.source
    assert "as in ImageNet" in report_page(generated)


def test_what_is_given_says_by_which_option(generated: Run) -> None:
    """Other images than ImageNet's, of another size: the inputs name the options."""
    found = plan(generated, images="5M", mean_size="200kB")
    for option, quantity in (("images", found.inputs["images"]), ("mean_size", found.inputs["file_bytes"])):
        assert (quantity.label, quantity.source) == ("given", option)


def test_files_that_were_found_are_planned_as_many_as_they_are(run: Run) -> None:
    """Nothing stands in for them."""
    images = plan(run).inputs["images"]
    assert (images.label, images.source) == ("measured", "files found")


def test_a_cpu_is_not_planned_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report stays whole, with one sentence and a command instead of a plan."""
    found = default_plan(run)
    assert isinstance(found, Plan)
    on_cpu = replace(found, source=replace(found.source, accelerator="cpu"))
    monkeypatch.setattr("loaderprobe.api.plan.plan", lambda *_, **__: on_cpu)
    html = report_page(run)
    assert "No plan: training ran on a CPU only" in html and "--kind mlperf-h100" in html and "<h2>" in html


def test_a_run_without_measurements_has_its_reason(run: Run) -> None:
    """As `plan` would say it."""
    report = run.report()
    empty = replace(report, summary=replace(report.summary, configurations=()), details=())
    reason = default_plan(Run(run.directory, empty))
    assert isinstance(reason, Remark) and reason.code == "reported"
    assert "holds no measured configuration" in str(reason.facts["reason"])


def test_the_page_is_saved_beside_the_summary(run: Run) -> None:
    """Both can be made again from the run at any time."""
    path = save_report(run.directory, run.report())
    assert path == run.path / "report.html" and (run.path / "summary.json").is_file()
    assert "Storage plan for 64" in path.read_text()
