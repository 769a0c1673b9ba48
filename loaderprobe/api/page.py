"""A run's page: what limits training, and the storage plan that follows, for accelerators that are chosen here."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.api.load import Run
from loaderprobe.api.plan import Plan, plan
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.report import Report
from loaderprobe.render.html import document_page
from loaderprobe.render.json import summary_json
from loaderprobe.render.plan import with_plan
from loaderprobe.store.run_directory import RunDirectory

PLANNED_FOR = 64


def save_report(run: RunDirectory, shown: Report) -> Path:
    """Write `summary.json` and `report.html` into the run; returns the page's path."""
    run.write("summary.json", summary_json(shown))
    return run.write("report.html", report_page(Run(run, shown)))


def report_page(run: Run) -> str:
    """The report of a run as one HTML file, with a storage plan or the reason why there is none."""
    planned = default_plan(run)
    asked = "--accelerators 256 --images 5M --storage fsx-lustre-250:24TiB"
    if isinstance(planned, Remark):
        asked = "--kind mlperf-h100"
    command = f"loaderprobe plan {run.path} {asked} --html plan.html"
    document, charts = with_plan(run.document(), run.exhibits(), planned, command)
    return document_page(document, charts, made_by=run.made_by())


def default_plan(run: Run) -> Plan | Remark:
    """The plan for the run's fastest accelerator, or why there is none."""
    try:
        found = plan(run, accelerators=PLANNED_FOR)
        if found.source.accelerator == "cpu":
            return Remark(code="only_a_cpu")
    except LoaderprobeError as error:
        return reported(error.message)
    return found
