"""The setting of `tune workers` as a page, as a chart and as the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.tune_workers import WITHIN, ClosedCode, WorkersReport, WorkersRow, WorkersSetting, WorkersVisit
from loaderprobe.records.verdict import Interval
from loaderprobe.render.charts import TONES, Column, column_chart
from loaderprobe.render.document import Command, Document, Exhibit, Item, Paragraph, Part, Section, Table
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.rows import as_columns, interval_cells, own_cells
from loaderprobe.render.wording import MISSING, counted, first_upper, percent, rate
from loaderprobe.units import format_duration, join_words, significant

# The sentences of `tune workers`: which setting to use, what others would change, what limits; the line to paste.

WAIT_WORDS = {name: RESOURCE[name].wait or RESOURCE[name].noun for name in WAITED}

ENDED = ("budget", "interrupted")
"""Why a search ended that had more to measure."""


def words_of(setting: WorkersSetting) -> str:
    """`4 workers, prefetch factor 2`, or `Serial loader (num_workers=0)`."""
    if not setting.workers:
        return "Serial loader (num_workers=0)"
    return f"{counted(setting.workers, 'worker')}, prefetch factor {setting.prefetch_factor}"


def short_name(setting: WorkersSetting) -> str:
    """`4`, or `4 x 8` where the prefetch factor is not 2."""
    return (
        str(setting.workers) if setting.prefetch_factor in (0, 2) else f"{setting.workers} x {setting.prefetch_factor}"
    )


def tuning_line(found: WorkersReport) -> str:
    """`DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, ...)`, with the loader's other options."""
    tuned = {"num_workers": str(found.chosen.workers)}
    if found.chosen.workers:
        tuned |= {"prefetch_factor": str(found.chosen.prefetch_factor), "persistent_workers": "True"}
    options = found.options if found.chosen.workers else _serial_options(found.options)
    given = ", ".join(f"{name}={value}" for name, value in (options | tuned).items())
    return f"{found.loader_class}(dataset, {given})"


def _serial_options(options: dict[str, str]) -> dict[str, str]:
    """Without what torch refuses, or ignores, where there are no workers."""
    return {name: value for name, value in options.items() if name not in ("timeout", "multiprocessing_context")}


def use_words(found: WorkersReport) -> str:
    """The setting, its rate, and that over the loader as it was given."""
    speed = f"{rate(found.images_per_s.value)} {found.sample}s/s"
    setting = words_of(found.chosen)
    setting = f"{setting[0].lower()}{setting[1:]}"
    use = f"Use {'the ' if not found.chosen.workers else ''}{setting}"
    if found.own == found.chosen:
        return f"Keep your setting, {setting}: {speed}."
    if found.speedup is None or found.own is None:
        return f"{use}: {speed}."
    yours = _yours(found.own, found.chosen)
    if found.speedup.value < 1 / WITHIN:
        return f"{use}: {speed}, as fast as {yours}."
    return f"{use}: {speed}, {significant(found.speedup.value, 2)} times as fast as {yours}."


def _yours(own: WorkersSetting, chosen: WorkersSetting) -> str:
    if not own.workers:
        return "your serial loader"
    if own.workers == chosen.workers:
        return f"with your prefetch factor {own.prefetch_factor}"
    return f"your {counted(own.workers, 'worker')}"


