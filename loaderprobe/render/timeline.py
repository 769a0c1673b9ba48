"""The timeline of a GPU as SVG: kernels, and the gaps between them in the colour and letter of their cause.

Each column is one stretch of time, filled from the bottom by the share of it that kernels ran, and
above by the shares of the causes. Where a stretch is shorter than any kernel or gap, columns are full of one colour,
as in a profiler; where kernels are shorter than a column, their area is still right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby

from loaderprobe.records.verdict import GAP_CAUSES, GapCause, Stretches, TimelineView
from loaderprobe.render.charts import Shade, svg_page, svg_text, ticks

HEIGHT = 156
_LEFT, _RIGHT = 42, 342
_COLUMNS = _RIGHT - _LEFT
_TOP, _FLOOR = 54, 122
_LANES = {"next()": 30, "copy": 42}
_LANE_HEIGHT = 8
_LEAST_LETTER = 12
"""Pixels of either side of the smallest area that gets a letter."""
_INK, _RULE = "currentColor", "#9AA0A6"


# The colours of Okabe and Ito (2008).
KERNELS = Shade(letter="", name="kernels of the training", color="#0072B2", ink="#FFFFFF")
SHADES: dict[GapCause, Shade] = {
    "communication": Shade(
        letter="N", name="idle: nothing but communication between GPUs", color="#000000", ink="#FFFFFF"
    ),
    "input": Shade(letter="I", name="idle: waiting for input", color="#D55E00", ink="#FFFFFF"),
    "copy": Shade(letter="C", name="idle: copy to the device", color="#CC79A7", ink="#000000"),
    "loader": Shade(letter="L", name="idle: the loader's own kernels", color="#E69F00", ink="#000000"),
    "sync": Shade(letter="S", name="idle: host synchronised", color="#F0E442", ink="#000000"),
    "launch": Shade(letter="H", name="idle: host busy, launching late", color="#009E73", ink="#FFFFFF"),
    "device": Shade(letter="D", name="idle: the device's own latency", color="#56B4E9", ink="#000000"),
    "other": Shade(letter="O", name="idle: other", color="#9A9A9A", ink="#000000"),
}


def common_length_ns(views: Sequence[TimelineView]) -> int:
    """The stretch of time to show of each: a step of the slowest and a little more, if all have about as much."""
    slowest = max(view.window_ns / max(1, len(view.step_begin_ns)) for view in views)
    shortest = min(view.window_ns for view in views)
    return max(1, round(min(1.25 * slowest, 4 * shortest)))


def typical_begin_ns(view: TimelineView, length_ns: int) -> int:
    """The begin of a step from which on the time is spent most as in the whole window."""

    def shares(begin_ns: int, span_ns: int) -> list[float]:
        return [_time_within(part, begin_ns, begin_ns + span_ns) / span_ns for part in _parts(view).values()]

    whole = shares(0, view.window_ns)
    last = view.window_ns - length_ns
    candidates = [at for at in view.step_begin_ns if at <= last] or [0]
    span_ns = min(length_ns, view.window_ns)
    return min(candidates, key=lambda at: sum(abs(a - b) for a, b in zip(shares(at, span_ns), whole, strict=True)))


def timeline_chart(view: TimelineView, title: str, length_ns: int, of: str = "GPU") -> str:
    """SVG of a typical stretch of `length_ns`; blank where the window was over sooner. `of` names what was busy."""
    begin_ns = typical_begin_ns(view, length_ns)
    columns = {name: _columns(part, begin_ns, length_ns) for name, part in _parts(view).items()}
    known = min(_COLUMNS, round(_COLUMNS * (view.window_ns - begin_ns) / length_ns))
    drawn = [
        # With a frame, for colours that are near to that of the page.
        f'<rect x="{_LEFT}" y="{_TOP}" width="{known}" height="{_FLOOR - _TOP}" fill="{_INK}" fill-opacity="0.08" '
        f'stroke="{_RULE}" stroke-width="0.5"/>',
        *_bars(columns),
        *_lane("next()", view.waits, begin_ns, length_ns),
        *_lane("copy", view.copies, begin_ns, length_ns),
        svg_text(_LEFT - 5, (_TOP + _FLOOR) // 2 + 4, of, anchor="end"),
        _steps(view, begin_ns, length_ns),
        *_axis(length_ns),
    ]
    return svg_page(title, HEIGHT, drawn)


def _parts(view: TimelineView) -> dict[str, Stretches]:
    return {"busy": view.busy} | {cause: view.gaps.get(cause, ()) for cause in GAP_CAUSES}


def _within(ranges: Stretches, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The parts of sorted ranges that lie between two times."""
    first = max(0, bisect_right(ranges, begin_ns, key=lambda each: each[0]) - 1)
    last = bisect_right(ranges, end_ns, key=lambda each: each[0])
    cut = ((max(low, begin_ns), min(high, end_ns)) for low, high in ranges[first:last])
    return [(low, high) for low, high in cut if low < high]


