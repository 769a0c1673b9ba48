"""`loaderprobe diagnose`: what limits a loader of one's own, in one process or in ranks."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, show_and_keep, timed, typed
from loaderprobe.cli.options import MEASURING
from loaderprobe.cli.seats import in_ranks, launched_here
from loaderprobe.errors import EXIT_DONE

if TYPE_CHECKING:
    from loaderprobe.api.diagnose import Diagnosis
    from loaderprobe.measure.ranks.launch import Lead


@command
def diagnose(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION",
            help="Function that returns a DataLoader, or a DataLoader and a step: train.py:make_loader, or "
            "package.module:make_loader.",
        ),
    ],
    budget: Annotated[
        float | None,
        typer.Option(
            min=1, help="Seconds to measure, once the loader is made.", show_default="30, with ranks 60",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    cache: options.Cache = "cold",
    ranks: Annotated[
        str | None,
        typer.Option(
            help="Processes that train in step, each of which calls FUNCTION; 4x8: on 4 nodes, 8 on each (explain "
            "ranks).",
            show_default="1; under torchrun, all that it started",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    join: options.Join = None,
    out: options.Out = None,
    md: options.Markdown = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:  # fmt: skip
    """Find out what limits your own DataLoader, and your training step: loaderprobe diagnose train.py:make_loader

    FUNCTION is called without arguments, in each rank. The step really trains.
    In Python: loaderprobe.diagnose(loader, step).
    """
    from loaderprobe.api.diagnose import OwnAsked, diagnose_own, diagnose_ranks, ranks_here
    from loaderprobe.measure.own.function import named

    here = launched_here(join, several=ranks is not None)
    asked = OwnAsked(own=named(factory), cache=cache, budget_s=budget, command=typed())
    several = here is not None or (ranks is not None and ranks_here(ranks) > 1)

    def shown(lead: Lead | None) -> int:
        def measure() -> Diagnosis:
            # What the user's code prints is no result.
            with redirect_stdout(sys.stderr), timed(quiet or json) as progress:
                return diagnose_ranks(lead, asked, ranks, progress) if several else diagnose_own(asked, progress)

        show_and_keep(measure, kind="diagnose", out=out, json=json, markdown=md)
        return EXIT_DONE

    return in_ranks(here, shown)
