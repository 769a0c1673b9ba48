"""Documents as HTML files that work offline: no script, no request, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from loaderprobe.render.charts import TONES
from loaderprobe.render.document import Cell, Command, Document, Exhibit, Fold, Item, Paragraph, Section, Table, levels
from loaderprobe.render.wording import visible

if TYPE_CHECKING:
    import jinja2

_KINDS = {Paragraph: "paragraph", Command: "command", Item: "item", Table: "table", Fold: "fold", Cell: "cell"}


def document_page(document: Document, exhibits: Mapping[str, Sequence[Exhibit]], *, made_by: str) -> str:
    """A whole HTML document, for a browser from a phone's width to a printed page. All text is escaped.

    The first section, and those under it, stand together above the others, its strong paragraphs first. `exhibits`
    stand in the section of their name, before its parts.
    """
    found: list[tuple[int, Section]] = []
    for level, section in reversed(list(levels(document))):
        above = bool(found and found[-1][1].under and not section.under)
        if section.parts or exhibits.get(section.name) or above:
            found.append((level, section))
    found.reverse()
    begin = next((place for place, (_, section) in enumerate(found) if place and not section.under), len(found))
    return _template().render(
        title=document.title, tone=document.tone, head=found[:begin], sections=found[begin:], exhibits=dict(exhibits),
        made_by=made_by,
    ) + "\n"  # fmt: skip


@cache
def _template() -> jinja2.Template:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loaderprobe", "render"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters are shown, not sent.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    # Charts are the only text that is not escaped: their makers did that.
    environment.globals.update(kind=lambda part: _KINDS.get(type(part), ""), inline=Markup, tones=TONES)
    return environment.get_template("document.html.jinja")