def _time_within(ranges: Stretches, begin_ns: int, end_ns: int) -> int:
    return sum(high - low for low, high in _within(ranges, begin_ns, end_ns))


def _columns(ranges: Stretches, begin_ns: int, length_ns: int) -> list[float]:
    """The share of each column that the ranges take."""
    shares = [0.0] * _COLUMNS
    for low, high in _within(ranges, begin_ns, begin_ns + length_ns):
        at, end = ((edge - begin_ns) * _COLUMNS / length_ns for edge in (low, high))
        while at < end:
            number = min(int(at), _COLUMNS - 1)
            upto = min(end, number + 1.0)
            if upto <= at:
                break
            shares[number] += upto - at
            at = upto
    return shares


def _bars(columns: Mapping[str, Sequence[float]]) -> list[str]:
    """One path for each part, stacked upon those before, and letters where they fit."""
    floor = [float(_FLOOR)] * _COLUMNS
    out, letters = [], []
    for name, shares in columns.items():
        shade = KERNELS if name == "busy" else SHADES[name]  # type: ignore[index]  # the other names are the causes
        top = [low - share * (_FLOOR - _TOP) for low, share in zip(floor, shares, strict=True)]
        boxes = [(round(low * 2) / 2, round(high * 2) / 2) for low, high in zip(floor, top, strict=True)]
        runs = [(edges, [number for number, _ in group]) for edges, group in groupby(enumerate(boxes), lambda e: e[1])]
        path = "".join(
            f"M{_LEFT + numbers[0]} {high:g}h{len(numbers)}v{low - high:g}h-{len(numbers)}z"
            for (low, high), numbers in runs
            if low > high
        )
        if path:
            out.append(f'<path class="{name}" shape-rendering="crispEdges" fill="{shade.color}" d="{path}"/>')
        letters += _letters(shade, boxes)
        floor = top
    return out + letters


def _letters(shade: Shade, boxes: Sequence[tuple[float, float]]) -> list[str]:
    """The letter of a cause, in the middle of each area that it fits into."""
    out: list[str] = []
    if not shade.letter:
        return out
    roomy = groupby(range(_COLUMNS), lambda number: boxes[number][0] - boxes[number][1] >= _LEAST_LETTER)
    for fits, group in roomy:
        numbers = list(group)
        if fits and len(numbers) >= _LEAST_LETTER:
            middle = numbers[len(numbers) // 2]
            low, high = boxes[middle]
            y = (low + high) / 2 + 4
            out.append(svg_text(_LEFT + middle, y, shade.letter, anchor="middle", bold=True, fill=shade.ink))
    return out


def _lane(name: str, ranges: Stretches, begin_ns: int, length_ns: int) -> list[str]:
    """A thin row of its own for what may lie behind the kernels."""
    top = _LANES[name]
    marks: list[list[float]] = []
    for low, high in _within(ranges, begin_ns, begin_ns + length_ns):
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


def _steps(view: TimelineView, begin_ns: int, length_ns: int) -> str:
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
