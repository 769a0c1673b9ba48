"""`loaderprobe doctor`: what can be measured here."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from loaderprobe.cli.border import command, show, width_and_color
from loaderprobe.errors import EXIT_DONE, BadValue
from loaderprobe.units import join_words


@command
def doctor(
    path: Annotated[Path, typer.Argument(help="A directory on the storage of the data.")] = Path(),
) -> int:
    """Report what can and cannot be measured on this machine, why, and how to get the rest."""
    from loaderprobe.api import doctor as verb

    width, color = width_and_color()
    show(verb.doctor(path).text(width=width, color=color))
    return EXIT_DONE


# `loaderprobe explain`: how it works, topic by topic.


@command
def explain(
    topic: Annotated[
        str | None, typer.Argument(help="A topic of the guide. Without it, the topics are listed.", show_default=False)
    ] = None,
) -> int:
    """Print a page of the guide: how loaderprobe measures and how it finds a verdict."""
    pages = {
        page.name.removesuffix(".md"): page
        for page in files("loaderprobe").joinpath("guide").iterdir()
        if page.name.endswith(".md")
    }
    names = sorted(pages)
    if topic is None:
        width = max(map(len, names))
        show("\n".join(f"loaderprobe explain {name:{width}}  {_title(pages[name])}" for name in names))
        return EXIT_DONE
    if topic not in pages:
        raise BadValue(f"the guide has no topic '{topic}'", hint=f"choose {join_words(names, 'or')}")
    from loaderprobe.render.guide import guide_text

    width, color = width_and_color()
    show(guide_text(pages[topic].read_text(), width=width, color=color))
    return EXIT_DONE


def _title(page: Traversable) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")
