"""Whole measurements from scripted rates: what each mode delivered in each round, and what it cost the workers.

Those of several ranks are the rates of all ranks together.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from loaderprobe.records.measurement import Activity, ComputeInfo, Measurement, Mode, RankSeen, Segment, WorkerBatches
from loaderprobe.records.waits import WAIT_KINDS, WaitKind, WaitSamples
from loaderprobe.testing import example_config, example_files

BATCH, STEPS, FILE_BYTES = 16, 16, 100_000
READ_BYTES = FILE_BYTES * BATCH * STEPS
"""By one process, or by each rank, in a segment."""
STAMPS = ("begin_ns", "ready_ns", "copied_ns", "end_ns")
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
                    delivered_bytes=None if mode == "resident" else READ_BYTES,
                )
            )  # fmt: skip
            if mode != "resident":
                own = _row(by_mode[mode])
                rows += [(step, step % max(config.loader.workers, 1), *own) for step in range(first, first + STEPS)]
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


def _row(cost: Cost) -> tuple[int, ...]:
    """Of each batch, behind its number and its worker."""
    wall_s = cost.cpu_s + cost.delay_s + cost.blocked_s
    times = (round(each * BATCH * 1e9) for each in (wall_s, cost.cpu_s, cost.delay_s))
    read = round(cost.cold * FILE_BYTES * BATCH)
    return 0, *times, read, BATCH, round(cost.collate_s * BATCH * 1e9), 20_000


def segment(
    mode: Mode, activity: Activity, number: int, first: int, rate: float, *, steps: int = STEPS, begin_s: float = 0.0,
    **facts: Any,
) -> Segment:  # fmt: skip
    """One whose steps all take as long, at `rate` images/s; `facts` are the other fields of a `Segment`."""
    step_ns, begin_ns = round(BATCH / rate * 1e9), round(begin_s * 1e9)
    begin = tuple(begin_ns + step * step_ns for step in range(steps))
    fields: dict[str, Any] = {
        **stamped(begin), "finished_ns": begin if activity == "training" else (),
        "closed_ns": begin_ns + steps * step_ns, "disk_bytes": None, "resident_before": None,
    }  # fmt: skip
    return Segment(mode=mode, activity=activity, round=number, first_batch=first, batch_size=BATCH, **(fields | facts))


def stamped(begin: tuple[int, ...]) -> dict[str, Any]:
    """Steps that wait for nothing, by when the next one begins."""
    return dict.fromkeys(STAMPS, begin)


def scaled(measurement: Measurement, factor: int) -> Measurement:
    """The same run on a machine, a disk and a device that take `factor` times as long for everything."""
    given = measurement.compute.specified_images_per_s
    return replace(
        measurement,
        compute=replace(measurement.compute, specified_images_per_s=given / factor if given else None),
        segments=tuple(_slower(each, factor) for each in measurement.segments),
        worker_batches=_slower(measurement.worker_batches, factor),
        waits=measurement.waits and _slower(measurement.waits, factor),
        by_rank=tuple(_slower(each, factor) for each in measurement.by_rank),
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
    named = {*kinds} - {"running"} or {*kinds}  # where all ran, they ran for it
    waits = WaitSamples(
        time_ns=tuple(row[0] for row in rows),
        worker=tuple(row[1] for row in rows),
        kind=tuple(row[2] for row in rows),
        subject=tuple(0 if subject and WAIT_KINDS[row[2]] in named else -1 for row in rows),
        subjects=(subject,) if subject else (),
        letters_only=None,
        cpu_ns=1,
        wall_ns=second,
    )
    return replace(measurement, worker_batches=replace(records, start_ns=begins), waits=waits)


def rank_run(
    rounds: Sequence[Round], cost: Cost | None = None, /, *, alone: Sequence[float] = (),
    without: Mapping[int, float | Sequence[float]] | None = None, no_exchange: float | None = None,
    exchange: float | None = None, ranks: int = 2, nodes: int = 1, cold: Sequence[float] = (), compute: float = 1e5,
    **changes: Any,
) -> Measurement:  # fmt: skip
    """Rounds as `run` takes them, with what only ranks measure in each of them.

    `alone` has images/s by rank, `without` those of all in step, by the rank that goes without input (and by round),
    `compute` is the rate of all devices, `cold` the share of its bytes that each rank read from storage when cold.
    """
    each = [{name: rate / ranks for name, rate in one.items()} for one in rounds]
    made = run(each, cost or Cost(), compute=compute, ranks=ranks, nodes=nodes, **changes)
    segments = [_of_all(one, ranks) for one in made.segments]
    base: Mode = "warm" if made.config.cache == "warm" else "baseline"
    for number in range(len(rounds)):
        if alone:
            segments.append(_further(base, "alone", number, min(alone), ranks))
        for rank, rate in (without or {}).items():
            of_round = rate if isinstance(rate, int | float) else rate[number]
            segments.append(replace(_further(base, "loader_only", number, of_round / ranks, ranks), without=rank))
        further: dict[Mode, float | None] = {"no_exchange": no_exchange, "exchange": exchange}
        for mode, of_all in further.items():
            if of_all is not None:
                segments.append(_further(mode, "training", number, of_all / ranks, ranks))
    records = made.worker_batches
    each_device = replace(made.config.compute, name=f"emulated:{compute / ranks:g}")
    return replace(
        made,
        config=replace(made.config, compute=each_device),
        segments=tuple(segments),
        worker_batches=replace(
            records,
            images=tuple(count * ranks for count in records.images),
            read_bytes=tuple(count * ranks for count in records.read_bytes),
        ),
        ranks=ranks,
        by_rank=tuple(_seen(rank, segments, ranks, nodes, alone, cold) for rank in range(ranks)) if ranks > 1 else (),
    )


def _further(mode: Mode, activity: Activity, number: int, rate: float, ranks: int) -> Segment:
    """One of `rate` images/s of each rank."""
    size = None if activity == "training" else READ_BYTES
    made = segment(mode, activity, number, -1, rate, thread_cpu_ns=0, delivered_bytes=size)
    return _of_all(made, ranks)


def _of_all(one: Segment, ranks: int) -> Segment:
    delivered = None if one.delivered_bytes is None else one.delivered_bytes * ranks
    return replace(one, batch_size=one.batch_size * ranks, delivered_bytes=delivered)


def _seen(
    rank: int, segments: Sequence[Segment], ranks: int, nodes: int, alone: Sequence[float], cold: Sequence[float]
) -> RankSeen:
    def span(one: Segment) -> int:
        if one.activity == "alone":
            return round(BATCH * STEPS / alone[rank] * 1e9)
        return one.closed_ns - one.begin_ns[0]

    def read(one: Segment) -> int | None:
        if one.mode not in ("baseline", "cached_samples", "no_transport") or one.delivered_bytes is None:
            return 0 if one.mode == "warm" else None
        return round((cold[rank] if cold else 1.0) * READ_BYTES)

    def waited(one: Segment) -> int:
        return span(one) // STEPS // 10 * rank if one.activity == "loader_only" else 0

    node = rank * nodes // ranks
    return RankSeen(
        rank=rank,
        node=node,
        host=f"node{node}",
        span_ns=tuple(span(one) for one in segments),
        input_ns=tuple(span(one) // STEPS // (rank + 1) for one in segments),
        meet_ns=tuple(waited(one) for one in segments),
        steps=tuple(one.steps for one in segments),
        delivered_bytes=tuple(None if one.delivered_bytes is None else READ_BYTES for one in segments),
        read_bytes=tuple(read(one) for one in segments),
    )
