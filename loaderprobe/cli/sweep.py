"""`loaderprobe sweep`: the main job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.cli.border import Invocation, command, counting, ended, report_error, say, show, timed
from loaderprobe.cli.seats import in_ranks, launched_here
from loaderprobe.errors import BadValue, LostRank
from loaderprobe.records.options import SWEEP, Launcher
from loaderprobe.units import format_bytes, parse_list

if TYPE_CHECKING:
    from loaderprobe.measure.ranks.launch import Lead
    from loaderprobe.protocols import OnStage
    from loaderprobe.store.run_directory import RunDirectory

BESIDE_RESUME = frozenset({"resume", "budget_s", "join", "json", "quiet"})
"""Options that have an effect on a resumed run; all others were fixed when it began."""


@command(SWEEP)
def sweep(call: Invocation, *, resume: Path | None, join: Launcher | None, **asked: Any) -> int:
    """Measure whether training is compute-bound or input-bound, and which part of the input limits it.

    Trains a model on generated data sets, or on DATA, with the serial loader and with each number of workers.
    Each verdict comes from an experiment.
    """
    from loaderprobe.api.sweep_request import check_seconds

    here, budget_s = launched_here(join, several=asked["ranks"] is not None), asked["budget_s"]
    if resume is not None:
        _refuse_ignored(call)
        check_seconds("budget", budget_s)

    def measured(lead: Lead | None) -> int:
        run = begin_sweep(call, asked, lead) if resume is None else open_sweep(resume, lead, budget_s)
        return measure_and_show(call, run, lead)

    return in_ranks(here, measured)


def _refuse_ignored(call: Invocation) -> None:
    """Raises BadValue for an option that a resumed run would ignore, since it keeps its own settings."""
    for option in call.options:
        if option.name in call.typed and option.name not in BESIDE_RESUME:
            raise BadValue(
                f"{option.said} would be ignored beside --resume: a resumed run keeps its own settings",
                hint=f"leave {option.said} out, or begin a new run without --resume",
            )


# A sweep from its request to its report: begun or resumed, measured, shown and kept.


def open_sweep(resume: Path, lead: Lead | None, budget_s: float | None) -> RunDirectory:
    """A run to be completed, once the processes of a launcher are enough for it; with another budget, if given."""
    from loaderprobe.api.load import file_sets, foreign_modules
    from loaderprobe.store.run_directory import RunDirectory

    run = RunDirectory.open(resume)
    if lead:
        lead.admit(run.record.spec.configs, file_sets(run))
    if budget_s is not None:
        run.set_budget(budget_s)
    say_imports(resume, foreign_modules(run))
    return run


def say_imports(run: Path, modules: Iterable[str]) -> None:
    """Name the modules outside loaderprobe that a stored run imports; --quiet too, for the user did not type them."""
    for module in modules:
        say(f"{run} names a part outside loaderprobe: its module {module} is going to be imported.")


def begin_sweep(call: Invocation, asked: Mapping[str, Any], lead: Lead | None) -> RunDirectory:
    """Check what is asked for, say what is going to be trained and generated, and prepare it."""
    from loaderprobe.api.sweep_request import check_request, data_to_make, request_of, start_sweep
    from loaderprobe.system.limits import cores_available

    nodes = lead.nodes if lead else None
    request = request_of(**asked, command=("loaderprobe", *map(shlex.quote, sys.argv[1:])), nodes=nodes)
    check_request(request, nodes)
    if "auto" in parse_list(asked["compute"], str) and not any(compute.name == "cuda" for compute in request.computes):
        say(
            "no NVIDIA GPU: training on the CPU. --compute emulated:mlperf-h100 shows what that GPU would need.",
            style="yellow",
        )
    size = data_to_make(request)
    if size and not call.silent:
        say(f"Data: about {format_bytes(size)} of images will be generated under {request.data_dir} and kept.")
    with counting(call.silent) as on_data:
        return start_sweep(request, processes=max(1, round(cores_available())), on_data=on_data, lead=lead)


def _say_resume(said: str, run: Path) -> None:
    say(f"{said}. Resume with: {shlex.join(['loaderprobe', 'sweep', '--resume', str(run)])}", soft_wrap=True)


def measure_and_show(call: Invocation, run: RunDirectory, lead: Lead | None) -> int:
    """Measure what is pending, print the report and write its page; returns the exit code."""
    from loaderprobe.api.load import Run, judge_run, save_report
    from loaderprobe.api.sweep import measure, plan
    from loaderprobe.render.format import counted
    from loaderprobe.render.words import sweep_plan_words

    whole, lost = True, None
    try:
        whole = _measured(
            call, lambda: sweep_plan_words(plan(run)), lambda heard: measure(run, heard, *([lead] if lead else []))
        )
    except LostRank as error:
        lost = error
    shown = judge_run(run)
    # Shown before it is saved: a full disk must not hide what was measured.
    call.show(Run(run, shown))
    page = save_report(run, shown)
    if not call.json:
        show(f"\nReport: {page}")
    if not whole:
        _say_resume("interrupted; the finished configurations are kept", run.path)
    elif lost:
        return report_error(lost)
    elif pending := shown.summary.run.pending:
        _say_resume(f"{counted(pending, 'configuration')} not measured yet", run.path)
    failed = any(row.status == "failed" for row in shown.summary.configurations)
    return ended(interrupted=not whole, failed=failed or bool(shown.summary.run.damaged))


def _measured(call: Invocation, planned: Callable[[], Iterable[str]], measure: Callable[[OnStage], None]) -> bool:
    """Say what is planned, and measure it; False when it was interrupted."""
    if not call.silent:
        for sentence in planned():
            say(sentence)
    try:
        with timed(call.silent, "about") as on_progress:
            measure(on_progress)
    except KeyboardInterrupt:
        return False
    return True
