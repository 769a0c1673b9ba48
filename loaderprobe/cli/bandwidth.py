"""`loaderprobe bandwidth`: what the storage delivers to a loader."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.cli.panels import DATA, MEASURING, OUTPUT
from loaderprobe.cli.progress import counting
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED


class Reader(StrEnum):
    """The program that reads the files."""

    loaderprobe = "loaderprobe"
    fio = "fio"


@command
def bandwidth(
    # The probe itself reports a path without read permission, with its own exit code.
    path: Annotated[Path, typer.Argument(help="A folder of files, or a file.", readable=False)],
    scratch: Annotated[
        str | None,
        typer.Option(
            help="Write a file of this size under PATH, such as 1GB, read it and remove it.",
            show_default="never",
            rich_help_panel=DATA,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for the choice and order of the files.", rich_help_panel=DATA)] = 0,
    readers: Annotated[
        str,
        typer.Option(
            help="Concurrencies, such as 1,2,4. auto: double until the rate stops rising.",
            rich_help_panel=MEASURING,
        ),
    ] = "auto",
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Length of each phase; up to five times that until its rate is known within 5 %.",
            rich_help_panel=MEASURING,
        ),
    ] = 3.0,
    engine: Annotated[
        Reader,
        typer.Option(
            help="Program that reads. fio must be installed; it runs all phases except the paced one.",
            rich_help_panel=MEASURING,
        ),
    ] = Reader.loaderprobe,
    drop_caches: Annotated[
        bool,
        typer.Option(
            "--drop-caches",
            help="Empty all caches of the machine before each pass (root), also those of others. Only then are opens/s "
            "cold.",
            rich_help_panel=MEASURING,
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON (fio's names and units) and nothing else.", rich_help_panel=OUTPUT),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=OUTPUT)] = False,
) -> int:
    """Measure what the storage under PATH delivers to a loader: MB/s, opens/s, stats/s.

    Reads files in random order, cold, with rising concurrency. Writes nothing under PATH unless --scratch is given.
    File names and inodes stay in memory, so opens/s are labelled warm, unless --drop-caches is given.
    """
    from loaderprobe.api import bandwidth as verb
    from loaderprobe.render.json import result_json

    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    with counting(quiet or json) as on_count:
        found = verb.bandwidth(
            path,
            readers=readers,
            seconds=seconds,
            scratch=scratch,
            engine=engine.value,
            drop_caches=drop_caches,
            seed=seed,
            progress=on_count,
        )
    width, color = width_and_color()
    show(result_json(found) if json else found.text(width=width, color=color))
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SOME_FAILED if found.failed else EXIT_DONE


def _stop(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C: finished phases are kept, and a scratch file is removed."""
    raise KeyboardInterrupt
