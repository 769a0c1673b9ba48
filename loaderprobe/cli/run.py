"""`loaderprobe run -- python train.py`: a training script as it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, show, show_result, stderr, typed
from loaderprobe.cli.options import MEASURING
from loaderprobe.errors import BadValue


@command
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The command that starts the training.", show_default=False),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Change nothing: training goes on, the verdict is estimated.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time to measure.",
            show_default="60, or 60 steps if these take longer",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    cache: options.Cache = "cold",
    loader: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of the loader to measure. A run without a verdict lists them.",
            show_default="the one that trains",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    out: options.Out = None,
    json: options.Json = False,
) -> int:
    """Find out what limits a training script, without changing it: loaderprobe run -- python train.py ARGS

    Once a DataLoader has trained for some steps, a copy of it is measured with the script's own loop as the step.
    Then the script ends. What it trains meanwhile is thrown away; checkpoints that exist are not touched.
    A script without a DataLoader trains on and saves as ever, and an estimate is printed at its end.
    """
    from loaderprobe.api.run import python_of, run_command
    from loaderprobe.api.shown import usual_out
    from loaderprobe.records.diagnosis import AttachRequest
    from loaderprobe.render import attachment_words

    if budget is not None and not 0 < budget < float("inf"):
        raise BadValue(f"the budget must be a number of seconds above 0, not {budget:g}")
    if watch and not (budget is None and loader is None and cache == "cold"):
        raise BadValue("--watch measures nothing: --budget, --cache and --loader have no effect", hint="leave them out")
    place = (usual_out("run") if out is None else out).absolute()
    request = AttachRequest(
        run=str(place), scratch="", command=typed(), budget_s=budget, cache=cache, loader=loader, watch=watch
    )
    ran = run_command(python_of(words or []), request, os.environ)
    if ran.found is not None:
        show_result(ran.found, json=json)
        if not json:
            show(f"\nReport: {_short(place)}/report.html")
        return ran.exit_code
    console = stderr()
    for line in attachment_words.without_verdict(ran.processes, ran.exit_code, imported_torch=ran.imported_torch):
        console.print(line, highlight=False, markup=False)
    elsewhere = ran.processes and all(each.why_not == "follows" for each in ran.processes)
    return ran.exit_code if elsewhere else ran.exit_code or BadValue.exit_code


def _short(path: Path) -> Path:
    """Relative to here, if it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
