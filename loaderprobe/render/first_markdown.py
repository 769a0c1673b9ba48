"""The first page as Markdown."""

from __future__ import annotations

from loaderprobe.render.first_page import BEST_HEAD, BEST_RIGHT, DevicePart, FirstPage
from loaderprobe.render.markdown import escaped, pipe_table


def first_blocks(first: FirstPage) -> list[str]:
    """Blocks of GitHub-flavoured Markdown, without the title."""
    blocks = [f"**{escaped(' '.join(first.answer))}**"] if first.answer else []
    for part in first.devices:
        blocks += _device(part)
    if first.key:
        blocks.append(escaped(f"{first.key}. {first.best_note}"))
    if first.changes:
        lines = [f"{place}. {escaped(each.words)}" for place, each in enumerate(first.changes, 1)]
        blocks += ["## Do next", "\n".join(lines)]
    for each in first.needs:
        blocks += [f"## {escaped(each.title)}", pipe_table(each.head, each.lines, right=range(1, len(each.head)))]
        blocks.append(escaped(each.note))
    return [*blocks, *([f"> {escaped(first.unknown)}"] if first.unknown else [])]


def _device(part: DevicePart) -> list[str]:
    lines = [[name, *(cell.text if cell else "" for cell in cells)] for name, cells in part.map.lines]
    blocks = [
        f"## {escaped(part.title)}",
        pipe_table(["workers", *part.map.workers], lines, right=range(1, len(part.map.workers) + 1)),
    ]
    return [*blocks, *([pipe_table(BEST_HEAD, part.best, right=BEST_RIGHT)] if part.best else [])]
