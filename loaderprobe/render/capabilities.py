"""What can be measured here, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from loaderprobe.records.environment import Capability
from loaderprobe.render.capability_words import TITLES, step_words, why_words
from loaderprobe.render.page import Page
from loaderprobe.render.wording import visible

STYLES = {"yes": "green", "limited": "yellow", "no": "red"}


def capabilities_headline(found: Sequence[Capability]) -> str:
    """How many of them can be measured."""
    return f"{sum(each.state == 'yes' for each in found)} of {len(found)} can be measured in full"


def capabilities_text(found: Sequence[Capability], *, width: int = 80, color: bool = False) -> str:
    """A line for each, with the reason and how to get the rest, in at most `width` columns."""
    page = Page(width=width, color=color)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column("measured", width=26)
    table.add_column("here")
    table.add_column("why", ratio=1)
    for each in found:
        why = Text(visible(why_words(each)))
        if step := step_words(each):
            why.append(f"\nto get it: {visible(step)}", style="dim")
        table.add_row(TITLES[each.name], Text(each.state, style=STYLES[each.state]), why)
    page.add(table)
    return page.text()
