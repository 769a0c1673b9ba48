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
    wall_ns = wall_ms * MS
    row = {"wall_ns": wall_ns, "cpu_ns": wall_ns, "process_cpu_ns": wall_ns, "run_delay_ns": 0, "read_bytes": 0}
    columns: dict[str, Any] = {name: (value,) * count for name, value in row.items()}
    start_ns = tuple(number * 40 * MS for number in range(count))
    return WorkerBatches(
        batch=tuple(range(count)), worker=(0,) * count, images=(8,) * count, start_ns=start_ns, **columns
    )


def loop(
    count: int, wait_ms: int = 10, step_ms: int = 30, validates: bool = False, cores: float = 1.0
) -> list[LoopStep]:
    """Steps of which 3 ms of `next()` and all of the rest are CPU time; after two a validation of 5 s."""
    found, now, cpu = [], 0, 0
    for number in range(count):
        ready = now + wait_ms * MS
        end, end_cpu = ready + step_ms * MS, cpu + (3 + step_ms) * MS
        found.append(
            LoopStep(
                begin_ns=now, ready_ns=ready, end_ns=end, begin_cpu_ns=cpu, ready_cpu_ns=cpu + 3 * MS,
                end_cpu_ns=end_cpu, begin_process_ns=round(now * cores), end_process_ns=round(end * cores),
            )
        )  # fmt: skip
        now, cpu = end + (5000 * MS if validates and number in (9, 33) else 0), end_cpu
    return found


def seen(steps: list[LoopStep], rows: WorkerBatches | None = None) -> Measurement | None:
    """As the product calls it."""
    return observed(steps, rows or records(60), name="Pictures", workers=2, prefetch_factor=2, cores=2.0)


def with_checkpoint() -> list[LoopStep]:
    """A step took ten times as long."""
    steps = loop(60)
    steps[20].end_ns += 301 * MS
    return steps


def with_evaluation() -> list[LoopStep]:
    """Some steps had no backward pass."""
    steps = loop(90)
    for step in steps[30:60]:
        step.end_ns, step.trains = step.end_ns - 25 * MS, False
    return steps


@pytest.mark.parametrize("steps", [loop(60), loop(60, validates=True), with_checkpoint(), with_evaluation()])
def test_only_training_is_recorded(steps: list[LoopStep]) -> None:
    """Three rounds of waits and steps as they were; no segment of the loader alone, none of compute, and no time of
    what a loop does between its steps or instead of one."""
    found = seen(steps)
    assert found is not None
    expected = [("baseline", "training", number) for number in range(ROUNDS)]
    assert [(each.mode, each.activity, each.round) for each in found.segments] == expected
    for each in found.segments:
        pairs = list(zip(each.begin_ns, each.ready_ns, each.end_ns, strict=True))
        assert {(ready - begin, end - ready) for begin, ready, end in pairs} == {(10 * MS, 30 * MS)}
        assert (each.thread_cpu_ns, each.receive_cpu_ns) == (33 * MS * each.steps, 3 * MS * each.steps)
        assert each.closed_ns - each.begin_ns[0] == 40 * MS * each.steps
    assert found.first_batch_s == 0.01 and found.config.compute.batch_size == 8


@pytest.mark.parametrize(
    ("workers_ms", "process_cores", "reason"),
    [(35, 1.5, "cores_shared"), (35, 0.5, "largest_speedup"), (2, 1.9, "largest_speedup")],
)
def test_compute_is_open_where_workers_may_take_the_cores_of_the_step(
    workers_ms: int, process_cores: float, reason: str
) -> None:
    """Training keeps two cores busy, and looks like compute alone; not where workers need a twentieth of a core."""
    found = seen(loop(60, wait_ms=0, step_ms=40, cores=process_cores), records(60, workers_ms))
    assert found is not None
    bound = verdict(found).bound
    assert bound.reason.code == reason
    assert bound.side == ("compute" if reason == "largest_speedup" else "inconclusive")


def test_too_little_is_no_measurement() -> None:
    """Too few steps, or no record of what batches cost. A clock that began later gives no negative time."""
    assert seen(loop(ROUNDS * LEAST_STEPS - 1)) is None
    assert seen(loop(60), records(0)) is None
    steps = loop(60)
    steps[5].end_cpu_ns = 0
    found = seen(steps)
    assert found is not None and found.segments[0].thread_cpu_ns == 33 * MS * (found.segments[0].steps - 1)
