"""The chart kit: a chart is rows of marks on one axis. Five marks: bar, whisker, dot, level, letter.

Three ways to draw the same rows: HTML whose letters never shrink, since marks are placed in shares of the width; one
SVG file, for pages that take a picture only; blocks of a terminal. Colours are from those of Okabe and Ito (2008) and
of Tol (2021), which people with any colour vision can separate. What is measured is solid, what is estimated hatched,
what may be nothing an outline, so that nothing is lost without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import floor, inf, log10
from textwrap import wrap

from rich.text import Text

from loaderprobe.records.resources import RESOURCE, RESOURCES
from loaderprobe.render.document import Bar, Chart, ChartRow, How
from loaderprobe.render.format import visible

TONES: dict[str, str] = {
    **{resource.name: resource.color for resource in RESOURCES},
    "either": "#D9C800", "balanced": "#56B4E9", "inconclusive": "#9A9A9A",
    "skipped": "#9A9A9A", "failed": "#D93A45", "good": "#009E73", "warning": "#E69F00", "quiet": "#9A9A9A",
    "change": "#0072B2", "now": "currentColor", "cores": "#56B4E9", "rest": "#F0E442",
}  # fmt: skip
"""Colours of verdicts, and of other texts and marks, by tone. now: the ink of the page, light or dark."""
STYLES: dict[str, str] = {
    **{resource.name: resource.style for resource in RESOURCES if resource.is_cause},
    "either": "yellow", "balanced": "cyan", "inconclusive": "dim", "failed": "bold red", "skipped": "dim",
    "quiet": "dim", "strong": "bold", "warning": "yellow", "good": "green", "change": "blue",
}  # fmt: skip
"""The same in a terminal."""
MARKS: dict[How, tuple[str, str]] = {
    "measured": ("█", "measured"),
    "estimated": ("▒", "estimated"),
    "specified": ("▒", "specified"),
    "unsure": ("░", "may be nothing"),
}
"""By how a mark is known: its block in a terminal, and what the legend says."""
BASE = "base"
"""The tone of a thin line: what is there already, before what a bar adds."""
_HEIGHT, _THICK = 22, 13
"""Pixels of a row, and of a bar in it."""
_LEAST_LETTER = 4.0
"""Per cent of the axis that a bar needs to hold its letter."""
_MOST_TICKS = 5


def tones_of(chart: Chart, rows: Sequence[ChartRow]) -> dict[str, str]:
    """What the tones in use in these rows stand for, by tone."""
    seen = {bar.tone for row in rows for bar in _bars(row)}
    return {tone: words for tone, words in chart.names if tone in seen}


def _bars(row: ChartRow) -> tuple[Bar, ...]:
    return (*row.bars, row.point) if row.point else row.bars


def hows_of(rows: Sequence[ChartRow]) -> list[How]:
    """How the bars are known, where some are not measured."""
    return _hows(bar for row in rows for bar in row.bars if bar.tone != BASE)


def _hows(marks: Iterable[Bar]) -> list[How]:
    seen = {mark.how for mark in marks}
    return [how for how in MARKS if how in seen] if seen != {"measured"} else []


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Round figures of a linear axis, up to five; none of one without length."""
    span = high - low
    if not 0 < span < inf:
        return ()
    power = 10.0 ** floor(log10(span / _MOST_TICKS) + 1e-12)
    step = next(size * power for size in (1, 2, 5, 10) if span / (size * power) <= _MOST_TICKS)
    first = -floor(-low / step + 1e-9)
    return tuple(round(step * number, 12) for number in range(first, floor(high / step + 1e-9) + 1))


def _at(chart: Chart, value: float) -> float:
    """Per cent of the axis; never beyond its ends."""
    if chart.high <= chart.low:
        return 0.0
    return 100 * min(1.0, max(0.0, (value - chart.low) / (chart.high - chart.low)))


# As HTML: a line a row, in which only the marks are SVG.


def chart_html(chart: Chart) -> str:
    """One figure. All text is escaped."""
    lines = [_row_html(chart, row) for row in chart.rows]
    if chart.unit:
        marks = "".join(
            f'<text x="{_at(chart, tick):.2f}%" y="14" text-anchor="{_anchor(chart, tick)}">{tick:,.10g}</text>'
            for tick in ticks(chart.low, chart.high)
        )
        lines.append(
            f'<div class="row axis"><span class="label">{_safe(chart.unit)}</span>{_track(marks)}<span></span></div>'
        )
    caption = f"<figcaption>{_safe(chart.caption)}</figcaption>" if chart.caption else ""
    body = "".join(lines)
    return f'<figure class="bars">{caption}<div class="rows">{body}</div>{_legend_html(chart)}</figure>'


