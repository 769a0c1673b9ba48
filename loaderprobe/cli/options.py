"""Options that several commands have, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

# The panels that options stand in, in the order of `--help`.

DATA = "Data"
LOADER = "Loader"
COMPUTE = "Compute"
STORAGE = "Storage"
MEASURING = "Measuring"
OUTPUT = "Output"


MODELS = "resnet18, resnet50, resnet152, vgg16, lenet5, mlp, lstm, or package.module:factory (see explain plug-ins)."

LoadedImages = Annotated[
    Path | None, typer.Argument(help="Folder of images to load. Without it, images in memory.", show_default=False)
]
LoadingWorkers = Annotated[
    int, typer.Option(min=0, max=4096, help="Workers that load DATA; 0 is the serial loader.", rich_help_panel=DATA)
]
Model = Annotated[str, typer.Option(help=MODELS, rich_help_panel=COMPUTE)]
Device = Annotated[
    Literal["auto", "cuda", "cpu"], typer.Option(help="auto: cuda if present, else cpu.", rich_help_panel=COMPUTE)
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Images per batch.", show_default="256 on CUDA, 4 on the CPU", rich_help_panel=COMPUTE),
]
AnyBatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Images per batch.", show_default="256 on CUDA, 4 on the CPU, else 32", rich_help_panel=COMPUTE
    ),
]
Cache = Annotated[
    Literal["cold", "warm"],
    typer.Option(help="Files from storage (cold) or from memory (warm).", rich_help_panel=MEASURING),
]
Ranks = Annotated[
    str | None,
    typer.Option(
        help="Processes that train in step: 1,2,4 measures each. 4x8: on 4 nodes, 8 on each (see explain ranks).",
        show_default="1; under torchrun, all that it started",
        rich_help_panel=MEASURING,
    ),
]
Join = Annotated[
    Literal["slurm", "mpi"] | None,
    typer.Option(
        help="Whether srun or mpirun started these processes. Those of torchrun are recognised without it.",
        show_default=False,
        rich_help_panel=MEASURING,
    ),
]
ImageSize = Annotated[int, typer.Option(min=1, max=4096, help="Pixels a side of the images.", rich_help_panel=COMPUTE)]
Out = Annotated[
    Path | None,
    typer.Option(
        help="New directory for result.json and report.html.",
        show_default="loaderprobe-runs/DATE-TIME-COMMAND",
        rich_help_panel=OUTPUT,
    ),
]
Markdown = Annotated[bool, typer.Option("--md", help="Print Markdown.", rich_help_panel=OUTPUT)]
Page = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a page with charts, which works offline.", show_default=False,
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=OUTPUT)]
