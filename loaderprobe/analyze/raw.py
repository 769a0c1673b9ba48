"""Raw values as rows with units in the names of their columns: steps of a measurement, and its workers' batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import Any

from loaderprobe.records.measurement import Measurement, Segment

Row = tuple[str | int | float | None, ...]

STEP_COLUMNS = (
    "key", "configuration", "round", "mode", "activity", "without_rank", "step", "batch", "images", "begin_at_s",
    "wait_s", "copy_s", "submit_s", "iteration_s", "device_begin_at_s", "device_end_at_s",
)  # fmt: skip
"""`wait_s` is spent in `next()`, `copy_s` submitting the copy to the device, `submit_s` submitting the step,
`iteration_s` from one `next()` to the next. `batch` counts from the start of the loader; NaN without a loader.
`without_rank` took no input; NaN where all ranks did."""

BATCH_COLUMNS = (
    "key", "configuration", "round", "mode", "activity", "without_rank", "batch", "worker", "images", "begin_at_s",
    "wall_s", "cpu_s", "run_delay_s", "collate_s", "instrument_cpu_s", "process_cpu_s", "read_bytes",
)  # fmt: skip
"""`run_delay_s` is spent waiting for a core; `process_cpu_s` is that of all threads of the worker."""


def step_rows(measured: Measurement) -> Iterator[Row]:
    """A row a step, with the columns of `STEP_COLUMNS`."""
    origin_ns = _origin_ns(measured)
    for segment in measured.segments:
        ends_ns = (*segment.begin_ns[1:], segment.closed_ns)
        for step in range(segment.steps):
            begin, ready, copied, end = (
                column[step] for column in (segment.begin_ns, segment.ready_ns, segment.copied_ns, segment.end_ns)
            )
            yield (
                *_of(measured, segment),
                step,
                nan if segment.first_batch < 0 else segment.first_batch + step,
                segment.batch_size,
                *(ns / 1e9 for ns in (begin - origin_ns, ready - begin, copied - ready, end - copied)),
                (ends_ns[step] - begin) / 1e9,
                _seconds_at(segment.device_begin_ns, step, origin_ns),
                _seconds_at(segment.finished_ns, step, origin_ns),
            )


def batch_rows(measured: Measurement) -> Iterator[Row]:
    """A row a batch, with the columns of `BATCH_COLUMNS`."""
    origin_ns, records = _origin_ns(measured), measured.worker_batches
    served = {
        number: segment
        for segment in measured.segments
        if segment.first_batch >= 0
        for number in range(segment.first_batch, segment.first_batch + segment.steps)
    }
    times = (
        records.wall_ns, records.cpu_ns, records.run_delay_ns, records.collate_ns, records.instrument_ns,
        records.process_cpu_ns,
    )  # fmt: skip
    for index, number in enumerate(records.batch):
        yield (
            *_of(measured, served.get(number)),
            number,
            records.worker[index],
            records.images[index],
            _seconds_at(records.start_ns, index, origin_ns),
            *(_seconds_at(column, index, 0) for column in times),
            records.read_bytes[index],
        )


def _of(measured: Measurement, segment: Segment | None) -> Row:
    """The first six columns."""
    config = measured.config.key, measured.config.title()
    if segment is None:
        return *config, nan, None, None, nan
    return *config, segment.round, segment.mode, segment.activity, nan if segment.without is None else segment.without


def _origin_ns(measured: Measurement) -> int:
    return min((segment.begin_ns[0] for segment in measured.segments if segment.steps), default=0)


def _seconds_at(column: Sequence[Any], index: int, origin_ns: int) -> float:
    """NaN where the column was not recorded."""
    return (column[index] - origin_ns) / 1e9 if column else nan
