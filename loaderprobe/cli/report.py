"""`loaderprobe report`: show a stored run again, without measuring."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.errors import EXIT_DONE, EXIT_SOME_FAILED, BadValue, MissingPart, NoSpace
from loaderprobe.store.codec import write_atomically
from loaderprobe.units import join_words

if TYPE_CHECKING:
    from loaderprobe.api.documented import Documented
    from loaderprobe.api.load import Run
    from loaderprobe.protocols import Renderer


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
    from loaderprobe.api.documented import Documented
    from loaderprobe.api.results import load_any

    shown = load_any(run)
    if isinstance(shown, Documented):
        _put(_rendered_result(shown, chosen, to_file=output is not None), output, text=chosen is not Format.parquet)
        return EXIT_DONE
    _put(_rendered(shown, chosen, to_file=output is not None), output, text=chosen is not Format.parquet)
    return EXIT_SOME_FAILED if shown.report().summary.run.damaged else EXIT_DONE


def _schema(path: Path) -> str:
    """The JSON Schema of what a directory holds."""
    from loaderprobe.api.documented import Documented
    from loaderprobe.api.results import load_any
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


def _rendered_result(result: Documented, form: Format, *, to_file: bool) -> bytes:
    """The result of a command other than `sweep`."""
    if form is Format.parquet:
        from loaderprobe.api.frames import parquet

        return parquet(result.to_frame())
    if form is Format.table:
        width, color = width_and_color()
        return result.text(width=width, color=color and not to_file).encode()
    makers = {Format.json: result.json, Format.html: result.html, Format.md: result.markdown, Format.csv: result.csv}
    return makers[form]().encode()


def _rendered(run: Run, form: Format, *, to_file: bool) -> bytes:
    from loaderprobe.render.json import summary_json
    from loaderprobe.render.table import CsvTable, MarkdownReport

    if form is Format.parquet:
        from loaderprobe.api.frames import parquet

        return parquet(run.to_frame())
    if form is Format.table:
        width, color = width_and_color()
        return run.text(width=width, color=color and not to_file).encode()
    if form is Format.json:
        return summary_json(run.report()).encode()
    if form is Format.html:
        from loaderprobe.api.page import report_page

        return f"{report_page(run)}\n".encode()
    renderers: dict[Format, Renderer] = {Format.md: MarkdownReport(), Format.csv: CsvTable()}
    text = renderers[form].render(run.report())
    return (text if text.endswith("\n") else f"{text}\n").encode()
