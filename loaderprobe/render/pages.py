"""Documents as Markdown and as HTML that works offline, their first chart as a picture; no text acts in them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len

from loaderprobe.records.resources import RESOURCE
from loaderprobe.render.charts import BASE, MARKS, TONES, Bar, Chart, ChartRow, how_known, ticks, tones_of, whiskers
from loaderprobe.render.document import Command, Document, Item, Paragraph, Part, Section, Table, cell_text, unfolded
from loaderprobe.render.format import visible
from loaderprobe.render.words import ENOUGH_MARK

if TYPE_CHECKING:
    import jinja2


def document_markdown(document: Document) -> str:
    """All but what is folded, ending with a newline."""
    heads = [document.title] if not document.headline else [document.subline, document.title]
    blocks = [f"# {escaped(document.headline or heads.pop())}", *(escaped(words) for words in heads if words)]
    for section in document.sections:
        below = list(_blocks(section.parts))
        if section.title and below:
            blocks.append(f"{'#' * section.level} {escaped(section.title)}")
        blocks += below
    return "\n\n".join(blocks) + "\n"


def _blocks(parts: Sequence[Part]) -> Iterator[str]:
    """Items that follow each other are one list."""
    shown = (part for part in map(unfolded, parts) if part)
    for are_items, run in groupby(shown, key=lambda part: isinstance(part, Item)):
        blocks = [block for part in run for block in _block(part)]
        yield from ["\n".join(blocks)] if are_items else blocks


def _block(part: Part) -> Iterator[str]:
    if isinstance(part, Paragraph):
        yield f"**{escaped(part.text)}**" if part.strong else escaped(part.text)
    elif isinstance(part, Item):
        subject = f"**{escaped(part.subject)}:** " if part.subject and part.text else escaped(part.subject)
        yield f"- {subject}{escaped(part.text)}"
    elif isinstance(part, Command):
        yield f"```\n{visible(part.text)}\n```"
    elif isinstance(part, Chart):
        yield from _chart_blocks(part)
    elif isinstance(part, Table):
        if part.caption:
            yield escaped(part.caption)
        yield pipe_table(part.head, [[cell_text(cell) for cell in line] for line in part.lines], right=part.right)


def _chart_blocks(chart: Chart) -> Iterator[str]:
    """The figures of a chart, as a table; one without figures is a picture only."""
    if not any(row.value or row.note for row in chart.rows):
        return
    if chart.caption:
        yield escaped(chart.caption)
    what, figure = chart.ends.split(",", 1)
    yield pipe_table((what, figure, ""), [(row.label, row.value, row.note) for row in chart.rows], right={1})


def pipe_table(head: Sequence[str], lines: Sequence[Sequence[str]], right: Container[int]) -> str:
    """A table; the columns of `right` are aligned there."""
    rows = [[escaped(cell) for cell in line] for line in (head, *lines)]
    rows.insert(1, ["---:" if column in right else "---" for column in range(len(head))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escaped(text: str) -> str:
    """`text` with everything that Markdown or HTML would act on made harmless, on one line."""
    text = escape(visible(text).replace("\n", " "), quote=False)
    return "".join(f"\\{char}" if char in "\\`*_[]|#" else char for char in text)


def document_page(document: Document, *, made_by: str, inline: bool = False) -> str:
    """A whole HTML document, for a browser from a phone's width to a printed page. All text is escaped.

    `inline`: one element with the same in it, for a notebook, with styles that hold in that element only.
    """
    sections = [section for section in document.sections if section.parts]
    template = _templates().get_template("document.html.jinja")
    return template.render(
        document=document,
        hatched=any(how_known(_bars(chart)) for chart in _charts(document.sections)),
        first=[section for section in sections if section.panel],
        sections=[section for section in sections if not section.panel],
        made_by=made_by,
        notebook=inline,
    )


def document_picture(document: Document) -> str | None:
    """The first chart of the first screen as one SVG file, under the headline; None where there is none."""
    chart = next(_charts([section for section in document.sections if section.panel]), None)
    if chart is None:
        return None
    return chart_svg(chart, title=document.headline or document.title, subtitle=document.subline)


def _charts(sections: Sequence[Section]) -> Iterator[Chart]:
    yield from (part for section in sections for part in section.parts if isinstance(part, Chart))


def _bars(chart: Chart) -> list[Bar]:
    return [bar for row in chart.rows for bar in row.bars]


@cache
def _templates() -> jinja2.Environment:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("loaderprobe", "render"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters are shown, not sent; no line ends between a mark and what it marks.
        finalize=lambda value: _MARK.sub("\N{NO-BREAK SPACE}\\1", visible(value)) if type(value) is str else value,
    )
    # Marks are the only text that is not escaped: their makers did that.
    environment.globals.update(
        kind=lambda part: type(part).__name__.lower(),
        inline=Markup,
        tones=TONES,
        hatches=hatches,
        height=_HEIGHT,
        marks=lambda chart, row: Markup("".join(_marks(chart, row))),
        ticks=lambda chart: Markup(_ticks(chart)),
        legend=lambda chart: [(Markup(mark), words) for mark, words in _legend(chart)],
    )
    return environment


_MARK = re.compile(f" ([{''.join(ENOUGH_MARK.values())}])$")

_HEIGHT, _THICK = 22, 13
"""Pixels of a row, and of a bar in it."""
_LEAST_LETTER = 4.0
"""Per cent of the axis that a bar needs to hold its letter."""


def _ticks(chart: Chart) -> str:
    """The figures below the axis."""
    labels = []
    for tick in ticks(chart.low, chart.high):
        at = chart.on_axis(tick)
        anchor = "start" if at < 3 else "end" if at > 97 else "middle"
        labels.append(f'<text class="quiet" x="{at:.2f}%" y="14" text-anchor="{anchor}">{tick:,.10g}</text>')
    return "".join(labels)


def _marks(chart: Chart, row: ChartRow) -> Iterator[str]:
    """Of one row, what lies below first; x in per cent, y in pixels."""
    top, middle = (_HEIGHT - _THICK) / 2, _HEIGHT / 2
    if chart.unit:
        for tick in ticks(chart.low, chart.high):
            at = chart.on_axis(tick)
            yield f'<line class="grid" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="{_HEIGHT}"/>'
    for bar in row.bars:
        begin, end = chart.on_axis(bar.begin), chart.on_axis(bar.end)
        if end <= begin:
            continue
        if bar.tone == BASE:
            yield f'<line class="base" x1="{begin:.2f}%" x2="{end:.2f}%" y1="{middle:g}" y2="{middle:g}"/>'
            continue
        position = f'x="{begin:.2f}%" y="{top:g}" width="{end - begin:.2f}%" height="{_THICK}"'
        yield f"<rect {position} {_fill(bar)}/>"
        yield from _letters(chart, row, bar, begin, end)
    if row.level is not None and row.level <= chart.high:
        at = chart.on_axis(row.level)
        yield f'<line class="level" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="{_HEIGHT}"{_dash(row)}/>'
    if row.interval and row.interval[0] < chart.high:
        yield from _whisker(chart, row.interval, middle)
    if row.point:
        yield _dot(row.point, f"{chart.on_axis(row.point.end):.2f}%", middle)


def _letters(chart: Chart, row: ChartRow, bar: Bar, begin: float, end: float) -> Iterator[str]:
    """The letter of a bar, left of the whisker, whose line would hide it; and the cut of one beyond the axis."""
    height = f'y="{_HEIGHT / 2 + 4:g}"'
    if bar.end > chart.high:
        yield f'<text class="letter" x="100%" {height} text-anchor="end">▸</text>'
        cut = f"M-26 {_HEIGHT - 1}l7 {2 - _HEIGHT}M-18 {_HEIGHT - 1}l7 {2 - _HEIGHT}"
        yield f'<svg x="100%" overflow="visible" aria-hidden="true"><path class="halo" d="{cut}"/></svg>'
    if bar.letter and end - begin >= _LEAST_LETTER:
        resource = RESOURCE.get(bar.tone)
        ink = resource.ink if resource and bar.how == "measured" else "currentColor"
        clear = min(end, chart.on_axis(row.interval[0])) if row.interval else end
        at = (begin + max(clear, begin + _LEAST_LETTER)) / 2
        yield (
            f'<text class="letter" x="{at:.2f}%" {height} text-anchor="middle" fill="{ink}">{_safe(bar.letter)}</text>'
        )


def _dot(point: Bar, x: str, y: float) -> str:
    """A diamond: full where it is measured, with a dot where it is estimated, else empty."""
    color = TONES[point.tone]
    fill = color if point.how == "measured" else "var(--card)"
    diamond = f'<path d="M0-6l6 6l-6 6l-6-6z" fill="{fill}" stroke="{color}" stroke-width="2"/>'
    dot = f'<circle r="2" fill="{color}"/>' if point.how == "estimated" else ""
    return f'<svg x="{x}" y="{y:g}" overflow="visible" aria-hidden="true">{diamond}{dot}</svg>'


def _fill(bar: Bar) -> str:
    color = TONES[bar.tone]
    if bar.how == "measured":
        return f'fill="{color}"'
    if bar.how == "unsure":
        return f'fill="none" stroke="{color}" stroke-dasharray="4 3"'
    return f'fill="url(#hatch-{bar.tone})" stroke="{color}"'


def hatches() -> str:
    """The patterns of what is estimated, once a page."""
    patterns = "".join(
        f'<pattern id="hatch-{tone}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="3" height="6" fill="{color}"/></pattern>'
        for tone, color in TONES.items()
    )
    return f'<svg class="heard" aria-hidden="true"><defs>{patterns}</defs></svg>'


def _whisker(chart: Chart, interval: tuple[float, float], middle: float) -> Iterator[str]:
    """With a halo, so that it shows on a bar; with an arrow in place of its cap where it passes the end of the axis."""
    low, high = (chart.on_axis(end) for end in interval)
    caps = [low] if interval[1] > chart.high else [low, high]
    if interval[1] > chart.high:
        head = f"M-7 {middle - 4:g}l7 4l-7 4"
        yield f'<svg x="100%" overflow="visible" aria-hidden="true"><path class="whisker" d="{head}"/></svg>'
    for kind in ("halo", "whisker"):
        yield f'<line class="{kind}" x1="{low:.2f}%" x2="{high:.2f}%" y1="{middle:g}" y2="{middle:g}"/>'
        for at in caps:
            yield f'<line class="{kind}" x1="{at:.2f}%" x2="{at:.2f}%" y1="{middle - 4:g}" y2="{middle + 4:g}"/>'


def _legend(chart: Chart) -> list[tuple[str, str]]:
    """(mark of 20 x 12 pixels, what it stands for) of all that is in use."""
    tones = tones_of(chart, chart.rows).items()
    entries = [(f'<rect width="14" height="12" fill="{TONES[tone]}"/>', words) for tone, words in tones]
    for known in how_known(_bars(chart)):
        filled = _fill(Bar(end=1, tone="inconclusive", how=known))
        entries.append((f'<rect x="1" y="1" width="18" height="10" {filled}/>', MARKS[known][1]))
    points = how_known(row.point for row in chart.rows if row.point)
    entries += [(_dot(Bar(end=1, tone="inconclusive", how=how), "10", 6), MARKS[how][1]) for how in points]
    if words := whiskers(chart.rows):
        entries.append(('<path class="whisker" d="M1 2v8M1 6h18M19 2v8"/>', words))
    levels = [row for row in chart.rows if row.level is not None]
    if chart.level and levels:
        how = "" if levels[0].level_how == "measured" else f" ({levels[0].level_how})"
        entries.append((f'<line class="level" x1="10" x2="10" y1="0" y2="12"{_dash(levels[0])}/>', chart.level + how))
    return entries


def _dash(row: ChartRow) -> str:
    return "" if row.level_how == "measured" else ' stroke-dasharray="4 3"'


def _safe(text: str) -> str:
    return escape(visible(text))


_WIDTH, _LABELS, _VALUES = 760, 180, 210
"""Pixels for names at the left and figures at the right."""
_LETTERS = 25
"""Of a name, which takes no more than its pixels; some letters count twice."""
_TITLE, _CAPTION = 64, 100
"""Characters of a title, and of a caption, in one line."""
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1c2024}.quiet{fill:#5a626b}"
    ".title{font-size:19px;font-weight:700}.strong{font-weight:600}.letter{font-weight:600;font-size:11px}"
    ".grid{stroke:#dfe2e6}.level,.whisker{stroke:#1c2024;stroke-width:1.5;fill:none}"
    ".halo{stroke:#fff;stroke-width:4;fill:none}.base{stroke:#b4bac1;stroke-width:3}"
)


def chart_svg(chart: Chart, *, title: str, subtitle: str = "") -> str:
    """The chart under its title on white ground, for a README. All text is escaped."""
    track = _WIDTH - _LABELS - _VALUES - 24
    heads = [(line, "title") for line in wrap(title, _TITLE)] + [(subtitle, "quiet")]
    heads += [(line, "") for line in wrap(chart.caption, _CAPTION)]
    top, elements = 12, []
    for words, name in heads:
        if words:
            top += 24
            elements.append(f'<text x="12" y="{top - 6}" class="{name}">{_safe(words)}</text>')
    for row in chart.rows:
        top += 6 if row.head and elements else 0
        strong = ' class="strong"' if row.head else ""
        # Beside marks, a long name is drawn narrower: nothing here knows the widths of letters.
        long = not row.head and cell_len(visible(row.label)) > _LETTERS
        narrow = f' textLength="{_LABELS - 18}" lengthAdjust="spacingAndGlyphs"' if long else ""
        label = f'<text x="12" y="{top + 15}"{strong}{narrow}>{_safe(row.label)}</text>'
        marks = f'<svg x="{_LABELS}" y="{top}" width="{track}" height="{_HEIGHT}">{"".join(_marks(chart, row))}</svg>'
        note = f'<tspan class="quiet" dx="6">{_safe(row.note)}</tspan>' if row.note else ""
        at = _WIDTH - _VALUES
        strong = ' class="strong"' if row.strong else ""
        value = f'<text x="{at}" y="{top + 15}"><tspan{strong}>{_safe(row.value)}</tspan>{note}</text>'
        elements += [label, marks, value]
        top += _HEIGHT
    if chart.unit:
        elements.append(f'<text class="quiet" x="12" y="{top + 14}">{_safe(chart.unit)}</text>')
        elements.append(f'<svg x="{_LABELS}" y="{top}" width="{track}" height="{_HEIGHT}">{_ticks(chart)}</svg>')
        top += _HEIGHT
    legend, height = _legend_svg(chart, top + 14)
    elements.append(legend)
    body = f'<g color="#1c2024">{hatches()}{"".join(elements)}</g>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_safe(title)}"><style>{_STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>{body}</svg>\n'
    )


def _legend_svg(chart: Chart, top: int) -> tuple[str, int]:
    """The legend in as many lines as it needs, and where the picture ends."""
    at, elements = 12, []
    for mark, words in _legend(chart):
        wide = 40 + 7 * len(words)
        if at + wide > _WIDTH:
            at, top = 12, top + 18
        elements.append(f'<svg x="{at}" y="{top - 9}" width="20" height="12">{mark}</svg>')
        elements.append(f'<text class="quiet" x="{at + 25}" y="{top + 1}">{_safe(words)}</text>')
        at += wide
    return "".join(elements), top + 12
