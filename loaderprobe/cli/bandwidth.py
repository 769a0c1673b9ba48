"""`loaderprobe bandwidth`: what the storage delivers to a loader."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.cli.progress import counting
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED
from loaderprobe.units import parse_bytes, parse_count, parse_list


class Reader(StrEnum):
    """The program that reads the files."""

    loaderprobe = "loaderprobe"
    fio = "fio"


@command
def bandwidth(
    # The probe itself reports a path without read permission, with its own exit code.
    path: Annotated[Path, typer.Argument(help="A folder of files, or a file.", readable=False)],
    readers: Annotated[
        str, typer.Option(help="Concurrencies, such as 1,2,4. auto: double until the rate stops rising.")
    ] = "auto",
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Length of each phase; up to five times that until its rate is known within 5 %."),
    ] = 3.0,
    scratch: Annotated[
        str | None,
        typer.Option(
            help="Write a file of this size under PATH, such as 1GB, read it and remove it.", show_default="never"
        ),
    ] = None,
    engine: Annotated[
        Reader, typer.Option(help="Program that reads. fio must be installed; it runs all phases except the paced one.")
    ] = Reader.loaderprobe,
    drop_caches: Annotated[
        bool,
        typer.Option("--drop-caches", help="Empty all caches of the machine first (root), not only of these files."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed for the choice and order of the files.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (fio's names and units) and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> int:
    """Measure what the storage under PATH delivers to a loader.

    Reads files in random order, cold, with rising concurrency. Writes nothing under PATH unless --scratch is given.
    """
    from loaderprobe import api
    from loaderprobe.render.bandwidth import bandwidth_json, render_bandwidth
    from loaderprobe.storage.probe import ProbeRequest

    request = ProbeRequest(
        path=path,
        readers=None if readers == "auto" else parse_list(readers, parse_count),
        seconds=seconds,
        scratch_bytes=parse_bytes(scratch) if scratch else None,
        seed=seed,
        fio=engine is Reader.fio,
    )
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    with counting(quiet or json) as on_count:
        found = api.bandwidth(request, drop_caches=drop_caches, on_leg=on_count)
    width, color = width_and_color()
    show(bandwidth_json(found) if json else render_bandwidth(found, width=width, color=color))
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SOME_FAILED if found.failed else EXIT_DONE


def _stop(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C: finished phases are kept, and a scratch file is removed."""
    raise KeyboardInterrupt
