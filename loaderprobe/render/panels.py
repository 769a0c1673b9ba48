"""The charts of a report, each with a table: rates, where worker time goes, reads beside what the storage gives; ranks,
epochs and short benchmarks, which have sentences and columns, too.

They are shown where `sweep_exhibits` has them under the name of a section of `sweep_document`, both in `sweep.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.answer import best_ceiling, measured, read_rate
from loaderprobe.records.measurement import COLD_AT_LEAST
from loaderprobe.records.ranks import RankRow, RanksView
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.studies import CLOSE, BufferEffect, EpochFigures, Epochs
from loaderprobe.records.verdict import How, WorkerTime
from loaderprobe.render.document import Exhibit, Paragraph, Section, Shown, Table, further
from loaderprobe.render.figures import reasons
from loaderprobe.render.format import MISSING, counted, figure, interval, megabytes_per_s, percent, rate
from loaderprobe.render.groups import RowGroup, detail_of, full_label, groups, letters_of, line_of, used_words
from loaderprobe.render.plots import (
    BLUE,
    COLORS,
    TONES,
    Axis,
    Column,
    Plot,
    Shade,
    column_chart,
    rank_chart,
    stacked_chart,
)
from loaderprobe.render.rows import Cell
from loaderprobe.render.wording import bound_words, loading, tone
from loaderprobe.render.words import remark_words
from loaderprobe.units import format_bytes, join_words, significant


def _shade(resource: str, name: str) -> Shade:
    row = RESOURCE[resource]
    return Shade(letter=row.letter, name=name, color=row.color, ink=row.ink)


PARTS = (
    _shade("preprocessing", "decoding and augmentation (CPU)"),
    Shade(letter="Q", name="ready, no core free", color="#56B4E9", ink="#000000"),
    *(_shade(name, f"waiting: {RESOURCE[name].kinds or name}") for name in WAITED),
    _shade("unknown", "waiting, not attributed"),
    Shade(letter="O", name="other: sending, waiting to send", color="#F0E442", ink="#000000"),
)
"""Where the time of one image in a worker goes."""
_ABOVE = 1.16
"""A scale ends so far above what it shows, that labels have their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart and its figures as a table; `svg` is empty when there is nothing to draw, and `note` says why."""

    title: str
    svg: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    note: str


Lines = dict[str, list[ConfigurationRow]]
"""Rows that differ in workers only, by the name of their line."""


def rate_exhibits(report: Report) -> Iterator[Exhibit]:
    """Images/s against workers with 95 % intervals, under the rate of compute alone."""
    found = groups(report)
    of_scale: dict[tuple[str, str], list[RowGroup]] = {}
    for group in found:
        of_scale.setdefault((group.compute, group.model), []).append(group)
    tops = {name: _highest(some) for name, some in of_scale.items()}
    for group in found:
        yield from _drawn(
            group,
            "Bars: images/s with their 95 % intervals, and the letter of what limits. Dashed: compute "
            "alone, beside the fastest of them.",
            [_rates(name, rows, group, tops[group.compute, group.model]) for name, rows in _lines(group).items()],
        )


def worker_exhibits(report: Report) -> Iterator[Exhibit]:
    """Where the time of one image goes in one worker, the loader running alone."""
    for group in groups(report):
        yield from _drawn(
            group,
            "One image in one worker, the loader running alone: workers over images/s of the loader. With the serial "
            "loader, the worker is the training thread.",
            [_workers(name, rows, _longest(group)) for name, rows in _lines(group).items()],
            legend=tuple((part.letter, part.name, part.color, part.ink) for part in PARTS),
        )


def read_exhibits(report: Report) -> Iterator[Exhibit]:
    """MB/s read from storage while training, under the most that the storage alone gave."""
    top = max([_most_read(report, row) for row in report.summary.configurations], default=0.0)
    for group in groups(report):
        yield from _drawn(
            group,
            "Bars: MB/s that the devices under the data delivered while training; the page cache does not count. "
            "Dashed: the most that the storage alone gave in this run.",
            [_reads(report, name, rows, top) for name, rows in _lines(group).items()],
        )


def _drawn(
    group: RowGroup, caption: str, charts: Sequence[Chart], legend: tuple[tuple[str, str, str, str], ...] = ()
) -> Iterator[Exhibit]:
    """Charts of one kind and device, as one exhibit; none where there is nothing to draw or to say."""
    shown = [chart for chart in charts if chart.svg or chart.note]
    emulated = " (emulated accelerator)" if group.emulated else ""
    if shown:
        yield Exhibit(
            title=group.title,
            text=caption,
            legend=legend,
            figures=tuple((f"{each.title}{emulated}", each.svg) for each in shown),
            tables=tuple(
                Table(head=each.head, lines=each.lines, right=frozenset(range(1, len(each.head)))) for each in shown
            ),
            notes=tuple(each.note for each in shown),
        )


def _lines(group: RowGroup) -> Lines:
    found: Lines = {}
    for row in group.rows:
        found.setdefault(line_of(row, group.rows), []).append(row)
    return {name: sorted(rows, key=lambda row: row.config.loader.workers) for name, rows in found.items()}


def _highest(some: Sequence[RowGroup]) -> float:
    rows = [row for group in some for row in group.rows]
    highest = [row.images_per_s.high for row in rows if row.images_per_s]
    return max([*highest, *(group.ceiling_images_per_s or 0.0 for group in some)], default=0.0) * _ABOVE


def _rates(name: str, rows: Sequence[ConfigurationRow], group: RowGroup, top: float) -> Chart:
    known = [(row, speed) for row in measured(rows) if (speed := row.images_per_s)]
    columns = [
        Column(
            name=_count(row), value=speed.value, low=speed.low, high=speed.high,
            text=f"{rate(speed.value)} {letters_of(row)}", color=TONES.get(tone(row), TONES["inconclusive"]),
        )
        for row, speed in known
    ]  # fmt: skip
    best = max(known, key=lambda each: each[1].value, default=None)
    # As in the tables: what compute alone did in this very configuration, not the most that it did in any.
    alone = best[0].verdict.rates_images_per_s.compute if best and best[0].verdict else None
    origin = "specified" if group.emulated else "measured"
    ceiling = (alone, f"compute alone: {rate(alone)} ({origin})") if alone else None
    title = name
    if best:
        row, most = best
        # Noise may put training above compute alone, which it cannot outrun: then it is no share of it.
        share = f" of {rate(alone)}" if alone and alone >= most.value else ""
        title = f"{name}: {rate(most.value)}{share} images/s, {loading(row)}"
    return Chart(
        title=title,
        svg=column_chart(columns, title, "images/s", top, ceiling),
        head=("workers", "images/s", "of alone", "limit"),
        lines=tuple(
            (_count(row), interval(speed), used_words(row, beside_rate=True), bound_words(row)) for row, speed in known
        ),
        note=_note(rows, "images/s"),
    )


def per_image(row: ConfigurationRow) -> tuple[float, ...] | None:
    """Seconds of one image in one worker by `PARTS`, which sum to workers over images/s of the loader alone."""
    spent, loader = (row.verdict.worker_time, row.verdict.rates_images_per_s.loader) if row.verdict else (None, None)
    if spent is None or not loader:
        return None
    whole = row.config.readers / loader
    known = _known_parts(spent)
    # The parts are means over all rounds, the rate is the median of them: parts of more than all of it are scaled.
    scale = min(1.0, whole / sum(known)) if sum(known) else 1.0
    scaled = [part * scale for part in known]
    return (*scaled, max(0.0, whole - sum(scaled)))


def _known_parts(spent: WorkerTime) -> list[float]:
    waits = [spent.waits.get(name, 0.0) for name in WAITED]
    return [spent.cpu_s, spent.run_delay_s, *waits, max(0.0, spent.blocked_s - sum(waits))]


def _longest(group: RowGroup) -> float:
    return max([sum(parts) for row in group.rows if (parts := per_image(row))], default=0.0) * 1e3 * _ABOVE


def _workers(name: str, rows: Sequence[ConfigurationRow], top: float) -> Chart:
    known = [(row, parts) for row in measured(rows) if (parts := per_image(row))]
    bars = [(loading(row), [part * 1e3 for part in parts], figure(sum(parts) * 1e3)) for row, parts in known]
    title = name
    if known:
        _, last = known[-1]
        largest = max(range(len(PARTS)), key=lambda place: last[place])
        share = percent(last[largest] / sum(last))
        title = f"{name}, {loading(known[-1][0])}: {share} {PARTS[largest].name.partition(' (')[0]}"
    used = [place for place in range(len(PARTS)) if any(parts[place] for _, parts in known)]
    return Chart(
        title=title,
        svg=stacked_chart(bars, PARTS, title, "ms an image in one worker", top),
        head=("workers", *(PARTS[place].name for place in used), "ms an image"),
        lines=tuple(
            (_count(row), *(figure(parts[place] * 1e3) for place in used), figure(sum(parts) * 1e3))
            for row, parts in known
        ),
        note=_note(rows, "worker time"),
    )


def _most_read(report: Report, row: ConfigurationRow) -> float:
    ceiling = best_ceiling(report, row)
    return max(read_rate(row) or 0.0, ceiling.read_bytes_per_s if ceiling else 0.0) / 1e6 * _ABOVE


def _reads(report: Report, name: str, rows: Sequence[ConfigurationRow], top: float) -> Chart:
    known = [(row, read) for row in measured(rows) if (read := read_rate(row)) is not None]
    columns = [
        Column(name=_count(row), value=read / 1e6, text=megabytes_per_s(read), color=BLUE) for row, read in known
    ]
    best = best_ceiling(report, rows[0])
    least = ">= " if best and best.at_least else ""
    ceiling, title = None, name
    most = f"{least}{megabytes_per_s(best.read_bytes_per_s)}" if best else MISSING
    if best:
        ceiling = (best.read_bytes_per_s / 1e6, f"storage alone: {most} ({best.readers} readers)")
    if known:
        read = max(read for _, read in known)
        share = f", {percent(read / best.read_bytes_per_s)} of what storage gives" if best else " read"
        title = f"{name}: {megabytes_per_s(read)} MB/s{share}"
    return Chart(
        title=title,
        svg=column_chart(columns, title, "MB/s read from storage", top, ceiling),
        head=("workers", "MB/s", "storage alone, MB/s"),
        lines=tuple((_count(row), megabytes_per_s(read), most) for row, read in known),
        note=_note(rows, "disk_read_bytes_per_s"),
    )


def _note(rows: Sequence[ConfigurationRow], field: str) -> str:
    """What is not drawn, and why."""
    gone = [f"{loading(row)}: {row.status}" for row in rows if row.status != "measured"]
    gone += [f"{loading(row)}: {reasons(row)[field]}" for row in measured(rows) if field in row.unavailable]
    return "; ".join(gone)


def _count(row: ConfigurationRow) -> str:
    return str(row.config.loader.workers or "serial")


# The ranks of each configuration that has several: a few of them as a table, all as strips where they are uneven.

RANKS_HEAD = ("rank", "host", "by itself, images/s", "own input, ms", "waiting for others, ms")
RANKS_CAPTION = (
    "By itself: what the loader of a rank delivers when it waits for no other. Own input and waiting for others: "
    "milliseconds of a step of the loader alone, in step. Waiting names no slow rank: who is ahead once keeps a full "
    "buffer."
)
RANKS_HEIGHT = 150
"""Units of height of each of two charts."""


def rank_parts(report: Report) -> Iterator[Shown]:
    """The ranks of each configuration that has several, as a table."""
    for row in report.summary.configurations:
        if (view := _view(report, row)) is not None:
            yield from further(rank_table(view, caption=full_label(row, report)))


def rank_exhibits(report: Report) -> Iterator[Exhibit]:
    """All ranks of each configuration whose ranks are uneven, drawn."""
    for row in report.summary.configurations:
        view = _view(report, row)
        if view is not None and view.uneven:
            title = full_label(row, report)
            yield Exhibit(title=title, text=RANKS_CAPTION, figures=((title, _strips(view)),))


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
    head = tuple(each.replace("images", sample) for each in RANKS_HEAD)
    yield Table(head=head, lines=tuple(map(_line, view.shown)), right=frozenset({2, 3, 4}), caption=caption)
    yield Paragraph(text=RANKS_CAPTION)
    if count := len(view.rows) - len(view.shown):
        yield Paragraph(text=f"{count} other ranks are not in the table.")


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
        rank_chart("By itself", "images/s", alone, [TONES["compute"]] * count, height=RANKS_HEIGHT),
        rank_chart("Own input", "ms a step", own, [TONES["storage"]] * count, height=RANKS_HEIGHT),
    )
    return "".join(each.svg() for each in drawn)


# Whole epochs: rate and cold share of each as a chart and a table, and what that says, in a sentence.

EPOCHS_CAPTION = (
    "Each epoch reads every file once, in an order of its own; the first begins with cold files. Bars: images/s, and "
    "the share of the bytes that came from storage. Other processes' reads do not count."
)
_MOST_TEXTS = 4
"""Bars beside which rate and share can stand."""
_ABOVE_TWO_FIGURES = 1.7
"""A scale ends so far above its bars, that each has its figures over it."""


def epoch_exhibits(report: Report) -> Iterator[Exhibit]:
    """A figure for each configuration whose epochs were asked for, on one scale a device."""
    for group in groups(report):
        rows = [(row, row.epochs) for row in group.rows if row.epochs]
        top = _ABOVE_TWO_FIGURES * max((e.images_per_s for _, epochs in rows for e in epochs.epochs), default=0.0)
        yield from _drawn(group, EPOCHS_CAPTION, [_epochs_chart(row, epochs, group, top) for row, epochs in rows])


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


def _name(row: ConfigurationRow, group: RowGroup) -> str:
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


def _epochs_chart(row: ConfigurationRow, epochs: Epochs, group: RowGroup, top: float) -> Chart:
    name = _name(row, group)
    few = len(epochs.epochs) <= _MOST_TEXTS
    columns = [
        Column(
            name=str(number),
            value=each.images_per_s,
            text=f"{rate(each.images_per_s)}{f', {_share(each)}' if few else ''}",
            color=BLUE,
        )
        for number, each in enumerate(epochs.epochs, 1)
    ]
    title = f"{name}: {epochs.fit}" if epochs.fit and not epochs.reason else name
    return Chart(
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


# Short benchmarks: how much too fast one is that begins with a full buffer, as a chart and in a sentence.

SHOWN = (10, 20, 50, 100, 200)
"""Iterations of the table."""
USUAL = 100
"""Iterations of a benchmark that one often meets."""
SHORT_RUNS_CAPTION = (
    "A benchmark starts a loader, and while its device warms up, the buffer fills. Its first iterations then cost the "
    "loader nothing. Lines: the rate over the first k iterations, over the steady rate; the figure at each is its "
    "prefetch factor. Dots were measured; dashed is the most there can be, k / (k - free batches), or compute alone."
)
_LABEL_RATIO = 1.35
"""The height at which a line has its name, where it comes that low."""

Buffered = tuple[ConfigurationRow, BufferEffect]


def short_run_exhibits(report: Report) -> Iterator[Exhibit]:
    """A figure a data set: the configurations with the most workers as lines, all of them in the table."""
    for group in groups(report):
        charts = [_short_runs_chart(name, some) for name, some in _by_data(group).items()]
        yield from _drawn(group, SHORT_RUNS_CAPTION, charts)


def short_run_sentences(report: Report) -> list[tuple[str, str]]:
    """(data set and workers, sentence) for each data set on each device where it was measured, or was to be."""
    found = groups(report)
    return [
        (
            f"{name}, {loading(chosen[0][0])}{f', {group.device}' if len(found) > 1 else ''}",
            _short_runs_sentence(chosen),
        )
        for group in found
        for name, some in _by_data(group).items()
        for chosen in [_most_workers(some)]
        if any(effect.how == "measured" or effect.reason for _, effect in chosen)
    ]


def short_run_cells(row: ConfigurationRow) -> dict[str, Cell]:
    """Columns of a flat table; none for a row without a buffer."""
    effect = row.buffer
    if effect is None:
        return {}
    cells: dict[str, Cell] = {"buffered_batches": effect.batches}
    cells |= {f"rate_over_steady_after_{count}_iterations": _at(effect, count) for count in SHOWN}
    return cells | {"rate_over_steady_how": effect.how, "iterations_within_2_percent": effect.enough}


def _by_data(group: RowGroup) -> dict[str, list[Buffered]]:
    found: dict[str, list[Buffered]] = {}
    for row in group.rows:
        if row.buffer:
            found.setdefault(row.config.resolution, []).append((row, row.buffer))
    return found


def _most_workers(some: Sequence[Buffered]) -> list[Buffered]:
    most = max(row.config.loader.workers for row, _ in some)
    return [each for each in some if each[0].config.loader.workers == most]


def _at(effect: BufferEffect, iterations: int) -> float | None:
    """As measured where it was, as estimated where all is."""
    return effect.predicted(iterations) if effect.how == "estimated" else effect.measured(iterations)


def _excess(over_steady: float, effect: BufferEffect) -> str:
    """`+19 %`; within 2 %, or within the noise band, it is none."""
    more, none = over_steady - 1, max(CLOSE, effect.noise)
    if abs(more) <= none:
        return f"±{significant(none * 100, 1)} %"
    return f"{'+' if more > 0 else '−'}{percent(abs(more))}"  # noqa: RUF001  # the sign, as typeset


def _too(over_steady: float, how: How, effect: BufferEffect) -> str:
    """`19 % too fast`, or `within 2 %`. The model is the most there is."""
    more, none = over_steady - 1, max(CLOSE, effect.noise)
    if abs(more) <= none:
        return f"within {significant(none * 100, 1)} %"
    at_most = "up to " if how == "estimated" else ""
    return f"{at_most}{percent(abs(more))} too {'fast' if more > 0 else 'slow'}"


def _usual(effect: BufferEffect) -> tuple[float, How]:
    """(over the steady rate after the usual number of iterations, how that is known)."""
    seen = effect.measured(USUAL)
    return (effect.predicted(USUAL), "estimated") if seen is None else (seen, "measured")


def _with_noise(effect: BufferEffect) -> BufferEffect:
    """The noise of what was measured is not that of the model."""
    return effect if effect.measured(USUAL) is not None else replace(effect, noise=0.0)


def _short_runs_sentence(chosen: Sequence[Buffered]) -> str:
    """`the first 100 iterations from a full buffer are 19 % too fast with prefetch 2 (measured); ...`."""
    factors: dict[str, list[str]] = {}
    for row, effect in chosen:
        words = _too(*_usual(effect), _with_noise(effect))
        factors.setdefault(words, []).append(str(row.config.loader.prefetch_factor))
    said = join_words([f"{words} with prefetch {join_words(some)}" for words, some in factors.items()])
    how = join_words(_once([_usual(effect)[1] for _, effect in chosen]))
    missing = _once([remark_words(effect.reason) for _, effect in chosen if effect.reason])
    reasons = [f" Not measured: {reason}." for reason in missing]
    first = f"the first {USUAL} iterations from a full buffer are {said} ({how})"
    return f"{first}; {_enough([effect.enough for _, effect in chosen])} (estimated).{''.join(reasons)}"


def _enough(iterations: Sequence[int]) -> str:
    """Where compute is the limit, the first iteration is as fast as any."""
    if set(iterations) == {1}:
        return "any number is within 2 %"
    return f"{join_words([f'{iteration:,}' for iteration in iterations])} are enough for 2 %"


def _once(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _short_runs_chart(name: str, some: Sequence[Buffered]) -> Chart:
    chosen = _most_workers(some)
    ordered = sorted((effect for _, effect in chosen), key=lambda effect: _usual(effect)[0])
    ends = _once([_excess(_usual(effect)[0], _with_noise(effect)) for effect in (ordered[0], ordered[-1])])
    title = f"{name}, {loading(chosen[0][0])}: {USUAL} iterations {' to '.join(ends)}"
    return Chart(
        title=title,
        svg=_chart(title, chosen),
        head=("workers", "prefetch", "batches", *(f"{count}" for count in SHOWN), "for 2 %", "how"),
        lines=tuple(
            (
                str(row.config.loader.workers),
                str(row.config.loader.prefetch_factor),
                str(effect.batches),
                *(MISSING if (ratio := _at(effect, count)) is None else _excess(ratio, effect) for count in SHOWN),
                f"{effect.enough:,}",
                effect.how,
            )
            for row, effect in some
        ),
        note="; ".join(
            f"{counted(row.config.loader.workers, 'worker')}, prefetch {row.config.loader.prefetch_factor} not "
            f"measured: {remark_words(effect.reason)}"
            for row, effect in some
            if effect.reason
        ),
    )


def _chart(title: str, chosen: Sequence[Buffered]) -> str:
    seen = [run.over_steady for _, effect in chosen for run in effect.runs]
    low, high = min([0.8, *(0.9 * each for each in seen)]), max([2.0, *seen, *(effect.most for _, effect in chosen)])
    last = max([2000.0] + [1.2 * effect.enough for _, effect in chosen])
    x = Axis(name="first iterations", low=1, high=last, base=10)
    plot = Plot(title, x, Axis(name="rate over the steady rate", low=low, high=1.15 * high, base=10))
    for number, (row, effect) in enumerate(chosen):
        color = COLORS[number % len(COLORS)]
        plot.line([(count, effect.predicted(count)) for count in _counts(last)], color, dash="4 3", width=1)
        if effect.how == "measured":
            points = [(run.iterations, run.over_steady) for run in effect.runs]
            plot.line(points, color, width=1.5)
            plot.dots(points, color)
        ratio = min(_LABEL_RATIO, 1 + (effect.most - 1) / 2)
        at = effect.free * ratio / (ratio - 1) if ratio > 1 + CLOSE else 1.3 * 1.8**number
        plot.name(at, ratio, str(row.config.loader.prefetch_factor), "above right", color=color)
    return plot.svg()


def _counts(last: float) -> list[int]:
    """Close enough for a smooth line, and each once."""
    found, count = [], 1.0
    while count <= last:
        found.append(round(count))
        count = max(count + 1, count * 1.06)
    return list(dict.fromkeys(found))
