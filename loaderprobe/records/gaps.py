"""What follows from a profiler window: how busy the device was, and why it was not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Rejected
from loaderprobe.records.remark import Remark

GapCause = Literal["communication", "input", "copy", "loader", "sync", "launch", "device", "other"]
"""Why the device did not train: communication (it did nothing but exchange data with other GPUs, or wait for them to),
input (the training thread was inside `next()`), copy (a batch came over from the host), loader (the device made
batches), sync (the host waited for the device before it went on), launch (the host was busy with something else, or
inside the call that issued the next kernel), device (the hardware's own latency), other (nothing of this, or not
known)."""
GAP_CAUSES: tuple[GapCause, ...] = (
    "communication", "input", "copy", "loader", "sync", "launch", "device", "other",
)  # fmt: skip

Stretches = tuple[tuple[int, int], ...]
"""Half-open ranges of nanoseconds, sorted and apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """One window of one device, split without a rest, in nanoseconds.

    Raises LoaderprobeError when the parts do not sum to the window: that is a bug, and no figure then holds.
    """

    steps: int
    window_ns: int
    busy_ns: int
    """Kernels of training but for communication, fills, and copies within the device or back from it; the union over
    streams."""
    communication_ns: int
    """Exposed: kernels of NCCL or RCCL while nothing of `busy_ns` ran."""
    input_ns: int
    copy_ns: int
    loader_ns: int
    sync_ns: int
    launch_ns: int
    device_ns: int
    other_ns: int
    pageable_ns: int
    """The part of `copy_ns` that came from pageable memory."""

    def __post_init__(self) -> None:
        parts = self.busy_ns + sum(self.of(cause) for cause in GAP_CAUSES)
        if parts != self.window_ns:
            raise LoaderprobeError(f"the parts of a GPU window sum to {parts} ns, not to its {self.window_ns}")

    def of(self, cause: GapCause) -> int:
        """Nanoseconds of one cause."""
        nanoseconds: int = getattr(self, f"{cause}_ns")
        return nanoseconds

    def share(self, *causes: GapCause) -> float:
        """Of the window, by these causes together."""
        return sum(self.of(cause) for cause in causes) / self.window_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """How well kernels filled the device, estimated from their grids. None where too little of it is known."""

    training_busy: float
    """Share of the window with a kernel of training that is not communication."""
    kernel_busy: float
    """Share of the window with any kernel, also of the loader."""
    sm_efficiency_estimated: float | None
    """Mean share of SMs with a block, over the window; idle time counts as 0."""
    occupancy_estimated: float | None
    """Mean share of an SM's warps that are active, over the kernels' time alone; idle time does not count."""
    occupancy_coverage: float
    """Share of the kernels' time for which an occupancy could be computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWindow:
    """What one profiler window says, or why it says nothing."""

    device: str
    steps: int
    profiler_overhead: float | None
    """By how much of their time the profiler slowed the steps; None when they were not timed without it."""
    syncs_per_step: float = 0.0
    """How often a thread that trains waited for the device in each step. One `.item()` counts once, and so does
    `.to(device)` of pageable memory."""
    gaps: Gaps | None
    use: DeviceUse | None
    refused: Remark | None
    """Why neither holds."""
    doubts: tuple[Remark, ...] = ()
    """Why no verdict rests on the gaps, though they are shown."""
    rejected: tuple[Rejected, ...] = ()
    """What the profiler recorded and cannot be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What is drawn of one window: nanoseconds from its begin."""

    window_ns: int
    step_begin_ns: tuple[int, ...]
    busy: Stretches
    gaps: dict[GapCause, Stretches] = field(default_factory=dict)
    waits: Stretches
    """The training thread inside `next()`, hidden behind kernels or not."""
    copies: Stretches
    """Copies from the host, hidden or not."""
