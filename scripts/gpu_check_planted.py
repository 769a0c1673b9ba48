"""Causes planted in a training loop, and what the attribution of the GPU's gaps names. One process each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_check_facts import gpu

STEPS, WARM_UP = 30, 3
BATCH = 64
TINY_KERNELS = 3000
# A GPU that is idle for less has no cause worth a name.
BUSY = 0.9


def none(out: Path, seconds: float) -> dict[str, Any]:
    """Nothing: a resident batch keeps the GPU busy."""
    return named("busy", BATCH, lambda compute, batch: lambda given: compute.step(batch))


def sleep(out: Path, seconds: float) -> dict[str, Any]:
    """The loader sleeps for twice the time of a step."""
    return named("input", BATCH, lambda compute, batch: lambda given: compute.step(batch), waiting=2.0)


def pageable(out: Path, seconds: float) -> dict[str, Any]:
    """Batches come from pageable memory, many images for the little that is trained on."""
    import torch

    images, labels = torch.randn(1024, 3, 224, 224), torch.randint(0, 1000, (1024,))

    def step(compute: Any, batch: Any) -> Callable[[Any], None]:
        def run(given: Any) -> None:
            compute.copy((images, labels))
            compute.step(batch)

        return run

    return named("copy", 16, step)


def item(out: Path, seconds: float) -> dict[str, Any]:
    """A figure is read from the GPU in every step, at a small batch, so that the GPU runs dry meanwhile."""
    import torch

    figure = torch.ones(1, device="cuda")

    def step(compute: Any, batch: Any) -> Callable[[Any], None]:
        def run(given: Any) -> None:
            compute.step(batch)
            # The host cannot run ahead: each step's launches begin when the GPU is empty.
            figure.add_(1).item()

        return run

    return named("host", 8, step)


def tiny(out: Path, seconds: float) -> dict[str, Any]:
    """Thousands of kernels that are shorter than their own launch."""
    import torch

    number = torch.ones(1, device="cuda")

    def step(compute: Any, batch: Any) -> Callable[[Any], None]:
        def run(given: Any) -> None:
            for _ in range(TINY_KERNELS):
                number.add_(1)

        return run

    return named("host", 8, step)


def named(
    planted: str, size: int, make_step: Callable[[Any, Any], Callable[[Any], None]], waiting: float = 0.0
) -> dict[str, Any]:  # fmt: skip
    """The window of a planted loop; `waiting` is what the loader takes, in times of a step."""
    import torch
    from torch.profiler import ProfilerActivity

    from loaderprobe.analyze.gpu import attribute, overhead_of, syncs_per_step, why_refused
    from loaderprobe.compute.kineto import DeviceLimits
    from loaderprobe.compute.profile import Device, Stage, record_window
    from loaderprobe.records.verdict import GAP_CAUSES

    compute, batch = gpu(size)
    step = make_step(compute, batch)
    begin = time.monotonic()
    for _ in range(10):
        step(None)
    torch.cuda.synchronize()
    loading_s = waiting * (time.monotonic() - begin) / 10

    def feed(count: int) -> Iterator[None]:
        for _ in range(count):
            time.sleep(loading_s)
            yield None

    device = Device(
        name="GPU", index=0, limits=DeviceLimits.of(torch.cuda.get_device_properties(0)),
        backward_threads=lambda: compute._trainer.backward_threads,
    )  # fmt: skip
    stage = Stage(step=step, synchronize=torch.cuda.synchronize, activities=(ProfilerActivity.CUDA,))
    timeline = record_window(feed, stage, device, steps=STEPS, warm_up=WARM_UP, batch_size=size)
    exposed = events_of(compute)
    gaps = attribute(timeline).gaps_of(STEPS)
    shares = {cause: round(gaps.share(cause), 4) for cause in GAP_CAUSES}
    shares["busy"] = round(gaps.busy_ns / gaps.window_ns, 4)
    # As the verdict sums them up.
    causes = {
        "input": gaps.share("input", "loader"),
        "copy": gaps.share("copy"),
        "host": gaps.share("launch", "sync"),
        "device": gaps.share("device", "other"),
    }
    main = "busy" if shares["busy"] > BUSY else max(causes, key=lambda cause: causes[cause])
    refused = why_refused(timeline)
    return {
        "planted": planted,
        "named": main,
        "met": main == planted and refused is None,
        "shares": shares,
        "step_ms": gaps.window_ns / STEPS / 1e6,
        "overhead": overhead_of(timeline),
        "refused": refused,
        "launches": timeline.launches,
        "launches_without_record": timeline.launches_without_record,
        "syncs_a_step": syncs_per_step(timeline),
        "idle_between_steps_by_events_ms": exposed,
        "input_by_profiler_ms": gaps.input_ns / STEPS / 1e6,
    }


def events_of(compute: Any) -> float | None:
    """Mean time between the end of a step and the begin of the next, of the window's steps; None without events."""
    ended = compute.finish()[-STEPS:]
    begun = compute.begun()[-STEPS:]
    idle = [b - e for e, b in zip(ended, begun[1:], strict=False)]
    return sum(idle) / len(idle) / 1e6 if idle else None
