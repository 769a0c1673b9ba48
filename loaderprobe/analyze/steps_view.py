"""The steps of one configuration as stretches of time, where no profiler recorded kernels."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.verdict.rates import segments_of
from loaderprobe.analyze.verdict.speedups import judged_activity
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.gaps import Stretches, TimelineView
from loaderprobe.records.measurement import Measurement, Segment

MOST_STEPS = 400
"""As many are drawn at most: more are thinner than a line."""


def steps_view(measurement: Measurement) -> TimelineView | None:
    """The last round of training: when the device trained and why not; None without training."""
    if judged_activity(measurement) != "training":
        return None
    segments = segments_of(measurement, base_mode(measurement), "training")
    return _view(segments[-1], measurement.compute.specified_images_per_s) if segments else None


def _view(segment: Segment, specified_images_per_s: float | None) -> TimelineView | None:
    count = min(segment.steps, MOST_STEPS)
    begin_ns, ready_ns = segment.begin_ns[:count], segment.ready_ns[:count]
    last_ns = segment.begin_ns[count] if count < segment.steps else segment.closed_ns
    waits = tuple(zip(begin_ns, ready_ns, strict=True))
    copies = tuple(zip(ready_ns, segment.copied_ns[:count], strict=True))
    busy = _busy(segment, count, specified_images_per_s)
    origin_ns = begin_ns[0]
    window_ns = max(last_ns, busy[-1][1] if busy else 0) - origin_ns
    if window_ns <= 0:
        return None
    idle = _without(waits, busy)
    return TimelineView(
        window_ns=window_ns,
        step_begin_ns=tuple(at - origin_ns for at in begin_ns),
        busy=_moved(busy, origin_ns),
        gaps={"input": _moved(idle, origin_ns)},
        waits=_moved(waits, origin_ns),
        copies=_moved(copies, origin_ns),
    )


def _busy(segment: Segment, count: int, specified_images_per_s: float | None) -> Stretches:
    """On the device's own clock where it has one, else on that of the training thread."""
    begins: Sequence[int] = segment.device_begin_ns or segment.copied_ns
    ends = segment.finished_ns if segment.device_begin_ns else segment.end_ns
    if specified_images_per_s and segment.finished_ns:
        step_ns = round(segment.batch_size / specified_images_per_s * 1e9)
        begins, ends = [end - step_ns for end in segment.finished_ns], segment.finished_ns
    busy: list[tuple[int, int]] = []
    for begin, end in zip(begins[:count], ends[:count], strict=True):
        begin = max(begin, busy[-1][1] if busy else segment.begin_ns[0])
        if end > begin:
            busy.append((begin, end))
    return tuple(busy)


def _without(ranges: Stretches, taken: Stretches) -> Stretches:
    """The parts of sorted ranges that lie in none of other sorted ranges."""
    left: list[tuple[int, int]] = []
    place = 0
    for begin, end in ranges:
        at = begin
        while place < len(taken) and taken[place][1] <= at:
            place += 1
        for low, high in taken[place:]:
            if low >= end:
                break
            if low > at:
                left.append((at, low))
            at = max(at, high)
        if at < end:
            left.append((at, end))
    return tuple(left)


def _moved(ranges: Stretches, origin_ns: int) -> Stretches:
    return tuple((begin - origin_ns, end - origin_ns) for begin, end in ranges if end > begin)
