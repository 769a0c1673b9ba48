"""What a GPU did in the profiler windows of a report, in words, figures and timelines; without them its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaderprobe.records.config import alike_but_for
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import GAP_CAUSES, Gaps, TimelineView
from loaderprobe.render.charts import Shade
from loaderprobe.render.document import Exhibit, Item, Shown, Table
from loaderprobe.render.groups import Group, detail_of
from loaderprobe.render.limits import line_of
from loaderprobe.render.remarks import REJECTED, remark_words
from loaderprobe.render.timeline import KERNELS, SHADES, common_length_ns, timeline_chart
from loaderprobe.render.wording import MISSING, counted, label, loading, percent, variation
from loaderprobe.units import significant

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


def window_parts(group: Group) -> Iterator[Shown]:
    """Of each data set the figures of its profiler windows, and what must be known to read them."""
    for resolution, rows in _profiled(group).items():
        if shown := [row for row in rows if row.gpu_window and row.gpu_window.gaps]:
            yield _table(f"{resolution}, {group.title}: share of the window; of idle time also ms a step", shown)
        for which, note in [note for row in rows for note in _notes(row, rows)]:
            yield Item(subject=f"{resolution}, {which}", text=note, further=True)


def window_exhibits(report: Report, group: Group) -> Iterator[Exhibit]:
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
                legend=_legend(KERNELS, *SHADES.values()),
            )


def _legend(*shades: Shade) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((each.letter, each.name, each.color, each.ink) for each in shades)


def _profiled(group: Group) -> dict[str, list[ConfigurationRow]]:
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
    lines = [("busy: kernels of the training", tuple(_use(row, "training_busy") for row in rows))]
    if any(w.use and w.use.kernel_busy > w.use.training_busy for row in rows if (w := row.gpu_window)):
        lines.append(("busy: any kernel", tuple(_use(row, "kernel_busy") for row in rows)))
    lines.append(("SM efficiency, estimated", tuple(_use(row, "sm_efficiency_estimated") for row in rows)))
    lines.append(("occupancy, estimated", tuple(_occupancy(row) for row in rows)))
    for name, words in MEASURED.items():
        if any(name in counters(row) for row in rows):
            lines.append((words, tuple(_measured(row, name) for row in rows)))
    all_gaps = [row.gpu_window.gaps for row in rows if row.gpu_window and row.gpu_window.gaps]
    lines += [
        (f"{SHADES[cause].name} ({SHADES[cause].letter})", tuple(_idle(gaps, gaps.of(cause)) for gaps in all_gaps))
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


def _use(row: ConfigurationRow, name: str) -> str:
    use = row.gpu_window.use if row.gpu_window else None
    return percent(getattr(use, name)) if use else MISSING


def _occupancy(row: ConfigurationRow) -> str:
    """With the share of the kernels' time that it covers, where that is not all of it."""
    use = row.gpu_window.use if row.gpu_window else None
    if use is None or use.occupancy_estimated is None or use.occupancy_coverage > 0.995:
        return _use(row, "occupancy_estimated")
    return f"{percent(use.occupancy_estimated)} (of {percent(use.occupancy_coverage)} of the kernels' time)"


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
        texts.append(f"{counted(each.count, 'record')} of the profiler left out: {REJECTED[each.reason]}")
    return [(_name(row, among), text) for text in texts if text]


def idle_words(row: ConfigurationRow) -> str:
    """`busy 38 %; idle 60 % waiting for input, 2 % copy to the device; ...`; empty without figures."""
    window = row.gpu_window
    if window is None or window.gaps is None or window.use is None:
        return ""
    gaps, use = window.gaps, window.use
    # Below half a percent a share is not worth a word here; the table has it.
    shares = [(SHADES[cause].name.removeprefix("idle: "), gaps.share(cause)) for cause in GAP_CAUSES]
    idle = ", ".join(f"{percent(share)} {name}" for name, share in shares if share >= 0.005)
    estimates = [
        f"{words} {percent(value)} estimated"
        for words, value in (("SM efficiency", use.sm_efficiency_estimated), ("occupancy", use.occupancy_estimated))
        if value is not None
    ]
    measured = [f"{words} {_measured(row, name)}" for name, words in MEASURED.items() if name in counters(row)]
    parts = [f"busy {percent(use.training_busy)}", f"idle {idle}" if idle else "", ", ".join(estimates + measured)]
    return "; ".join(part for part in (*parts, *map(remark_words, window.doubts)) if part) + "."


def profiled(group: Group) -> list[tuple[str, str]]:
    """(label, busy and idle in words) for each configuration of a group that was profiled."""
    return [(label(row, group.rows), words) for row in group.rows if (words := idle_words(row))]


def step_exhibits(report: Report, group: Group) -> Iterator[Exhibit]:
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


def _steps(name: str, group: Group, drawn: Sequence[tuple[ConfigurationRow, TimelineView]]) -> Exhibit:
    length_ns = common_length_ns([view for _, view in drawn])
    titles = [f"{name}, {loading(row)}: trains {percent(_busy(view))}" for row, view in drawn]
    marked = " (emulated accelerator)" if group.emulated else ""
    emulated = " A step on an emulated accelerator lasts as long as its specified rate says." if group.emulated else ""
    training = Shade(letter="", name="training step", color=KERNELS.color, ink=KERNELS.ink)
    return Exhibit(
        title=f"{group.title}: {name}",
        text="No profiler ran: a stretch of the last round with the serial loader, few and many workers." + emulated,
        figures=tuple(
            (f"Timeline of the steps of {title}{marked}", timeline_chart(view, title, length_ns, of="step"))
            for title, (_, view) in zip(titles, drawn, strict=True)
        ),
        legend=_legend(training, SHADES["input"]),
        table=Table(
            head=("workers", "training", "waiting for input", "ms a step"),
            lines=tuple(_step_line(row, view) for row, view in drawn),
            right=frozenset({0, 1, 2, 3}),
        ),
    )


def _step_line(row: ConfigurationRow, view: TimelineView) -> tuple[str, ...]:
    waiting = sum(end - begin for begin, end in view.gaps["input"]) / view.window_ns
    step_ms = view.window_ns / max(1, len(view.step_begin_ns)) / 1e6
    return str(row.config.loader.workers or "serial"), percent(_busy(view)), percent(waiting), significant(step_ms)


def _busy(view: TimelineView) -> float:
    return sum(end - begin for begin, end in view.busy) / view.window_ns
