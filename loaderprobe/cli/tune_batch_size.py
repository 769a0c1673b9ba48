"""`loaderprobe tune batch-size`: the batch size with which a model trains fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, stderr
from loaderprobe.cli.panels import COMPUTE, MEASURING
from loaderprobe.cli.progress import counting
from loaderprobe.cli.results import show_and_keep, typed
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.shown import Documented

IMAGE_SIZE = 224


@command
def batch_size(
    data: options.LoadedImages = None,
    workers: options.LoadingWorkers = 0,
    model: options.Model = "resnet50",
    compute: options.Device = "auto",
    image_size: options.ImageSize = IMAGE_SIZE,
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        typer.Option(help="auto: bf16 on CUDA, fp32 on the CPU and as the paper.", rich_help_panel=COMPUTE),
    ] = "auto",
    memory: Annotated[
        str | None,
        typer.Option(
            help="Most that training may take, like 8GiB.",
            show_default="all of a GPU, 70 % of what is available to the CPU",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    strategy: Annotated[
        Literal["throughput", "gpu-usage", "epoch-time"],
        typer.Option(help="throughput: most images/s. The others are those of the paper.", rich_help_panel=MEASURING),
    ] = "throughput",
    most: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, help="Largest batch size to try.", show_default="1024; 256 as the paper",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps of each probe.", show_default="as many as take 2 s; 1000 as the paper",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Repeat the paper's patterns; print its tables.", rich_help_panel=MEASURING),
    ] = False,
    out: options.Out = None,
    md: options.Markdown = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:  # fmt: skip
    """Find the batch size with which a model trains fastest, within memory.

    Trains a copy, with random images in memory or with DATA: then it says, too, what limits the loading.
    """
    if data is None and workers:
        raise BadValue("--workers needs DATA to load", hint="name a folder of images, or leave --workers out")
    if data is not None and image_size != IMAGE_SIZE:
        raise BadValue(f"images of DATA are cropped to {IMAGE_SIZE} pixels", hint="leave --image-size out")
    if paper and (data or (model, strategy, image_size) != ("resnet50", "throughput", IMAGE_SIZE)):
        raise BadValue(
            "--paper has models, images and strategies of its own", hint="leave DATA, --model and such options out"
        )

    def measure() -> Documented:
        if not quiet:
            stderr().print(_beforehand(paper, strategy), highlight=False)
        with counting(quiet) as progress:
            if paper:
                from loaderprobe.api.batch_size_paper import paper_batch_sizes

                return paper_batch_sizes(
                    device=compute, most=most, memory=memory, iterations=iterations, progress=progress, command=typed()
                )
            from loaderprobe.api.batch_size import named_batch_size

            return named_batch_size(
                model, data, workers=workers, device=compute, image_size=image_size, precision=precision,
                strategy=strategy, most=most, memory=memory, iterations=iterations, progress=progress,
                command=typed(),
            )  # fmt: skip

    found = show_and_keep(measure, kind="batch-size", out=out, json=json, markdown=md)
    return EXIT_INTERRUPTED if getattr(found, "interrupted", False) else EXIT_DONE


def _beforehand(paper: bool, strategy: str) -> str:
    """What is measured, and for how long."""
    if paper:
        return "Four patterns by three strategies; each of the paper's has up to 100 loops. Ctrl-C gives up."
    if strategy == "throughput":
        return "Up to 32 probes of about 2 s each, longer where a step is; Ctrl-C ends with the fastest so far."
    return "Up to 100 loops; Ctrl-C ends with the fastest so far."
