"""What a GPU did in the profiler windows of a report, in words, figures and timelines; without them its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from loaderprobe.analyze.gpu import columns, overlap, within
from loaderprobe.records.config import alike_but_for
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import MOMENTS, Resource
from loaderprobe.records.verdict import GAP_CAUSES, TIME_PARTS, DeviceUse, Gaps, Stretches, TimelineView, TimePart
from loaderprobe.render.document import Exhibit, Item, Shown, Table
from loaderprobe.render.format import MISSING, counted, percent
from loaderprobe.render.groups import RowGroup, detail_of, line_of
from loaderprobe.render.plots import svg_page, svg_text, ticks
from loaderprobe.render.wording import label, loading, variation
from loaderprobe.render.words import message, remark_words
from loaderprobe.units import significant

# The timeline of a GPU as SVG: kernels, and the gaps between them, in the colours and letters of the resources.
#
# Each column is one stretch of time, filled from the bottom by the share of it that kernels ran, and
# above by the shares of the causes. Where a stretch is shorter than any kernel or gap, columns are full of one colour,
# as in a profiler; where kernels are shorter than a column, their area is still right.

HEIGHT = 156
_LEFT, _RIGHT = 42, 342
_COLUMNS = _RIGHT - _LEFT
_TOP, _FLOOR = 54, 122
_LANES = {"next()": 30, "copy": 42}
_LANE_HEIGHT = 8
_LEAST_LETTER = 12
"""Pixels of either side of the smallest area that gets a letter."""
_INK, _RULE = "currentColor", "#9AA0A6"


def common_length_ns(views: Sequence[TimelineView]) -> int:
    """The stretch of time to show of each: a step of the slowest and a little more, if all have about as much."""
    slowest = max(view.window_ns / max(1, len(view.step_begin_ns)) for view in views)
    shortest = min(view.window_ns for view in views)
    return max(1, round(min(1.25 * slowest, 4 * shortest)))


def typical_begin_ns(view: TimelineView, length_ns: int) -> int:
    """The begin of a step from which on the time is spent most as in the whole window."""

    def shares(begin_ns: int, span_ns: int) -> list[float]:
        return [overlap(ranges, begin_ns, begin_ns + span_ns) / span_ns for ranges in view.parts.values()]

    whole = shares(0, view.window_ns)
    last = view.window_ns - length_ns
    candidates = [at for at in view.step_begin_ns if at <= last] or [0]
    span_ns = min(length_ns, view.window_ns)
    return min(candidates, key=lambda at: sum(abs(a - b) for a, b in zip(shares(at, span_ns), whole, strict=True)))


def timeline_chart(view: TimelineView, title: str, length_ns: int, of: str = "GPU") -> str:
    """SVG of a typical stretch of `length_ns`; blank where the window was over sooner. `of` names what was busy."""
    begin_ns = typical_begin_ns(view, length_ns)
    filled = {
        part: columns(view.parts[part], begin_ns, length_ns, _COLUMNS) for part in TIME_PARTS if part in view.parts
    }
    known = min(_COLUMNS, round(_COLUMNS * (view.window_ns - begin_ns) / length_ns))
    drawn = [
        # With a frame, for colours that are near to that of the page.
        f'<rect x="{_LEFT}" y="{_TOP}" width="{known}" height="{_FLOOR - _TOP}" fill="{_INK}" fill-opacity="0.08" '
        f'stroke="{_RULE}" stroke-width="0.5"/>',
        *_bars(filled),
        *_lane("next()", view.waits, begin_ns, length_ns),
        *_lane("copy", view.copies, begin_ns, length_ns),
        svg_text(_LEFT - 5, (_TOP + _FLOOR) // 2 + 4, of, anchor="end"),
        _timeline_steps(view, begin_ns, length_ns),
        *_axis(length_ns),
    ]
    return svg_page(title, HEIGHT, drawn)


def _bars(filled: Mapping[TimePart, Sequence[float]]) -> list[str]:
    """One path for each part, stacked upon those before, and letters where they fit."""
    floor = [float(_FLOOR)] * _COLUMNS
    out, letters = [], []
    for name, shares in filled.items():
        top = [low - share * (_FLOOR - _TOP) for low, share in zip(floor, shares, strict=True)]
        boxes = [(round(low * 2) / 2, round(high * 2) / 2) for low, high in zip(floor, top, strict=True)]
        runs = [(edges, [number for number, _ in group]) for edges, group in groupby(enumerate(boxes), lambda e: e[1])]
        path = "".join(
            f"M{_LEFT + numbers[0]} {high:g}h{len(numbers)}v{low - high:g}h-{len(numbers)}z"
            for (low, high), numbers in runs
            if low > high
        )
        if path:
            out.append(f'<path class="{name}" shape-rendering="crispEdges" fill="{MOMENTS[name].color}" d="{path}"/>')
        letters += _letters(MOMENTS[name], boxes)
        floor = top
    return out + letters


def _letters(shown: Resource, boxes: Sequence[tuple[float, float]]) -> list[str]:
    """The letter, in the middle of each area that it fits into."""
    out: list[str] = []
    roomy = groupby(range(_COLUMNS), lambda number: boxes[number][0] - boxes[number][1] >= _LEAST_LETTER)
    for fits, group in roomy:
        numbers = list(group)
        if fits and len(numbers) >= _LEAST_LETTER:
            middle = numbers[len(numbers) // 2]
            low, high = boxes[middle]
            y = (low + high) / 2 + 4
            out.append(svg_text(_LEFT + middle, y, shown.letter, anchor="middle", bold=True, fill=shown.ink))
    return out


def _lane(name: str, ranges: Stretches, begin_ns: int, length_ns: int) -> list[str]:
    """A thin row of its own for what may lie behind the kernels."""
    top = _LANES[name]
    marks: list[list[float]] = []
    for low, high in within(ranges, begin_ns, begin_ns + length_ns):
        left, right = (_LEFT + (edge - begin_ns) * _COLUMNS / length_ns for edge in (low, high))
        right = max(right, left + 1.0)
        if marks and left - marks[-1][1] < 1.0:
            marks[-1][1] = max(marks[-1][1], right)
        else:
            marks.append([left, right])
    path = "".join(f"M{left:.1f} {top}H{right:.1f}v{_LANE_HEIGHT}H{left:.1f}z" for left, right in marks)
    return [
        svg_text(_LEFT - 5, top + _LANE_HEIGHT, name, anchor="end"),
        *([f'<path class="lane" fill="{_INK}" d="{path}"/>'] if path else []),
    ]


def _timeline_steps(view: TimelineView, begin_ns: int, length_ns: int) -> str:
    """A mark over the begin of each step, unless they would be too close to separate."""
    seen = [at for at in view.step_begin_ns if begin_ns <= at <= begin_ns + length_ns]
    if len(seen) > _COLUMNS // 4:
        return ""
    path = "".join(f"M{_LEFT + (at - begin_ns) * _COLUMNS / length_ns:.1f} 22v4" for at in seen)
    return f'<path stroke="{_INK}" stroke-width="1.5" d="{path}"/>' if path else ""


def _axis(length_ns: int) -> list[str]:
    """Ticks at round times from the begin of the stretch, in ms or µs."""
    unit, unit_ns = ("ms", 1e6) if length_ns >= 2e6 else ("µs", 1e3)
    length = length_ns / unit_ns
    at = [(_LEFT + time / length * _COLUMNS, time) for time in ticks(length)]
    marks = "".join(f"M{x:.1f} {_FLOOR}v4" for x, _ in at)
    return [
        f'<path stroke="{_RULE}" fill="none" d="M{_LEFT} {_FLOOR}H{_RIGHT}{marks}"/>',
        *(svg_text(x, _FLOOR + 16, f"{time:g}", anchor="middle") for x, time in at if x < _RIGHT - 12 or len(at) == 1),
        svg_text(_RIGHT, _FLOOR + 30, unit, anchor="end"),
    ]


MEASURED = {"sm_utilization": "SM utilization, measured (GPM)", "sm_occupancy": "occupancy, measured (GPM)"}
"""Figures of the GPU's counters, by their name in `gpu`."""
OFTEN = 0.5
"""Syncs a step that are worth a word."""
MOST_VIEWS = 3
"""Side by side: serial, few workers, many workers."""
WINDOW_CAPTION = (
    "The profiler recorded one short window of each configuration, outside the timed rounds. A gap between kernels has "
    "the colour and letter of its cause: what the kernel after it waited for. Waits and copies that overlap with "
    "kernels cost nothing; the two thin rows show all of them. Estimated figures follow from the kernels' grids. "
    "Measured figures come from the GPU's counters, over the timed rounds."
)


