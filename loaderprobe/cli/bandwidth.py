"""`loaderprobe bandwidth`: what the storage delivers to a loader."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli import options
from loaderprobe.cli.border import (
    check_shown,
    command,
    counting,
    show_result,
    shown_and_kept,
    typed,
)
from loaderprobe.cli.options import DATA, MEASURING, OUTPUT
from loaderprobe.cli.seats import in_ranks, launched_here
from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.bandwidth import RankProbe
    from loaderprobe.measure.ranks.launch import Lead
    from loaderprobe.records.ranks import Launched


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
    ranks: Annotated[
        str | None,
        typer.Option(
            help="Processes that read at once, each its own share, with commas; 4x8: on 4 nodes, 8 on each "
            "(explain ranks).",
            show_default="1; under torchrun, up to all that it started",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    join: options.Join = None,
    readers: Annotated[
        str,
        typer.Option(
            help="Concurrencies, such as 1,2,4. auto: double until the rate stops rising; with ranks, 4 each.",
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --ranks: new directory for result.json, ladder.csv and report.html.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="Print Markdown.", rich_help_panel=OUTPUT)] = False,
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
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    check_shown(json=json, markdown=md)
    here = launched_here(join, several=ranks is not None)
    if here is not None or ranks is not None:
        alone = {"--scratch": scratch is not None, "--engine fio": engine is Reader.fio, "--drop-caches": drop_caches}
        if given := next((name for name, asked in alone.items() if asked), None):
            raise BadValue(f"{given} is of one process only", hint=f"leave {given} out, or --ranks")
        from loaderprobe.api.bandwidth import READERS, RankProbe
        from loaderprobe.api.values import counts

        each = READERS if readers == "auto" else _one(counts(readers, "--readers"))
        asked = RankProbe(
            path=path, ranks=ranks, readers=each, seconds=seconds, seed=seed, command=typed(), out=out
        )  # fmt: skip
        return _by_ranks(here, asked, json=json, markdown=md, quiet=quiet)
    if out:
        raise BadValue("--out is of several ranks", hint="add --ranks 1,2,4; or, without ranks, --json > FILE")
    from loaderprobe.api import bandwidth as verb

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
    show_result(found, json=json, markdown=md)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SOME_FAILED if found.failed else EXIT_DONE


def _by_ranks(here: Launched | None, asked: RankProbe, *, json: bool, markdown: bool, quiet: bool) -> int:
    """Read in the processes of a launcher, of which this is one; without one (None) in some on this machine."""
    from loaderprobe.api.bandwidth import bandwidth_of_ranks

    def measure(lead: Lead | None) -> int:
        with counting(quiet or json) as on_count:
            found = bandwidth_of_ranks(lead, asked, on_count)
        shown_and_kept(found, asked.out, json=json, markdown=markdown)
        return EXIT_INTERRUPTED if found.interrupted else EXIT_DONE

    return in_ranks(here, measure)


def _one(readers: Sequence[int]) -> int:
    if len(readers) != 1:
        raise BadValue("ranks have one number of readers each", hint="--ranks 1,2,4 --readers 4")
    return readers[0]


def _stop(number: int, _: object) -> None:
    """Treat SIGTERM and SIGHUP like Ctrl-C: finished phases are kept, and a scratch file is removed."""
    raise KeyboardInterrupt