def _anchor(chart: Chart, tick: float) -> str:
    at = _at(chart, tick)
    return "start" if at < 3 else "end" if at > 97 else "middle"


def _row_html(chart: Chart, row: ChartRow) -> str:
    marks = "".join(_marks(chart, row))
    label = f'<span class="label">{_safe(row.label)}</span>'
    note = f" <small>{_safe(row.note)}</small>" if row.note else ""
    shown = f"<b>{_safe(row.value)}</b>" if row.strong else _safe(row.value)
    value = f'<span class="value">{shown}{note}</span>'
    if row.head:
        return f'<div class="row head">{label}{value}</div>'
    return f'<div class="row">{label}{_track(marks)}{value}</div>'


def _track(marks: str) -> str:
    return f'<svg class="track" width="100%" height="{_HEIGHT}" aria-hidden="true">{marks}</svg>'


def _marks(chart: Chart, row: ChartRow) -> Iterator[str]:
    """Of one row, what lies below first; x in per cent, y in pixels."""
    top, middle = (_HEIGHT - _THICK) / 2, _HEIGHT / 2
    if chart.unit:
        for tick in ticks(chart.low, chart.high):
            at = _at(chart, tick)
            yield f'<line class="grid" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="{_HEIGHT}"/>'
    for bar in row.bars:
        begin, end = _at(chart, bar.begin), _at(chart, bar.end)
        if end <= begin:
            continue
        if bar.tone == BASE:
            yield f'<line class="base" x1="{begin:.2f}%" x2="{end:.2f}%" y1="{middle:g}" y2="{middle:g}"/>'
            continue
        place = f'x="{begin:.2f}%" y="{top:g}" width="{end - begin:.2f}%" height="{_THICK}"'
        yield f"<rect {place} {_fill(bar)}/>"
        yield from _letters(chart, row, bar, begin, end)
    if row.level is not None and row.level <= chart.high:
        at = _at(chart, row.level)
        dash = "" if row.level_how == "measured" else ' stroke-dasharray="4 3"'
        yield f'<line class="level" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="{_HEIGHT}"{dash}/>'
    if row.interval:
        yield from _whisker(chart, row.interval, middle)
    if row.point:
        yield _dot(row.point, f"{_at(chart, row.point.end):.2f}%", middle)


def _letters(chart: Chart, row: ChartRow, bar: Bar, begin: float, end: float) -> Iterator[str]:
    """The letter of a bar, left of the whisker, whose line would hide it; and that a bar goes on beyond the axis."""
    place = f'y="{_HEIGHT / 2 + 4:g}"'
    if bar.end > chart.high:
        yield f'<text class="letter" x="100%" {place} text-anchor="end">▸</text>'
    if bar.letter and end - begin >= _LEAST_LETTER:
        resource = RESOURCE.get(bar.tone)
        ink = resource.ink if resource and bar.how == "measured" else "currentColor"
        clear = min(end, _at(chart, row.interval[0])) if row.interval else end
        at = (begin + max(clear, begin + _LEAST_LETTER)) / 2
        yield (
            f'<text class="letter" x="{at:.2f}%" {place} text-anchor="middle" fill="{ink}">{_safe(bar.letter)}</text>'
        )


def _dot(point: Bar, x: str, y: float) -> str:
    """Full where it is measured, a ring with a dot where it is estimated, else a ring."""
    color = TONES[point.tone]
    fill = color if point.how == "measured" else "var(--card)"
    ring = f'<circle cx="{x}" cy="{y:g}" r="5" fill="{fill}" stroke="{color}" stroke-width="2"/>'
    return ring + (f'<circle cx="{x}" cy="{y:g}" r="2" fill="{color}"/>' if point.how == "estimated" else "")


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
    """With a halo, so that it shows on a bar; without a cap where it passes the end of the axis."""
    low, high = (_at(chart, end) for end in interval)
    caps = [low] if interval[1] > chart.high else [low, high]
    for kind in ("halo", "whisker"):
        yield f'<line class="{kind}" x1="{low:.2f}%" x2="{high:.2f}%" y1="{middle:g}" y2="{middle:g}"/>'
        for at in caps:
            yield f'<line class="{kind}" x1="{at:.2f}%" x2="{at:.2f}%" y1="{middle - 4:g}" y2="{middle + 4:g}"/>'