def window_parts(group: RowGroup) -> Iterator[Shown]:
    """Of each data set the figures of its profiler windows, and what must be known to read them."""
    for resolution, rows in _profiled(group).items():
        if shown := [row for row in rows if row.gpu_window and row.gpu_window.gaps]:
            yield _table(f"{resolution}, {group.title}: share of the window; of idle time also ms a step", shown)
        for which, note in [note for row in rows for note in _notes(row, rows)]:
            yield Item(subject=f"{resolution}, {which}", text=note, further=True)


def window_exhibits(report: Report, group: RowGroup) -> Iterator[Exhibit]:
    """The windows of up to three configurations of each data set, on one axis of time."""
    for resolution, rows in _profiled(group).items():
        drawn = [(row, view) for row in _side_by_side(rows) if (view := _view(report, row))]
        length_ns = common_length_ns([view for _, view in drawn]) if drawn else 0
        if drawn:
            titles = [f"{resolution}, {_name(row, rows)}" for row, _ in drawn]
            yield Exhibit(
                title=f"{group.title}: {resolution}",
                text=WINDOW_CAPTION,
                figures=tuple(
                    (f"GPU timeline of {title}", timeline_chart(view, title, length_ns))
                    for title, (_, view) in zip(titles, drawn, strict=True)
                ),
                legend=legend_of(TIME_PARTS),
            )


