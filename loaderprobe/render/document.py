"""What every result becomes before it is shown: a headline, and sections of texts, tables, charts and what proves them.

Each result has one function that makes its Document. Writers show any Document and know nothing else: in a terminal, as
Markdown, and as HTML, as a page or inside a notebook. Charts are in `charts.py`.

A tone is the name of a colour: a cause, or `now`, `change`, `quiet`, `warning`, `good`. No writer needs it to
be understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from loaderprobe.render.format import MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What stands under a heading."""

    further: bool = False
    """True for what a terminal leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph(Part):
    """A text; the answers of a page are strong."""

    text: str
    strong: bool = False
    tone: str = ""
    tags: tuple[str, ...] = ()
    """The short texts that it joins, in no order; a page has them beside each other."""


IN_CODE = "In your code"
"""The label of what is typed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Part):
    """Something to type, word for word."""

    text: str
    label: str = ""
    """What typing it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Part):
    """An entry of a list: a subject and what is to say of it, either may be empty."""

    subject: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A text of a table with a tone."""

    text: str
    tone: str
    words: str = ""
    """What the tone and the letters stand for, for those who hear the page."""


Line = tuple[str | Cell, ...]


_FIGURE = re.compile(r"\W*\d[\d,.]*x?(?!\w)")
"""What begins with a number, but for signs and marks."""
_NONE = (MISSING, "not known", "not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Part):
    """Lines of cells under a head."""

    head: tuple[str, ...]
    lines: tuple[Line, ...]
    right: frozenset[int] = field(init=False)
    """The columns of figures; the first, which names its lines, where it has nothing but numbers."""
    map: bool = False
    """Each cell has the colour of its tone; no terminal shows one."""
    caption: str = ""

    def __post_init__(self) -> None:
        right = {index for index in range(len(self.head)) if self._holds_figures(index)}
        object.__setattr__(self, "right", frozenset(range(1, len(self.head)) if self.map else right))

    def _holds_figures(self, index: int) -> bool:
        cells = [text for line in self.lines if (text := cell_text(line[index]))]
        return bool(cells) and all(
            text.isdecimal() or (index and (text in _NONE or _FIGURE.match(text))) for text in cells
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its head, the cell of a row, and what it means."""

    head: str
    get: Callable[[Any], str | Cell]
    help: str = ""


def table(rows: Sequence[Any], columns: Iterable[Column], *, caption: str = "") -> tuple[Part, ...]:
    """A line a row, without the columns that are empty, and what the others mean; nothing of no rows."""
    if not rows:
        return ()
    cells = {column: [column.get(row) for row in rows] for column in columns}
    shown = {column: texts for column, texts in cells.items() if any(cell_text(cell) for cell in texts)}
    helps = "; ".join(column.help for column in shown if column.help)
    lines = tuple(zip(*shown.values(), strict=True))
    made = Table(head=tuple(column.head for column in shown), lines=lines, caption=caption)
    return (made, Paragraph(text=f"{helps}.", tone="quiet")) if helps else (made,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Part):
    """What proves one entry, behind a click: shown on a page, elsewhere its text at most."""

    subject: str
    verdict: Cell
    text: str
    parts: tuple[Part, ...]
    said: bool = False
    """True where the other writers have its text, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, and what stands under it."""

    title: str = ""
    parts: tuple[Part, ...] = ()
    level: Literal[2, 3] = 2
    """Of its heading; one of 3 belongs to the section before it."""
    panel: Literal["", "main", "side"] = ""
    """Its place on the first screen of a page: the wide column or the one beside it; empty below that screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page."""

    title: str
    """What was examined, in one line."""
    sections: tuple[Section, ...]
    headline: str = ""
    """The answer, in a few words; empty where the title is all there is."""
    subline: str = ""
    """What the answer depends on."""
    tone: str = ""
    """Of the headline."""
    unsure: bool = False
    """True where the headline is not conclusive."""


def further(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same parts, which a terminal leaves out."""
    return tuple(replace(part, further=True) for part in parts)


def items(entries: Iterable[tuple[str, str]]) -> tuple[Item, ...]:
    """A list of (subject, text)."""
    return tuple(Item(subject=subject, text=text) for subject, text in entries)


def tags(texts: Iterable[str]) -> tuple[Paragraph, ...]:
    """These texts beside each other; nothing where there are none."""
    words = tuple(texts)
    between = "; " if any("," in text for text in words) else ", "
    return (Paragraph(text=between.join(words), tags=words),) if words else ()


def few(names: Sequence[str]) -> list[str]:
    """All of them; of many the first three, and how many more."""
    return [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]


def unfolded(part: Part) -> Part | None:
    """What stands for a part where nothing can be unfolded: the text of a fold, or nothing."""
    if not isinstance(part, Fold):
        return part
    return Item(subject=part.subject, text=part.text) if part.said else None


def cell_text(cell: str | Cell) -> str:
    """The text alone."""
    return cell if isinstance(cell, str) else cell.text
