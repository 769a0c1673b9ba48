"""A page of sections, each of paragraphs, tables, items and commands; shown as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable
from rich.text import Text

from loaderprobe.render.markdown import escaped, pipe_table
from loaderprobe.render.page import Page
from loaderprobe.render.wording import visible

LONGEST_NAME = 24
"""Cells of a first column that are no longer than this are not folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A text; the answers of a page are strong."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Something to type, word for word."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A subject and what is to say of it."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lines of cells under a head; `right` are the columns of figures."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    right: frozenset[int]


Part = Paragraph | Command | Item | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it; the first section of a page has none."""

    title: str = ""
    name: str = ""
    """By which charts find their place; empty where none belong."""
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page."""

    title: str
    sections: tuple[Section, ...]


def document_text(document: Document, *, width: int = 80, color: bool = False) -> str:
    """The page in at most `width` columns, ending with a newline; ANSI colours only with `color`."""
    page = Page(width=width, color=color)
    page.title(document.title)
    for section in document.sections:
        page.gap()
        if section.title:
            page.paragraph(section.title, style="bold")
        for part in section.parts:
            _add(page, part)
    return page.text()


def document_markdown(document: Document) -> str:
    """GitHub-flavoured Markdown, ending with a newline."""
    blocks = [f"# {escaped(document.title)}"]
    for section in document.sections:
        if section.title:
            blocks.append(f"## {escaped(section.title)}")
        blocks += _markdown(section.parts)
    return "\n\n".join(blocks) + "\n"


def _add(page: Page, part: Part) -> None:
    if isinstance(part, Paragraph):
        page.paragraph(part.text, style="bold" if part.strong else "")
    elif isinstance(part, Command):
        page.command(part.text)
    elif isinstance(part, Item):
        page.item(part.subject, part.text)
    else:
        page.add(_rich(part))


def _rich(table: Table) -> RichTable:
    made = RichTable(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for place, head in enumerate(table.head):
        longest = max((len(line[place]) for line in table.lines), default=0)
        made.add_column(
            head,
            justify="right" if place in table.right else "left",
            overflow="fold",
            no_wrap=place == 0 and longest <= LONGEST_NAME,
        )
    for line in table.lines:
        made.add_row(*(Text(visible(cell)) for cell in line))
    return made


def _markdown(parts: Sequence[Part]) -> Iterator[str]:
    """Blocks; items that follow each other are one list."""
    items: list[str] = []
    for part in parts:
        if isinstance(part, Item):
            items.append(
                f"- **{escaped(part.subject)}:** {escaped(part.text)}" if part.text else f"- {escaped(part.subject)}"
            )
            continue
        if items:
            yield "\n".join(items)
            items = []
        if isinstance(part, Paragraph):
            yield f"**{escaped(part.text)}**" if part.strong else escaped(part.text)
        elif isinstance(part, Command):
            yield f"```\n{visible(part.text)}\n```"
        else:
            yield pipe_table(part.head, part.lines, right=part.right)
    if items:
        yield "\n".join(items)
