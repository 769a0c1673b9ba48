"""Hand-written records of a profiler, in the two shapes in which versions of torch show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from loaderprobe.compute.kineto import DeviceLimits, RawEvent, Window

US = 1_000
MS = 1_000_000
BEGIN = 1_700_000_000_000_000_000
TRAINING, BACKWARD, OTHER = 4001, 4002, 4009
MAIN_STREAM, SECOND_STREAM = 7, 20
SHAPE: dict[str, Any] = {"grid": [1320, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0}
# An SM of a Hopper GPU, 132 of them.
LIMITS = DeviceLimits(sm_count=132)

_numbers = count(1)


def window(steps_ms: int, **changes: Any) -> Window:
    """One of so many milliseconds on device 0."""
    fields: dict[str, Any] = {
        "begin_ns": BEGIN,
        "end_ns": BEGIN + steps_ms * MS,
        "device": 0,
        "training_threads": frozenset({TRAINING}),
        "backward_threads": frozenset({BACKWARD}),
        "limits": LIMITS,
    }
    return Window(**(fields | changes))


def record(name: str, activity: str, begin_us: float, end_us: float, **changes: Any) -> RawEvent:
    """Of the GPU, in microseconds since the window's begin."""
    fields: dict[str, Any] = {
        "on_gpu": True, "device": 0, "resource": MAIN_STREAM, "correlation": 0, "annotation": False, "details": {},
    }  # fmt: skip
    return RawEvent(
        name=name, activity=activity, begin_ns=BEGIN + round(begin_us * US), end_ns=BEGIN + round(end_us * US),
        **(fields | changes),
    )  # fmt: skip


def call(name: str, begin_us: float, end_us: float, *, thread: int = TRAINING, correlation: int = 0) -> RawEvent:
    """Of the host, to the CUDA runtime."""
    return record(
        name, "cuda_runtime", begin_us, end_us, on_gpu=False, resource=thread, correlation=correlation or next(_numbers)
    )


def kernel(
    begin_us: float, end_us: float, *, launched_us: float | None = None, thread: int = TRAINING,
    name: str = "sm90_xmma_fprop", details: Mapping[str, Any] = SHAPE, **changes: Any,
) -> list[RawEvent]:  # fmt: skip
    """A kernel and its launch, 10 us before it unless given."""
    number = next(_numbers)
    at = begin_us - 10 if launched_us is None else launched_us
    return [
        call("cudaLaunchKernel", at, at + 5, thread=thread, correlation=number),
        record(name, "kernel", begin_us, end_us, correlation=number, details=details, **changes),
    ]


def copy(
    begin_us: float, end_us: float, *, pageable: bool = False, host_us: float = 5, **changes: Any
) -> list[RawEvent]:
    """A copy of a batch to the GPU and its call, which takes the host `host_us`."""
    number = next(_numbers)
    name = f"Memcpy HtoD ({'Pageable' if pageable else 'Pinned'} -> Device)"
    return [
        call("cudaMemcpyAsync", begin_us - 10, begin_us - 10 + host_us, correlation=number),
        record(name, "gpu_memcpy", begin_us, end_us, correlation=number, **changes),
    ]


def synchronize(begin_us: float, end_us: float, thread: int = TRAINING) -> list[RawEvent]:
    """A wait for the device, and the record of the GPU that goes with it."""
    return [
        call("cudaDeviceSynchronize", begin_us, end_us, thread=thread),
        record("Context Sync", "cuda_sync", begin_us, end_us, resource=-1),
    ]


def of_amd(events: Iterable[RawEvent]) -> list[RawEvent]:
    """As a ROCm build of torch shows them."""
    return [event._replace(name=event.name.replace("cuda", "hip").replace("nccl", "rccl")) for event in events]


def without_activities(events: Iterable[RawEvent]) -> list[RawEvent]:
    """As torch 2.11 shows them: only names tell what a record is."""
    return [event._replace(activity=None) for event in events]
