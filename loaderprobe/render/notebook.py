"""Documents as pieces of HTML for a notebook: nothing is fetched, and they are read on light and on dark pages."""

from __future__ import annotations

import html
from collections.abc import Sequence

from loaderprobe.render.document import Cell, Command, Document, Fold, Item, Line, Paragraph, Section, Shown, Table
from loaderprobe.render.wording import visible

_FRAME = (
    "border:1px solid rgba(128,128,128,.35);border-radius:4px;padding:.8em 1.1em;font:14px/1.45 system-ui,sans-serif;"
    "text-align:left"
)
_CELL = "padding:.15em .9em .15em 0;border:0;background:none;vertical-align:top;text-align:"
# Colours that can be read on white and on black.
_COLORS = {"compute": "#2a9d5c", "good": "#2a9d5c", "balanced": "#3a8fb7", "inconclusive": "#8a8a8a"}
_INPUT_COLOR = "#d9731a"
_STYLES = {"": "", "quiet": "opacity:.65", "strong": "font-weight:600", "skipped": "opacity:.65"}
_MORE = "More"


def document_html(document: Document) -> str:
    """A document in a frame; what a terminal leaves out is behind a click."""
    parts = [_heading(document.title, f"font-size:1.15em;{_style(document.tone)}")] if document.title else []
    parts += map(_section, document.sections)
    edge = f";border-left:4px solid {_color(document.tone)}" if document.tone else ""
    return f'<div style="{_FRAME}{edge}">{"".join(parts)}</div>'


def _section(section: Section) -> str:
    shown = [part for part in section.parts if not isinstance(part, Fold)]
    first = [part for part in shown if not part.further]
    more = [part for part in shown if part.further]
    title = _heading(section.title, "margin:.8em 0 0") if section.title and first else ""
    folded = f"<details><summary>{_safe(_MORE if first else section.title)}</summary>{_parts(more)}</details>"
    return f"{title}{_parts(first)}{folded if more else ''}"


def _heading(text: str, style: str) -> str:
    return f'<div style="font-weight:600;{style}">{_safe(text)}</div>'


def _parts(parts: Sequence[Shown]) -> str:
    return "".join(map(_part, parts))


def _part(part: Shown) -> str:
    if isinstance(part, Paragraph):
        style = f"{';font-weight:600' if part.strong else ''};{_style(part.tone)}"
        return f'<div style="margin:.4em 0{style.rstrip(";")}">{_safe(part.text)}</div>'
    if isinstance(part, Command):
        return f'<pre style="margin:.2em 0">{_safe(part.text)}</pre>'
    if isinstance(part, Item):
        mark = f"{part.number}. " if part.number else "" if part.subject else "- "
        subject = f"<b>{_safe(part.subject)}{':' if part.text else ''}</b> " if part.subject else ""
        return f'<div style="margin:.4em 0">{mark}{subject}{_safe(part.text)}</div>'
    return _table(part)


def _table(table: Table) -> str:
    head = _cells("th", table.head, table) + ("<th></th>" if table.bars else "")
    bars = [_bar(share) for share in table.bars] or [""] * len(table.lines)
    lines = "".join(f"<tr>{_cells('td', line, table)}{bar}</tr>" for line, bar in zip(table.lines, bars, strict=True))
    caption = f"<caption>{_safe(table.caption)}</caption>" if table.caption else ""
    return f'<table style="border:0;margin:.3em 0">{caption}<tr>{head}</tr>{lines}</table>'


def _cells(tag: str, line: Line, table: Table) -> str:
    sides = ("right" if column in table.right else "left" for column in range(len(line)))
    return "".join(_cell(tag, f"{_CELL}{side}", cell) for side, cell in zip(sides, line, strict=True))


def _cell(tag: str, style: str, cell: str | Cell) -> str:
    if isinstance(cell, Cell):
        return f'<{tag} style="{style};{_style(cell.tone)}">{_safe(cell.text)}</{tag}>'
    return f'<{tag} style="{style}">{_safe(cell)}</{tag}>'


def _bar(share: float) -> str:
    drawn = f'<div style="height:.75em;border-radius:2px;width:{share:.1%};background:rgba(128,128,128,.5)"></div>'
    return f'<td style="{_CELL}left;min-width:12em">{drawn}</td>'


def _style(tone: str) -> str:
    return _STYLES[tone] if tone in _STYLES else f"color:{_color(tone)}"


def _color(tone: str) -> str:
    return _COLORS.get(tone, _INPUT_COLOR)


def _safe(text: str) -> str:
    return html.escape(visible(text)).replace("\n", "<br>")
