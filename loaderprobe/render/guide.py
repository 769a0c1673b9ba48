"""Pages of the guide for a terminal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from loaderprobe.records import thresholds
from loaderprobe.render.terminal import printed

_GROUP_OR_ROW = re.compile(r'^# ([^\n]+)$|^([A-Z_]+) = [^\n]+\n"""(.+?)"""$', re.MULTILINE | re.DOTALL)
_CUT = "\N{HORIZONTAL ELLIPSIS}"


class _Table(TableElement):
    """A table; where its words do not fit side by side, an item a row, with the heads of the columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for element in super().__rich_console__(console, options):
            cut = isinstance(element, Table) and any(_CUT in part.text for part in console.render(element, options))
            yield from self._items() if cut else [element]

    def _items(self) -> Iterator[Padding]:
        heads = self.header.row.cells if self.header and self.header.row else []
        for row in self.body.rows if self.body else []:
            first, *rest = row.cells
            said = [
                Text.assemble((f"{head.content.plain}: ", "dim"), cell.content)
                for head, cell in zip(heads[1:], rest, strict=False)
                if cell.content.plain
            ]
            name = first.content.copy()
            name.stylize("bold")
            yield Padding(name, (0, 0, 0, 1))
            yield Padding(Text("; ").join(said), (0, 0, 0, 4))


class _Code(CodeBlock):
    """Lines as they are, whatever the width: a command that was broken could not be pasted."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = str(self.text).rstrip().splitlines()
        before = " " * max(0, min(2, options.max_width - max(map(len, lines), default=0)))
        yield Text("\n".join(f"{before}{line}" for line in lines), style="cyan", no_wrap=True, overflow="ignore")


class _Guide(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "table_open": _Table, "fence": _Code, "code_block": _Code,
    }  # fmt: skip


def guide_text(page: str, *, width: int = 80, color: bool = False) -> str:
    """A page, written in Markdown, in at most `width` columns; lines of code keep their length."""
    return printed([_Guide(page)], width=width, color=color, crop=False)


def threshold_tables() -> str:
    """Every threshold in Markdown, by what it is about."""
    lines: list[str] = []
    for group, name, meaning in _GROUP_OR_ROW.findall(inspect.getsource(thresholds)):
        if group:
            lines += ["", f"## {group}", "", "| threshold | value | what it decides | from |", "|---|---|---|---|"]
        else:
            decides, _, source = " ".join(meaning.split()).partition(" From: ")
            lines.append(f"| `{name}` | {getattr(thresholds, name):,.9g} | {decides} | {source} |")
    return "\n".join(lines)
