"""A measurement of a training that nothing changed: its steps and its workers' clocks, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.measure.session import UNSEEN, Recorder
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import content_hash
from loaderprobe.records.measurement import ComputeInfo, Measurement, Segment, WorkerBatches
from loaderprobe.records.remark import Remark
from loaderprobe.stats import median

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
    """One `next()` of a loop, and what it did with its batch.

    Of the moments in which `next()` begins, gives its batch and begins again: ns of one clock, and of the thread's own.
    """

    begin_ns: int
    ready_ns: int
    begin_cpu_ns: int
    ready_cpu_ns: int
    end_ns: int = 0
    """0 until the loop asks for its next batch."""
    end_cpu_ns: int = 0
    begin_process_ns: int = 0
    """CPU time of the whole process, as the next."""
    end_process_ns: int = 0
    trains: bool = True
    """False where no backward pass followed: the loop evaluated."""


def observed(
    steps: Sequence[LoopStep], records: WorkerBatches, *, name: str, workers: int, prefetch_factor: int, cores: float
) -> Measurement | None:
    """Three rounds of the steps; None where there are too few, or no record of their batches."""
    whole = _whole(steps)
    period = max(workers, 1)
    size = len(whole) // ROUNDS // period * period
    if size < LEAST_STEPS or not records.images:
        return None
    batch_size = max(1, round(median([float(each) for each in records.images])))
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
    recorder.notes.append(Remark(code="only_watched"))
    for number in range(ROUNDS):
        first = number * size
        recorder.segments.append(_segment(whole[first : first + size], number, first, batch_size))
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
    """Those that ended, and trained."""
    ended = [step for step in steps if step.end_ns and step.trains]
    if not ended:
        return []
    usual = median([float(step.end_ns - step.ready_ns) for step in ended])
    return [step for step in ended if step.end_ns - step.ready_ns <= NO_STEP_TIMES * usual]


def _segment(part: Sequence[LoopStep], number: int, first_batch: int, batch_size: int) -> Segment:
    """Steps one after the other: what lay between them, a validation or a checkpoint, is cut out."""
    begin, ready, end, now = [], [], [], part[0].begin_ns
    for step in part:
        begin.append(now)
        ready.append(now + step.ready_ns - step.begin_ns)
        now += step.end_ns - step.begin_ns
        end.append(now)
    return Segment(
        mode="baseline",
        activity="training",
        round=number,
        first_batch=first_batch,
        batch_size=batch_size,
        begin_ns=tuple(begin),
        ready_ns=tuple(ready),
        copied_ns=tuple(ready),
        end_ns=tuple(end),
        finished_ns=tuple(end),
        closed_ns=now,
        # A loop that goes on in another thread has another clock of CPU time.
        thread_cpu_ns=sum(max(0, step.end_cpu_ns - step.begin_cpu_ns) for step in part),
        process_cpu_ns=sum(max(0, step.end_process_ns - step.begin_process_ns) for step in part),
        receive_cpu_ns=sum(step.ready_cpu_ns - step.begin_cpu_ns for step in part),
        delivered_bytes=None,
        disk_bytes=None,
        resident_before=None,
    )
