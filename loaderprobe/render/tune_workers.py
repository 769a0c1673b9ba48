"""The setting of `tune workers` as a page, as a chart and as the rows of a table."""

from __future__ import annotations

from typing import Any

from loaderprobe.records.tune_workers import (
    ClosedCode,
    WorkersReport,
    WorkersRow,
)
from loaderprobe.records.verdict import Interval
from loaderprobe.render.cells import as_columns, interval_cells
from loaderprobe.render.charts import TONES, Column, column_chart
from loaderprobe.render.document import Command, Document, Item, Paragraph, Part, Section, Table
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.note_words import note_words
from loaderprobe.render.tune_workers_words import (
    chosen_visit,
    limit_words,
    other_words,
    short_name,
    tuning_line,
    use_words,
    words_of,
)
from loaderprobe.render.wording import MISSING, percent, rate
from loaderprobe.units import format_duration

CHOSEN_COLOR, OTHER_COLOR = TONES["compute"], TONES["inconclusive"]
HEADROOM = 1.15
FAR = 2.0
FREE, WAITED = 0.8, 0.15
"""Shares of the cores in use, and of a worker's time."""
CLOSED: dict[ClosedCode, str] = {
    "compute": "compute is the limit",
    "cores": "cores are busy",
    "linear": "too few more",
    "forecast": "by forecast",
    "no_gain": "fewer are as fast",
    "slower": "more are too slow",
    "failed": "fewer failed",
    "no_data": "no data for them",
    "budget": "time was up",
    "interrupted": "interrupted before",
}
FILES = {
    "cold": "Files were read cold, as in an epoch over more data than memory holds.",
    "partly warm": "Part of the files came from memory: on cold files more workers may help.",
    "warm": "Files came from memory: on cold files more workers may help.",
}
ITERABLE = (
    "The data set is an iterable: it must share its samples among the workers (get_worker_info), else every worker "
    "delivers all of them, and the rate counts each several times."
)
PERSISTENT = (
    "persistent_workers=True keeps the workers between epochs. Names in the line are those of your own objects."
)


def tuning_document(found: WorkersReport) -> Document:
    """The setting to use and the line to paste, then what is known of each setting."""
    return Document(
        title=f"{words_of(found.chosen)}: {rate(found.images_per_s.value)} {found.sample}s/s",
        sections=(
            Section(parts=_answer(found)),
            Section(title="Rates by workers", name="rates", parts=(_table(found), *_rest(found))),
        ),
    )


def tuning_exhibits(found: WorkersReport) -> dict[str, tuple[Exhibit, ...]]:
    """Bars of the measured rates."""
    rows = [row for row in found.rows if row.images_per_s]
    best = max(row.images_per_s.value for row in rows if row.images_per_s)
    alone = chosen_visit(found).compute_images_per_s
    # Far above all bars it would only make them small.
    compute = alone if alone and alone <= FAR * best else None
    most = max([row.images_per_s.high for row in rows if row.images_per_s] + ([compute] if compute else []))
    columns = [
        Column(
            name=short_name(row.setting),
            value=row.images_per_s.value,
            low=row.images_per_s.low,
            high=row.images_per_s.high,
            text=rate(row.images_per_s.value),
            color=CHOSEN_COLOR if row.state == "chosen" else OTHER_COLOR,
        )
        for row in rows
        if row.images_per_s
    ]
    ceiling = (compute, f"compute alone {rate(compute)}") if compute else None
    title = (
        f"{short_name(found.chosen)} worker{'' if found.chosen.workers == 1 else 's'}: {rate(found.images_per_s.value)}"
    )
    chart = column_chart(columns, f"{title} {found.sample}s/s", f"{found.sample}s/s", most * HEADROOM, ceiling)
    text = "The chosen setting is in colour. Lines over the bars are the range of several measurements."
    return {
        "rates": (Exhibit(title="The measured settings", text=text, figures=(("Bars of the rate by workers", chart),)),)
    }


