"""Documents as text for a terminal, in columns of a given width; charts as blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from loaderprobe.render.charts import BASE, MARKS, STYLES, Bar, Chart, ChartRow, how_known, ticks, tones_of, whiskers
from loaderprobe.render.document import (
    IN_CODE,
    Cell,
    Command,
    Document,
    Item,
    Paragraph,
    Part,
    Table,
    cell_text,
    unfolded,
)
from loaderprobe.render.format import visible

_LONGEST_NAME = 24
"""Cells of a first column that are no longer than this are not folded."""
_LEAST_CELLS = 20
"""Of the marks of a chart, beside long names."""
_NO_BREAK = "\N{BRAILLE PATTERN BLANK}"
"""A blank at which no line ends; at a no-break space rich ends one."""
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGTP]?i?B(?:/s)?)(?!\w))")


def document_text(document: Document, *, width: int = 80, color: bool = False) -> str:
    """The page in at most `width` columns, ending with a newline; ANSI colours only with `color`."""
    return printed(_lines(document, width), width=width, color=color)


def printed(lines: Iterable[RenderableType], *, width: int, color: bool, crop: bool = True) -> str:
    """What rich can draw, wrapped, without trailing blanks; without `crop`, longer lines stay whole."""
    file = StringIO()
    # An empty environment keeps COLUMNS, TERM and NO_COLOR of the caller out of the result.
    console = Console(
        file=file,
        width=width,
        height=100,
        color_system="standard" if color else None,
        force_terminal=color,
        legacy_windows=False,
        _environ={},
    )
    for line in lines:
        console.print(line, crop=crop)
    return "\n".join(line.rstrip() for line in file.getvalue().replace(_NO_BREAK, " ").splitlines()) + "\n"


def _lines(document: Document, width: int) -> Iterator[RenderableType]:
    yield from _part(Paragraph(text=document.headline or document.title, strong=True, tone=document.tone), width)
    if document.headline:
        if document.subline:
            yield _text(document.subline)
        yield _text(document.title, "dim")
    before = ""
    for section in document.sections:
        parts = [part for part in map(unfolded, section.parts) if part and not part.further]
        if not parts:
            continue
        beside = section.panel == "side"
        if not (beside and before == "side"):
            yield ""
        before = section.panel
        if beside and isinstance(first := parts[0], Paragraph):
            parts = parts[1:]
            yield from _item(section.title, first.text, width, indent=0)
        elif section.title and section.panel != "main":
            yield _text(section.title, "bold")
        for part in parts:
            yield from _part(part, width)


def _text(text: str, style: str = "") -> Text:
    """Wrapped text from the left edge."""
    return Text(_BEFORE_UNIT.sub(_NO_BREAK, visible(text)), style=style, overflow="fold")


def _part(part: Part, width: int) -> Iterator[RenderableType]:
    if isinstance(part, Paragraph):
        yield _text(part.text, f"{STYLES.get(part.tone, '')}{' bold' if part.strong else ''}".strip())
    elif isinstance(part, Command):
        indent = 2 if part.label else 6
        line = Text(f"{part.label}: " if part.label else "", overflow="fold")
        text = visible(part.text)
        line.append(text if part.label == IN_CODE else _continued(text, width - indent, len(line)), style="cyan")
        yield Padding(line, (0, 0, 0, indent))
    elif isinstance(part, Item):
        yield from _item(part.subject, part.text, width)
    elif isinstance(part, Chart):
        yield from _chart(part, width)
    elif isinstance(part, Table):
        if part.caption:
            yield _text(part.caption, "dim")
        yield from _tables(part, width)


_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")


def _continued(command: str, width: int, begin: int) -> str:
    """A command in lines that a shell takes as one: each but the last ends with a backslash, none within quotes."""
    words = _WORD.findall(command)
    if "".join("".join(words).split()) != "".join(command.split()):
        return command  # a quote does not end
    whole = " " * begin + " ".join(word.replace(" ", _NO_BREAK) for word in words)
    lines = wrap(whole, width - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).strip()


def _item(subject: str, text: str, width: int, *, indent: int = 2) -> Iterator[Padding]:
    """`subject: text`, wrapped, further lines indented by two more; `- text` without a subject."""
    line = Text("" if subject else "- ", overflow="fold")
    line.append(f"{visible(subject)}: " if subject and text else visible(subject), style="bold")
    line.append(_BEFORE_UNIT.sub(_NO_BREAK, visible(text)))
    for number, part in enumerate(line.wrap(Console(_environ={}), max(8, width - 4), overflow="fold")):
        yield Padding(part, (0, 0, 0, indent + 2 * bool(number)))


def _tables(table: Table, width: int) -> Iterator[RenderableType]:
    """One; where its figures do not fit beside each other, several, each with the first column."""
    natural, least = zip(*(_widths(table, index) for index in range(len(table.head))), strict=True)
    gap = 2 if sum(natural) + 2 * (len(natural) - 1) <= width else 1
    first = 1
    while first <= max(1, len(least) - 1):
        left, last = width - least[0], first
        while last < len(least) and (last == first or left >= least[last] + gap):
            left -= least[last] + gap
            last += 1
        indexes = [0, *range(first, last)]
        free = width - gap * (len(indexes) - 1)
        # Figures are never folded: where the width is short, it is their heads and the texts that are.
        short = sum(natural[index] for index in indexes) > free
        lacks = {index: 0 if short and index in table.right else natural[index] - least[index] for index in indexes}
        # Each gets its least, and of the rest its share of what it lacks. Rich's own widths may add up to more than the
        # page has, and then the last column loses its ends.
        spare = max(0, free - sum(least[index] for index in indexes))
        share = min(1.0, spare / max(1, sum(lacks.values())))
        yield _table(table, {index: least[index] + int(share * lacks[index]) for index in indexes}, gap)
        first = max(last, first + 1)


def _widths(table: Table, index: int) -> tuple[int, int]:
    """Of a column, as it is and folded; figures and short names are not folded."""
    head, *cells = [visible(cell_text(line[index])) for line in (table.head, *table.lines)]
    natural = max(cell_len(text) for cell in (head, *cells) for text in cell.split("\n"))
    name = max((cell_len(cell) for cell in cells), default=0)
    unfolded = cells if index in table.right else [word for cell in cells for word in cell.split()]
    least = max([cell_len(text) for text in (*unfolded, *head.split())], default=0)
    return natural, least if index else max(least if index in table.right else 0, min(name, _LONGEST_NAME))


def _table(table: Table, widths: Mapping[int, int], gap: int) -> RichTable:
    made = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for index, width in widths.items():
        right = index in table.right
        made.add_column(_cell(table.head[index]), justify="right" if right else "left", overflow="fold", width=width)
    _, *others = widths
    for line in table.lines:
        # Of a table in parts, the first has every line.
        if others[:1] in ([], [1]) or any(cell_text(line[index]) for index in others):
            made.add_row(*(_cell(line[index]) for index in widths))
    return made


def _cell(cell: str | Cell) -> Text:
    return Text(visible(cell_text(cell)), style=STYLES.get(cell.tone, "") if isinstance(cell, Cell) else "")


def _chart(chart: Chart, width: int) -> Iterator[RenderableType]:
    """Names, marks and figures beside each other. Names are whole: a long one leaves the marks few cells, or is folded.

    Without space for the least cells there is no axis.
    """
    rows = chart.brief or chart.rows
    names = [visible(row.label) for row in rows]
    ends = [visible(f"{row.value} {row.note}".strip()) for row in rows]
    values = min(max(map(cell_len, ends)), width // 2)
    longest = max(3 * width // 8, width - values - _LEAST_CELLS - 2)
    labels = min(max(map(cell_len, (chart.unit, *names))), longest)
    cells = max(1, width - labels - values - 2)
    if chart.caption:
        yield _text(chart.caption, "dim")
    grid = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in (labels, cells, values):
        grid.add_column(overflow="fold", width=column)
    if chart.unit and cells >= _LEAST_CELLS:
        grid.add_row(_text(chart.unit), _text(_axis_text(chart, cells)), style="dim")
    for row, name, end in zip(rows, names, ends, strict=True):
        grid.add_row(_text(name, "bold" if row.head else ""), _cells(chart, row, cells), _text(end))
    yield grid
    if chart.unit and any(row.bars or row.point for row in rows) and (entries := _legend(chart, rows)):
        # Lines end between entries only.
        joined = "  ".join(entry.replace(" ", _NO_BREAK) for entry in entries)
        yield _text("\n".join(wrap(joined, width, break_long_words=False, break_on_hyphens=False)), "dim")


def _axis_text(chart: Chart, cells: int) -> str:
    chars = [" "] * cells
    free = 0
    for tick in ticks(chart.low, chart.high):
        words = f"{tick:,.10g}"
        at = min(round(chart.on_axis(tick) / 100 * cells), cells - len(words))
        if at >= free:
            chars[at : at + len(words)] = words
            free = at + len(words) + 1
    return "".join(chars)


def _cells(chart: Chart, row: ChartRow, cells: int) -> Text:
    """A block a cell; the whisker where no bar is, the level over it; an arrow where one goes on beyond the axis."""

    def cell_at(value: float) -> int:
        return min(cells - 1, round(chart.on_axis(value) / 100 * cells))

    chars, styles = [" "] * cells, [""] * cells
    if row.interval:
        low, high = map(cell_at, row.interval)
        chars[low : high + 1] = "╌" * (high + 1 - low)
        if row.interval[1] > chart.high:
            chars[-1] = "▸"
    # Behind each other, short bars would be letters only.
    least = 1 if sum(bar.tone != BASE for bar in row.bars) == 1 else 3
    for bar in row.bars:
        begin, end = cell_at(bar.begin), round(chart.on_axis(bar.end) / 100 * cells)
        end = max(end, begin + 1) if bar.end > bar.begin else begin
        chars[begin:end] = _block(bar) * (end - begin)
        styles[begin:end] = [STYLES.get(bar.tone, "")] * (end - begin)
        if bar.letter and end - begin >= least:
            chars[(begin + end) // 2] = bar.letter
        if bar.end > chart.high:
            chars[-1] = "▸"
    if row.level is not None and row.level <= chart.high:
        at = cell_at(row.level)
        chars[at] = "│" if row.level_how == "measured" else "╎"
    if row.point:
        at = cell_at(row.point.end)
        chars[at] = MARKS[row.point.how][2]
        styles[at] = STYLES.get(row.point.tone, "")
    text = Text()
    for char, style in zip(chars, styles, strict=True):
        text.append(char, style=style)
    return text


def _block(bar: Bar) -> str:
    if bar.tone == BASE:
        return "─"
    return "▓" if bar.tone != "now" and bar.how == "measured" else MARKS[bar.how][0]


def _legend(chart: Chart, rows: Sequence[ChartRow]) -> list[str]:
    """A text for each tone with the marks that it has in these rows, and for what else is drawn."""
    marks = [(bar.tone, _block(bar)) for row in rows for bar in row.bars]
    marks += [(row.point.tone, MARKS[row.point.how][2]) for row in rows if row.point]
    entries = [
        f"{''.join(dict.fromkeys(mark for of, mark in marks if of == tone))} {words}"
        for tone, words in tones_of(chart, rows).items()
    ]
    hows = how_known(bar for row in rows for bar in row.bars)
    entries += [f"{MARKS[how][0]} {MARKS[how][1]}" for how in hows if how != "measured"]
    if words := whiskers(rows):
        entries.append(f"╌ {words.removesuffix(' interval')}")
    levels = [row for row in rows if row.level is not None]
    if chart.level and levels:
        entries.append(f"{'│' if levels[0].level_how == 'measured' else '╎'} {chart.level}")
    return entries
