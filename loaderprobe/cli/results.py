"""How commands with a result of their own show it and keep it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loaderprobe.cli.border import show, width_and_color
from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.store.codec import write_atomically

if TYPE_CHECKING:
    from loaderprobe.api.load import Run
    from loaderprobe.api.shown import Documented, Shown, ShownRecord

Found = TypeVar("Found", bound="Documented")


def typed() -> str:
    """The command line as it was typed."""
    return shlex.join(("loaderprobe", *sys.argv[1:]))


def show_result(found: ShownRecord | Run, *, json: bool, markdown: bool = False) -> None:
    """Print it for the terminal, or in one of two formats."""
    width, color = width_and_color()
    show(found.json() if json else found.markdown() if markdown else found.text(width=width, color=color))


def write_page(found: Shown, path: Path, title: str) -> None:
    """Write the page of `--html` and say so; an error says what to do."""
    try:
        write_atomically(path, found.html().encode())
    except (NoSpace, MissingPart) as error:
        error.hint = "choose another path for --html"
        raise
    show(f"{title}: {path}")


def check_place(path: Path | None, option: str) -> None:
    """Raises MissingPart, before anything takes long, where the nearest folder does not let `path` be written."""
    if path is None:
        return
    try:
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        allowed = os.access(nearest, os.W_OK)
    except PermissionError:
        allowed = False
    if not allowed:
        raise MissingPart(f"{path} cannot be written: permission denied", hint=f"choose another path for {option}")


def refuse_several(*, md: bool, json: bool, html: Path | None) -> None:
    """Raises BadValue for more than one of the forms that a stored result is shown in."""
    if md + json + (html is not None) > 1:
        raise BadValue("--md, --json and --html exclude each other", hint="use one of them")


def show_and_keep(measure: Callable[[], Found], *, kind: str, out: Path | None, json: bool, markdown: bool) -> Found:
    """Measure once it is sure that the result can be kept; print it, keep it in `out` with its report, return it."""
    from loaderprobe.api.origin import usual_out
    from loaderprobe.store.results import check_out

    check_shown(json=json, markdown=markdown)
    place = usual_out(kind) if out is None else out
    check_out(place)
    found = measure()
    shown_and_kept(found, place, json=json, markdown=markdown)
    return found


def check_shown(*, json: bool, markdown: bool) -> None:
    """Raises BadValue for two forms at once."""
    if markdown and json:
        raise BadValue("--md and --json exclude each other", hint="use one of them")


def shown_and_kept(found: Documented, out: Path | None, *, json: bool, markdown: bool) -> None:
    """Print a result, then keep it in `out` with its report, if that is given."""
    # Shown before it is saved: a full disk must not hide what was measured.
    show_result(found, json=json, markdown=markdown)
    if out is None:
        return
    page = found.save(out)
    if not (json or markdown):
        show(f"\nReport: {page}")
