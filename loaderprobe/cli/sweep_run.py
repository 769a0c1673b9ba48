"""A sweep from its request to its report: begun or resumed, measured, shown and kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from loaderprobe.cli.border import report_error, show, stderr
from loaderprobe.cli.progress import counting, sweeping
from loaderprobe.cli.results import show_result
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, LostRank
from loaderprobe.units import format_bytes

if TYPE_CHECKING:
    from loaderprobe.api.sweep_request import SweepRequest
    from loaderprobe.measure.lead import Lead
    from loaderprobe.store.run_directory import RunDirectory


def open_sweep(resume: Path, lead: Lead | None, budget_s: float | None) -> RunDirectory:
    """A run to be completed, once the processes of a launcher are enough for it; with another budget, if given."""
    from loaderprobe.api.stored import file_sets, foreign_modules, open_to_resume

    run = open_to_resume(resume)
    if lead:
        lead.admit(run.record.spec.configs, file_sets(run))
    if budget_s is not None:
        run.set_budget(budget_s)
    say_imports(resume, foreign_modules(run))
    return run


def say_imports(run: Path, modules: Iterable[str]) -> None:
    """Name the modules outside loaderprobe that a stored run imports; --quiet too, for the user did not type them."""
    for module in modules:
        text = f"{run} names a part outside loaderprobe: its module {module} is going to be imported."
        stderr().print(text, highlight=False, markup=False)


def begin_sweep(request: SweepRequest, lead: Lead | None, *, quiet: bool, auto: bool) -> RunDirectory:
    """Check the request, say what is going to be trained and generated, and prepare it; `auto` was asked for."""
    from loaderprobe.api.sweep_request import check_request, data_to_make, start_sweep
    from loaderprobe.system.cpu import cores_available

    check_request(request, lead.nodes if lead else None)
    if auto and not any(compute.name == "cuda" for compute in request.computes):
        stderr().print(
            "no NVIDIA GPU: training on the CPU. --compute emulated:mlperf-h100 shows what that GPU would need.",
            style="yellow",
        )
    size = data_to_make(request)
    if size and not quiet:
        text = f"Data: about {format_bytes(size)} of images will be generated under {request.data_dir} and kept."
        stderr().print(text, highlight=False, markup=False)
    with counting(quiet) as on_data:
        return start_sweep(request, processes=max(1, round(cores_available())), on_data=on_data, lead=lead)


def _say_resume(said: str, run: RunDirectory) -> None:
    command = shlex.join(["loaderprobe", "sweep", "--resume", str(run.path)])
    stderr().print(f"{said}. Resume with: {command}", highlight=False, markup=False, soft_wrap=True)


def measure_and_show(run: RunDirectory, lead: Lead | None, *, as_json: bool, quiet: bool) -> int:
    """Measure what is pending, print the report and write its page; returns the exit code."""
    from loaderprobe.api.load import Run, judge_run
    from loaderprobe.api.page import save_report
    from loaderprobe.api.sweep import measure, plan
    from loaderprobe.render.sweep_plan_words import sweep_plan_words
    from loaderprobe.render.wording import counted

    interrupted, lost = False, None
    if not quiet:
        for sentence in sweep_plan_words(plan(run)):
            stderr().print(sentence, highlight=False)
    try:
        with sweeping(quiet) as on_progress:
            measure(run, on_progress, *([lead] if lead else []))
    except KeyboardInterrupt:
        interrupted = True
    except LostRank as error:
        lost = error
    shown = judge_run(run)
    # Shown before it is saved: a full disk must not hide what was measured.
    show_result(Run(run, shown), json=as_json)
    page = save_report(run, shown)
    if not as_json:
        show(f"\nReport: {page}")
    if interrupted:
        _say_resume("interrupted; the finished configurations are kept", run)
        return EXIT_INTERRUPTED
    if lost:
        return report_error(lost)
    if pending := shown.summary.run.pending:
        _say_resume(f"{counted(pending, 'configuration')} not measured yet", run)
    failed = any(row.status == "failed" for row in shown.summary.configurations)
    return EXIT_SOME_FAILED if failed or shown.summary.run.damaged else EXIT_DONE
