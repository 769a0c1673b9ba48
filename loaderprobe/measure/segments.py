"""One segment: flush, then time whole steps until the pace says enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loaderprobe.measure.pace import Pace
from loaderprobe.protocols import Clock, Compute


@dataclass(slots=True)
class Steps:
    """The training thread's stamps, one entry a step."""

    begin_ns: list[int] = field(default_factory=list)
    ready_ns: list[int] = field(default_factory=list)
    copied_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    finished_ns: tuple[int, ...] = ()
    closed_ns: int = 0
    thread_cpu_ns: int = 0


def flush(batches: Iterator[Any], count: int) -> None:
    """Take and drop `count` batches: those made ahead before the switch flatter what comes after it."""
    for _ in range(count):
        next(batches)


def drain(batches: Iterator[Any], clock: Clock, pace: Pace) -> Steps:
    """Take batches as fast as the loader gives them."""

    def take() -> None:
        next(batches)
        now = clock.now_ns()
        steps.ready_ns.append(now)
        steps.copied_ns.append(now)
        steps.end_ns.append(now)

    steps = Steps()
    _repeat(take, steps, clock, pace)
    return steps


def train(batches: Iterator[Any], compute: Compute, clock: Clock, pace: Pace) -> Steps:
    """Take each batch, copy it to the device, train on it."""

    def step() -> None:
        batch = next(batches)
        steps.ready_ns.append(clock.now_ns())
        on_device = compute.copy(batch)
        steps.copied_ns.append(clock.now_ns())
        compute.step(on_device)
        steps.end_ns.append(clock.now_ns())

    steps = Steps()
    _repeat(step, steps, clock, pace)
    steps.finished_ns = compute.finish()
    return steps


def train_resident(on_device: Any, compute: Compute, clock: Clock, pace: Pace) -> Steps:
    """Train on one batch that stays on the device: what compute alone can do."""

    def step() -> None:
        now = clock.now_ns()
        steps.ready_ns.append(now)
        steps.copied_ns.append(now)
        compute.step(on_device)
        steps.end_ns.append(clock.now_ns())

    steps = Steps()
    _repeat(step, steps, clock, pace)
    steps.finished_ns = compute.finish()
    return steps


def _repeat(step: Callable[[], None], steps: Steps, clock: Clock, pace: Pace) -> None:
    """Call `step` until the pace says enough. A batch is released when `step` returns, inside the iteration."""
    cpu_ns = clock.thread_cpu_ns()
    start_ns = now_ns = clock.now_ns()
    while not pace.enough(len(steps.begin_ns), (now_ns - start_ns) / 1e9):
        steps.begin_ns.append(now_ns)
        step()
        now_ns = clock.now_ns()
    steps.closed_ns = now_ns
    steps.thread_cpu_ns = clock.thread_cpu_ns() - cpu_ns
