"""One segment: flush, then time whole steps until the pace allows the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from loaderprobe.measure.pace import Pace
from loaderprobe.protocols import Clock, Compute, Timed
from loaderprobe.records.measurement import Segment, WorkerBatches


@dataclass(slots=True)
class Steps:
    """The training thread's time stamps in ns, one entry per step."""

    begin_ns: list[int] = field(default_factory=list)
    ready_ns: list[int] = field(default_factory=list)
    copied_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    finished_ns: tuple[int, ...] = ()
    device_begin_ns: tuple[int, ...] = ()
    closed_ns: int = 0
    thread_cpu_ns: int = 0
    process_cpu_ns: int = 0

    def segment(self, **seen: Any) -> Segment:
        """The record of the segment, with the session's data added."""
        return Segment(
            begin_ns=tuple(self.begin_ns),
            ready_ns=tuple(self.ready_ns),
            copied_ns=tuple(self.copied_ns),
            end_ns=tuple(self.end_ns),
            finished_ns=self.finished_ns,
            device_begin_ns=self.device_begin_ns,
            closed_ns=self.closed_ns,
            thread_cpu_ns=self.thread_cpu_ns,
            process_cpu_ns=self.process_cpu_ns,
            **seen,
        )


def flush(batches: Iterator[Any], count: int) -> None:
    """Take and drop `count` batches: those made ahead of the switch would bias the segment after it."""
    for _ in range(count):
        next(batches)


def load_only(batches: Iterator[Any], clock: Clock, pace: Pace) -> Steps:
    """Loader only: take batches as fast as the loader makes them."""

    def take() -> None:
        next(batches)
        now = clock.now_ns()
        steps.ready_ns.append(now)
        steps.copied_ns.append(now)
        steps.end_ns.append(now)

    steps = Steps()
    _repeat(take, steps, clock, pace.enough)
    return steps


def load_in_step(batches: Iterator[Any], clock: Clock, pace: Pace) -> Steps:
    """Loader only, by ranks in step: with each batch in hand the pace is asked, by which all ranks wait for each other.

    From `ready_ns` to `end_ns` a rank waits for the others.
    """
    over = False

    def take() -> None:
        nonlocal over
        next(batches)
        steps.ready_ns.append(clock.now_ns())
        over = pace.enough(len(steps.ready_ns), (steps.ready_ns[-1] - steps.begin_ns[0]) / 1e9)
        now = clock.now_ns()
        steps.copied_ns.append(now)
        steps.end_ns.append(now)

    steps = Steps()
    _repeat(take, steps, clock, lambda *_: over)
    return steps


def train(batches: Iterator[Any], compute: Compute, clock: Clock, pace: Pace, instead: Sequence[Any] = ()) -> Steps:
    """Take each batch, copy it to the device and train on it; without transport, train on `instead` in turn."""

    def step() -> None:
        batch = next(batches)
        steps.ready_ns.append(clock.now_ns())
        on_device = compute.copy(instead[len(steps.ready_ns) % len(instead)] if instead else batch)
        steps.copied_ns.append(clock.now_ns())
        compute.step(on_device)
        steps.end_ns.append(clock.now_ns())

    steps = Steps()
    _repeat(step, steps, clock, pace.enough)
    _finish(steps, compute)
    return steps


def train_resident(on_device: Sequence[Any], compute: Compute, clock: Clock, pace: Pace) -> Steps:
    """Train in turn on batches that stay on the device: the rate of compute alone."""

    def step() -> None:
        now = clock.now_ns()
        steps.ready_ns.append(now)
        steps.copied_ns.append(now)
        compute.step(on_device[len(steps.ready_ns) % len(on_device)])
        steps.end_ns.append(clock.now_ns())

    steps = Steps()
    _repeat(step, steps, clock, pace.enough)
    _finish(steps, compute)
    return steps


def _finish(steps: Steps, compute: Compute) -> None:
    """Wait for the device once, at the end; only then read its own times."""
    steps.finished_ns = compute.finish()
    if isinstance(compute, Timed):
        steps.device_begin_ns = compute.begun()


def _repeat(step: Callable[[], None], steps: Steps, clock: Clock, enough: Callable[[int, float], bool]) -> None:
    """Call `step` until it is enough. A batch is released when `step` returns, inside the iteration."""
    cpu_ns, process_ns = clock.thread_cpu_ns(), clock.process_cpu_ns()
    start_ns = now_ns = clock.now_ns()
    while not enough(len(steps.begin_ns), (now_ns - start_ns) / 1e9):
        steps.begin_ns.append(now_ns)
        step()
        now_ns = clock.now_ns()
    steps.closed_ns = now_ns
    steps.thread_cpu_ns = clock.thread_cpu_ns() - cpu_ns
    steps.process_cpu_ns = clock.process_cpu_ns() - process_ns


def blocked_share(records: WorkerBatches) -> float:
    """Share of the workers' wall time spent waiting: wall minus CPU minus run delay."""
    wall = sum(records.wall_ns)
    return 1 - (sum(records.cpu_ns) + sum(records.run_delay_ns)) / wall if wall else 0.0
