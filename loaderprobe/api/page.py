"""A run's page: what limits training, and the storage plan that follows, for accelerators that are chosen here."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.api.load import Run
from loaderprobe.api.plan import Plan, plan
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.report import Report
from loaderprobe.render.html import html_report
from loaderprobe.render.json import summary_json
from loaderprobe.render.plan_page import chosen_words, plan_section
from loaderprobe.store.run_directory import RunDirectory

ACCELERATORS = 64


def save_report(run: RunDirectory, shown: Report) -> Path:
    """Write `summary.json` and `report.html` into the run; returns the page's path."""
    run.write("summary.json", summary_json(shown))
    return run.write("report.html", report_page(Run(run, shown)))


def report_page(run: Run) -> str:
    """The report of a run as one HTML file, with a storage plan or the reason why there is none."""
    planned = default_plan(run)
    if isinstance(planned, Remark):
        section = plan_section(planned, command=f"loaderprobe plan {run.path} --kind mlperf-h100 --html plan.html")
    else:
        section = plan_section(planned, chosen=chosen_words(planned), command=_command(run))
    return html_report(run.report(), section)


def default_plan(run: Run) -> Plan | Remark:
    """The plan for the run's fastest accelerator, or why there is none."""
    try:
        found = plan(run, accelerators=ACCELERATORS)
        if found.source.accelerator == "cpu":
            return Remark(code="only_a_cpu")
    except LoaderprobeError as error:
        return reported(error.message)
    return found


def _command(run: Run) -> str:
    return f"loaderprobe plan {run.path} --accelerators 256 --images 5M --storage fsx-lustre-250:24TiB --html plan.html"
