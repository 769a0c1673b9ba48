"""How commands with a result of their own show it and keep it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from loaderprobe.cli.border import show, width_and_color
from loaderprobe.errors import EXIT_DONE, BadValue

if TYPE_CHECKING:
    from loaderprobe.api.documented import Documented


def typed() -> str:
    """The command line as it was typed."""
    return shlex.join(("loaderprobe", *sys.argv[1:]))


def show_and_keep(measure: Callable[[], Documented], *, kind: str, out: Path | None, json: bool, markdown: bool) -> int:
    """Measure once it is sure that the result can be kept; print it, then keep it in `out` with its report."""
    from loaderprobe.api.origin import usual_out
    from loaderprobe.store.results import check_out

    if markdown and json:
        raise BadValue("--md and --json exclude each other", hint="use one of them")
    place = usual_out(kind) if out is None else out
    check_out(place)
    found = measure()
    width, color = width_and_color()
    # Shown before it is saved: a full disk must not hide what was measured.
    show(found.json() if json else found.markdown() if markdown else found.text(width=width, color=color))
    page = found.save(place)
    if not (json or markdown):
        show(f"\nReport: {page}")
    return EXIT_DONE
