"""`loaderprobe tune batch-size` and `tune workers`: the fastest setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, counting, show_and_keep, stderr, timed, typed
from loaderprobe.cli.options import COMPUTE, DATA, MEASURING
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.shown import Documented
    from loaderprobe.api.tune_workers import WorkersTuning


# `loaderprobe tune batch-size`: the batch size with which a model trains fastest.

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

    def measure() -> Documented:
        if not quiet:
            stderr().print(_beforehand(strategy), highlight=False)
        with counting(quiet) as progress:
            from loaderprobe.api.batch_size import named_batch_size

            return named_batch_size(
                model, data, workers=workers, device=compute, image_size=image_size, precision=precision,
                strategy=strategy, most=most, memory=memory, iterations=iterations, progress=progress,
                command=typed(),
            )  # fmt: skip

    found = show_and_keep(measure, kind="batch-size", out=out, json=json, markdown=md)
    return EXIT_INTERRUPTED if getattr(found, "interrupted", False) else EXIT_DONE


def _beforehand(strategy: str) -> str:
    """What is measured, and for how long."""
    if strategy == "throughput":
        return "Up to 32 probes of about 2 s each, longer where a step is; Ctrl-C ends with the fastest so far."
    return "Up to 100 loops; Ctrl-C ends with the fastest so far."


# `loaderprobe tune workers`: the smallest number of workers within 2 % of the best.


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
