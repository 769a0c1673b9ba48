"""`loaderprobe generate`: only the data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show
from loaderprobe.cli.progress import counting
from loaderprobe.cli.sweep import RESOLUTIONS
from loaderprobe.errors import EXIT_DONE
from loaderprobe.units import format_resolution, parse_list, parse_resolution


@command
def generate(
    directory: Annotated[Path, typer.Argument(help="Where to; an earlier set of the same seed is completed.")],
    resolutions: Annotated[str, typer.Option(help="One data set each.")] = RESOLUTIONS,
    count: Annotated[int, typer.Option(min=1, help="Images of each resolution.")] = 1000,
    classes: Annotated[int, typer.Option(min=1, help="Class directories.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> int:
    """Make ImageNet-like JPEG data sets: natural-looking, every file different, the same for a seed."""
    from loaderprobe import api
    from loaderprobe.system.cpu import cores_available

    sizes = parse_list(resolutions, parse_resolution)
    with counting(quiet) as on_data:
        api.generate(
            directory, sizes, count=count, classes=classes, seed=seed,
            processes=max(1, round(cores_available())), progress=on_data,
        )  # fmt: skip
    for size in sizes:
        show(str(directory / format_resolution(*size)))
    return EXIT_DONE