def _legend(chart: Chart) -> list[tuple[str, str]]:
    """(mark of 20 x 12 pixels, what it stands for) of all that is in use."""
    tones = tones_of(chart, chart.rows).items()
    entries = [(f'<rect width="14" height="12" fill="{TONES[tone]}"/>', words) for tone, words in tones]
    samples = {how: Bar(end=1, tone="inconclusive", how=how) for how in hows_of(chart.rows)}
    entries += [
        (f'<rect x="1" y="1" width="18" height="10" {_fill(bar)}/>', MARKS[how][1]) for how, bar in samples.items()
    ]
    points = _hows(row.point for row in chart.rows if row.point)
    entries += [(_dot(Bar(end=1, tone="inconclusive", how=how), "10", 6), MARKS[how][1]) for how in points]
    if any(row.interval for row in chart.rows):
        entries.append(('<path class="whisker" d="M1 2v8M1 6h18M19 2v8"/>', "95 % interval"))
    levels = [row for row in chart.rows if row.level is not None]
    if chart.level and levels:
        dash = "" if levels[0].level_how == "measured" else ' stroke-dasharray="4 3"'
        how = "" if levels[0].level_how == "measured" else f" ({levels[0].level_how})"
        entries.append((f'<line class="level" x1="10" x2="10" y1="0" y2="12"{dash}/>', chart.level + how))
    return entries


def _legend_html(chart: Chart) -> str:
    shown = "".join(
        f'<li><svg width="20" height="12" aria-hidden="true">{mark}</svg> {_safe(words)}</li>'
        for mark, words in _legend(chart)
    )
    return f'<ul class="legend">{shown}</ul>' if shown else ""


def _safe(text: str) -> str:
    return escape(visible(text))


# As one SVG file, for where a picture is all that is shown.

_WIDTH, _LABELS, _VALUES = 760, 180, 210
"""Pixels for names at the left and figures at the right."""
_TITLE = 64
"""Characters of a title in one line."""
_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1c2024}.quiet{fill:#5a626b}"
    ".title{font-size:19px;font-weight:700}.strong{font-weight:600}.letter{font-weight:600;font-size:11px}"
    ".grid{stroke:#dfe2e6}.level,.whisker{stroke:#1c2024;stroke-width:1.5;fill:none}"
    ".halo{stroke:#fff;stroke-width:4;fill:none}.base{stroke:#b4bac1;stroke-width:3}"
)


def chart_svg(chart: Chart, *, title: str, subtitle: str = "") -> str:
    """The chart under its title on white ground, for a README. All text is escaped."""
    track = _WIDTH - _LABELS - _VALUES - 24
    heads = [(line, "title") for line in wrap(title, _TITLE)] + [(subtitle, "quiet"), (chart.caption, "")]
    top, drawn = 12, []
    for words, name in heads:
        if words:
            top += 24
            drawn.append(f'<text x="12" y="{top - 6}" class="{name}">{_safe(words)}</text>')
    for row in chart.rows:
        top += 6 if row.head and drawn else 0
        strong = ' class="strong"' if row.head else ""
        label = f'<text x="12" y="{top + 15}"{strong}>{_safe(row.label)}</text>'
        marks = f'<svg x="{_LABELS}" y="{top}" width="{track}" height="{_HEIGHT}">{"".join(_marks(chart, row))}</svg>'
        note = f'<tspan class="quiet" dx="6">{_safe(row.note)}</tspan>' if row.note else ""
        at = _WIDTH - _VALUES
        strong = ' class="strong"' if row.strong else ""
        value = f'<text x="{at}" y="{top + 15}"><tspan{strong}>{_safe(row.value)}</tspan>{note}</text>'
        drawn += [label, marks, value]
        top += _HEIGHT
    if chart.unit:
        marks = "".join(
            f'<text class="quiet" x="{_at(chart, tick):.2f}%" y="14" text-anchor="{_anchor(chart, tick)}">'
            f"{tick:,.10g}</text>"
            for tick in ticks(chart.low, chart.high)
        )
        drawn.append(f'<text class="quiet" x="12" y="{top + 14}">{_safe(chart.unit)}</text>')
        drawn.append(f'<svg x="{_LABELS}" y="{top}" width="{track}" height="{_HEIGHT}">{marks}</svg>')
        top += _HEIGHT
    legend, height = _legend_svg(chart, top + 14)
    drawn.append(legend)
    body = f'<g color="#1c2024">{hatches()}{"".join(drawn)}</g>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_safe(title)}"><style>{_STYLE}</style>'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>{body}</svg>\n'
    )


