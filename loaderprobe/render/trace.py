"""Recordings as a page: the estimated verdict, ms a step by cause, what a change gains, timelines, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import PurePath
from typing import Any

from loaderprobe.analyze.trace import FREED, NO_FUNCTION, SHORT_GAPS, advice_on, commands
from loaderprobe.records import by_key, values
from loaderprobe.records.resources import MOMENTS, TIME_PARTS
from loaderprobe.records.thresholds import OF_STEP
from loaderprobe.records.trace import MarkName, TraceRank, TraceReport
from loaderprobe.records.verdict import GapVerdict
from loaderprobe.render.charts import Bar, Chart, ChartRow, first_and_last, stacked
from loaderprobe.render.document import Column, Command, Document, Item, Paragraph, Part, Section, few, table, tags
from loaderprobe.render.format import counted, first_upper, percent, span, visible
from loaderprobe.render.gpu import occupancy_words, timelines_chart
from loaderprobe.render.rows import as_columns
from loaderprobe.render.words import message, remark_words
from loaderprobe.units import join_words, significant

_SHOWN_RANKS = 32
"""Of more ranks, those that communicate least and most."""
_LONGEST_NAME = 60
_FREE_WORDS = {"input": "input and copies", "copy": "copies", "host": "the host", "communication": "communication"}
_MARKED: dict[MarkName, str] = {
    "profiler_steps": "marks of the profiler",
    "batches": "batches asked for",
    "optimizer_steps": "steps of the optimizer",
    "none": "no mark: all of the recording is one window",
}
_CALL_WORDS = {
    SHORT_GAPS: "gaps under 2 ms: small kernels, one by one", NO_FUNCTION: "no function on record: with_stack=True",
}  # fmt: skip
_NOT_KNOWN = {
    "workers_not_recorded": "storage, preprocessing, transport: no workers on record",
    "no_loader_spans": "input apart from the host: no span of a loader on record",
}
"""By the notes on what no recording holds, and on what none of these does: all have the same loader."""


def bound_sentence(bound: GapVerdict) -> str:
    """The verdict in a sentence, without figures."""
    names = join_words([_FREE_WORDS[name].removesuffix(" and copies") for name in bound.candidates])
    return first_upper(message(f"gap.{bound.waits_for}", {"names": names}))


def trace_document(trace: TraceReport) -> Document:
    """What the GPU waits for, where a step's time goes, and what to do; then the host, the ranks and doubts."""
    slow = None if trace.waited_for is None else trace.ranks[trace.waited_for]
    first = trace.ranks[0]
    ranks = f", {len(trace.ranks)} recordings" if len(trace.ranks) > 1 else ""
    unknown = (_NOT_KNOWN[note.code] for note in (*trace.notes, *first.notes) if note.code in _NOT_KNOWN)
    timelines = timelines_chart([(_name(rank, trace), rank.view) for rank in _drawn_ranks(trace)], "A typical stretch")
    return Document(
        title=f"{first.gpu or 'GPU (not named)'}{ranks}, {counted(trace.steps, 'step')} of {_span(trace)}",
        headline=f"The others wait for {_name(slow, trace)}" if slow else bound_sentence(trace.bound).removesuffix("."),
        subline=_condition(trace, slow),
        tone=trace.bound.cause,
        unsure=not trace.bound.firm,
        sections=(
            Section(title="Where a step's time goes", parts=(_step_chart(trace),), panel="main"),
            Section(title="As fast, if it cost nothing", parts=tuple(_speedup_parts(trace)), panel="main"),
            Section(title="Do next", parts=tuple(_advice_parts(trace)), panel="side"),
            Section(title="How sure", parts=tags(_how_sure(trace)), panel="side"),
            Section(title="Not known", parts=tags(unknown), panel="side"),
            Section(title="Ranks", parts=tuple(_ranks(trace))),
            Section(title="What held the host up", parts=_host(trace)),
            Section(title="Over time", parts=(timelines,)),
            Section(title="Doubts", parts=tuple(_doubts(trace))),
        ),
    )


