"""A document with its charts as one HTML file: no script, no request, charts inline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from loaderprobe.render.document import Command, Document, Item, Paragraph, Table
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.wording import visible

if TYPE_CHECKING:
    import jinja2

_KINDS = {Paragraph: "paragraph", Command: "command", Item: "item", Table: "table"}


def document_page(document: Document, exhibits: Mapping[str, Sequence[Exhibit]], *, made_by: str) -> str:
    """A whole HTML document. The answers are the strong paragraphs of the first section; all text is escaped.

    `exhibits` stand in the section of their name, before its tables.
    """
    first, *sections = document.sections
    answers = [part.text for part in first.parts if isinstance(part, Paragraph) and part.strong]
    others = [part for part in first.parts if not (isinstance(part, Paragraph) and part.strong)]
    return rendered(
        "document.html.jinja", title=document.title, answers=answers, first=others, sections=sections,
        exhibits=dict(exhibits), made_by=made_by,
    )  # fmt: skip


def rendered(template: str, **given: Any) -> str:
    """A template of documents with what it is given."""
    return str(_templates().get_template(template).render(**given))


@cache
def _templates() -> jinja2.Environment:
    from markupsafe import Markup

    # The only text that is not escaped: SVG, in which its makers escaped what came from outside.
    return templates(kind=lambda part: _KINDS[type(part)], inline=Markup)


def templates(**everywhere: Any) -> jinja2.Environment:
    """The templates, and what all of them see; text from outside is escaped, and control characters shown."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loaderprobe", "render"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.globals.update(everywhere)
    return environment
