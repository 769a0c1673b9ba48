"""`loaderprobe devices`: whether a device, or several, are worth it for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import command, counting, show_and_keep, typed
from loaderprobe.cli.options import COMPUTE, DATA, MEASURING
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.devices import Devices


@command
def devices(
    model: Annotated[
        str | None,
        typer.Option(
            help="mlp, lenet5, lstm, resnet152, or any other of images (see explain plug-ins); or several: mlp,lenet5.",
            show_default="mlp",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    article: Annotated[
        bool, typer.Option("--article", help="mlp, lenet5, lstm and resnet152.", rich_help_panel=COMPUTE)
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            help="Where to train: cpu, 2xcpu, cuda, 2xcuda; or several: cpu,2xcpu.",
            show_default="cpu,cuda and all GPUs; without a GPU cpu,2xcpu",
            rich_help_panel=COMPUTE,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples per batch, of all ranks together.", show_default="32 to 128", rich_help_panel=COMPUTE
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Samples of an epoch.", show_default="10000 to 60000", rich_help_panel=DATA),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Pixels a side of the images.", show_default="32", rich_help_panel=DATA),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Steps of a segment.", show_default="about 0.7 s", rich_help_panel=MEASURING
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=3, max=100, help="Rounds, each with every experiment.", rich_help_panel=MEASURING)
    ] = 5,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds without a step until it is a hang.", rich_help_panel=MEASURING)
    ] = 120.0,
    out: options.Out = None,
    md: options.Markdown = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Compare devices for a model: the CPU, a GPU, several. Says which is fastest, and why more are not faster.

    Trains on samples in memory, in processes of its own on each device (DistributedDataParallel for several). Then
    without gradient exchange, without input, and with a larger batch: what helps is the reason.
    """
    if article and model:
        raise BadValue("--article and --model exclude each other", hint="use one of them")

    def measure() -> Devices:
        from loaderprobe.api.devices import devices as verb
        from loaderprobe.records.devices import ARTICLE

        with counting(quiet or json) as on_count:
            return verb(
                ARTICLE if article else model or "mlp", on, batch_size=batch_size, image_size=image_size,
                samples=samples, steps=steps, rounds=rounds, timeout_s=timeout, progress=on_count, command=typed(),
            )  # fmt: skip

    found = show_and_keep(measure, kind="devices", out=out, json=json, markdown=md)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SOME_FAILED if found.failed else EXIT_DONE
