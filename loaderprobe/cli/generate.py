"""`loaderprobe generate`: only the data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from loaderprobe.cli.border import command, counting, show, stderr
from loaderprobe.cli.options import DATA, OUTPUT, Quiet
from loaderprobe.cli.sweep import RESOLUTIONS
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED

NAMED = 20


@command
def generate(
    directory: Annotated[
        Path,
        typer.Argument(
            help="Target directory, with one folder per resolution. A set with the same settings is completed."
        ),
    ],
    resolutions: Annotated[
        str,
        typer.Option(
            help="One data set each. imagenet: ImageNet's mixture of sizes and qualities.", rich_help_panel=DATA
        ),
    ] = RESOLUTIONS,
    count: Annotated[
        int,
        typer.Option(
            min=1, help="Images of each resolution. A higher count enlarges an existing set.", rich_help_panel=DATA
        ),
    ] = 1000,
    mean_size: Annotated[
        str | None,
        typer.Option(help="Mean size of a file, such as 110kB.", show_default="as in ImageNet", rich_help_panel=DATA),
    ] = None,
    classes: Annotated[int, typer.Option(min=1, help="Number of class directories.", rich_help_panel=DATA)] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.", rich_help_panel=DATA)] = 0,
    layout: Annotated[
        Literal["folder", "shards"],
        typer.Option(
            help="folder: an image folder. shards: tar shards for WebDataset; sweep does not read them.",
            rich_help_panel=DATA,
        ),
    ] = "folder",
    shard_images: Annotated[int, typer.Option(min=1, help="Images per shard.", rich_help_panel=DATA)] = 1000,
    oddities: Annotated[
        str,
        typer.Option(
            help="Odd files to add, as rare as in ImageNet: grey, cmyk, png, exif, icc, or all.",
            show_default="none",
            rich_help_panel=DATA,
        ),
    ] = "",
    pool: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Base images that the files are derived from.",
            show_default="48; imagenet: 256",
            rich_help_panel=DATA,
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Write nothing: read every file of DIRECTORY and compare it with the manifest.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Generate ImageNet-like JPEG data sets, as fast as the disk writes.

    Sizes, qualities and content match ImageNet's for storage and decoders.
    Every block of every file is different. The same seed gives the same files.
    """
    from loaderprobe.api import generate as verb
    from loaderprobe.datasets.generate.generate import GO_ON

    if verify:
        return _verify(directory, quiet)
    try:
        with counting(quiet) as on_data:
            made = verb.generate(
                directory,
                resolutions=resolutions,
                count=count,
                mean_size=mean_size,
                classes=classes,
                seed=seed,
                layout=layout,
                shard_images=shard_images,
                oddities=oddities,
                pool=pool,
                progress=on_data,
            )
    except KeyboardInterrupt:
        stderr().print(f"interrupted; the files written so far are kept. To resume: {GO_ON}")
        return EXIT_INTERRUPTED
    show(made.text())
    return EXIT_DONE


def _verify(directory: Path, quiet: bool) -> int:
    from loaderprobe.api.generate import verify
    from loaderprobe.datasets.generate.generate import GO_ON
    from loaderprobe.datasets.generate.manifest import MANIFEST

    with counting(quiet) as on_data:
        found = verify(directory, on_data)
    for path, damages in found.items():
        show(f"{path}: {f'{len(damages)} damaged or missing' if damages else 'every file is whole'}")
        for damage in damages[:NAMED]:
            show(f"  {damage.path}: {damage.trouble}")
        if len(damages) > NAMED:
            show(f"  and {len(damages) - NAMED} more")
    if any(damage.path == MANIFEST for damages in found.values() for damage in damages):
        stderr().print(f"The set is incomplete: {GO_ON}")
    elif any(found.values()):
        stderr().print("To repair the set, remove the damaged files and generate it again with the same settings.")
    return EXIT_SOME_FAILED if any(found.values()) else EXIT_DONE
