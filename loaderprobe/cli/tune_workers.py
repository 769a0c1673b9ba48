"""`loaderprobe tune workers`: the smallest number of workers within 2 % of the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command
from loaderprobe.cli.panels import COMPUTE, DATA, MEASURING
from loaderprobe.cli.progress import timed
from loaderprobe.cli.results import show_and_keep, typed
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from loaderprobe.api.tune_workers import WorkersTuning


@command
def workers(
    data: Annotated[Path, typer.Argument(help="Folder of images, or a generated data set.", show_default=False)],
    most: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Most workers to consider.", show_default="by cores and waiting", rich_help_panel=DATA
        ),
    ] = None,
    model: options.Model = "resnet50",
    compute: Annotated[
        str,
        typer.Option(
            help="auto (cuda if present, else cpu), cuda, cpu, emulated:NAME or emulated:IMAGES_PER_S.",
            rich_help_panel=COMPUTE,
        ),
    ] = "auto",
    batch_size: options.AnyBatchSize = None,
    cache: options.Cache = "cold",
    budget: Annotated[float, typer.Option(min=1, help="Seconds for everything.", rich_help_panel=MEASURING)] = 90.0,
    out: options.Out = None,
    md: options.Markdown = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Find the smallest number of workers, and prefetch factor, that trains within 2 % of the best.

    Measures the few settings that cannot be ruled out, in turns. Your own DataLoader: loaderprobe.tune_workers(loader,
    step) in Python.
    """

    def measure() -> WorkersTuning:
        from loaderprobe.api.tune_workers import tuned_images

        with timed(quiet or json) as progress:
            return tuned_images(
                data, compute=compute, model=model, batch_size=batch_size, budget_s=budget, cache=cache, most=most,
                progress=progress, command=typed(),
            )  # fmt: skip

    found = show_and_keep(measure, kind="tune-workers", out=out, json=json, markdown=md)
    return EXIT_INTERRUPTED if found.stop == "interrupted" else EXIT_DONE
