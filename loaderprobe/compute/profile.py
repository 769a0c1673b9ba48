"""One short window of torch's profiler around whole training steps, and as many steps without it just before.

The profiler's clock is the host's (CLOCK_REALTIME), so waits are stamped with `time.time_ns()` and need no conversion.
One session in a process only: CUPTI may lose the first records of a later one.
"""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from loaderprobe.compute.kineto import DeviceLimits, RawEvent, Window, convert
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Timeline

CLOCK_TRIES = 10

Feed = Callable[[int], Iterator[Any]]


@dataclass(slots=True)
class Stamps:
    """The training thread's, in Unix nanoseconds."""

    begin_ns: int = 0
    end_ns: int = 0
    wait_begin_ns: list[int] = field(default_factory=list)
    wait_end_ns: list[int] = field(default_factory=list)
    shift_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The GPU of a window, and how it trains."""

    name: str
    index: int
    limits: DeviceLimits | None
    step: Callable[[Any], None]
    """Launches the copy of a batch and its training step."""
    synchronize: Callable[[], None]
    """Waits until the device is idle."""
    backward_threads: Callable[[], frozenset[int]]
    """Known once a step has been taken."""
    loader_streams: bool = False
    """Whether the training thread prepares batches on streams of their own."""
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CUDA,)


def record_window(feed: Feed, device: Device, *, steps: int, warm_up: int, batch_size: int) -> Timeline:
    """Run the steps without the profiler, then with it. Raises LoaderprobeError when its records make no sense."""
    plain = play(feed(warm_up + steps), device, steps, warm_up, lambda: None)
    stamps, events = trace(feed, device, steps, warm_up)
    window = Window(
        begin_ns=stamps.begin_ns,
        end_ns=stamps.end_ns,
        device=device.index,
        training_threads=thread_numbers(),
        backward_threads=device.backward_threads() - thread_numbers(),
        limits=device.limits,
        waits=tuple(zip(stamps.wait_begin_ns, stamps.wait_end_ns, strict=True)),
        loader_streams=device.loader_streams,
    )
    return convert(
        events,
        window,
        device=device.name,
        steps=steps,
        batch_size=batch_size,
        step_begin_ns=tuple(stamps.wait_begin_ns),
        plain_ns=plain.end_ns - plain.begin_ns,
        plain_wait_ns=sum(plain.wait_end_ns) - sum(plain.wait_begin_ns),
        clock_shift_ns=stamps.shift_ns,
    )


def trace(feed: Feed, device: Device, steps: int, warm_up: int) -> tuple[Stamps, list[RawEvent]]:
    """Run the steps under the profiler: (the stamps, all its records as plain values)."""
    events: list[RawEvent] = []

    def grab(profiler: Any) -> None:
        # The profiler's memory is freed when this returns.
        events.extend(raw_events(profiler.profiler.kineto_results.events()))

    # A schedule that is all warm-up before: the profiler starts up before the first batch is asked for.
    plan = schedule(wait=0, warmup=warm_up, active=steps, repeat=1)
    options = {"experimental_config": config} if (config := _experimental()) is not None else {}
    with profile(activities=device.activities, schedule=plan, on_trace_ready=grab, **options) as running:
        stamps = play(feed(warm_up + steps), device, steps, warm_up, running.step)
    gc.collect()
    if not events:
        raise LoaderprobeError("the profiler returned no records")
    return stamps, events


def play(batches: Iterator[Any], device: Device, steps: int, warm_up: int, on_step: Callable[[], None]) -> Stamps:
    """`warm_up` steps, then `steps` whole ones from an idle device to an idle device. `on_step` is called for each."""
    stamps = Stamps()
    for number in range(warm_up):
        device.step(next(batches))
        if number == warm_up - 1:
            device.synchronize()
        on_step()
    shift_ns = clock_offset_ns()
    stamps.begin_ns = time.time_ns()
    for number in range(steps):
        stamps.wait_begin_ns.append(time.time_ns())
        batch = next(batches)
        stamps.wait_end_ns.append(time.time_ns())
        device.step(batch)
        # Releasing a batch takes time, and is not part of the next wait.
        del batch
        # Kernels that still run when the profiler stops would be lost.
        if number == steps - 1:
            device.synchronize()
            stamps.end_ns = time.time_ns()
            stamps.shift_ns = clock_offset_ns() - shift_ns
        on_step()
    return stamps


def clock_offset_ns() -> int:
    """Unix time less monotonic time: of several tries, the one with the least time between the readings."""
    return min(_clock_pair() for _ in range(CLOCK_TRIES))[1]


def _clock_pair() -> tuple[int, int]:
    before, unix, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return after - before, unix - (before + after) // 2


def thread_numbers() -> frozenset[int]:
    """The calling thread's ids in profilers: the kernel's id, or half of the library's, in either sign."""
    ident = threading.get_ident()
    low = ident & 0xFFFFFFFF
    return frozenset({threading.get_native_id(), ident, low, low - (1 << 32) if low >> 31 else low})


def raw_events(events: Iterable[Any]) -> Iterator[RawEvent]:
    """kineto's events as plain values; older versions of torch give no activity."""
    on_gpu = torch._C._autograd.DeviceType.CUDA
    for event in events:
        activity_type = getattr(event, "activity_type", None)
        yield RawEvent(
            name=event.name(),
            activity=None if activity_type is None else str(activity_type()),
            on_gpu=event.device_type() == on_gpu,
            device=event.device_index(),
            resource=event.device_resource_id(),
            begin_ns=event.start_ns(),
            end_ns=event.end_ns(),
            correlation=event.correlation_id(),
            annotation=event.is_user_annotation(),
            details=_details(event) if event.device_type() == on_gpu else {},
        )


def _details(event: Any) -> Mapping[str, Any]:
    """kineto's fields of a record; none where this torch does not provide them."""
    text = event.metadata_json() if hasattr(event, "metadata_json") else ""
    try:
        details = json.loads(f"{{{text}}}")
    except ValueError:
        # Fields of CUDA's own may hold text that is no JSON; without them there is no occupancy of this kernel.
        return {}
    return details if isinstance(details, dict) else {}


def _experimental() -> Any:
    """The settings that add sync records and the fields of kernels; None where this torch has others."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True, expose_kineto_event_metadata=True)
    except TypeError:
        return None