def legend_of(parts: Iterable[TimePart]) -> tuple[tuple[str, str, str, str], ...]:
    """What the colours of a timeline stand for, as `Exhibit` has it."""
    return tuple((row.letter, row.moment, row.color, row.ink) for row in (MOMENTS[part] for part in parts))


def _profiled(group: RowGroup) -> dict[str, list[ConfigurationRow]]:
    """The rows of each data set of which at least one was profiled."""
    found: dict[str, list[ConfigurationRow]] = {}
    for row in group.rows:
        if row.gpu_window is not None:
            found.setdefault(row.config.resolution, []).append(row)
    return found


def _view(report: Report, row: ConfigurationRow) -> TimelineView | None:
    detail = detail_of(report, row)
    return detail.view if detail else None


def _side_by_side(rows: Sequence[ConfigurationRow]) -> list[ConfigurationRow]:
    """Fewest workers, most workers, and the one in the middle, of the configurations that are otherwise alike."""
    alike: dict[tuple[object, ...], dict[int, ConfigurationRow]] = {}
    serial: dict[tuple[object, ...], ConfigurationRow] = {}
    for row in rows:
        if row.gpu_window and row.gpu_window.gaps:
            same = alike_but_for(row.config, "workers", "prefetch_factor", "rounds", "seed")
            loader = row.config.loader
            if loader.workers:
                alike.setdefault((*same, loader.prefetch_factor), {}).setdefault(loader.workers, row)
            else:
                serial.setdefault(same, row)
    # The serial loader has no prefetch factor, and so stands beside each.
    for same, row in serial.items():
        for some in [some for key, some in alike.items() if key[:-1] == same] or [alike.setdefault((*same, 0), {})]:
            some.setdefault(0, row)
    if not alike:
        return []
    # What was measured with the most worker counts shows best what they do.
    by_workers = max(alike.values(), key=len)
    counts = sorted(by_workers)
    chosen = sorted({counts[0], counts[(len(counts) - 1) // 2], counts[-1]})
    return [by_workers[count] for count in chosen][:MOST_VIEWS]


def _name(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> str:
    return ", ".join(part for part in (loading(row), variation(row, among)) if part)


def _table(caption: str, rows: Sequence[ConfigurationRow]) -> Table:
    trains, uses = MOMENTS["compute"], [w.use for row in rows if (w := row.gpu_window) and w.use]
    lines = [(f"busy: {trains.moment} ({trains.letter})", tuple(percent(use.training_busy) for use in uses))]
    if any(use.kernel_busy > use.training_busy for use in uses):
        lines.append(("busy: any kernel", tuple(percent(use.kernel_busy) for use in uses)))
    lines.append(("SM efficiency, estimated", tuple(percent(use.sm_efficiency_estimated) for use in uses)))
    lines.append(("occupancy, estimated", tuple(map(occupancy_words, uses))))
    for name, words in MEASURED.items():
        if any(name in counters(row) for row in rows):
            lines.append((words, tuple(_measured(row, name) for row in rows)))
    all_gaps = [row.gpu_window.gaps for row in rows if row.gpu_window and row.gpu_window.gaps]
    lines += [
        (f"idle: {MOMENTS[cause].moment} ({MOMENTS[cause].letter})", tuple(_idle(g, g.of(cause)) for g in all_gaps))
        for cause in GAP_CAUSES
        if any(gaps.of(cause) for gaps in all_gaps)
    ]
    if any(gaps.pageable_ns for gaps in all_gaps):
        lines.append(("… of the copies, from pageable memory", tuple(_idle(g, g.pageable_ns) for g in all_gaps)))
    return Table(
        head=("", *(_name(row, rows) for row in rows)),
        lines=tuple((name, *cells) for name, cells in lines),
        right=frozenset(range(1, len(rows) + 1)),
        caption=caption,
        further=True,
    )


def counters(row: ConfigurationRow) -> dict[str, float | str]:
    """What the GPU's counters say; empty where nothing was measured."""
    return row.verdict.gpu if row.verdict else {}


def occupancy_words(use: DeviceUse) -> str:
    """With the share of the kernels' time that it covers, where that is not all of it."""
    some = use.occupancy_estimated is not None and use.occupancy_coverage <= 0.995
    return percent(use.occupancy_estimated) + (
        f" (of {percent(use.occupancy_coverage)} of the kernels' time)" if some else ""
    )


def _measured(row: ConfigurationRow, name: str) -> str:
    value = counters(row).get(name)
    return percent(value) if isinstance(value, float) else MISSING


def _idle(gaps: Gaps, nanoseconds: int) -> str:
    """`60 %, 60.1 ms`: of the window, and of one step."""
    if 0 < nanoseconds < 0.0005 * gaps.window_ns:
        return "< 0.1 %"
    return f"{percent(nanoseconds / gaps.window_ns)}, {significant(nanoseconds / gaps.steps / 1e6)} ms"


def _notes(row: ConfigurationRow, among: Sequence[ConfigurationRow]) -> list[tuple[str, str]]:
    window = row.gpu_window
    if window is None:
        return []
    texts = [remark_words(each) for each in ((window.refused,) if window.refused else window.doubts)]
    if not window.refused and window.syncs_per_step >= OFTEN:
        texts.append(
            f"the training thread waits for the GPU {significant(window.syncs_per_step, 2)} times a step (.item(), a "
            "printed loss, a blocking copy), and cannot run ahead of it"
        )
    for each in window.rejected:
        texts.append(
            f"{counted(each.count, 'record')} of the profiler left out: {message(f'rejected.{each.reason}', {})}"
        )
    return [(_name(row, among), text) for text in texts if text]


def idle_words(row: ConfigurationRow) -> str:
    """`busy 38 %; idle 60 % waiting for input, 2 % copy to the device; ...`; empty without figures."""
    window = row.gpu_window
    if window is None or window.gaps is None or window.use is None:
        return ""
    gaps, use = window.gaps, window.use
    # Below half a percent a share is not worth a word here; the table has it.
    shares = [(MOMENTS[cause].moment, gaps.share(cause)) for cause in GAP_CAUSES]
    idle = ", ".join(f"{percent(share)} {name}" for name, share in shares if share >= 0.005)
    estimates = [
        f"{words} {percent(value)} estimated"
        for words, value in (("SM efficiency", use.sm_efficiency_estimated), ("occupancy", use.occupancy_estimated))
        if value is not None
    ]
    measured = [f"{words} {_measured(row, name)}" for name, words in MEASURED.items() if name in counters(row)]
    parts = [f"busy {percent(use.training_busy)}", f"idle {idle}" if idle else "", ", ".join(estimates + measured)]
    return "; ".join(part for part in (*parts, *map(remark_words, window.doubts)) if part) + "."


def profiled(group: RowGroup) -> list[tuple[str, str]]:
    """(label, busy and idle in words) for each configuration of a group that was profiled."""
    return [(label(row, group.rows), words) for row in group.rows if (words := idle_words(row))]


def step_exhibits(report: Report, group: RowGroup) -> Iterator[Exhibit]:
    """The steps of training of each data set without a profiler window: serial, few and many workers."""
    found: dict[str, dict[int, tuple[ConfigurationRow, TimelineView]]] = {}
    for row in group.rows:
        detail = detail_of(report, row)
        if row.gpu_window is None and detail and detail.steps:
            some = found.setdefault(line_of(row, group.rows), {})
            some.setdefault(row.config.loader.workers, (row, detail.steps))
    for name, some in found.items():
        yield _steps(name, group, _few(some))


def _few(some: dict[int, tuple[ConfigurationRow, TimelineView]]) -> list[tuple[ConfigurationRow, TimelineView]]:
    """Fewest workers, most, and the one in the middle."""
    counts = sorted(some)
    chosen = sorted({counts[0], counts[(len(counts) - 1) // 2], counts[-1]})
    return [some[count] for count in chosen][:MOST_VIEWS]


def _steps(name: str, group: RowGroup, drawn: Sequence[tuple[ConfigurationRow, TimelineView]]) -> Exhibit:
    length_ns = common_length_ns([view for _, view in drawn])
    titles = [f"{name}, {loading(row)}: trains {percent(_busy(view))}" for row, view in drawn]
    marked = " (emulated accelerator)" if group.emulated else ""
    trains = MOMENTS["compute"]
    emulated = " A step on an emulated accelerator lasts as long as its specified rate says." if group.emulated else ""
    return Exhibit(
        title=f"{group.title}: {name}",
        text="No profiler ran: a stretch of the last round with the serial loader, few and many workers." + emulated,
        figures=tuple(
            (f"Timeline of the steps of {title}{marked}", timeline_chart(view, title, length_ns, of="step"))
            for title, (_, view) in zip(titles, drawn, strict=True)
        ),
        legend=((trains.letter, "training step", trains.color, trains.ink), *legend_of(["input"])),
        table=Table(
            head=("workers", "training", "waiting for input", "ms a step"),
            lines=tuple(_step_line(row, view) for row, view in drawn),
            right=frozenset({0, 1, 2, 3}),
        ),
    )


def _step_line(row: ConfigurationRow, view: TimelineView) -> tuple[str, ...]:
    waiting = sum(end - begin for begin, end in view.parts["input"]) / view.window_ns
    step_ms = view.window_ns / max(1, len(view.step_begin_ns)) / 1e6
    return str(row.config.loader.workers or "serial"), percent(_busy(view)), percent(waiting), significant(step_ms)


def _busy(view: TimelineView) -> float:
    return sum(end - begin for begin, end in view.parts["compute"]) / view.window_ns
