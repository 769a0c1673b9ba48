"""A measurement made of what was seen of a training that nothing changed: its steps, and its workers' clocks.

Training is as it was. The loader alone is taken to make batches as fast as its workers do when they never stand idle;
compute alone is the steps without their waiting, which is right where a step ends before the loop goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loaderprobe.measure.parts import UNSEEN
from loaderprobe.measure.recorder import Recorder
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import content_hash
from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Mode, Segment, WorkerBatches
from loaderprobe.records.note import Note
from loaderprobe.stats import mean, median

ROUNDS = 3
LEAST_STEPS = 8
"""Of a round."""
NO_STEP_TIMES = 10
"""What takes so many times the usual step is a validation or a checkpoint."""

STEPS = ComputeInfo(
    name="step", device="CPU", synchronous=True, specified_images_per_s=None, source="the script's own steps"
)


@dataclass(slots=True)
class LoopStep:
    """One `next()` of a loop, and what it did with its batch; ns of one clock."""

    begin_ns: int
    ready_ns: int
    cpu_ns: int
    """CPU time of the thread in `next()`."""
    end_ns: int = 0


def observed(
    steps: Sequence[LoopStep], records: WorkerBatches, *, name: str, workers: int, prefetch_factor: int, cores: float
) -> Measurement | None:
    """Three rounds of the steps; None where there are too few."""
    whole = _whole(steps)
    period = max(workers, 1)
    size = len(whole) // ROUNDS // period * period
    if size < LEAST_STEPS:
        return None
    wall_ns = mean([float(each) for each in records.wall_ns]) if records.wall_ns else None
    batch_size = max(1, round(median([float(each) for each in records.images]))) if records.images else 1
    recorder = Recorder(
        RunConfig(
            data=content_hash([name]),
            resolution=name,
            loader=LoaderSpec(name="own", workers=workers, prefetch_factor=prefetch_factor),
            compute=ComputeSpec(name="own", batch_size=batch_size),
            cache="as-found",
            rounds=ROUNDS,
        ),
        access="none",
    )
    recorder.begin(steps[0].begin_ns)
    recorder.got_first_batch(steps[0].ready_ns)
    recorder.notes.append(Note(code="only_watched"))
    for number in range(ROUNDS):
        part = whole[number * size : (number + 1) * size]
        recorder.segments += _round(part, number, batch_size, workers, wall_ns)
    return recorder.measurement(
        whole[-1].end_ns,
        compute=STEPS,
        worker_batches=records,
        waits=UNSEEN,
        modes=("baseline",),
        cores_available=cores,
        storage_counts_reads=True,
        storage_kind="unknown",
    )


def _whole(steps: Sequence[LoopStep]) -> list[LoopStep]:
    """Those that ended, and were steps."""
    ended = [step for step in steps if step.end_ns]
    if not ended:
        return []
    usual = median([float(step.end_ns - step.ready_ns) for step in ended])
    return [step for step in ended if step.end_ns - step.ready_ns <= NO_STEP_TIMES * usual]


def _round(
    part: Sequence[LoopStep], number: int, batch_size: int, workers: int, wall_ns: float | None
) -> tuple[Segment, ...]:
    """`wall_ns` is what a batch takes its worker, if that is known."""
    waits = [step.ready_ns - step.begin_ns for step in part]
    trains = [step.end_ns - step.ready_ns for step in part]
    waited_ns = mean([float(value) for value in waits])
    each_ns = round(wall_ns / workers if workers and wall_ns is not None else waited_ns)
    idle = [0] * len(part)
    cpu_ns = sum(step.cpu_ns for step in part)
    shared: dict[str, Any] = {
        "number": number, "batch_size": batch_size, "begin_ns": part[0].begin_ns, "first_batch": number * len(part),
        "cpu_ns": cpu_ns,
    }  # fmt: skip
    return (
        _segment("baseline", "training", waits, trains, **shared),
        _segment("baseline", "loader_only", [each_ns] * len(part), idle, **shared),
        _segment("resident", "training", idle, trains, **shared),
    )


def _segment(
    mode: Mode, activity: Activity, waits: Sequence[int], trains: Sequence[int], *,
    number: int, batch_size: int, begin_ns: int, first_batch: int, cpu_ns: int,
) -> Segment:  # fmt: skip
    """Steps one after the other, without what lay between them."""
    begin, ready, end, now = [], [], [], begin_ns
    for wait, train in zip(waits, trains, strict=True):
        begin.append(now)
        ready.append(now + wait)
        now += wait + train
        end.append(now)
    return Segment(
        mode=mode,
        activity=activity,
        round=number,
        first_batch=-1 if mode == "resident" else first_batch,
        batch_size=batch_size,
        begin_ns=tuple(begin),
        ready_ns=tuple(ready),
        copied_ns=tuple(ready),
        end_ns=tuple(end),
        finished_ns=() if activity == "loader_only" else tuple(end),
        closed_ns=now,
        thread_cpu_ns=cpu_ns,
        delivered_bytes=None,
        disk_bytes=None,
        resident_before=None,
    )
