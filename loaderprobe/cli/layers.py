"""`loaderprobe layers`: where the time of a training step goes, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.cli.panels import COMPUTE, MEASURING, OUTPUT
from loaderprobe.errors import EXIT_DONE, BadValue
from loaderprobe.store.codec import write_atomically


@command
def layers(
    model: Annotated[
        str,
        typer.Option(
            help="resnet18, resnet50, resnet152, vgg16, lenet5, mlp, or package.module:factory (explain plug-ins).",
            rich_help_panel=COMPUTE,
        ),
    ] = "resnet50",
    compute: Annotated[
        Literal["auto", "cuda", "cpu"], typer.Option(help="auto: cuda if present, else cpu.", rich_help_panel=COMPUTE)
    ] = "auto",
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images per batch.", show_default="256 on CUDA, 4 on the CPU", rich_help_panel=COMPUTE
        ),
    ] = None,
    image_size: Annotated[
        int, typer.Option(min=1, max=4096, help="Pixels a side of the images.", rich_help_panel=COMPUTE)
    ] = 224,
    steps: Annotated[
        int, typer.Option(min=4, max=1000, help="Steps without a profiler, and with.", rich_help_panel=MEASURING)
    ] = 10,
    drill: Annotated[
        bool,
        typer.Option("--drill", help="Go on to the slowest operator and its source line.", rich_help_panel=MEASURING),
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Write every layer as a row.", show_default=False, rich_help_panel=OUTPUT
        ),
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="Print Markdown.", rich_help_panel=OUTPUT)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=OUTPUT)] = False,
) -> int:
    """Time each layer of a model in training: forward and backward, in the order in which they run.

    Trains on one batch of random images in memory: the loader is not part of it.
    """
    if md and json:
        raise BadValue("--md and --json exclude each other", hint="use one of them")
    from loaderprobe.api.layers import named_layers
    from loaderprobe.api.sweep_request import DEFAULT_BATCH_SIZE, compute_names
    from loaderprobe.render.layers import layers_json

    (device,) = compute_names(compute)
    found = named_layers(
        model, batch_size=batch_size or DEFAULT_BATCH_SIZE[device], image_size=image_size, device=device, steps=steps,
        drill=drill,
    )  # fmt: skip
    if csv is not None:
        write_atomically(csv, found.to_frame().to_csv(index=False).encode())
    width, color = width_and_color()
    show(layers_json(found) if json else found.markdown() if md else found.text(width=width, color=color))
    return EXIT_DONE
