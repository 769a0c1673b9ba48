"""Why a GPU was idle: every gap between its kernels goes to what held up the kernel that ended it.

The union of all streams is what counts: that one stream is idle costs nothing while another works. A gap is split
where the host issued the work that ended it: at the begin of the call, and at its end. What the host did before may
have caused the gap, and the call itself takes time; what the host did after cannot have. So a wait for input that is
hidden behind kernels, or behind kernels issued before, costs nothing. Time in which nothing but communication with
other GPUs ran is no gap, and no training either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loaderprobe.records.measurement import Timeline, communicates
from loaderprobe.records.verdict import GapCause, Gaps

# Sets of time as half-open ranges (begin, end) of whole nanoseconds.
#
# A *merged* tuple is sorted, and its ranges are not empty and neither overlap nor touch. Every function but `merge`
# takes merged ranges and gives merged ranges, in time linear in their number.

Ranges = tuple[tuple[int, int], ...]


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The union of any ranges, in any order; empty and reversed ones hold no time."""
    out: list[tuple[int, int]] = []
    begin = end = None
    for low, high in sorted(each for each in ranges if each[0] < each[1]):
        if end is None or begin is None or low > end:
            if end is not None and begin is not None:
                out.append((begin, end))
            begin, end = low, high
        elif high > end:
            end = high
    if end is not None and begin is not None:
        out.append((begin, end))
    return tuple(out)


def clip(ranges: Ranges, begin: int, end: int) -> Ranges:
    """What lies in the range from `begin` to `end`."""
    if begin >= end:
        return ()
    return tuple((max(low, begin), min(high, end)) for low, high in ranges if low < end and high > begin)


def intersect(some: Ranges, others: Ranges) -> Ranges:
    """What lies in both."""
    out: list[tuple[int, int]] = []
    one = other = 0
    ones, all_others = len(some), len(others)
    while one < ones and other < all_others:
        (begin, end), (low, high) = some[one], others[other]
        low = low if low > begin else begin
        if end <= high:
            high = end
            one += 1
        else:
            other += 1
        if low < high:
            out.append((low, high))
    return tuple(out)


def subtract(some: Ranges, taken: Ranges) -> Ranges:
    """What lies in `some` and not in `taken`."""
    out: list[tuple[int, int]] = []
    first = 0
    for low, high in some:
        while first < len(taken) and taken[first][1] <= low:
            first += 1
        # A range of `taken` that reaches beyond this one counts again for the next.
        at, number = low, first
        while number < len(taken) and taken[number][0] < high:
            if taken[number][0] > at:
                out.append((at, taken[number][0]))
            at = taken[number][1]
            number += 1
        if at < high:
            out.append((at, high))
    return tuple(out)


def total(ranges: Ranges) -> int:
    """Nanoseconds in all."""
    return sum(high - low for low, high in ranges)


