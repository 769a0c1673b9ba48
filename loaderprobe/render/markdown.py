"""Pieces of Markdown in which nothing of a text can act."""

from __future__ import annotations

from collections.abc import Container, Sequence

from loaderprobe.render.wording import visible


def pipe_table(head: Sequence[str], lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """A table; the columns of `right` are aligned there."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    rows = [head, rule, *([escaped(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escaped(text: str) -> str:
    """`text` with everything that Markdown or HTML would act on made harmless, on one line."""
    text = visible(text).replace("\n", " ")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{char}" if char in "\\`*_[]|#" else char for char in text)
