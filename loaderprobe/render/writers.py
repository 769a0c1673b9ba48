"""The three writers, which show any Document and know nothing else: a terminal, Markdown, a page of HTML."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from loaderprobe.render.charts import STYLES, TONES, chart_html, chart_svg, chart_text, hatches, hows_of
from loaderprobe.render.document import (
    Cell,
    Chart,
    Command,
    Document,
    Fold,
    Item,
    Paragraph,
    Part,
    Section,
    Shown,
    Table,
    Tags,
    cell_text,
    levels,
    unfolded,
)
from loaderprobe.render.format import visible

if TYPE_CHECKING:
    import jinja2


# Documents as text for a terminal, in columns of a given width.

_LONGEST_NAME = 24
"""Cells of a first column that are no longer than this are not folded."""


def document_text(document: Document, *, width: int = 80, color: bool = False) -> str:
    """The page in at most `width` columns, ending with a newline; ANSI colours only with `color`."""
    page = Page(width=width, color=color)
    if document.headline:
        page.title(document.headline, style=STYLES.get(document.tone, ""))
        if document.subline:
            page.paragraph(document.subline)
        page.paragraph(document.title, style="dim")
    else:
        page.title(document.title, style=STYLES.get(document.tone, ""))
    before = ""
    for section in document.sections:
        parts = [part for part in map(unfolded, section.parts) if part and not part.further]
        if not parts:
            continue
        beside = section.panel == "side"
        if (section.title or not section.under) and not (beside and before == "side"):
            page.gap()
        before = section.panel
        if beside and isinstance(first := parts[0], Paragraph | Tags):
            parts = parts[1:]
            page.item(section.title, first.text if isinstance(first, Paragraph) else ", ".join(first.texts), flush=True)
        elif section.title and section.panel != "main":
            page.paragraph(section.title, style="bold")
        for part in parts:
            _add(page, part)
    return page.text()


def _add(page: Page, part: Shown) -> None:
    if isinstance(part, Paragraph):
        page.paragraph(part.text, style=f"{STYLES.get(part.tone, '')}{' bold' if part.strong else ''}".strip())
    elif isinstance(part, Command):
        page.command(part.text, part.label)
    elif isinstance(part, Item):
        page.item(part.subject, part.text, number=part.number)
    elif isinstance(part, Tags):
        page.paragraph(", ".join(part.texts))
    elif isinstance(part, Chart):
        for line in chart_text(part, page.width):
            page.add(line)
    else:
        if part.caption:
            page.paragraph(part.caption, style="dim")
        for made in _tables(part, page.width):
            page.add(made)


def _tables(table: Table, width: int) -> Iterator[RenderableType]:
    """One; where its figures do not fit beside each other, several, each with the first column."""
    natural, least = zip(*(_widths(table, place) for place in range(len(table.head))), strict=True)
    gap = 2 if table.map or sum(natural) + 2 * (len(natural) - 1) <= width else 1
    first = 1
    while first <= max(1, len(least) - 1):
        left, last = width - least[0], first
        while last < len(least) and (last == first or left >= least[last] + gap):
            left -= least[last] + gap
            last += 1
        places = [0, *range(first, last)]
        room = width - sum(natural[place] + gap for place in places) - 1
        # Figures are never folded: where the width is short, it is their heads and the texts that are.
        widths = natural if room >= -gap - 1 else least
        fixed = {place: widths[place] for place in places if place in table.right}
        texts = [place for place in places if place not in table.right]
        if room < -gap - 1:
            free = width - gap * (len(places) - 1) - sum(fixed.values())
            fixed |= _shared({place: least[place] for place in texts}, {place: natural[place] for place in texts}, free)
        yield _table(table, places, fixed, gap)
        first = max(last, first + 1)


def _shared(least: Mapping[int, int], natural: Mapping[int, int], free: int) -> dict[int, int]:
    """Widths of columns of text that together take `free`: each its least, and of the rest its share of what it lacks.

    Rich's own may add up to more than the page has, and then the last column loses its ends.
    """
    spare = max(0, free - sum(least.values()))
    lacks = {place: natural[place] - least[place] for place in least}
    share = min(1.0, spare / max(1, sum(lacks.values())))
    return {place: least[place] + int(share * lacks[place]) for place in least}


def _widths(table: Table, place: int) -> tuple[int, int]:
    """Of a column, as it is and folded; figures and short names are not folded."""
    cells = [visible(cell_text(line[place])) for line in table.lines]
    natural = max([len(text) for cell in (table.head[place], *cells) for text in cell.split("\n")], default=0)
    if table.map:
        return natural, natural if place else min(natural, _LONGEST_NAME)
    unfolded = cells if place in table.right else [word for cell in cells for word in cell.split()]
    least = max([len(text) for text in (*unfolded, *table.head[place].split())], default=0)
    return natural, least if place else max(least if place in table.right else 0, min(natural, _LONGEST_NAME))


def _table(table: Table, places: Sequence[int], fixed: Mapping[int, int], gap: int) -> RichTable:
    made = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for place in places:
        natural, least = _widths(table, place)
        made.add_column(
            table.head[place],
            justify="right" if place in table.right else "left",
            overflow="fold",
            width=fixed.get(place),
            no_wrap=(place == 0 and natural <= _LONGEST_NAME) or (place > 0 and table.map),
            min_width=least,
        )
    for line in table.lines:
        made.add_row(*(_cell(line[place]) for place in places))
    return made


def _cell(cell: str | Cell) -> Text:
    return Text(visible(cell_text(cell)), style=STYLES.get(cell.tone, "") if isinstance(cell, Cell) else "")


class Page:
    """Collects paragraphs, lists and tables; `text` gives them wrapped to `width` columns."""

    def __init__(self, *, width: int, color: bool) -> None:
        # An empty environment keeps COLUMNS, TERM and NO_COLOR of the caller out of the result.
        self._console = Console(
            file=StringIO(),
            width=width,
            height=100,
            color_system="standard" if color else None,
            force_terminal=color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )

    @property
    def width(self) -> int:
        return self._console.width

    def gap(self) -> None:
        self._console.print()

    def title(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(visible(text), style=f"{style} bold".strip(), overflow="fold"))

    def heading(self, text: str) -> None:
        """A line that begins a section, after a blank line."""
        self.gap()
        self._console.print(Text(visible(text), style="bold", overflow="fold"))

    def paragraph(self, text: str, *, style: str = "") -> None:
        """Wrapped text from the left edge."""
        self._console.print(Text(visible(text), style=style, overflow="fold"))

    def item(self, subject: str, text: str, *, number: int = 0, flush: bool = False) -> None:
        """`subject: text`, wrapped, further lines indented; `- text` without a subject, `1. text` with a number.

        `flush` begins at the left edge.
        """
        line = Text(overflow="fold")
        line.append(f"{number}. " if number else "" if subject else "- ")
        line.append(f"{visible(subject)}: " if subject and text else visible(subject), style="bold")
        line.append(visible(text))
        for number, part in enumerate(line.wrap(self._console, max(8, self._console.width - 4), overflow="fold")):
            self._console.print(Padding(part, (0, 0, 0, (2 if flush else 4) if number else (0 if flush else 2))))

    def command(self, text: str, label: str = "") -> None:
        """Something to type, under an item."""
        line = Text(f"{label}: " if label else "", overflow="fold")
        line.append(visible(text), style="cyan")
        self._console.print(Padding(line, (0, 0, 0, 2 if label else 6)))

    def add(self, renderable: RenderableType, *, crop: bool = True) -> None:
        """Anything else that rich can draw; without `crop`, longer lines stay whole."""
        self._console.print(renderable, crop=crop)

    def text(self) -> str:
        """Everything so far, without trailing blanks."""
        file = self._console.file
        assert isinstance(file, StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


# Documents as GitHub-flavoured Markdown, in which nothing of a text can act.


def document_markdown(document: Document) -> str:
    """All but what is folded, ending with a newline."""
    heads = [document.title] if not document.headline else [document.subline, document.title]
    blocks = [f"# {escaped(document.headline or heads.pop())}", *(escaped(words) for words in heads if words)]
    for level, section in levels(document):
        below = list(_blocks(section.parts))
        if section.title and below:
            blocks.append(f"{'#' * level} {escaped(section.title)}")
        blocks += below
    return "\n\n".join(blocks) + "\n"


def _blocks(parts: Sequence[Part]) -> Iterator[str]:
    """Items that follow each other are one list."""
    items: list[str] = []
    for part in [shown for part in parts if (shown := unfolded(part))]:
        if isinstance(part, Item):
            items.append(_item(part))
            continue
        if items:
            yield "\n".join(items)
            items = []
        yield from _block(part)
    if items:
        yield "\n".join(items)


def _block(part: Shown) -> Iterator[str]:
    """Of one that is no item."""
    if isinstance(part, Paragraph):
        yield f"**{escaped(part.text)}**" if part.strong else escaped(part.text)
    elif isinstance(part, Command):
        yield f"```\n{visible(part.text)}\n```"
    elif isinstance(part, Tags):
        yield escaped(", ".join(part.texts))
    elif isinstance(part, Chart):
        yield from _chart_blocks(part)
    elif isinstance(part, Table):
        if part.caption:
            yield escaped(part.caption)
        yield pipe_table(part.head, [[cell_text(cell) for cell in line] for line in part.lines], right=part.right)


def _chart_blocks(chart: Chart) -> Iterator[str]:
    """The figures of a chart, as a table; one without figures is a picture only."""
    rows = [row for row in chart.rows if row.value or row.note or row.head]
    if not rows:
        return
    if chart.caption:
        yield escaped(chart.caption)
    what, figure = (chart.ends or f",{chart.unit}").split(",", 1)
    yield pipe_table((what, figure, ""), [(row.label, row.value, row.note) for row in rows], right={1})


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


# Documents as HTML files that work offline: no script, no request, charts as inline SVG.

_KINDS = {
    Paragraph: "paragraph", Command: "command", Item: "item", Table: "table", Fold: "fold", Cell: "cell",
    Tags: "tags", Chart: "chart",
}  # fmt: skip


def document_page(document: Document, *, made_by: str, inline: bool = False) -> str:
    """A whole HTML document, for a browser from a phone's width to a printed page. All text is escaped.

    The first section, and those under it, stand together above the others, its strong paragraphs first. `inline`:
    one element with the same in it, for a notebook, with styles that hold in that element only.
    """
    found: list[tuple[int, Section]] = []
    for level, section in reversed(list(levels(document))):
        above = bool(found and found[-1][1].under and not section.under)
        if section.parts or above:
            found.append((level, section))
    found.reverse()
    first = [section for _, section in found if section.panel]
    found = [(level, section) for level, section in found if not section.panel]
    begin = next((place for place, (_, section) in enumerate(found) if place and not section.under), len(found))
    begin = 0 if first else begin
    return _template().render(
        document=document,
        hatched=_hatched(document),
        first=first,
        head=found[:begin],
        sections=found[begin:],
        made_by=made_by,
        notebook=inline,
    )


def document_picture(document: Document) -> str | None:
    """The first chart of the first screen as one SVG file, under the headline; None where there is none."""
    charts = [
        part for section in document.sections if section.panel for part in section.parts if isinstance(part, Chart)
    ]
    title = document.headline or document.title
    return chart_svg(charts[0], title=title, subtitle=document.subline) if charts else None


def _hatched(document: Document) -> bool:
    """True where a chart needs the patterns of what is estimated."""
    charts = [part for section in document.sections for part in section.parts if isinstance(part, Chart)]
    return any(hows_of(chart.rows) for chart in charts)


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
    environment.globals.update(
        kind=lambda part: _KINDS.get(type(part), ""),
        inline=Markup,
        tones=TONES,
        hatches=hatches,
        chart=lambda part: Markup(chart_html(part)),
    )
    return environment.get_template("document.html.jinja")
