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

    check_shown(json=json, markdown=markdown)
    place = usual_out(kind) if out is None else out
    check_out(place)
    shown_and_kept(measure(), place, json=json, markdown=markdown)
    return EXIT_DONE


def check_shown(*, json: bool, markdown: bool) -> None:
    """Raises BadValue for two forms at once."""
    if markdown and json:
        raise BadValue("--md and --json exclude each other", hint="use one of them")


def shown_and_kept(found: Documented, out: Path | None, *, json: bool, markdown: bool) -> None:
    """Print a result, then keep it in `out` with its report, if that is given."""
    width, color = width_and_color()
    # Shown before it is saved: a full disk must not hide what was measured.
    show(found.json() if json else found.markdown() if markdown else found.text(width=width, color=color))
    if out is None:
        return
    page = found.save(out)
    if not (json or markdown):
        show(f"\nReport: {page}")
