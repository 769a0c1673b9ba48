"""The ranks of each configuration that has several: a few of them as a table, all as strips where they are uneven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaderprobe.records.ranks_view import RankRow, RanksView
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.charts import LEFT, RIGHT, TONES, TOP, svg_line, svg_page, svg_text
from loaderprobe.render.document import Paragraph, Section, Shown, Table, further
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.groups import detail_of, full_label
from loaderprobe.render.wording import MISSING, counted, figure, rate
from loaderprobe.units import join_words

HEAD = ("rank", "host", "by itself, images/s", "own input, ms", "waiting for others, ms")
CAPTION = (
    "By itself: what the loader of a rank delivers when it waits for no other. Own input and waiting for others: "
    "milliseconds of a step of the loader alone, in step. Waiting names no slow rank: who is ahead once keeps a full "
    "buffer."
)
_STRIP, _GAP = 64, 30
_LEAST_BAR, _WIDEST = 0.4, 24


def rank_parts(report: Report) -> Iterator[Shown]:
    """The ranks of each configuration that has several, as a table."""
    for row in report.summary.configurations:
        if (view := _view(report, row)) is not None:
            yield from further(rank_table(view, caption=full_label(row, report)))


def rank_exhibits(report: Report) -> Iterator[Exhibit]:
    """All ranks of each configuration whose ranks are uneven, as strips."""
    for row in report.summary.configurations:
        view = _view(report, row)
        if view is not None and view.uneven:
            title = full_label(row, report)
            yield Exhibit(title=title, text=CAPTION, figures=((title, _strips(title, view)),))


def rank_sentences(report: Report) -> list[tuple[str, str]]:
    """(label, sentence) for configurations of several ranks: which are the slowest, the median and the fastest."""
    rows = [(row, view) for row in report.summary.configurations if (view := _view(report, row)) is not None]
    return [(full_label(row, report), ranks_words(view)) for row, view in rows if view.uneven]


def ranks_words(view: RanksView) -> str:
    """`By itself, rank 1 (node7) loads 37.0 images/s, the median rank 0 (node3) 114, ...`."""
    named = [row for row in view.shown if row.role]
    if any(row.alone_images_per_s is None for row in named):
        return f"{counted(len(view.rows), 'rank')} in step; none was measured by itself."
    parts = [f"{_role(row)}{rank_name(row)} {figure(row.alone_images_per_s)}" for row in named]
    return f"Images/s that a rank loads by itself: {join_words(parts)}."


def rank_name(row: RankRow) -> str:
    """`rank 1 (node7)`."""
    return f"rank {row.rank}{f' ({row.host})' if row.host else ''}"


def _role(row: RankRow) -> str:
    return f"{row.role} " if row.role else ""


def _view(report: Report, row: ConfigurationRow) -> RanksView | None:
    detail = detail_of(report, row)
    return detail.ranks if detail else None


def rank_section(view: RanksView, sample: str) -> Section:
    """Its table alone; `sample` is what is counted, in the plural."""
    return Section(title="Ranks", name="ranks", parts=tuple(rank_table(view, sample)))


def rank_table(view: RanksView, sample: str = "images", caption: str = "") -> Iterator[Shown]:
    """Its table, what the columns are, and how many ranks are not in it."""
    head = tuple(each.replace("images", sample) for each in HEAD)
    yield Table(head=head, lines=tuple(map(_line, view.shown)), right=frozenset({2, 3, 4}), caption=caption)
    yield Paragraph(text=CAPTION)
    if count := len(view.rows) - len(view.shown):
        yield Paragraph(text=f"{count} other ranks are not in the table.")


def _line(row: RankRow) -> tuple[str, ...]:
    role = f" ({row.role})" if row.role else ""
    alone = MISSING if row.alone_images_per_s is None else rate(row.alone_images_per_s)
    return f"{row.rank}{role}", row.host, alone, figure(row.input_s * 1e3), figure(row.waiting_s * 1e3)


def _strips(title: str, view: RanksView) -> str:
    """Two strips over the ranks: what each loads by itself, and its own input in step."""
    alone = [row.alone_images_per_s or 0.0 for row in view.rows]
    own = [row.input_s * 1e3 for row in view.rows]
    second = TOP + _STRIP + _GAP
    drawn = [
        *_strip("by itself, images/s", alone, TOP, TONES["compute"]),
        *_strip("own input, ms a step", own, second, TONES["storage"]),
        svg_text(LEFT, second + _STRIP + 15, "rank 0"),
        svg_text(RIGHT, second + _STRIP + 15, f"rank {len(view.rows) - 1}", anchor="end"),
    ]
    return svg_page(title, second + _STRIP + 24, drawn)


def _strip(words: str, values: Sequence[float], top: float, color: str) -> list[str]:
    """A bar for each rank, as one path: there may be a thousand."""
    most, floor = max(values) or 1.0, top + _STRIP
    slot = (RIGHT - LEFT) / len(values)
    width = min(_WIDEST, max(_LEAST_BAR, slot * 0.8))
    first = LEFT + (slot - width) / 2
    bars = "".join(
        f"M{first + slot * place:.1f} {floor:.1f}v-{_STRIP * value / most:.1f}h{width:.1f}V{floor:.1f}z"
        for place, value in enumerate(values)
    )
    return [
        svg_text(4, top - 5, words),
        svg_text(LEFT - 5, top + 9, figure(most), anchor="end"),
        f'<path d="{bars}" fill="{color}"/>',
        svg_line(LEFT, floor, RIGHT, floor),
    ]