def other_words(found: WorkersReport) -> list[str]:
    """What larger and smaller settings would change, as far as that is known."""
    sentences = []
    late = [row.setting.workers for row in found.rows if row.closed in ENDED]
    if found.stop == "interrupted":
        before = f" before {join_words([str(count) for count in late])} workers could be measured" if late else ""
        sentences.append(f"The search was interrupted{before}: this is the best so far.")
    elif late:
        noun = "worker" if late == [1] else "workers"
        sentences.append(
            f"The time was up before {join_words([str(count) for count in late])} {noun} could be measured: a larger "
            "budget decides."
        )
    alike = [row for row in found.rows if row.state == "measured" and _unclear(row, found)]
    if alike:
        sentences.append(_alike(alike, found.chosen))
    if alike and found.stop == "budget" and not late:
        sentences.append("A larger budget narrows that.")
    more = [row for row in found.rows if row.setting.workers > found.chosen.workers]
    failed = [row.setting.workers for row in more if row.state == "failed"]
    if failed:
        sentences.append(f"{counted(min(failed), 'worker')} failed: the reason stands below.")
    elif more and not late and not alike:
        sentences.append("More workers would not be faster by more than 2 %.")
    return sentences


def _unclear(row: WorkersRow, found: WorkersReport) -> bool:
    """True where the spread leaves more than 2 % between a setting and the chosen one."""
    over = row.over_chosen
    if over is None or found.stop == "decided" or not (row.paired or found.stop in ENDED):
        return False
    return over.high > 1 / WITHIN if row.setting > found.chosen else over.high >= WITHIN


def _alike(rows: Sequence[WorkersRow], chosen: WorkersSetting) -> str:
    """`Between 2 and 3 workers no difference larger than 5 % was seen.`"""
    settings = sorted([chosen, *(row.setting for row in rows)])
    names = [short_name(each) for each in settings]
    ends = [end for row in rows if row.over_chosen for end in (row.over_chosen.low, row.over_chosen.high)]
    most = max(abs(end - 1) for end in ends)
    how = "so the smallest is chosen" if chosen == settings[0] else "and the middle of the turns decides"
    share = f"{math.ceil(most * 100 - 1e-6)} %"
    return f"Between {join_words(names)} workers no difference larger than {share} was seen, {how}."


def limit_words(found: WorkersReport) -> str:
    """What limits the chosen setting, with its figure; empty where that is not known."""
    visit = chosen_visit(found)
    workers = "workers and training" if found.device else "the workers"
    match found.limit:
        case "compute":
            alone = rate(visit.compute_images_per_s or 0.0)
            return f"Compute is the limit there: without loading, it trains {alone} {found.sample}s/s."
        case "cores":
            used, cores = significant(visit.cores_in_use or 0.0, 2), significant(found.cores_available, 2)
            return f"The CPU cores are the limit there: {workers} keep {used} of {cores} busy."
        case "transport":
            return (
                f"The training thread is the limit there: receiving batches takes {percent(visit.thread_share)} of its "
                "time."
            )
        case "workers":
            return (
                f"{counted(found.chosen.workers, 'worker')} are the most that were considered, and the rate may still "
                "rise: a larger limit (--most, or most=) shows it."
            )
        case waited if waited in WAITED:
            return f"There the workers wait {percent(visit.blocked_share)} of their time for {WAIT_WORDS[found.limit]}."
        case _:
            return ""


def chosen_visit(found: WorkersReport) -> WorkersVisit:
    """The first visit of the chosen setting, which measured what limits it."""
    return next(visit for visit in found.visits if visit.setting == found.chosen)


CHOSEN_COLOR, OTHER_COLOR = TONES["compute"], TONES["inconclusive"]
HEADROOM = 1.15
FAR = 2.0
FREE, WAITING_FOR = 0.8, 0.15
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
        **own_cells(row.setting, "workers", "prefetch_factor"),
        **own_cells(row, "state", "visits"),
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
    if max(waited, default=0.0) < WAITING_FOR:
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
        *(f"{first_upper(note)}." for note in map(remark_words, found.notes)),
    ]
    apart = any(row.state == "measured" and not row.paired for row in found.rows)
    if apart:
        sentences.append("Apart: measured at another time than the chosen, so the share is rough.")
    hints = dict.fromkeys(row.hint for row in found.rows if row.hint)
    helps = [Item(subject="What helps", text="; or ".join(hints))] if hints else []
    return (*helps, Paragraph(text=" ".join(sentences)))
