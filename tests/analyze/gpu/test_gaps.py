"""What a window of the GPU shows: against a label for each single nanosecond, and on windows written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import attribute, total, use_of
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import DeviceKind, Timeline
from loaderprobe.records.resources import TIME_PARTS
from tests.examples import timelines
from tests.examples.timelines import TimelineScript

END, BEGIN, LATENCY, AFTER_SYNC = 60, 1_000, 4, 6


@st.composite
def windows(draw: st.DrawFn) -> Timeline:
    """Anything at all on two streams in a window of a few nanoseconds, in any order, some of it beyond either end."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN)
    times = st.integers(-10, END + 10)

    def span() -> tuple[int, int]:
        low, high = sorted((draw(times), draw(times)))
        return low, high

    for _ in range(draw(st.integers(0, 7))):
        issued = draw(st.none() | times)
        script.kernel(
            *span(), issued, loader=draw(st.booleans()), stream=draw(st.sampled_from((7, 13))),
            graph=draw(st.none() | st.just(99)), returned=issued and issued + draw(st.integers(0, 9)),
            exchange=draw(st.booleans()),
        )  # fmt: skip
    kinds: list[DeviceKind] = ["h2d", "d2h", "d2d", "memset"]
    for _ in range(draw(st.integers(0, 4))):
        (begin, end), (issued, until) = span(), span()
        script.copy(
            begin, end, issued, kind=draw(st.sampled_from(kinds)), pageable=draw(st.booleans()),
            blocked_until=draw(st.sampled_from((None, max(1, until)))),
        )  # fmt: skip
    for _ in range(draw(st.integers(0, 3))):
        script.wait(*span())
        script.sync(*span(), training=draw(st.booleans()))
    made = script.build(END)
    records, calls = (draw(st.permutations(range(len(table.kind)))) for table in (made.records, made.calls))
    return replace(made, records=_ordered(made.records, records), calls=_ordered(made.calls, calls))


def _ordered(table: Any, rows: Sequence[int]) -> Any:
    return replace(table, **{c.name: tuple(getattr(table, c.name)[row] for row in rows) for c in fields(table)})


def labels(timeline: Timeline) -> Counter[str]:
    """Every nanosecond of the window by its own label: the rules again, as plainly as they can be said."""
    found = Counter(_label(timeline, at) for at in range(timeline.begin_ns, timeline.end_ns))
    late = {label: count for label, count in found.items() if label.startswith("late")}
    for label, count in late.items():
        del found[label]
        found["device" if count <= LATENCY else "unknown"] += count
    return found


def _label(timeline: Timeline, at: int) -> str:
    records = timeline.records
    rows = range(len(records.kind))
    exchanges = [i for i in rows if "nccl" in timeline.names[records.name[i]]]
    trains = [i for i in rows if records.kind[i] != "h2d" and not records.loader[i]]
    if _runs(timeline, at, [i for i in trains if i not in exchanges]):
        return "compute"
    if _runs(timeline, at, trains):
        return "communication"
    if _runs(timeline, at, [i for i in rows if records.kind[i] == "h2d"]) or _blocked(timeline, at, staging=True):
        return "copy"
    if _runs(timeline, at, [i for i in rows if records.loader[i]]):
        return "loader"
    end = next((t for t in range(at, timeline.end_ns) if _runs(timeline, t, trains)), timeline.end_ns)
    ended = {records.correlation[i] for i in trains if records.begin_ns[i] == end < records.end_ns[i]}
    calls = zip(timeline.calls.begin_ns, timeline.calls.end_ns, timeline.calls.correlation, strict=True)
    issued = min(((begin, until) for begin, until, number in calls if number in ended), default=None)
    if issued is not None and at >= max(issued):
        return f"late for {end}"
    waiting = any(b <= at < e for b, e in zip(timeline.wait_begin_ns, timeline.wait_end_ns, strict=True))
    if waiting and (issued is None or at < issued[0]):
        return "input"
    if _blocked(timeline, at) or _held_up(timeline, at):
        return "sync"
    return "unknown" if issued is None else "launch"


def _runs(timeline: Timeline, at: int, some: Sequence[int]) -> bool:
    return any(timeline.records.begin_ns[i] <= at < timeline.records.end_ns[i] for i in some)


