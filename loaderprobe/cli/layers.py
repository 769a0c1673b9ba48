"""`loaderprobe layers`: where the time of a training step goes, layer by layer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, show_and_keep, typed
from loaderprobe.cli.options import MEASURING
from loaderprobe.errors import EXIT_DONE, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.layers import Layers

IMAGE_SIZE = 224


@command
def layers(
    data: options.LoadedImages = None,
    workers: options.LoadingWorkers = 0,
    model: options.Model = "resnet50",
    compute: options.Device = "auto",
    batch_size: options.BatchSize = None,
    image_size: options.ImageSize = 224,
    steps: Annotated[
        int, typer.Option(min=4, max=1000, help="Steps without a profiler, and with.", rich_help_panel=MEASURING)
    ] = 10,
    drill: Annotated[
        bool,
        typer.Option("--drill", help="Go on to the slowest operator and its source line.", rich_help_panel=MEASURING),
    ] = False,
    out: options.Out = None,
    md: options.Markdown = False,
    json: options.Json = False,
) -> int:
    """Time each layer of a model in training: forward and backward, in the order in which they run.

    Trains on one batch of random images in memory, or on DATA: then loading is a part of the step.
    """
    if data is None and workers:
        raise BadValue("--workers needs DATA to load", hint="name a folder of images, or leave --workers out")
    if data is not None and image_size != IMAGE_SIZE:
        raise BadValue(f"images of DATA are cropped to {IMAGE_SIZE} pixels", hint="leave --image-size out")

    def measure() -> Layers:
        # torch's profiler prints lines of its own, even where nothing is wrong.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        from loaderprobe.api.layers import named_layers

        return named_layers(
            model, data, workers=workers, device=compute, batch_size=batch_size, image_size=image_size, steps=steps,
            drill=drill, command=typed(),
        )  # fmt: skip

    show_and_keep(measure, kind="layers", out=out, json=json, markdown=md)
    return EXIT_DONE
