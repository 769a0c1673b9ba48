"""Whole epochs: rate and cold share of each as a chart and a table, and what that says, in a sentence."""

from __future__ import annotations

from loaderprobe.records.measurement import COLD_AT_LEAST
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.studies import EpochFigures, Epochs
from loaderprobe.render.cells import Cell
from loaderprobe.render.charts import READ_COLOR, Column, column_chart
from loaderprobe.render.groups import Group, groups
from loaderprobe.render.limit_map import line_of
from loaderprobe.render.panels import Figure, Panel
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import MISSING, loading, percent, rate
from loaderprobe.units import format_bytes

CAPTION = (
    "Each epoch reads every file once, in an order of its own; the first begins with cold files. Bars: images/s, and "
    "the share of the bytes that came from storage. Other processes' reads do not count."
)
_MOST_TEXTS = 4
"""Bars beside which rate and share can stand."""
_ABOVE = 1.7
"""A scale ends so far above its bars, that each has its figures over it."""


def epoch_panels(report: Report) -> tuple[Panel, ...]:
    """A figure for each configuration whose epochs were asked for, on one scale a device."""
    found = []
    for group in groups(report):
        rows = [(row, row.epochs) for row in group.rows if row.epochs]
        top = _ABOVE * max((each.images_per_s for _, epochs in rows for each in epochs.epochs), default=0.0)
        if rows:
            figures = tuple(_figure(row, epochs, group, top) for row, epochs in rows)
            found.append(Panel(device=group.title, emulated=group.emulated, caption=CAPTION, figures=figures))
    return tuple(found)


def epoch_sentences(report: Report) -> list[tuple[str, str]]:
    """(configuration, sentence) for each whose epochs were asked for."""
    found = groups(report)
    return [
        (f"{_name(row, group)}{f', {group.device}' if len(found) > 1 else ''}", _sentence(row.epochs))
        for group in found
        for row in group.rows
        if row.epochs
    ]


def epoch_cells(row: ConfigurationRow) -> dict[str, Cell]:
    """Columns of a flat table; none for a row whose epochs were not asked for."""
    if row.epochs is None:
        return {}
    cells: dict[str, Cell] = {}
    for number, each in enumerate(row.epochs.epochs, 1):
        cells |= {
            f"epoch_{number}_images_per_s": each.images_per_s,
            f"epoch_{number}_cold_fraction": each.cold_fraction,
        }
    memory = {"epoch_set_bytes": row.epochs.set_bytes, "file_memory_bytes": row.epochs.memory_bytes}
    return cells | memory | {"set_in_memory": row.epochs.fit}


def _name(row: ConfigurationRow, group: Group) -> str:
    return f"{line_of(row, group.rows)}, {loading(row)}"


def _sentence(epochs: Epochs) -> str:
    if epochs.reason:
        return f"not measured: {remark_words(epochs.reason)}."
    first, last = epochs.epochs[0], epochs.epochs[-1]
    warm = first.cold_fraction is not None and first.cold_fraction < COLD_AT_LEAST
    said = [f"epoch 1: {_words(first)}{', so it was not cold' if warm else ''}"]
    if len(epochs.epochs) > 1:
        said.append(f"epoch {len(epochs.epochs)}: {_words(last)}")
    return f"{'; '.join(said)}. {_fit_words(epochs)}"


def _words(each: EpochFigures) -> str:
    share = "" if each.cold_fraction is None else f", {percent(each.cold_fraction)} from storage"
    return f"{rate(each.images_per_s)} images/s{share}"


def _fit_words(epochs: Epochs) -> str:
    """Whether the set fits into memory, and what later epochs run at."""
    if epochs.memory_bytes is None or epochs.fit is None:
        return "How much memory files may take is not known here."
    memory, whole = epochs.memory_bytes, epochs.whole_set_bytes
    part = f" ({percent(memory / epochs.set_bytes)})" if epochs.fit != "fits" else ""
    words = (
        f"The set of {format_bytes(epochs.set_bytes)} {epochs.fit}{part}: files may take {format_bytes(memory)} of "
        f"memory. Later epochs run at {rate(epochs.epochs[-1].images_per_s)} images/s."
    )
    if whole <= 1.01 * epochs.set_bytes:
        return words
    if memory >= whole:
        return f"{words} All images found, {format_bytes(whole)}, fit as well."
    return (
        f"{words} Of all images found, {format_bytes(whole)}, at least {percent(1 - memory / whole)} comes from "
        "storage in every epoch (estimated)."
    )


def _figure(row: ConfigurationRow, epochs: Epochs, group: Group, top: float) -> Figure:
    name = _name(row, group)
    few = len(epochs.epochs) <= _MOST_TEXTS
    columns = [
        Column(
            workers=str(number),
            value=each.images_per_s,
            text=f"{rate(each.images_per_s)}{f', {_share(each)}' if few else ''}",
            color=READ_COLOR,
        )
        for number, each in enumerate(epochs.epochs, 1)
    ]
    title = f"{name}: {epochs.fit}" if epochs.fit and not epochs.reason else name
    return Figure(
        title=title,
        svg=column_chart(columns, title, "images/s, share from storage", top, axis="epoch"),
        head=("epoch", "images/s", "from storage"),
        lines=tuple(
            (str(number), rate(each.images_per_s), _share(each)) for number, each in enumerate(epochs.epochs, 1)
        ),
        note=_sentence(epochs),
    )


def _share(each: EpochFigures) -> str:
    return MISSING if each.cold_fraction is None else percent(each.cold_fraction)