def trace_columns(trace: TraceReport) -> dict[str, list[Any]]:
    """One row a recording; units in the names."""
    return as_columns(
        {
            **values(rank, "path", "rank", "gpu", "device", "steps"),
            "marked": _MARKED[rank.marked],
            "step_s": rank.step_s,
            **values(rank.bound, "side", "cause", "gap", "how"),
            **{f"{part}_s": rank.gaps.seconds(part) for part in TIME_PARTS},
            "busy_fraction": rank.use.kernel_busy,
            "sm_efficiency": rank.use.sm_efficiency_estimated,
            "occupancy": rank.use.occupancy_estimated,
            "occupancy_coverage": rank.use.occupancy_coverage,
            **values(rank, "wait_s", "syncs"),
        }
        for rank in trace.ranks
    )


def _condition(trace: TraceReport, slow: TraceRank | None) -> str:
    """The verdict with its figure; of a rank that others wait for, how far it is behind."""
    if slow:
        least_s = slow.gaps.seconds("communication")
        more_s = max(rank.gaps.seconds("communication") for rank in trace.ranks) - least_s
        return (
            f"in communication {_ms(least_s)} ms a step, another up to {_ms(more_s)} ms more. By itself: "
            f"{bound_sentence(slow.bound).removesuffix('.')} (estimated)"
        )
    cause = "input" if trace.bound.cause == "copy" else trace.bound.cause
    free = next((free for free in trace.free if free.name == cause), None)
    if free:
        share = percent(trace.gaps.share(*FREED[free.name]))
        return f"{share} of a step; without, at most {significant(free.speedup)} times as fast (estimated)"
    return f"kernels run {percent(trace.use.kernel_busy)} of the time (estimated)"


def _span(trace: TraceReport) -> str:
    """`178 ms`, the mean; `116 to 1076 ms (mean 819)` where steps vary."""
    every = [step_s for rank in trace.ranks for step_s in rank.steps_s]
    if not any(note.code == "steps_vary" for rank in trace.ranks for note in rank.notes):
        return f"{_ms(trace.step_s)} ms"
    return f"{span(every, _ms)} ms (mean {_ms(trace.step_s)})"


def _step_chart(trace: TraceReport) -> Chart:
    return Chart(
        rows=tuple(
            ChartRow(
                label=MOMENTS[part].moment,
                value=percent(trace.gaps.share(part)),
                note=f"{_ms(trace.gaps.seconds(part))} ms",
                bars=(Bar(end=100 * trace.gaps.share(part), tone=MOMENTS[part].name, letter=MOMENTS[part].letter),),
            )
            for part in TIME_PARTS
            if trace.gaps.of(part)
        ),
        unit="%",
        ends="part,share of a step",
    )


def _speedup_parts(trace: TraceReport) -> Iterator[Part]:
    """Upper bounds: what is taken from one cause may go to another, as workers take cores from the host."""
    worth = [free for free in trace.free if free.speedup > 1 + OF_STEP / 4]
    if not worth:
        return
    of = " of the slowest rank" if len(trace.ranks) > 1 else ""
    yield Chart(
        rows=tuple(
            ChartRow(
                label=f"without {_FREE_WORDS[free.name]}",
                value=f"at most {significant(free.speedup)}x",
                note=f"{_ms(free.step_s)} ms a step{of}",
                bars=(Bar(begin=1.0, end=free.speedup, tone=free.name, how="estimated"),),
            )
            for free in worth
        ),
        low=1.0,
        high=max(1.1, 1.02 * max(free.speedup for free in worth)),
        unit="times",
        ends="without,as fast",
    )


def _advice_parts(trace: TraceReport) -> Iterator[Part]:
    for advice in advice_on(trace):
        yield Paragraph(text=message(f"trace_advice.{advice.code}", advice.facts))
    yield Paragraph(text="What splits the input, where the training runs:")
    for command in commands(trace):
        yield Command(text=command)


def _how_sure(trace: TraceReport) -> Iterator[str]:
    yield "estimated; under a profiler the host is slower"
    marks = [_MARKED[mark] for mark in dict.fromkeys(rank.marked for rank in trace.ranks)]
    yield f"{counted(trace.steps, 'step')}, by {join_words(marks)}"
    yield (
        f"GPU busy {percent(trace.use.kernel_busy)}, SM efficiency {percent(trace.use.sm_efficiency_estimated)}, "
        f"occupancy {occupancy_words(trace.use)}"
    )
    if len(trace.ranks) > 1 and trace.waited_for is None and all(rank.gaps.communication_ns for rank in trace.ranks):
        yield "no rank waits for another for long"


