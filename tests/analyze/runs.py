"""Whole measurements from scripted rates: what each mode delivered in each round, and what it cost the workers."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Mode, Segment, WorkerBatches
from loaderprobe.records.waits import WAIT_KINDS, WaitKind, WaitSamples
from loaderprobe.testing import example_config, example_files

BATCH, STEPS, FILE_BYTES = 16, 16, 100_000
FILES = example_files(size_bytes=FILE_BYTES)
Round = Mapping[str, float]
"""Images/s of the loader alone by mode, of training as asked (`training`), of training in another mode
(`training_warm`), of compute alone (`resident`)."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of one image in one worker, and the share of its bytes that came from storage."""

    cpu_s: float = 0.004
    blocked_s: float = 0.0
    delay_s: float = 0.0
    collate_s: float = 0.0
    """Part of the CPU time."""
    cold: float = 1.0


def run(
    rounds: Sequence[Round], cost: Cost, costs: Mapping[str, Cost] | None = None, /, *,
    compute: float = 1e5, synchronous: bool = False, receive_s: Mapping[str, float] | None = None,
    recorded: bool = True, facts: Mapping[str, Any] | None = None, **changes: Any,
) -> Measurement:  # fmt: skip
    """A measurement of these rounds. `cost` is that of the baseline and of training; other modes lack what they remove.

    `costs` replaces them by mode, `receive_s` gives the training thread's seconds a batch by mode; `facts`
    replace fields of the measurement, `changes` those of its configuration. With `resident` in a round compute is
    measured.
    """
    config = example_config(data=FILES.fingerprint, batch_size=BATCH, compute=f"emulated:{compute:g}", **changes)
    base = "warm" if config.cache == "warm" else "baseline"
    free = {
        "warm": replace(cost, blocked_s=0.0, cold=0.0),
        "cached_samples": replace(cost, cpu_s=cost.collate_s, delay_s=0.0),
        "no_transport": replace(cost, cpu_s=cost.cpu_s - cost.collate_s, collate_s=0.0),
    }
    by_mode = {"baseline": cost, **free, **({base: cost} if base == "warm" else {}), **(costs or {})}
    segments: list[Segment] = []
    rows: list[tuple[int, ...]] = []
    for number, each in enumerate(rounds):
        for key, rate in each.items():
            trained = key == "resident" or key.startswith("training")
            mode = cast(Mode, base if key == "training" else key.removeprefix("training_"))
            spent_s = (receive_s or {}).get(mode, 0.0)
            first = -1 if mode == "resident" else len(rows)
            segments.append(
                segment(
                    mode, "training" if trained else "loader_only", number, first, rate,
                    thread_cpu_ns=round(spent_s * STEPS * 1e9),
                    delivered_bytes=None if mode == "resident" else FILE_BYTES * BATCH * STEPS,
                )
            )  # fmt: skip
            if mode != "resident":
                rows += [_row(by_mode[mode], config.loader.workers, first + step) for step in range(STEPS)]
    columns = list(zip(*rows, strict=True))
    measured = any("resident" in each for each in rounds)
    fields: dict[str, Any] = {
        "config": config,
        "compute": ComputeInfo(
            name="", device="", synchronous=synchronous, specified_images_per_s=None if measured else compute, source=""
        ),
        "started_utc": "2026-11-21T07:00:00+00:00",
        "first_batch_s": 0.1,
        "segments": tuple(segments),
        "worker_batches": WorkerBatches(
            batch=columns[0], worker=columns[1], start_ns=columns[2], wall_ns=columns[3], cpu_ns=columns[4],
            run_delay_ns=columns[5], read_bytes=columns[6], images=columns[7],
            collate_ns=columns[8] if recorded else (), instrument_ns=columns[9] if recorded else (),
        ),
        "series": (),
        "missing": (),
        "cores_available": 64.0,
        "storage_counts_reads": True,
        "storage_kind": "block",
        "modes": ("baseline", "warm", "cached_samples", "no_transport"),
        "wall_s": 5.0,
    }  # fmt: skip
    return Measurement(**(fields | dict(facts or {})))


def _row(cost: Cost, workers: int, number: int) -> tuple[int, ...]:
    wall_s = cost.cpu_s + cost.delay_s + cost.blocked_s
    times = (round(each * BATCH * 1e9) for each in (wall_s, cost.cpu_s, cost.delay_s))
    read = round(cost.cold * FILE_BYTES * BATCH)
    return number, number % max(workers, 1), 0, *times, read, BATCH, round(cost.collate_s * BATCH * 1e9), 20_000


