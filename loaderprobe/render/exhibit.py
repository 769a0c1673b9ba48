"""Charts with a finding over them, and the figures beside them."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.render.document import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """Charts of one finding; without a table of its own, the section's next table has the figures."""

    title: str
    text: str
    figures: tuple[tuple[str, str], ...]
    """(label, SVG)."""
    table: Table | None = None
    wide: bool = False
    """The charts are as wide as the page."""
    legend: tuple[tuple[str, str, str, str], ...] = ()
    """(letter, words, colour, colour of the letter)."""
    tables: tuple[Table, ...] = ()
    """The figures of each chart, behind a click; empty where `table` has them."""
    notes: tuple[str, ...] = ()
    """What stands below each chart."""
