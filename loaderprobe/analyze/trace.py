"""What limits the training in a recording: its steps, the estimated verdict, who held the host up, what to do. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from statistics import fmean, median
from typing import Any, NamedTuple

from loaderprobe.analyze.gpu import Attribution, Ranges, columns, merge, overlap
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Timeline
from loaderprobe.records.remark import Coded
from loaderprobe.records.resources import RESOURCES, TIME_PARTS, GapCause, TimePart
from loaderprobe.records.trace import Free, HostSpan, HostSpans, MarkName, Named, StepSpans, TraceRank, TraceReport
from loaderprobe.records.verdict import DeviceUse, Gaps, TimelineView

FREED: dict[str, tuple[GapCause, ...]] = {
    row.name: row.gaps for row in sorted(RESOURCES, key=lambda row: row.name != "input") if row.gaps
}
"""By resource, the gaps that go if it costs nothing: all of the input first. `copy` is a part of it."""
MOST_OPEN = 200
"""Functions that are open at once."""
SHOWN = 5
SHORT_GAPS, NO_FUNCTION = "", "?"
"""In place of a name: gaps that are too short to look for one, and those in which no function is on record."""


class TracedWork(NamedTuple):
    """A kernel, copy or fill, and when the call that issued it began; None without a record of that."""

    begin_ns: int
    end_ns: int
    issued_ns: int | None


def step_spans(spans: HostSpans, launches: Sequence[HostSpan], work: Sequence[TracedWork], until_ns: int) -> StepSpans:
    """The steps of a recording that end before `until_ns`, slow first ones left out. Both sequences hold something.

    `launches` are the calls that put work on a GPU. Where no step ends before, what there is of the first, to
    `until_ns`.
    """
    last = max(task.end_ns for task in work)
    begins = sorted(launch.begin_ns for launch in launches)
    marked, marks, thread = _marks(spans, begins, last)
    if thread is None:
        thread = Counter(launch.thread for launch in launches).most_common(1)[0][0] if launches else None
    whole = [mark for mark in marks if mark[1] <= until_ns] or marks[:1]
    # The next() that ends an epoch is no step.
    every = [mark for mark in whole if bisect_left(begins, mark[0]) < bisect_left(begins, mark[1])] or whole
    if not every:
        marked, every = "none", [(min(task.begin_ns for task in work), min(last, until_ns))]
    usual = median(end - begin for begin, end in every)
    slow = next(
        (n for n, (b, e) in enumerate(every[: len(every) // 2]) if e - b <= thresholds.SLOW_FIRST_STEP * usual),
        len(every) // 2,
    )
    steps = every[slow:]
    begin, end = steps[0][0], steps[-1][1]
    # The work of the last step may outlast it; what the profiler does when it stops belongs to no step.
    tail = [task.end_ns for task in work if task.issued_ns is not None and begin <= task.issued_ns < end]
    tail += [launch.end_ns for launch in launches if begin <= launch.begin_ns < end and launch.thread == thread]
    # A first step that is cut off ends where the records do.
    tail += [end] if end > until_ns else []
    end = max(steps[-1][0] + 1, min(max(tail, default=end), until_ns))
    return StepSpans(steps=(*steps[:-1], (steps[-1][0], end)), marked=marked, thread=thread, left_out=slow)


def _marks(
    spans: HostSpans, launches_ns: Sequence[int], last_ns: int
) -> tuple[MarkName, list[tuple[int, int]], int | None]:
    """What marks steps, the steps, and the thread that marked them."""
    steps = sorted(spans.steps, key=lambda step: step.begin_ns)
    waits = sorted(spans.waits, key=lambda wait: wait.begin_ns)
    # A step may take from several loaders: it begins with the first of the waits that no launch lies between.
    launched = [bisect_left(launches_ns, wait.begin_ns) for wait in waits]
    rows = zip(waits, [-1, *launched], launched, strict=False)
    waits = [wait for wait, before, now in rows if before < now or now == len(launches_ns)]
    if steps and len(waits) < thresholds.SEVERAL_BATCHES * len(steps):
        return "profiler_steps", [(step.begin_ns, step.end_ns) for step in steps], steps[0].thread
    if len(waits) > 1:
        begins = [wait.begin_ns for wait in waits]
        ends = [*begins[1:], max(last_ns, waits[-1].end_ns)]
        return "batches", list(zip(begins, ends, strict=True)), waits[0].thread
    optimizer = sorted(spans.optimizer, key=lambda span: span.end_ns)
    ends = [span.end_ns for span in optimizer]
    if len(ends) > 1:
        return "optimizer_steps", list(pairwise(ends)), optimizer[0].thread
    return "none", [], None


def parts_of_steps(attribution: Attribution, steps: Sequence[tuple[int, int]]) -> dict[TimePart, tuple[float, ...]]:
    """Seconds of each step by part."""
    return {part: tuple(overlap(ranges, *step) / 1e9 for step in steps) for part, ranges in attribution.parts.items()}


def fed_steps(parts: Mapping[TimePart, Sequence[float]]) -> int:
    """How many first steps did not wait for input, if more than ever follow each other later; 0 otherwise.

    A full queue of the workers fed them, perhaps. All of them where no step waits.
    """
    runs = [0]
    for wait_s, *whole_s in zip(parts["input"], *parts.values(), strict=True):
        if wait_s > thresholds.LEAST_IDLE * sum(whole_s):
            runs.append(0)
        else:
            runs[-1] += 1
    return runs[0] if runs[0] > max((1, *runs[1:])) else 0


def free_of(ranks: Sequence[Gaps]) -> tuple[Free, ...]:
    """How long a step takes at least without each of its sides; those that take nothing are left out.

    Of ranks in step: the slowest without it, and the least exchange, since the rest of it is waiting.
    """
    step_s, exchange_s = fmean(gaps.step_s for gaps in ranks), min(gaps.seconds("communication") for gaps in ranks)
    sides = []
    for name, freed in FREED.items():
        kept = [part for part in TIME_PARTS if part not in (*freed, "communication")]
        least_s = max(gaps.seconds(*kept) for gaps in ranks)
        least_s += 0 if name == "communication" else exchange_s
        if any(gaps.seconds(*freed) for gaps in ranks) and 0 < least_s < step_s:
            sides.append(Free(name=name, step_s=least_s, speedup=step_s / least_s))
    return tuple(sides)


def blocking_calls(timeline: Timeline, sync: Ranges, steps: int) -> tuple[Named, ...]:
    """The calls that blocked the training while the GPU was idle, the longest first."""
    calls = timeline.calls
    copied = {
        number
        for kind, number in zip(timeline.records.kind, timeline.records.correlation, strict=True)
        if kind == "h2d"
    }
    times: dict[int, list[tuple[int, int]]] = {}
    for index, kind in enumerate(calls.kind):
        inside = timeline.begin_ns <= calls.begin_ns[index] < timeline.end_ns
        if kind == "sync" and calls.training[index] and inside and calls.correlation[index] not in copied:
            times.setdefault(calls.name[index], []).append((calls.begin_ns[index], calls.end_ns[index]))
    named = [
        Named(
            name=timeline.names[name],
            seconds=sum(overlap(sync, begin, end) for begin, end in merge(ranges)) / steps / 1e9,
            count=len(ranges) / steps,
        )
        for name, ranges in times.items()
    ]
    return tuple(sorted(named, key=lambda call: -call.seconds)[:SHOWN])


def held_up(launch: Ranges, functions: Iterable[HostSpan], thread: int | None, steps: int) -> tuple[Named, ...]:
    """What the host was in during the gaps in which it launched nothing: the innermost function of each long one."""
    ordered = sorted((function for function in functions if function.thread == thread), key=lambda span: span.begin_ns)
    ns_by_name: Counter[str] = Counter()
    opened: list[HostSpan] = []
    number = 0
    for begin, end in launch:
        name = SHORT_GAPS
        if end - begin > thresholds.LONG_NS:
            while number < len(ordered) and ordered[number].begin_ns < end:
                opened.append(ordered[number])
                number += 1
            opened = [span for span in opened if span.end_ns > begin][-MOST_OPEN:]
            least_ns = thresholds.HELD_SHARE * (end - begin)
            around = [span for span in opened if min(span.end_ns, end) - max(span.begin_ns, begin) > least_ns]
            name = min(around, key=lambda span: span.end_ns - span.begin_ns).name if around else NO_FUNCTION
        ns_by_name[name] += end - begin
    return tuple(Named(name=name, seconds=ns / steps / 1e9) for name, ns in ns_by_name.most_common(SHOWN))


def without_launch(timeline: Timeline) -> int:
    """Kernels of the window whose launch is not on record."""
    records, issued = timeline.records, set(timeline.calls.correlation)
    inside = (timeline.begin_ns <= begin < timeline.end_ns for begin in records.begin_ns)
    rows = zip(records.kind, records.correlation, inside, strict=True)
    return sum(kind == "kernel" and here and number not in issued for kind, number, here in rows)


def mean_gaps(ranks: Sequence[TraceRank]) -> Gaps:
    """The mean step of all ranks, over as many steps as the shortest recording has."""
    steps = min(rank.steps for rank in ranks)
    names = [field.name for field in fields(Gaps) if field.name not in ("steps", "window_ns")]
    means = {name: round(steps * fmean(getattr(rank.gaps, name) / rank.steps for rank in ranks)) for name in names}
    return Gaps(steps=steps, window_ns=sum(means[f"{part}_ns"] for part in TIME_PARTS), **means)


def mean_use(ranks: Sequence[TraceRank]) -> DeviceUse:
    """The mean of all ranks; None where one of them has no estimate."""
    values = {field.name: [getattr(rank.use, field.name) for rank in ranks] for field in fields(DeviceUse)}
    means: dict[str, Any] = {name: None if None in known else fmean(known) for name, known in values.items()}
    return DeviceUse(**means)


def waited_for(ranks: Sequence[TraceRank]) -> int | None:
    """Index of the rank that the others wait for: the one with the least time in communication alone.

    None where they wait alike, or one of them never communicates.
    """
    times = [rank.gaps.seconds("communication") for rank in ranks]
    spread_s, step_s = max(times) - min(times), max(rank.step_s for rank in ranks)
    if len(ranks) < 2 or not min(times) or spread_s < thresholds.WAIT_DIFFERS * step_s:
        return None
    return times.index(min(times))


def coarse(view: TimelineView, count: int) -> TimelineView:
    """The view in so many columns of equal time, each of the part that took most of it: small, however long it is."""
    edges = [round(number * view.window_ns / count) for number in range(count + 1)]
    shares = {part: columns(view.parts.get(part, ()), 0, view.window_ns, count) for part in TIME_PARTS}
    largest = [max(TIME_PARTS, key=lambda part: shares[part][number]) for number in range(count)]

    def rounded(ranges: Ranges) -> Ranges:
        scale = count / view.window_ns
        return merge((edges[int(low * scale)], edges[min(count, int(high * scale) + 1)]) for low, high in ranges)

    return TimelineView(
        window_ns=view.window_ns,
        step_begin_ns=view.step_begin_ns,
        parts={
            part: merge(edge for edge, name in zip(pairwise(edges), largest, strict=True) if name == part)
            for part in TIME_PARTS
            if part in largest
        },
        waits=rounded(view.waits),
        copies=rounded(view.copies),
    )


_FREES = {"cudaFree": "PYTORCH_NO_CUDA_MEMORY_CACHING", "hipFree": "PYTORCH_NO_HIP_MEMORY_CACHING"}
"""By its name, the variable that makes torch call it often."""


def advice_on(report: TraceReport) -> Iterator[Coded]:
    """What to do next for what limits, and for what stands out beside it."""
    rank = report.ranks[report.waited_for or 0]
    bound = report.bound if report.waited_for is None else rank.bound
    sides = bound.candidates or (bound.waits_for,)
    if {"input", "copy"} & {*sides} and "SingleProcess" in rank.loader:
        yield Coded(code="serial")
    freed = [call for call in rank.blocking if call.name in _FREES and call.count >= 1]
    for call in freed:
        yield Coded(code="freed", facts={"call": call.name, "calls": call.count, "variable": _FREES[call.name]})
    hidden = any(note.code in ("perhaps_fed", "first_steps_fed") for rank in report.ranks for note in rank.notes)
    for side in sides:
        of_ranks = side == "communication" and len(report.ranks) > 1
        if side in ("host", "sync", "communication", "compute") and not of_ranks and not (side == "sync" and freed):
            yield Coded(code="compute_alone" if side == "compute" and not hidden else side)
    pageable_s = rank.gaps.pageable_ns / rank.steps / 1e9
    if pageable_s > thresholds.OF_STEP * rank.step_s:
        yield Coded(code="pinned", facts={"copies_s": pageable_s})
    if not rank.loader:
        yield Coded(code="span")


def commands(report: TraceReport) -> tuple[str, ...]:
    """What splits the input: the script itself, and the loader beside an accelerator as fast as this one without it."""
    rank = report.ranks[0]
    ranks = max(len(report.ranks), rank.world_size or 1)
    start = f"torchrun --nproc-per-node {min(ranks, 8)} train.py" if ranks > 1 else "python train.py"
    options = [f"--ranks {ranks}" if ranks > 1 else ""]
    if rank.batch_size:
        rate = rank.batch_size / rank.fed_step_s
        options = [f"--compute emulated:{rate:.0f}", *options, f"--batch-size {rank.batch_size}"]
    workers = "--workers 0,2,4,8" if "SingleProcess" in rank.loader else "--workers 2,4,8"
    sweep = " ".join(option for option in ("loaderprobe sweep IMAGES", *options, workers) if option)
    return f"loaderprobe run -- {start}", sweep
