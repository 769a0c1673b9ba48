"""`loaderprobe report`: show a stored run again, without measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.errors import EXIT_DONE, EXIT_SOME_FAILED, BadValue, MissingPart, NoSpace
from loaderprobe.store.codec import write_atomically


@command
def report(
    run: Annotated[Path | None, typer.Argument(help="Directory of a run.", show_default=False)] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML file.", show_default=False)] = None,
    md: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print summary.json.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of summary.json.")] = False,
) -> int:
    """Show a stored run: verdicts are computed again from its raw values. Needs no GPU; measures nothing.

    A damaged file costs only its own row: the others are shown, with exit code 4.
    """
    from loaderprobe import api
    from loaderprobe.render.html import HtmlReport
    from loaderprobe.render.json import summary_json, summary_schema
    from loaderprobe.render.table import CsvTable, MarkdownReport
    from loaderprobe.render.terminal import TerminalReport
    from loaderprobe.store.run_directory import RunDirectory

    if sum((md, csv, json, schema)) > 1:
        raise BadValue("--md, --csv, --json and --schema exclude each other", hint="use one of them")
    if schema:
        show(summary_schema())
        return EXIT_DONE
    if run is None:
        raise BadValue("no run is given", hint="loaderprobe report loaderprobe-runs/DATE-TIME")
    shown = api.report(RunDirectory.open(run))
    code = EXIT_SOME_FAILED if shown.summary.run.damaged else EXIT_DONE
    if html is not None:
        try:
            write_atomically(html, HtmlReport().render(shown).encode())
        except (NoSpace, MissingPart) as error:
            error.hint = "choose another path for --html"
            raise
        show(f"Report: {html}")
        return code
    width, color = width_and_color()
    if md:
        show(MarkdownReport().render(shown))
    elif csv:
        show(CsvTable().render(shown))
    elif json:
        show(summary_json(shown))
    else:
        show(TerminalReport().render(shown, width=width, color=color))
    return code
