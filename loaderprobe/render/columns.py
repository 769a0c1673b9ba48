"""Tables of figures in columns of one width, without lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from loaderprobe.render.page import Page
from loaderprobe.units import significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table: a head, a cell and a style for each phase, all in one width."""

    heads: Sequence[str]
    cells: Sequence[str]
    styles: Sequence[str]
    left: bool = False
    gap: int = 2
    """Blanks before it."""

    @property
    def width(self) -> int:
        """Of the widest head or cell, and of the blanks before it."""
        return self.gap + max(len(text) for text in (*self.heads, *self.cells))

    def fitted(self, text: str) -> str:
        """`text` in the width of the column."""
        room = self.width - self.gap
        return " " * self.gap + (text.ljust(room) if self.left else text.rjust(room))


class Table:
    """Puts rows on a page, and the heads above them where they are not those of the row before."""

    def __init__(self, page: Page, columns: Sequence[Column]) -> None:
        self._page = page
        self._columns = columns
        self._heads: list[str] = []

    def row(self, number: int) -> None:
        """The row of this number, with its heads if they are new."""
        heads = [column.heads[number] for column in self._columns]
        if heads != self._heads:
            self._page.add(_line(self._columns, heads, ["dim"] * len(heads)))
        self._heads = heads
        cells = [column.cells[number] for column in self._columns]
        self._page.add(_line(self._columns, cells, [column.styles[number] for column in self._columns]))


def column(head: str, cells: Sequence[str], styles: Sequence[str], *, left: bool = False, gap: int = 1) -> Column:
    """A column with one head for all rows."""
    return Column(heads=[head] * len(cells), cells=cells, styles=styles, left=left, gap=gap)


def aligned(values: Iterable[float]) -> list[str]:
    """Three figures each, with blanks behind so that the decimal points stand below each other."""
    shown = [significant(value) for value in values]
    longest = max(len(text.partition(".")[1] + text.partition(".")[2]) for text in shown)
    return [text + " " * (longest - len(text.partition(".")[1] + text.partition(".")[2])) for text in shown]


def half_interval(value: float, half: float) -> str:
    """`±6`, to the decimal place of the value with three figures; `half` is above 0."""
    decimals = len(significant(value).partition(".")[2])
    text = f"{half:.{decimals}f}"
    return f"±{text if float(text) else significant(half, 1)}"


def _line(columns: Sequence[Column], cells: Sequence[str], styles: Sequence[str]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for each, cell, style in zip(columns, cells, styles, strict=True):
        line.append(each.fitted(cell), style)
    return line


def value_range(values: Sequence[float]) -> str:
    """`12.5`, or `12.5 to 20.1`; empty without a value."""
    return " to ".join(dict.fromkeys(significant(value) for value in (min(values), max(values)))) if values else ""
