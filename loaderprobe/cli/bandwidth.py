"""`loaderprobe bandwidth`: what the storage can deliver to a loader."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.cli.progress import counting
from loaderprobe.errors import EXIT_DONE
from loaderprobe.units import parse_bytes, parse_count, parse_list


@command
def bandwidth(
    path: Annotated[Path, typer.Argument(help="A folder of files, or a file.")],
    readers: Annotated[str, typer.Option(help="Numbers of readers.")] = "1,2,4,8,16",
    seconds: Annotated[float, typer.Option(min=0.1, help="For each number of readers.")] = 3.0,
    scratch: Annotated[
        str | None, typer.Option(help="Write a file of this size here, read that, remove it.", show_default="never")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the choice and order of the files.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> int:
    """Read whole files under PATH in random order, cold, with more and more readers. Writes nothing there."""
    from loaderprobe import api
    from loaderprobe.render.bandwidth import bandwidth_json, render_bandwidth

    with counting(quiet or json) as on_count:
        found = api.bandwidth(
            path,
            readers=parse_list(readers, parse_count),
            seconds=seconds,
            scratch_bytes=parse_bytes(scratch) if scratch else None,
            seed=seed,
            progress=lambda done, total: on_count(f"reading {path}", done, total),
        )
    width, color = width_and_color()
    show(bandwidth_json(found) if json else render_bandwidth(found, width=width, color=color))
    return EXIT_DONE
