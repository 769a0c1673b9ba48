"""The ranks of each configuration that has several: a few of them as a table, all as strips where they are uneven."""

from __future__ import annotations

from loaderprobe.records.ranks_view import RankRow, RanksView
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.charts import TONES, rank_chart
from loaderprobe.render.document import Paragraph, Section, Table
from loaderprobe.render.groups import detail_of, full_label, groups
from loaderprobe.render.overview import joint_label
from loaderprobe.render.panels import Figure, Panel
from loaderprobe.render.wording import MISSING, counted, figure, rate
from loaderprobe.units import join_words

HEAD = ("rank", "host", "by itself, images/s", "own input, ms", "waiting for others, ms")
CAPTION = (
    "By itself: what the loader of a rank delivers when it waits for no other. Own input and waiting for others: "
    "milliseconds of a step of the loader alone, in step. Waiting names no slow rank: who is ahead once keeps a full "
    "buffer."
)
STRIP = 150
"""Units of height of each of two charts."""


def rank_panels(report: Report) -> tuple[Panel, ...]:
    """One for each device, cache state and number of ranks, where there are several ranks."""
    found = []
    for group in groups(report):
        seen = [(row, view) for row in group.rows if (view := _view(report, row)) is not None]
        figures = [_figure(joint_label([row], group.rows), view) for row, view in seen]
        if figures:
            found.append(Panel(device=group.title, emulated=group.emulated, caption=CAPTION, figures=tuple(figures)))
    return tuple(found)


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
    head = tuple(each.replace("images", sample) for each in HEAD)
    table = Table(head=head, lines=tuple(map(_line, view.shown)), right=frozenset({2, 3, 4}))
    left_out = _left_out(view)
    after = (Paragraph(text=CAPTION), *((Paragraph(text=left_out),) if left_out else ()))
    return Section(title="Ranks", name="ranks", parts=(table, *after))


def _left_out(view: RanksView) -> str:
    count = len(view.rows) - len(view.shown)
    return f"{count} other ranks are not in the table." if count else ""


def _figure(name: str, view: RanksView) -> Figure:
    return Figure(
        title=name, svg=_strips(view) if view.uneven else "", head=HEAD,
        lines=tuple(_line(row) for row in view.shown), note=_left_out(view),
    )  # fmt: skip


def _line(row: RankRow) -> tuple[str, ...]:
    role = f" ({row.role})" if row.role else ""
    alone = MISSING if row.alone_images_per_s is None else rate(row.alone_images_per_s)
    return f"{row.rank}{role}", row.host, alone, figure(row.input_s * 1e3), figure(row.waiting_s * 1e3)


def _strips(view: RanksView) -> str:
    """Two charts over the ranks: what each loads by itself, and its own input in step."""
    count = len(view.rows)
    alone = [row.alone_images_per_s or 0.0 for row in view.rows]
    own = [row.input_s * 1e3 for row in view.rows]
    drawn = (
        rank_chart("By itself", "images/s", alone, [TONES["compute"]] * count, height=STRIP),
        rank_chart("Own input", "ms a step", own, [TONES["storage"]] * count, height=STRIP),
    )
    return "".join(each.svg() for each in drawn)
