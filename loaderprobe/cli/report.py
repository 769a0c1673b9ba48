"""`loaderprobe report`: show a stored run again, without measuring."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.errors import EXIT_DONE, EXIT_SOME_FAILED, BadValue, MissingPart, NoSpace
from loaderprobe.store.codec import write_atomically
from loaderprobe.units import join_words

if TYPE_CHECKING:
    from loaderprobe.api.load import Run
    from loaderprobe.api.shown import Documented


class Format(StrEnum):
    """Formats of a report."""

    table = "table"
    md = "md"
    csv = "csv"
    parquet = "parquet"
    json = "json"
    html = "html"


@command
def report(
    run: Annotated[
        Path | None, typer.Argument(help="Directory of a run, or of another result.", show_default=False)
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="table, md, csv, parquet, json or html.",
            show_default="by the ending of FILE, else table",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write this file instead of printing.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of --format json: of RUN, else of a sweep.")
    ] = False,
) -> int:
    """Show a stored run: verdicts are computed again from its raw values. Needs no GPU; measures nothing.

    A damaged file costs only its own row: the others are shown, with exit code 4.
    """
    from loaderprobe.render.json import summary_schema

    if json and form not in (None, Format.json):
        raise BadValue(f"--json and --format {form} exclude each other", hint="use one of them")
    if schema and (json or form):
        raise BadValue("--schema excludes --format and --json", hint="use one of them")
    if schema:
        _put((_schema(run) if run else summary_schema()).encode(), output)
        return EXIT_DONE
    if run is None:
        raise BadValue("no run is given", hint="loaderprobe report loaderprobe-runs/DATE-TIME")
    chosen = Format.json if json else form or _by_ending(output)
    if chosen is Format.parquet and output is None and sys.stdout.isatty():
        raise BadValue("parquet cannot be printed on a terminal", hint="give a file: -o run.parquet")
    from loaderprobe.api.load import load_any
    from loaderprobe.api.shown import Documented

    found = load_any(run)
    _put(_rendered(found, chosen, to_file=output is not None), output, text=chosen is not Format.parquet)
    damaged = not isinstance(found, Documented) and found.report().summary.run.damaged
    return EXIT_SOME_FAILED if damaged else EXIT_DONE


def _schema(path: Path) -> str:
    """The JSON Schema of what a directory holds."""
    from loaderprobe.api.load import load_any
    from loaderprobe.api.shown import Documented
    from loaderprobe.render.json import result_schema, summary_schema

    found = load_any(path)
    return result_schema(type(found)) if isinstance(found, Documented) else summary_schema()


def _put(data: bytes, output: Path | None, *, text: bool = True) -> None:
    """Write the file, or print: text in the encoding of the terminal."""
    if output is None and text:
        show(data.decode())
    elif output is None:
        sys.stdout.buffer.write(data)
    else:
        try:
            write_atomically(output, data)
        except (NoSpace, MissingPart) as error:
            error.hint = "choose another path for -o"
            raise
        show(f"Report: {output}")


def _by_ending(output: Path | None) -> Format:
    """The format by the ending of the file name; a table if there is none. Raises BadValue for an unknown ending."""
    if output is None:
        return Format.table
    ending = output.suffix.lower().removeprefix(".")
    if ending in ("", "txt"):
        return Format.table
    if ending not in {each.value for each in Format if each is not Format.table}:
        raise BadValue(
            f"the ending of {output.name} matches no format", hint=f"add --format {join_words(list(Format), 'or')}"
        )
    return Format(ending)


def _rendered(found: Run | Documented, form: Format, *, to_file: bool) -> bytes:
    if form is Format.parquet:
        from loaderprobe.api.shown import parquet

        return parquet(found.to_frame())
    if form is Format.table:
        width, color = width_and_color()
        return found.text(width=width, color=color and not to_file).encode()
    makers: dict[Format, Callable[[], str]] = {
        Format.json: found.json,
        Format.html: found.html,
        Format.md: found.markdown,
        Format.csv: found.csv,
    }
    return makers[form]().encode()