def _syncs(timeline: Timeline) -> list[tuple[int, int, bool]]:
    """(begin, end, whether it only stages its own copy) of each wait of a thread that trains."""
    calls, records = timeline.calls, timeline.records
    rows = zip(records.kind, records.begin_ns, records.end_ns, records.correlation, strict=True)
    copied = {number: end - begin for kind, begin, end, number in rows if kind == "h2d"}
    waits = zip(calls.kind, calls.training, calls.begin_ns, calls.end_ns, calls.correlation, strict=True)
    return [
        (begin, end, number in copied and end - begin <= 10 * copied[number])
        for kind, training, begin, end, number in waits
        if kind == "sync" and training
    ]


def _blocked(timeline: Timeline, at: int, *, staging: bool | None = None) -> bool:
    return any(begin <= at < end and staging in (None, of_copy) for begin, end, of_copy in _syncs(timeline))


def _held_up(timeline: Timeline, at: int) -> bool:
    """Since a thread was let go by a sync a short time ago, nothing has been launched."""
    launched = [b for kind, b in zip(timeline.calls.kind, timeline.calls.begin_ns, strict=True) if kind == "launch"]
    return any(
        end <= at < end + AFTER_SYNC and not of_copy and not any(end <= begin <= at for begin in launched)
        for _, end, of_copy in _syncs(timeline)
    )


def no_length() -> Timeline:
    """A copy of no length where the window ends, for which the host was blocked: nothing was launched after that."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN)
    return script.copy(END, END, 0, kind="d2h", blocked_until=1).build(END)


def issued_twice() -> Timeline:
    """Two kernels that begin at once, two calls for those of one graph, and two about as late as the latency."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN).kernel(0, 3, 0).kernel(20, 30, 5).kernel(20, 31, 12)
    script.kernel(40, 44, 38, graph=99).kernel(42, 44, 33, graph=99)
    return script.kernel(50, 51, 50 - LATENCY - 1).kernel(58, END, 58 - LATENCY - 2).build(END)


def held_up() -> Timeline:
    """A host that was let go, and issued twice; the calls in another order."""
    made = TimelineScript(unit_ns=1, begin_ns=BEGIN).sync(0, 5).kernel(12, 16, 8).kernel(24, END, 20).build(END)
    return replace(made, calls=_ordered(made.calls, (2, 1, 0)))


@settings(max_examples=100)
@example(no_length())
@example(issued_twice())
@example(held_up())
@given(windows())
def test_every_nanosecond_gets_the_label_of_the_rules(timeline: Timeline) -> None:
    """The sums are those of labelling one nanosecond after the other, and no range counts twice."""
    found = attribute(timeline, latency_ns=LATENCY, after_sync_ns=AFTER_SYNC)
    gaps = found.gaps_of(1)
    assert +Counter({str(part): gaps.of(part) for part in TIME_PARTS}) == labels(timeline)
    pieces = chain.from_iterable(found.parts.values())
    assert sum(high - low for low, high in pieces) == END
    assert total(found.pageable) <= total(found.parts["copy"])


def test_parts_that_do_not_sum_are_an_error() -> None:
    """A split with a rest is a bug and is never shown."""
    whole = attribute(timelines.starved()).gaps_of(timelines.STEPS)
    with pytest.raises(LoaderprobeError, match="sum to"):
        replace(whole, sync_ns=whole.sync_ns + 1)


kernels = st.tuples(
    st.integers(-10, 60), st.integers(0, 30), st.sampled_from((0.125, 0.5, 2.0)), st.booleans(), st.booleans()
)


@given(st.lists(kernels, max_size=8))
def test_efficiency_is_the_mean_over_every_nanosecond(drawn: list[tuple[int, int, float, bool, bool]]) -> None:
    """Streams that overlap add up to at most all SMs."""
    script = TimelineScript(unit_ns=1)
    for begin, length, blocks, loader, second in drawn:
        script.kernel(begin, begin + length, blocks_per_sm=blocks, loader=loader, stream=13 if second else 7)
    timeline = script.build(50)
    filled = sum(min(1.0, sum(k[2] for k in drawn if k[0] <= at < k[0] + k[1])) for at in range(50)) / 50
    ran = any(k[0] < 50 and k[0] + k[1] > 0 and k[1] for k in drawn)
    assert use_of(timeline, timeline.end_ns - timeline.begin_ns).sm_efficiency_estimated == (
        pytest.approx(filled) if ran else None
    )
