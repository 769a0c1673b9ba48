"""A training that was watched: what is kept is what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.measure.attach.watcher import LEAST_STEPS, ROUNDS, LoopStep, observed
from loaderprobe.records.measurement import Measurement, WorkerBatches

MS = 1_000_000


def records(count: int, wall_ms: int = 20) -> WorkerBatches:
    """Batches of 8 images."""
    row = {"wall_ns": wall_ms * MS, "cpu_ns": wall_ms * MS, "run_delay_ns": 0, "read_bytes": 0, "images": 8}
    row["process_cpu_ns"] = wall_ms * MS
    columns: dict[str, Any] = {name: (value,) * count for name, value in row.items()}
    return WorkerBatches(
        batch=tuple(range(count)),
        worker=(0,) * count,
        start_ns=tuple(each * 40 * MS for each in range(count)),
        **columns,
    )


def loop(
    count: int, wait_ms: int = 10, step_ms: int = 30, longer: tuple[int, ...] = (), cores: float = 1.0
) -> list[LoopStep]:
    """Steps of which 3 ms of `next()` and all of the rest are CPU time; after some a validation of 5 s."""
    found, now, cpu = [], 0, 0
    for number in range(count):
        ready = now + wait_ms * MS
        end, end_cpu = ready + step_ms * MS, cpu + (3 + step_ms) * MS
        found.append(
            LoopStep(
                begin_ns=now,
                ready_ns=ready,
                begin_cpu_ns=cpu,
                ready_cpu_ns=cpu + 3 * MS,
                end_ns=end,
                end_cpu_ns=end_cpu,
                begin_process_ns=round(now * cores),
                end_process_ns=round(end * cores),
            )
        )
        now, cpu = end + (5000 * MS if number in longer else 0), end_cpu
    return found


def seen(steps: list[LoopStep], workers: int = 2, rows: int = 60) -> Measurement | None:
    """As the product calls it."""
    return observed(steps, records(rows), name="Pictures", workers=workers, prefetch_factor=2, cores=2.0)


def test_only_training_is_recorded() -> None:
    """Three rounds of waits and steps as they were; no segment of the loader alone, none of compute."""
    found = seen(loop(60))
    assert found is not None
    assert [(each.mode, each.activity, each.round) for each in found.segments] == [
        ("baseline", "training", number) for number in range(ROUNDS)
    ]
    for each in found.segments:
        pairs = list(zip(each.begin_ns, each.ready_ns, each.end_ns, strict=True))
        assert {(ready - begin, end - ready) for begin, ready, end in pairs} == {(10 * MS, 30 * MS)}
        assert (each.thread_cpu_ns, each.receive_cpu_ns) == (33 * MS * each.steps, 3 * MS * each.steps)
    assert found.first_batch_s == 0.01 and found.config.compute.batch_size == 8


def test_what_lies_between_steps_is_no_part_of_them() -> None:
    """A validation after an epoch leaves the length of every segment as it is."""
    usual, with_validation = seen(loop(60)), seen(loop(60, longer=(9, 33)))
    assert usual is not None and with_validation is not None
    lengths = [[each.closed_ns - each.begin_ns[0] for each in found.segments] for found in (usual, with_validation)]
    assert lengths[0] == lengths[1]


def test_a_step_that_took_ten_times_as_long_is_none() -> None:
    """It held a checkpoint."""
    steps = loop(60)
    steps[20].end_ns += 301 * MS
    found = seen(steps)
    assert found is not None
    assert (
        max(end - ready for each in found.segments for ready, end in zip(each.ready_ns, each.end_ns, strict=True))
        == 30 * MS
    )


def test_a_step_without_a_backward_pass_is_none() -> None:
    """The loop evaluated."""
    steps = loop(90)
    for each in steps[30:60]:
        each.end_ns, each.trains = each.end_ns - 25 * MS, False
    found = seen(steps)
    assert found is not None
    ends = [zip(each.ready_ns, each.end_ns, strict=True) for each in found.segments]
    assert {end - ready for each in ends for ready, end in each} == {30 * MS}


@pytest.mark.parametrize(
    ("workers_ms", "process_cores", "reason"),
    [(35, 1.5, "cores_shared"), (35, 0.5, "largest_speedup"), (2, 1.9, "largest_speedup")],
)
def test_compute_is_open_where_workers_may_take_the_cores_of_the_step(
    workers_ms: int, process_cores: float, reason: str
) -> None:
    """Training keeps two cores busy, and looks like compute alone; not where workers need a twentieth of a core."""
    steps = loop(60, wait_ms=0, step_ms=40, cores=process_cores)
    found = observed(steps, records(60, workers_ms), name="Pictures", workers=2, prefetch_factor=2, cores=2.0)
    assert found is not None
    bound = verdict(found).bound
    assert bound.reason.code == reason
    assert bound.side == ("compute" if reason == "largest_speedup" else "inconclusive")


def test_a_loop_in_another_thread_has_no_negative_time() -> None:
    """The clock of that thread began later."""
    steps = loop(60)
    steps[5].end_cpu_ns = 0
    found = seen(steps)
    assert found is not None and found.segments[0].thread_cpu_ns == 33 * MS * (found.segments[0].steps - 1)


def test_too_little_is_no_measurement() -> None:
    """Too few steps, or no record of what batches cost."""
    assert seen(loop(ROUNDS * LEAST_STEPS - 1)) is None
    assert seen(loop(60), rows=0) is None
