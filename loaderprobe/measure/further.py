"""Further rounds: how they join earlier ones, and what a budget must be for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any, TypeVar

from loaderprobe.records.measurement import COLUMNS, Measurement, Segment, Series, WorkerBatches
from loaderprobe.records.remark import TOO_SHORT, Remark, each_once
from loaderprobe.records.waits import WaitSamples

NO_TIME = Remark(code="no_time")
CUT_SHORT = Remark(code="cut_short")
# A budget that is said is a multiple of this.
BUDGET_STEP_S = 5
SERIES = ("time_ns", "values")
# What is a time on the clock of the segments: it begins at 0 when the machine starts.
TIMES: dict[type, Sequence[str]] = {
    Segment: ("begin_ns", "ready_ns", "copied_ns", "end_ns", "finished_ns", "device_begin_ns", "closed_ns"),
    WorkerBatches: ("start_ns",),
    WaitSamples: ("time_ns",),
    Series: ("time_ns",),
}
Timed = TypeVar("Timed", Segment, WorkerBatches, WaitSamples, Series)


def enough_said(notes: Sequence[Remark], budget_s: float, rounds: int) -> tuple[Remark, ...]:
    """The same notes; the last one that time was too short says that such a budget would allow so many rounds."""
    whole_s = float(math.ceil(budget_s / BUDGET_STEP_S) * BUDGET_STEP_S)
    last = max((index for index, note in enumerate(notes) if note.code in TOO_SHORT), default=None)
    facts: dict[str, float | str] = {"budget_s": whole_s, "rounds": float(rounds)}
    return tuple(replace(note, facts=facts) if index == last else note for index, note in enumerate(notes))


def joined(earlier: Measurement, later: Measurement) -> Measurement:
    """One measurement of the rounds of both; those of the later one, and its batches, are numbered on.

    Parts of a round are compared with each other only, so rounds of another process count like those before.
    """
    later = _behind_in_time(earlier, later)
    rounds = 1 + max(segment.round for segment in earlier.segments)
    ends = (segment.first_batch + segment.steps for segment in earlier.segments)
    batches = max((*ends, *(number + 1 for number in earlier.worker_batches.batch)))
    missing = {lack.name: lack for lack in chain(earlier.missing, later.missing)}
    has = {"gpu_timeline": earlier.timeline or later.timeline, "waits": earlier.waits or later.waits}
    curves = {curve.name: curve for curve in earlier.series}
    return replace(
        earlier,
        segments=(*earlier.segments, *(_numbered_on(segment, rounds, batches) for segment in later.segments)),
        worker_batches=_both_batches(earlier.worker_batches, later.worker_batches, batches),
        series=(
            *(replace(curve, **_behind(curves.pop(curve.name, None), curve, SERIES)) for curve in later.series),
            *curves.values(),
        ),
        missing=tuple(lack for name, lack in missing.items() if not has.get(name)),
        waits=_both_waits(earlier.waits, later.waits),
        by_rank=tuple(
            replace(after, **_behind(before, after, COLUMNS))
            for before, after in zip(earlier.by_rank, later.by_rank, strict=False)
        ),
        timeline=earlier.timeline or later.timeline,
        notes=each_once((*(n for n in earlier.notes if n.code not in TOO_SHORT), *later.notes)),
        wall_s=earlier.wall_s + later.wall_s,
    )


def _behind_in_time(earlier: Measurement, later: Measurement) -> Measurement:
    """The later one as it is, or later on the clock where the machine was started between the two."""
    before = max(_times(earlier)) + max(earlier.worker_batches.wall_ns, default=0)
    by_ns = 1 + before - min(_times(later), default=before + 1)
    if by_ns <= 0:
        return later
    return replace(
        later,
        segments=tuple(_moved(segment, by_ns) for segment in later.segments),
        worker_batches=_moved(later.worker_batches, by_ns),
        waits=later.waits and _moved(later.waits, by_ns),
        series=tuple(_moved(curve, by_ns) for curve in later.series),
    )


def _times(measurement: Measurement) -> Iterator[int]:
    waits = [measurement.waits] if measurement.waits else []
    for record in (*measurement.segments, measurement.worker_batches, *waits, *measurement.series):
        for name in TIMES[type(record)]:
            times = getattr(record, name)
            yield from [times] if isinstance(times, int) else times


def _moved(record: Timed, by_ns: int) -> Timed:
    times = {name: getattr(record, name) for name in TIMES[type(record)]}
    moved: dict[str, Any] = {
        name: time + by_ns if isinstance(time, int) else tuple(stamp + by_ns for stamp in time)
        for name, time in times.items()
    }
    return replace(record, **moved)


def _numbered_on(segment: Segment, rounds: int, batches: int) -> Segment:
    first = segment.first_batch if segment.first_batch < 0 else segment.first_batch + batches
    return replace(segment, round=segment.round + rounds, first_batch=first)


def _both_batches(earlier: WorkerBatches, later: WorkerBatches, batches: int) -> WorkerBatches:
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(WorkerBatches) if field.name not in ("batch", "lost")):
        both = getattr(earlier, name), getattr(later, name)
        # A column that one of them did not record is not recorded.
        columns[name] = tuple(chain(*both)) if all(map(len, both)) else ()
    return WorkerBatches(
        batch=(*earlier.batch, *(number + batches for number in later.batch)), lost=earlier.lost + later.lost, **columns
    )


def _behind(earlier: object, later: object, names: Sequence[str]) -> dict[str, Any]:
    """The columns of these names, the later behind the earlier; sums of numbers; nothing without an earlier record."""
    return {name: getattr(earlier, name) + getattr(later, name) for name in names if earlier is not None}


def _both_waits(earlier: WaitSamples | None, later: WaitSamples | None) -> WaitSamples | None:
    if earlier is None or later is None:
        return earlier or later
    offset = len(earlier.subjects)
    return WaitSamples(
        **_behind(earlier, later, ("time_ns", "worker", "kind", "subjects", "cpu_ns", "wall_ns")),
        subject=(*earlier.subject, *(number + offset if number >= 0 else number for number in later.subject)),
        letters_only=later.letters_only or earlier.letters_only,
    )