# Between a call and its kernel the hardware alone takes a few microseconds; more is waiting for another stream.
HARDWARE_LATENCY_NS = 5_000
# What follows a sync is its doing for no longer than this: the 90th percentile of real traces is 0.2 to 5 ms. After
# that the host worked on something else.
AFTER_SYNC_NS = 1_000_000
# A call that takes this many times as long as its copy did not stage memory for it: it waited for older work.
STAGING_FACTOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """A window as ranges on the timeline's clock: `busy` and `gaps` by cause do not overlap, and fill it.

    Exposed communication is among the gaps, as `communication`.
    """

    begin_ns: int
    end_ns: int
    busy: Ranges
    gaps: dict[GapCause, Ranges]
    copies: Ranges
    """From the host, hidden behind kernels or not."""
    waits: Ranges
    """The training thread inside `next()`, hidden or not."""
    pageable: Ranges
    """The part of the gaps of cause copy that came from pageable memory."""

    def gaps_of(self, steps: int) -> Gaps:
        """The figures. Raises LoaderprobeError when the parts do not sum to the window."""
        return Gaps(
            steps=steps,
            window_ns=self.end_ns - self.begin_ns,
            busy_ns=total(self.busy),
            pageable_ns=total(self.pageable),
            **{f"{cause}_ns": total(ranges) for cause, ranges in self.gaps.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """All gaps, cut where the work that ended each was issued; `unknown` are those without a record of that."""

    before: Ranges
    calling: Ranges
    """Inside the call that issued it."""
    after: Ranges
    unknown: Ranges


def attribute(
    timeline: Timeline, *, latency_ns: int = HARDWARE_LATENCY_NS, after_sync_ns: int = AFTER_SYNC_NS
) -> Attribution:
    """Split a window by the rules above.

    A copy to the device goes before any wait that covers it, then what the loader ran on the device; what is left
    of a gap goes to waits for input, to syncs and to launching, or, once the work was issued, to the device.
    """
    exchanges, trains = _exchanges(timeline), _is_training(timeline)
    busy = _on_device(timeline, lambda i: trains(i) and not exchanges(i))
    exposed = subtract(_on_device(timeline, lambda i: trains(i) and exchanges(i)), busy)
    copies = _on_device(timeline, _comes_over(timeline))
    waits = _clipped(timeline, zip(timeline.wait_begin_ns, timeline.wait_end_ns, strict=True))
    gaps = subtract(((timeline.begin_ns, timeline.end_ns),), merge([*busy, *exposed]))
    split = _split(gaps, _issued(timeline))
    copying, rest = _take(gaps, merge([*copies, *_staging(timeline, _comes_over(timeline))]))
    loading, rest = _take(rest, _on_device(timeline, _makes_batches(timeline)))
    # Inside the call that issues the next kernel the host does not wait for input, but the call may block.
    input_wait, before = _take(intersect(rest, merge([*split.before, *split.unknown])), waits)
    host = merge([*before, *intersect(rest, split.calling)])
    blocked, host = _take(host, _held_up(timeline, after_sync_ns))
    short, long = _by_latency(intersect(rest, split.after), split.after, latency_ns)
    pageable = _is_pageable(timeline)
    return Attribution(
        begin_ns=timeline.begin_ns,
        end_ns=timeline.end_ns,
        busy=busy,
        gaps={
            "communication": exposed,
            "input": input_wait,
            "copy": copying,
            "loader": loading,
            "sync": blocked,
            "launch": subtract(host, split.unknown),
            "device": short,
            "other": merge([*long, *intersect(host, split.unknown)]),
        },
        copies=copies,
        waits=waits,
        pageable=intersect(copying, merge([*_on_device(timeline, pageable), *_staging(timeline, pageable)])),
    )


def _take(ranges: Ranges, cause: Ranges) -> tuple[Ranges, Ranges]:
    """(what of the ranges the cause explains, the rest)."""
    return intersect(ranges, cause), subtract(ranges, cause)


def _clipped(timeline: Timeline, ranges: Iterable[tuple[int, int]]) -> Ranges:
    return clip(merge(ranges), timeline.begin_ns, timeline.end_ns)


def _on_device(timeline: Timeline, wanted: Callable[[int], bool]) -> Ranges:
    """The union of the records whose number is wanted."""
    records = timeline.records
    spans = zip(records.begin_ns, records.end_ns, strict=True)
    return _clipped(timeline, (span for i, span in enumerate(spans) if wanted(i)))


def _staging(timeline: Timeline, of: Callable[[int], bool]) -> Ranges:
    """The host blocked in the calls that stage these copies to the device."""
    records, staged = timeline.records, staging_calls(timeline)
    copied = {correlation for i, correlation in enumerate(records.correlation) if of(i)}
    return _syncs(timeline, lambda i: i in staged and timeline.calls.correlation[i] in copied)


def staging_calls(timeline: Timeline) -> frozenset[int]:
    """Numbers of the blocking calls that wait for nothing but their own copy to the device.

    From pageable memory such a call first moves the data to where the device can read it. It is a sync by its kind,
    but what it waits for is the copy. One that takes far longer than the copy waits for work that was issued before.
    """
    records, calls = timeline.records, timeline.calls
    copied: dict[int, int] = {}
    for kind, begin, end, correlation in zip(
        records.kind, records.begin_ns, records.end_ns, records.correlation, strict=True
    ):
        if kind == "h2d":
            copied[correlation] = copied.get(correlation, 0) + end - begin
    return frozenset(
        i for i, kind in enumerate(calls.kind)
        if kind == "sync" and calls.correlation[i] in copied
        and calls.end_ns[i] - calls.begin_ns[i] <= STAGING_FACTOR * copied[calls.correlation[i]]
    )  # fmt: skip


def _syncs(timeline: Timeline, wanted: Callable[[int], bool] = lambda _: True) -> Ranges:
    """The threads that train blocked in the calls whose number is wanted."""
    calls = timeline.calls
    blocking = [i for i, kind in enumerate(calls.kind) if kind == "sync" and calls.training[i] and wanted(i)]
    return _clipped(timeline, ((calls.begin_ns[i], calls.end_ns[i]) for i in blocking))


def _held_up(timeline: Timeline, after_sync_ns: int) -> Ranges:
    """A thread that trains blocked until the device was there, and then for a while, until anything was issued again.

    While it was blocked it could not run ahead. So the device, having done all that was issued, also waits for the
    first launch after it.
    """
    calls, staged = timeline.calls, staging_calls(timeline)
    launched = sorted(begin for begin, kind in zip(calls.begin_ns, calls.kind, strict=True) if kind == "launch")
    launched.append(max([timeline.end_ns, *launched[-1:]]))
    held = [
        (end, min(launched[min(bisect_left(launched, end), len(launched) - 1)], end + after_sync_ns))
        for i, (end, kind) in enumerate(zip(calls.end_ns, calls.kind, strict=True))
        if kind == "sync" and calls.training[i] and i not in staged
    ]
    return merge([*_syncs(timeline), *_clipped(timeline, held)])


def _exchanges(timeline: Timeline) -> Callable[[int], bool]:
    """Kernels that exchange data with other GPUs."""
    records = timeline.records
    names = {number for number, name in enumerate(timeline.names) if communicates(name)}
    return lambda i: records.kind[i] == "kernel" and records.name[i] in names


def _is_training(timeline: Timeline) -> Callable[[int], bool]:
    kind, loader = timeline.records.kind, timeline.records.loader
    return lambda i: kind[i] != "h2d" and not loader[i]


def _makes_batches(timeline: Timeline) -> Callable[[int], bool]:
    kind, loader = timeline.records.kind, timeline.records.loader
    return lambda i: kind[i] != "h2d" and loader[i]


def _comes_over(timeline: Timeline) -> Callable[[int], bool]:
    kind = timeline.records.kind
    return lambda i: kind[i] == "h2d"


def _is_pageable(timeline: Timeline) -> Callable[[int], bool]:
    """Copies to the device whose names say that the memory on the host was pageable."""
    records = timeline.records
    pageable = {number for number, name in enumerate(timeline.names) if "Pageable" in name}
    return lambda i: records.kind[i] == "h2d" and records.name[i] in pageable


def _issued(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """(begin, end) of the host's call that issued the work of training, by that work's begin on the device.

    By correlation, not by thread: autograd launches from a thread of its own. Where several begin at once, the one
    issued first counts.
    """
    calls, records, is_training = timeline.calls, timeline.records, _is_training(timeline)
    called: dict[int, tuple[int, int]] = {}
    for *call, correlation in zip(calls.begin_ns, calls.end_ns, calls.correlation, strict=True):
        called[correlation] = min((call[0], call[1]), called.get(correlation, (call[0], call[1])))
    issued: dict[int, tuple[int, int]] = {}
    for i, (begin, correlation) in enumerate(zip(records.begin_ns, records.correlation, strict=True)):
        # What takes no time ends no gap.
        if is_training(i) and correlation in called and begin < records.end_ns[i]:
            issued[begin] = min(called[correlation], issued.get(begin, called[correlation]))
    return issued


def _split(gaps: Ranges, issued: dict[int, tuple[int, int]]) -> _Split:
    before, calling, after, unknown = [], [], [], []
    for begin, end in gaps:
        if end not in issued:
            unknown.append((begin, end))
            continue
        called, returned = (min(max(at, begin), end) for at in issued[end])
        before.append((begin, called))
        calling.append((called, returned))
        after.append((returned, end))
    return _Split(before=merge(before), calling=merge(calling), after=merge(after), unknown=tuple(unknown))


def _by_latency(pieces: Ranges, stretches: Ranges, latency_ns: int) -> tuple[Ranges, Ranges]:
    """The pieces of the stretches of which the hardware's latency explains all that is left; and the others."""
    short: list[tuple[int, int]] = []
    long: list[tuple[int, int]] = []
    number = 0
    for _, end in stretches:
        mine = []
        while number < len(pieces) and pieces[number][1] <= end:
            mine.append(pieces[number])
            number += 1
        (short if total(tuple(mine)) <= latency_ns else long).extend(mine)
    return tuple(short), tuple(long)
