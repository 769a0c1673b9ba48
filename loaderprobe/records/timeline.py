"""What a GPU and its host did in one short window, record by record. Nothing here is derived."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.checks import check_at_least, check_equal_lengths

DeviceKind = Literal["kernel", "h2d", "d2h", "d2d", "memset"]
"""What the device did: a kernel, a copy from host to device, back, or within it, or filling memory."""

CallKind = Literal["launch", "sync"]
"""launch: puts work on a stream. sync: blocks the host until the device is there (synchronising, a copy that
stages pageable memory, freeing)."""

_COMMUNICATION = re.compile(r"nccl|rccl", re.IGNORECASE)


def communicates(name: str) -> bool:
    """Whether a kernel exchanges data with other GPUs, by its name: NCCL's, and AMD's RCCL."""
    return _COMMUNICATION.search(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecords:
    """Columns of equal length, one entry for each kernel, copy and fill on one GPU, ordered by their begin."""

    kind: tuple[DeviceKind, ...]
    name: tuple[int, ...]
    """Index into `Timeline.names`."""
    begin_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    stream: tuple[int, ...]
    correlation: tuple[int, ...]
    """Of the host call that issued it; all kernels of a CUDA graph share one."""
    loader: tuple[bool, ...]
    """Issued to make batches (decoding, augmenting on the GPU), not to train."""
    occupancy: tuple[float | None, ...]
    """Estimated share of an SM's warps that are active, 0 to 1; None where it cannot be computed, and for copies."""
    blocks_per_sm: tuple[float | None, ...]
    """Blocks of the kernel over the number of SMs; None for copies."""

    def __post_init__(self) -> None:
        check_equal_lengths("device records", self, tuple(self.__dataclass_fields__))
        check_at_least("device records", self, {"name": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """Columns of equal length, one entry for each call of the CUDA runtime or driver that counts."""

    kind: tuple[CallKind, ...]
    name: tuple[int, ...]
    """Index into `Timeline.names`."""
    begin_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    correlation: tuple[int, ...]
    training: tuple[bool, ...]
    """Made by a thread that trains: the training thread, or autograd's. Launches count whoever made them, syncs only
    where they hold up the training."""

    def __post_init__(self) -> None:
        check_equal_lengths("host calls", self, tuple(self.__dataclass_fields__))
        check_at_least("host calls", self, {"name": 0})


RejectedCode = Literal["no_stamp", "backwards", "outside", "too_early", "cut"]
"""Without a valid time; ended before it began; outside the window; began before it was launched; overlapped the next
record of its stream, and was cut there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Records of the profiler that cannot be true, and so were not kept."""

    reason: RejectedCode
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One profiler window of whole training steps, outside every timed segment; or one cut from a recorded trace.

    Times are Unix nanoseconds. At the ends of a window that is cut from a trace the device may be busy.
    """

    device: str
    steps: int
    batch_size: int
    begin_ns: int
    """The device was idle here: it had been waited for."""
    end_ns: int
    """The device had finished the last step."""
    wait_begin_ns: tuple[int, ...]
    wait_end_ns: tuple[int, ...]
    """When the training thread was inside `next()` of the loader."""
    step_begin_ns: tuple[int, ...]
    names: tuple[str, ...]
    records: DeviceRecords
    calls: HostCalls
    rejected: tuple[Rejected, ...]
    launches: int
    """Calls that should have left a record of the device."""
    launches_without_record: int
    plain_ns: int
    """What as many steps took just before, in the same way, without the profiler."""
    plain_wait_ns: int = 0
    """How much of that the training thread was inside `next()`."""
    clock_shift_ns: int = 0
    """By how much the host's clocks moved against each other during the window."""

    def __post_init__(self) -> None:
        check_equal_lengths("timeline", self, ("wait_begin_ns", "wait_end_ns"))
        check_at_least("timeline", self, dict.fromkeys(("steps", "launches", "launches_without_record"), 0))
        if max((*self.records.name, *self.calls.name), default=-1) >= len(self.names):
            raise BadValue("timeline: a record has a name that is not there")
