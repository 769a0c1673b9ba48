"""Documents as GitHub-flavoured Markdown, in which nothing of a text can act."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from loaderprobe.render.document import Command, Document, Fold, Item, Paragraph, Part, cell_text, levels
from loaderprobe.render.wording import visible


def document_markdown(document: Document) -> str:
    """All but what is folded, ending with a newline."""
    blocks = [f"# {escaped(document.title)}"]
    for level, section in levels(document):
        below = list(_blocks(section.parts))
        if section.title and below:
            blocks.append(f"{'#' * level} {escaped(section.title)}")
        blocks += below
    return "\n\n".join(blocks) + "\n"


def _blocks(parts: Sequence[Part]) -> Iterator[str]:
    """Items that follow each other are one list."""
    items: list[str] = []
    for part in parts:
        if isinstance(part, Item):
            items.append(_item(part))
            continue
        if items:
            yield "\n".join(items)
            items = []
        if isinstance(part, Paragraph):
            yield f"**{escaped(part.text)}**" if part.strong else escaped(part.text)
        elif isinstance(part, Command):
            yield f"```\n{visible(part.text)}\n```"
        elif not isinstance(part, Fold):
            if part.caption:
                yield escaped(part.caption)
            yield pipe_table(part.head, [[cell_text(cell) for cell in line] for line in part.lines], right=part.right)
    if items:
        yield "\n".join(items)


def _item(item: Item) -> str:
    mark = f"{item.number}." if item.number else "-"
    subject = escaped(item.subject)
    if item.subject and item.text:
        subject = f"**{subject}:** "
    return f"{mark} {subject}{escaped(item.text)}"


def pipe_table(head: Sequence[str], lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """A table; the columns of `right` are aligned there."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    escaped_head, *escaped_lines = ([escaped(cell) for cell in line] for line in (head, *lines))
    rows = [escaped_head, rule, *escaped_lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escaped(text: str) -> str:
    """`text` with everything that Markdown or HTML would act on made harmless, on one line."""
    text = visible(text).replace("\n", " ")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{char}" if char in "\\`*_[]|#" else char for char in text)