def _legend_svg(chart: Chart, top: int) -> tuple[str, int]:
    """The legend in as many lines as it needs, and where the picture ends."""
    at, drawn = 12, []
    for mark, words in _legend(chart):
        wide = 40 + 7 * len(words)
        if at + wide > _WIDTH and at > 12:
            at, top = 12, top + 18
        drawn.append(f'<svg x="{at}" y="{top - 9}" width="20" height="12">{mark}</svg>')
        drawn.append(f'<text class="quiet" x="{at + 25}" y="{top + 1}">{_safe(words)}</text>')
        at += wide
    return "".join(drawn), top + 12


# As blocks of a terminal.


def chart_text(chart: Chart, width: int) -> Iterator[Text]:
    """Lines of at most `width` columns."""
    rows = chart.brief or chart.rows
    labels = min(max(len(row.label) for row in rows), 3 * width // 8)
    ends = [f"{row.value} {row.note}".strip() for row in rows]
    values = min(max(map(len, ends)), width // 2)
    cells = width - labels - values - 2
    if chart.caption:
        yield Text(visible(chart.caption), style="dim")
    if chart.unit and cells >= 20:
        yield Text(f"{_cut(chart.unit, labels):<{labels}} {_axis_text(chart, cells)}", style="dim")
    for row, end in zip(rows, ends, strict=True):
        line = Text(f"{_cut(visible(row.label), labels):<{labels}} ", style="bold" if row.head else "")
        if cells >= 6:
            line.append_text(_cells(chart, row, cells))
        line.append(" ")
        for number, part in enumerate(_wrapped(visible(end), width - labels - cells - 2)):
            line.append(part if not number else f"\n{' ' * (labels + cells + 2)}{part}")
        yield line
    if chart.unit and (legend := _legend_text(chart, rows)):
        yield Text(legend, style="dim")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) + 1 > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def _axis_text(chart: Chart, cells: int) -> str:
    drawn = [" "] * cells
    free = 0
    for tick in ticks(chart.low, chart.high):
        words = f"{tick:,.10g}"
        at = min(round(_at(chart, tick) / 100 * cells), cells - len(words))
        if at >= free:
            drawn[at : at + len(words)] = words
            free = at + len(words) + 1
    return "".join(drawn)


def _cells(chart: Chart, row: ChartRow, cells: int) -> Text:
    """A block a cell; the whisker where no bar is, and the level over it."""

    def place(value: float) -> int:
        return min(cells - 1, round(_at(chart, value) / 100 * cells))

    drawn, styles = [" "] * cells, [""] * cells
    if row.interval:
        low, high = map(place, row.interval)
        drawn[low : high + 1] = "╌" * (high + 1 - low)
    for bar in row.bars:
        begin, end = place(bar.begin), round(_at(chart, bar.end) / 100 * cells)
        end = max(end, begin + 1) if bar.end > bar.begin else begin
        block = "▓" if bar.tone != "now" and bar.how == "measured" else MARKS[bar.how][0]
        block = "─" if bar.tone == BASE else block
        drawn[begin:end] = block * (end - begin)
        styles[begin:end] = [STYLES.get(bar.tone, "")] * (end - begin)
        if bar.letter and end - begin >= 3:
            drawn[(begin + end) // 2] = bar.letter
    if row.level is not None and row.level <= chart.high:
        at = place(row.level)
        drawn[at] = "│" if row.level_how == "measured" else "╎"
    if row.point:
        at = place(row.point.end)
        drawn[at] = {"measured": "●", "estimated": "◉"}.get(row.point.how, "○")
        styles[at] = STYLES.get(row.point.tone, "")
    text = Text()
    for char, style in zip(drawn, styles, strict=True):
        text.append(char, style=style)
    return text


def _legend_text(chart: Chart, rows: Sequence[ChartRow]) -> str:
    bars = [bar for row in rows for bar in _bars(row)]
    entries = [f"{'█' if tone == 'now' else '▓'} {words}" for tone, words in tones_of(chart, rows).items()]
    entries += [f"{MARKS[how][0]} {MARKS[how][1]}" for how in hows_of(rows) if how != "measured"]
    if any(row.interval for row in rows):
        entries.append("╌ 95 %")
    levels = [row for row in rows if row.level is not None]
    if chart.level and levels:
        entries.append(f"{'│' if levels[0].level_how == 'measured' else '╎'} {chart.level}")
    return "  ".join(entries) if bars else ""
