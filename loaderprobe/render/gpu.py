"""What a GPU did in the profiler windows of a report, in words, figures and timelines; without them its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaderprobe.analyze.gpu import filled, typical_begin_ns
from loaderprobe.records import by_key
from loaderprobe.records.config import alike_but_for
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.resources import GAP_CAUSES, MOMENTS, TIME_PARTS
from loaderprobe.records.thresholds import SYNCS_A_STEP
from loaderprobe.records.verdict import DeviceUse, Gaps, GpuWindow, Stretches, TimelineView
from loaderprobe.render.charts import Bar, Chart, ChartRow
from loaderprobe.render.document import Line, Part, Table, items
from loaderprobe.render.format import MISSING, percent
from loaderprobe.render.groups import RowGroup, label
from loaderprobe.render.words import message, remark_words
from loaderprobe.units import significant

_COLUMNS = 150
"""In which a row of a timeline is drawn."""


def timelines_chart(views: Sequence[tuple[str, TimelineView]], caption: str) -> Chart:
    """A typical stretch of each, on one axis: a step of the slowest and a little more, if all have about as much."""
    slowest = max(view.window_ns / max(1, len(view.step_begin_ns)) for _, view in views)
    shortest = min(view.window_ns for _, view in views)
    length_ns = max(1, round(min(1.25 * slowest, 4 * shortest)))
    unit, unit_ns = ("ms", 1e6) if length_ns >= 2e6 else ("µs", 1e3)
    high = length_ns / unit_ns
    rows = tuple(row for name, view in views for row in _timeline_rows(name, view, length_ns, high))
    return Chart(rows=rows, high=high, unit=unit, caption=caption, ends="part,share of the time", further=True)


def _timeline_rows(name: str, view: TimelineView, length_ns: int, high: float) -> Iterator[ChartRow]:
    """Begins of steps, parts of the device's time, then what may lie behind them."""
    yield ChartRow(label=name, head=True)
    begin_ns = typical_begin_ns(view, length_ns)

    def row(name: str, ranges: Stretches, tone: str, letter: str = "") -> ChartRow:
        bars = tuple(
            Bar(begin=begin * high / _COLUMNS, end=end * high / _COLUMNS, tone=tone, letter=letter)
            for begin, end in filled(ranges, begin_ns, length_ns, _COLUMNS)
        )
        return ChartRow(label=name, bars=bars)

    ends = (*view.step_begin_ns[1:], view.window_ns)
    yield row("every second step", tuple(zip(view.step_begin_ns, ends, strict=True))[::2], "quiet")
    for part in TIME_PARTS:
        if view.parts.get(part):
            moment = MOMENTS[part]
            yield row(moment.moment, view.parts[part], moment.name, moment.letter)
    for behind, ranges in (("training thread in next()", view.waits), ("copies, hidden or not", view.copies)):
        if ranges:
            yield row(behind, ranges, "now")


_COUNTERS = {"sm_utilization": "SM utilization, measured (GPM)", "sm_occupancy": "occupancy, measured (GPM)"}


def window_parts(group: RowGroup) -> Iterator[Part]:
    """For each data set timelines of up to three profiler windows, the figures of all, and what weakens them."""
    for rows in by_key(group.rows, lambda row: row.config.resolution).values():
        windows = [(row, row.gpu_window) for row in rows if row.gpu_window]
        profiled, shown = [row for row, _ in windows], [row for row, window in windows if window.gaps]
        yield from _timelines(f"GPU, {group.title}", shown)
        if shown:
            yield _table(f"{group.title}: share of the window; of idle time also ms a step", shown)
        for row, window in windows:
            yield from items((label(row, profiled), text) for text in _notes(window))


def _timelines(caption: str, rows: Sequence[ConfigurationRow]) -> Iterator[Chart]:
    """Fewest workers, most, and the middle, of the configurations that are otherwise alike; on one axis of time."""
    profiled = [(row, row.detail.view) for row in rows if row.detail and row.detail.view]
    alike = by_key(profiled, lambda pair: alike_but_for(pair[0].config, "workers", "prefetch_factor", "rounds", "seed"))
    by_workers = [{row.config.loader.workers: (row, view) for row, view in reversed(pairs)} for pairs in alike.values()]
    # What was measured with the most worker counts shows best what they do.
    by_count = max(by_workers, key=len, default={})
    counts = sorted(by_count)
    if counts:
        middle = counts[(len(counts) - 1) // 2]
        chosen = [by_count[count] for count in sorted({counts[0], middle, counts[-1]})]
        yield timelines_chart([(label(row, rows), view) for row, view in chosen], caption)


def _table(caption: str, rows: Sequence[ConfigurationRow]) -> Table:
    windows = [row.gpu_window for row in rows if row.gpu_window]
    uses = [window.use for window in windows if window.use]
    all_gaps = [window.gaps for window in windows if window.gaps]
    trains = MOMENTS["compute"]
    lines: list[Line] = [(f"busy: {trains.moment} ({trains.letter})", *(percent(use.training_busy) for use in uses))]
    if any(use.kernel_busy > use.training_busy for use in uses):
        lines.append(("busy: any kernel", *(percent(use.kernel_busy) for use in uses)))
    lines.append(("SM efficiency, estimated", *(percent(use.sm_efficiency_estimated) for use in uses)))
    lines.append(("occupancy, estimated", *map(occupancy_words, uses)))
    for name, words in _COUNTERS.items():
        values = [row.verdict.gpu.get(name) for row in rows if row.verdict]
        if any(value is not None for value in values):
            lines.append((words, *(percent(value) if isinstance(value, float) else MISSING for value in values)))
    costs = [window.profiler_overhead or 0.0 for window in windows]
    if max(costs) > 0:
        lines.append(("cost of the profiler, drawn, not counted", *(percent(max(0.0, cost)) for cost in costs)))
    for cause in GAP_CAUSES:
        if any(gaps.of(cause) for gaps in all_gaps):
            name = f"idle: {MOMENTS[cause].moment} ({MOMENTS[cause].letter})"
            lines.append((name, *(_idle(gaps, gaps.of(cause)) for gaps in all_gaps)))
    if any(gaps.pageable_ns for gaps in all_gaps):
        lines.append(("… of the copies, from pageable memory", *(_idle(gaps, gaps.pageable_ns) for gaps in all_gaps)))
    return Table(head=("", *(label(row, rows) for row in rows)), lines=tuple(lines), caption=caption)


def occupancy_words(use: DeviceUse) -> str:
    """With the share of the kernels' time that it covers, where that is not all of it."""
    partial = use.occupancy_estimated is not None and use.occupancy_coverage <= 0.995
    covered = f" (of {percent(use.occupancy_coverage)} of the kernels' time)" if partial else ""
    return percent(use.occupancy_estimated) + covered


def _idle(gaps: Gaps, nanoseconds: int) -> str:
    """`60 %, 60.1 ms`: of the window, and of one step."""
    return f"{percent(nanoseconds / gaps.window_ns)}, {significant(nanoseconds / gaps.steps / 1e6)} ms"


def _notes(window: GpuWindow) -> Iterator[str]:
    yield from map(remark_words, (window.refused,) if window.refused else window.doubts)
    if not window.refused and window.syncs_per_step >= SYNCS_A_STEP:
        yield (
            f"the training thread waits for the GPU {significant(window.syncs_per_step, 2)} times a step (.item(), a "
            "printed loss, a blocking copy), and cannot run ahead of it"
        )
    for rejection in window.rejected:
        yield message("records_rejected", {"records": rejection.count, "because": rejection.reason})