def segment(
    mode: Mode, activity: Activity, number: int, first: int, rate: float, *, steps: int = STEPS, **facts: Any
) -> Segment:
    """One whose steps all take as long, at `rate` images/s; `facts` are the other fields of a `Segment`."""
    step_ns = round(BATCH / rate * 1e9)
    begin = tuple(step * step_ns for step in range(steps))
    fields: dict[str, Any] = {"disk_bytes": None, "resident_before": None, **facts}
    return Segment(
        mode=mode,
        activity=activity,
        round=number,
        first_batch=first,
        batch_size=BATCH,
        begin_ns=begin,
        ready_ns=begin,
        copied_ns=begin,
        end_ns=begin,
        finished_ns=begin if activity == "training" else (),
        closed_ns=steps * step_ns,
        **fields,
    )


def scaled(measurement: Measurement, factor: int) -> Measurement:
    """The same run on a machine, a disk and a device that take `factor` times as long for everything."""
    given = measurement.compute.specified_images_per_s
    return replace(
        measurement,
        compute=replace(measurement.compute, specified_images_per_s=given / factor if given else None),
        segments=tuple(_slower(each, factor) for each in measurement.segments),
        worker_batches=_slower(measurement.worker_batches, factor),
    )


def _slower(record: Any, factor: int) -> Any:
    """With all its times, whose names end so, multiplied."""
    found = {each.name: getattr(record, each.name) for each in fields(record) if each.name.endswith("_ns")}
    return replace(
        record,
        **{
            name: tuple(each * factor for each in value) if isinstance(value, tuple) else value and value * factor
            for name, value in found.items()
        },
    )


def reordered(measurement: Measurement, order: Sequence[int]) -> Measurement:
    """The same rounds in another order."""
    return replace(measurement, segments=tuple(replace(s, round=order[s.round]) for s in measurement.segments))


def alike(count: int = 3, **rates: float) -> list[Round]:
    """So many equal rounds; training runs as the loader does where nothing else is said."""
    return [{"training": rates["baseline"] if "baseline" in rates else rates["warm"], **rates}] * count


def with_training(measurement: Measurement, changed: Callable[[Segment], Segment]) -> Measurement:
    """Its segments of training, changed."""
    segments = (changed(each) if each.activity == "training" else each for each in measurement.segments)
    return replace(measurement, segments=tuple(segments))


def with_steps(one: Segment, outside: float) -> Segment:
    """Steps of training that wait for `outside` of their time, and work for the rest."""
    if one.activity == "loader_only":
        return one
    step_ns = one.closed_ns // one.steps
    ready = tuple(begin + round(outside * step_ns) for begin in one.begin_ns)
    end = tuple(begin + step_ns for begin in one.begin_ns)
    return replace(one, ready_ns=ready, copied_ns=ready, end_ns=end, finished_ns=())


def with_records(measurement: Measurement, kept: Container[int]) -> Measurement:
    """What the workers recorded of these batches only."""
    records = measurement.worker_batches
    rows = [row for row, number in enumerate(records.batch) if number in kept]
    columns = {each.name: getattr(records, each.name) for each in fields(records) if each.name != "lost"}
    left: dict[str, Any] = {name: tuple(column[row] for row in rows) for name, column in columns.items() if column}
    return replace(measurement, worker_batches=replace(records, **left))


def with_read(measurement: Measurement, batches: Container[int], factor: float) -> Measurement:
    """So many times as many bytes were read for these batches."""
    records = measurement.worker_batches
    rows = zip(records.batch, records.read_bytes, strict=True)
    read = tuple(round(read * factor) if number in batches else read for number, read in rows)
    return replace(measurement, worker_batches=replace(records, read_bytes=read))


def looked(measurement: Measurement, *kinds: WaitKind, subject: str = "", outside: int = 0) -> Measurement:
    """The same with workers that were seen so in turn while each of their batches was made."""
    records, second = measurement.worker_batches, 10**9
    begins = tuple(number * 100 * second for number in range(len(records.batch)))
    rows = [
        (begin + 1 + look, records.worker[number], WAIT_KINDS.index(kind))
        for number, begin in enumerate(begins)
        for look, kind in enumerate(kinds)
    ]
    rows += [(begins[n] - second, records.worker[n], WAIT_KINDS.index("pipe")) for n in range(1, outside + 1)]
    rows.sort()
    waits = WaitSamples(
        time_ns=tuple(row[0] for row in rows),
        worker=tuple(row[1] for row in rows),
        kind=tuple(row[2] for row in rows),
        subject=tuple(0 if subject and row[2] != WAIT_KINDS.index("running") else -1 for row in rows),
        subjects=(subject,) if subject else (),
        letters_only=None,
        cpu_ns=1,
        wall_ns=second,
    )
    return replace(measurement, worker_batches=replace(records, start_ns=begins), waits=waits)