def tuning_columns(found: WorkersReport) -> dict[str, list[Any]]:
    """One row a setting."""
    return as_columns([_row(row) for row in found.rows])


def _row(row: WorkersRow) -> dict[str, Any]:
    return {
        "workers": row.setting.workers,
        "prefetch_factor": row.setting.prefetch_factor,
        "state": row.state,
        "visits": row.visits,
        **interval_cells("images_per_s", row.images_per_s),
        **interval_cells("over_chosen", row.over_chosen),
        "closed": row.closed,
        "at_most_over_chosen": row.at_most,
        "failure": row.failure,
    }


def _answer(found: WorkersReport) -> tuple[Part, ...]:
    sentences = [use_words(found), *other_words(found)]
    parts: list[Part] = [Paragraph(text=" ".join(sentences), strong=True)]
    limit = limit_words(found)
    if limit:
        parts.append(Paragraph(text=limit))
    return (*parts, Command(text=tuning_line(found)), *([Paragraph(text=PERSISTENT)] if found.chosen.workers else []))


def _table(found: WorkersReport) -> Table:
    return Table(
        head=("workers", "prefetch", f"{found.sample}s/s", "of the chosen", "how it is known"),
        lines=tuple(
            (
                str(row.setting.workers) if row.setting.workers else "0 (serial)",
                str(row.setting.prefetch_factor or MISSING),
                rate(row.images_per_s.value) if row.images_per_s else MISSING,
                _share(row),
                _how(row),
            )
            for row in found.rows
        ),
        right=frozenset({1, 2}),
    )


def _share(row: WorkersRow) -> str:
    if row.state == "chosen":
        return "chosen"
    if row.at_most is not None:
        return f"at most {percent(row.at_most)}"
    return MISSING if row.over_chosen is None else _ratio(row.over_chosen)


def _ratio(over: Interval) -> str:
    low, high = (percent(end).removesuffix(" %") for end in (over.low, over.high))
    return f"{percent(over.value)} ({low} to {high})"


def _how(row: WorkersRow) -> str:
    if row.state == "failed":
        return f"failed: {row.failure}"
    if row.closed:
        return f"not measured: {CLOSED[row.closed]}"
    times = "once" if row.visits == 1 else f"{row.visits} times"
    return f"measured {times}" if row.paired else f"measured {times}, apart"


def _busy(found: WorkersReport) -> list[str]:
    """That other processes had the cores, where workers waited for one although cores seemed free."""
    waited = [
        visit.core_wait_share
        for visit in found.visits
        if visit.cores_in_use is not None and visit.cores_in_use < FREE * found.cores_available
    ]
    if max(waited, default=0.0) < WAITED:
        return []
    return [
        f"Other processes used the cores meanwhile: workers waited up to {percent(max(waited))} of their time for one. "
        "Measure again when the machine is idle."
    ]


def _rest(found: WorkersReport) -> tuple[Part, ...]:
    on = f"trained on {found.device}" if found.device else "loader alone, without a step"
    batch = f"batches of {found.batch_size}"
    sentences = [
        f"{found.data}, {batch}, {on}. {len(found.visits)} measurements in {format_duration(found.wall_s)}; an "
        f"exhaustive search of workers and prefetch factors would have made {found.grid_visits}.",
        *_busy(found),
        FILES.get(found.files_were or "", "Whether files came from storage or from memory is not known."),
        *([ITERABLE] if found.iterable else []),
        *(f"{note[0].upper()}{note[1:]}." for note in map(note_words, found.notes)),
    ]
    apart = any(row.state == "measured" and not row.paired for row in found.rows)
    if apart:
        sentences.append("Apart: measured at another time than the chosen, so the share is rough.")
    hints = dict.fromkeys(row.hint for row in found.rows if row.hint)
    helps = [Item(subject="What helps", text="; or ".join(hints))] if hints else []
    return (*helps, Paragraph(text=" ".join(sentences)))
