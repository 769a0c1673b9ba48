"""Attribution of idle time: against a label for each single nanosecond, and on windows written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.gpu import AFTER_SYNC_NS, attribute, total
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import DeviceKind, Timeline
from loaderprobe.records.verdict import GAP_CAUSES, TIME_PARTS, Gaps
from tests.examples import timelines
from tests.examples.timelines import TimelineScript

END, BEGIN, LATENCY, AFTER_SYNC = 60, 1_000, 4, 6


@st.composite
def windows(draw: st.DrawFn) -> Timeline:
    """Anything at all on two streams in a window of a few nanoseconds, some of it sticking out at either end."""
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
    return script.build(END)


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


def parts(gaps: Gaps) -> Counter[str]:
    return +Counter({str(part): gaps.of(part) for part in TIME_PARTS})


def split(timeline: Timeline, latency_ns: int = LATENCY, after_sync_ns: int = AFTER_SYNC_NS) -> Gaps:
    return attribute(timeline, latency_ns=latency_ns, after_sync_ns=after_sync_ns).gaps_of(timeline.steps)


@settings(max_examples=100)
@given(windows())
def test_every_nanosecond_gets_the_label_of_the_rules(timeline: Timeline) -> None:
    """The sums are those of labelling one nanosecond after the other, and no range counts twice."""
    found = attribute(timeline, latency_ns=LATENCY, after_sync_ns=AFTER_SYNC)
    assert parts(found.gaps_of(1)) == labels(timeline)
    pieces = chain.from_iterable(found.parts.values())
    assert sum(high - low for low, high in pieces) == END
    assert total(found.pageable) <= total(found.parts["copy"])


def test_what_takes_no_time_ends_no_gap() -> None:
    """A copy of no length where the window ends, for which the host was blocked: nothing was launched after that."""
    script = TimelineScript(unit_ns=1, begin_ns=BEGIN)
    script.copy(END, END, 0, kind="d2h", blocked_until=1)
    timeline = script.build(END)
    expected = {"sync": 1 + AFTER_SYNC, "unknown": END - 1 - AFTER_SYNC}
    assert parts(split(timeline, after_sync_ns=AFTER_SYNC)) == labels(timeline) == expected


@given(windows(), st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(timeline: Timeline, random: Any) -> None:
    """Records and calls in any order give the same split."""
    assert split(timeline) == split(replace(
        timeline, records=_shuffled(timeline.records, random), calls=_shuffled(timeline.calls, random)
    ))  # fmt: skip


def _shuffled(table: Any, random: Any) -> Any:
    order = list(range(len(table.kind)))
    random.shuffle(order)
    return replace(table, **{c.name: tuple(getattr(table, c.name)[i] for i in order) for c in fields(table)})


@given(windows(), st.integers(2, 1_000))
def test_a_slower_clock_changes_nothing_but_the_scale(timeline: Timeline, factor: int) -> None:
    """All times multiplied, every part is multiplied."""

    def times(table: Any, *names: str) -> Any:
        return replace(table, **{name: tuple(value * factor for value in getattr(table, name)) for name in names})

    slower = replace(
        times(timeline, "wait_begin_ns", "wait_end_ns", "step_begin_ns"),
        begin_ns=timeline.begin_ns * factor,
        end_ns=timeline.end_ns * factor,
        records=times(timeline.records, "begin_ns", "end_ns"),
        calls=times(timeline.calls, "begin_ns", "end_ns"),
    )
    found = parts(split(slower, LATENCY * factor, AFTER_SYNC * factor))
    assert found == {name: value * factor for name, value in parts(split(timeline, LATENCY, AFTER_SYNC)).items()}


def test_parts_that_do_not_sum_are_an_error() -> None:
    """A split with a rest is a bug and is never shown."""
    whole = split(timelines.starved())
    with pytest.raises(LoaderprobeError, match="sum to"):
        replace(whole, sync_ns=whole.sync_ns + 1)


def test_pageable_copies_are_known_by_their_name() -> None:
    """The staging that the host was blocked for belongs to the copy, and all of it is marked as pageable."""
    pageable, pinned = split(timelines.copied_pageable()), split(timelines.starved())
    assert pageable.pageable_ns == pageable.copy_ns == timelines.STEPS * 20_000_000
    assert pinned.pageable_ns == 0 < pinned.copy_ns


def test_a_figure_read_in_every_step_is_a_sync() -> None:
    """Kernels of a step, then the host blocked until they are done: what it launches next comes late for that."""
    script = TimelineScript(unit_ns=1000)
    for step in range(4):
        begin = 1000 * step
        script.kernel(begin + 100, begin + 800, begin + 90)
        script.sync(begin + 120, begin + 810)
    gaps = split(script.build(4000), 20_000)
    assert gaps.share("sync") == pytest.approx((3 * 290 + 200) / 4000, abs=0.01)
    assert gaps.share("launch") == pytest.approx((90 + 4 * 1) / 4000, abs=0.0001)


def test_inside_a_graph_the_host_is_never_to_blame() -> None:
    """All kernels of a graph were issued by its one call: short gaps are the device's, long ones a dependency's."""
    gaps = split(timelines.as_graph(), 5_000)
    assert gaps.device_ns == timelines.STEPS * (3_000 + 2_000)
    assert gaps.launch_ns == timelines.STEPS * (96_000 + 1_000)
    assert gaps.unknown_ns == timelines.STEPS * 30_000


def test_launches_that_take_long_are_the_hosts() -> None:
    """Each call takes the host 40 us under a profiler, and its kernel runs for 4 us right behind: the host is late."""
    script = TimelineScript()
    for begin in range(0, 1000, 50):
        script.kernel(begin + 41, begin + 45, begin, returned=begin + 40)
    gaps = split(script.build(995), 5_000)
    assert (gaps.launch_ns, gaps.device_ns, gaps.unknown_ns) == ((20 * 40 + 19 * 5) * 1_000, 20 * 1_000, 0)


def test_a_sync_explains_a_millisecond_and_no_more() -> None:
    """After it the host works on images for 90 ms: that is not the sync's doing."""
    script = TimelineScript()
    script.kernel(0, 200, 0)
    script.sync(150, 205)
    script.kernel(90_300, 99_900, 90_290)
    gaps = split(script.build(99_900), 5_000)
    assert gaps.sync_ns == 5_000 + AFTER_SYNC_NS
    assert gaps.launch_ns == (90_290 - 205 + 1) * 1_000 - AFTER_SYNC_NS