def _short(name: str) -> str:
    plain = visible(name).replace("\n", " ")
    return plain if len(plain) <= _LONGEST_NAME else f"…{plain[-_LONGEST_NAME:]}"


def _name(rank: TraceRank, trace: TraceReport) -> str:
    """Its rank, or its file; with the path where another recording has the same name."""
    if rank.rank is not None:
        return f"rank {rank.rank}"
    names = [PurePath(peer.path).name for peer in trace.ranks]
    name = PurePath(rank.path).name
    return _short(rank.path if names.count(name) > 1 else name)


def _drawn_ranks(trace: TraceReport) -> tuple[TraceRank, ...]:
    ordered = sorted(trace.ranks, key=lambda rank: rank.gaps.communication_ns / rank.steps)
    kept = first_and_last(ordered, _SHOWN_RANKS)
    return tuple(rank for rank in trace.ranks if rank in kept)


def _ranks(trace: TraceReport) -> Iterator[Part]:
    if len(trace.ranks) == 1:
        return
    shown = _drawn_ranks(trace)
    rows = [
        ChartRow(
            label=_name(rank, trace),
            value=_ms(rank.step_s),
            note=f"ms: {bound_sentence(rank.bound).removesuffix('.')}",
            bars=stacked(
                (MOMENTS[part].name, MOMENTS[part].letter, 1e3 * rank.gaps.seconds(part)) for part in TIME_PARTS
            ),
        )
        for rank in shown
    ]
    parts = [part for part in TIME_PARTS if any(rank.gaps.of(part) for rank in shown)]
    yield Chart(
        rows=tuple(rows),
        unit="ms a step",
        names=tuple((MOMENTS[part].name, f"{MOMENTS[part].letter} {MOMENTS[part].moment}") for part in parts),
        ends="rank,ms a step",
    )
    if left_out := len(trace.ranks) - len(shown):
        yield Paragraph(text=f"{left_out} ranks between those that communicate least and most are left out.")


def _host(trace: TraceReport) -> tuple[Part, ...]:
    """Calls that waited for the GPU, many short gaps, functions while it was idle, and next() of the loader."""
    rank = trace.ranks[trace.waited_for or 0]
    least = OF_STEP * rank.step_s / 4
    lines = [
        ("waited for the GPU", _short(call.name), _ms(call.seconds), significant(call.count, 2))
        for call in rank.blocking
        if call.seconds > least
    ]
    lines += [
        ("GPU idle, the host was in", _CALL_WORDS.get(call.name) or _short(call.name), _ms(call.seconds), "")
        for call in rank.held
        if call.seconds > least
    ]
    if rank.wait_s:
        loader = _short(rank.loader.removeprefix("enumerate(DataLoader)#_").removesuffix(".__next__"))
        lines.append(("inside next()", loader, _ms(rank.wait_s), ""))
        lines.append(("of that, GPU idle", loader, _ms(rank.gaps.seconds("input")), ""))
    columns = (Column(head, itemgetter(index)) for index, head in enumerate(("", "what", "ms a step", "calls a step")))
    return table(lines, columns, caption=f"Of {_name(rank, trace)}" if len(trace.ranks) > 1 else "")


def _doubts(trace: TraceReport) -> Iterator[Part]:
    """Each once, with the ranks that it is of where those are not all."""
    notes = [(_name(rank, trace), note) for rank in trace.ranks for note in (*rank.notes, *trace.notes)]
    doubts = [(name, note) for name, note in notes if note.code not in _NOT_KNOWN]
    for text, pairs in by_key(doubts, lambda pair: remark_words(pair[1])).items():
        names = few([name for name, _ in pairs]) if len(pairs) < len(trace.ranks) else []
        yield Item(subject=join_words(names), text=f"{text if names else first_upper(text)}.")
    for unread in trace.unread:
        yield Item(subject="Not read", text=unread.reason)


def _ms(seconds: float) -> str:
    return significant(seconds * 1e3)
