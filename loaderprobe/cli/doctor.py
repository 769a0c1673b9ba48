"""`loaderprobe doctor`: what can be measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.errors import EXIT_DONE


@command
def doctor(
    path: Annotated[Path, typer.Argument(help="A directory on the storage of the data.")] = Path(),
) -> int:
    """Report what can and cannot be measured on this machine, why, and how to get the rest."""
    from loaderprobe.api import doctor as verb

    width, color = width_and_color()
    show(verb.doctor(path).text(width=width, color=color))
    return EXIT_DONE