@pytest.mark.parametrize(("until", "cause"), [(20_010, "copy"), (20_011, "sync")])
def test_a_copy_that_waits_for_older_work_is_a_sync(until: int, cause: Any) -> None:
    """Its call stages memory for up to ten times the copy itself; if it takes longer, it waits for something else."""
    script = TimelineScript()
    script.copy(18_000, 20_000, 10, pageable=True, blocked_until=until)
    script.kernel(20_011, 30_000, 20_011)
    gaps = split(script.build(30_000), 5_000)
    assert max(GAP_CAUSES, key=gaps.of) == cause
    assert gaps.of(cause) >= 17_990_000
    assert gaps.copy_ns >= 2_000_000


SPLITS: dict[str, tuple[TimelineScript, dict[str, int]]] = {
    "a wait counts until the next kernel was issued; the call is the host's": (
        TimelineScript(unit_ns=1).kernel(0, 100, 0).wait(120, 190).kernel(200, 300, 150, returned=165),
        {"compute": 200, "launch": 20 + 15, "input": 30, "unknown": 35},
    ),
    "a copy goes before the wait that covers it": (
        TimelineScript(unit_ns=1).wait(0, 90).copy(50, 80, 40).kernel(100, 200, 95),
        {"compute": 100, "input": 60, "copy": 30, "launch": 6, "device": 4},
    ),
    "a thread that was blocked has launched nothing since": (
        TimelineScript(unit_ns=1).sync(0, 40).sync(40, 80, training=False).kernel(100, 200, 100),
        {"compute": 100, "sync": 100},
    ),
    "a sync of another thread is no cause": (
        TimelineScript(unit_ns=1).sync(40, 80, training=False).kernel(100, 200, 100),
        {"compute": 100, "launch": 100},
    ),
    "without a record of the call the rest is not known": (
        TimelineScript(unit_ns=1).wait(0, 30).kernel(100, 200),
        {"compute": 100, "input": 30, "unknown": 70},
    ),
    "kernels of the loader are input, apart from waiting for it": (
        TimelineScript(unit_ns=1).wait(0, 100).kernel(20, 60, 10, loader=True, stream=13).kernel(100, 200, 99),
        {"compute": 100, "loader": 40, "input": 59, "launch": 1},
    ),
    "communication counts where nothing else runs, and may end a gap": (
        TimelineScript(unit_ns=1).kernel(10, 200, 1).kernel(150, 1000, 100, exchange=True, stream=20)
        .kernel(1100, 1200, 1099, exchange=True, stream=20),
        {"compute": 190, "communication": 800 + 100, "launch": 1 + 1 + 99 + 1, "unknown": 8},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("script", "expected"), SPLITS.values(), ids=SPLITS.keys())
def test_a_gap_goes_to_what_held_up_the_kernel_after_it(script: TimelineScript, expected: dict[str, int]) -> None:
    """Nanosecond for nanosecond: a rule each."""
    assert parts(split(script.build(sum(expected.values())))) == expected
