"""`loaderprobe doctor`: what can be measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loaderprobe.cli.border import command, width_and_color
from loaderprobe.errors import EXIT_DONE, BadValue

_MARKS = {"yes": "[green]yes[/]", "limited": "[yellow]limited[/]", "no": "[red]no[/]"}


@command
def doctor(
    path: Annotated[Path, typer.Argument(help="A directory on the storage of the data.")] = Path(),
) -> int:
    """Report what can and cannot be measured on this machine, why, and how to get the rest."""
    from loaderprobe import api

    if not path.exists():
        raise BadValue(f"{path} does not exist", hint="give a directory on the storage in question")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column("measured", width=26)
    table.add_column("here")
    table.add_column("why", ratio=1)
    for capability in api.doctor(path if path.is_dir() else path.parent):
        why = escape(capability.why) + (
            f"\n[dim]to get it: {escape(capability.next_step)}[/]" if capability.next_step else ""
        )
        table.add_row(capability.name, _MARKS[capability.state], why)
    width, color = width_and_color()
    Console(width=width, no_color=not color, highlight=False, emoji=False).print(table)
    return EXIT_DONE
