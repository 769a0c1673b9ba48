"""A `Timeline` from the records of torch's profiler, without invalid ones. Needs no torch.

The profiler returns misleading records: annotations as long as a step that count as work of the GPU, stamps of zero
or 2^63, records before their own launch. Newer versions of torch give the kind of each record; in older ones only its
name shows the kind. Records of AMD's GPUs are the same, and their calls begin with hip.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import (
    CallKind,
    DeviceKind,
    DeviceRecords,
    HostCalls,
    Rejected,
    RejectedCode,
    Timeline,
    communicates,
)
from loaderprobe.units import join_words

WARP = 32
# Limits of cuda_occupancy.h: registers go to a warp in units of 256, and come from one of the four parts of an SM.
REGISTER_UNIT = 256
SM_PARTS = 4
# From this compute capability on, CUDA keeps 1 KiB of shared memory a block for itself.
RESERVES_FROM = (8, 0)
RESERVED_BYTES = 1024
# Above this a kernel must request its shared memory, which the profiler's own calculation ignores: it gives 0.
PLAIN_SHARED_BYTES = 49152
# Blocks that a multiprocessor can hold, by compute capability (CUDA C++ Programming Guide, technical specifications).
BLOCKS_PER_SM: dict[tuple[int, ...], int] = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}
MOST_BLOCKS_PER_SM = 32
# Of a device: in kineto's recordings, and in torch. SMs; of each its threads, registers and bytes; the capability.
PROPERTIES = {
    "numSms": "multi_processor_count", "maxThreadsPerMultiprocessor": "max_threads_per_multi_processor",
    "regsPerMultiprocessor": "regs_per_multiprocessor",
    "sharedMemPerMultiprocessor": "shared_memory_per_multiprocessor", "computeMajor": "major", "computeMinor": "minor",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """The limits of one multiprocessor (SM) of a device."""

    sm_count: int
    threads_per_sm: int = 2048
    registers_per_sm: int = 65536
    shared_bytes_per_sm: int = 233472
    blocks_per_sm: int = MOST_BLOCKS_PER_SM
    reserved_bytes: int = RESERVED_BYTES
    """Of the shared memory of each block, kept by CUDA."""

    @classmethod
    def of(cls, properties: Any) -> DeviceLimits | None:
        """From torch's device properties of an NVIDIA GPU; None where this torch has too few of them."""
        return cls.recorded({ours: getattr(properties, theirs, None) for ours, theirs in PROPERTIES.items()})

    @classmethod
    def recorded(cls, properties: Mapping[str, Any]) -> DeviceLimits | None:
        """From one of the `deviceProperties` of a trace; None where too few are there, as of AMD's GPUs."""
        values: list[Any] = [properties.get(name) for name in PROPERTIES]
        if not all(isinstance(value, int) for value in values) or not all(values[:5]):
            return None
        count, threads, registers, shared, *version = values
        capability = tuple(version)
        return cls(
            sm_count=count,
            threads_per_sm=threads,
            registers_per_sm=registers,
            shared_bytes_per_sm=shared,
            blocks_per_sm=BLOCKS_PER_SM.get(capability, MOST_BLOCKS_PER_SM),
            reserved_bytes=RESERVED_BYTES if capability >= RESERVES_FROM else 0,
        )


def _launch(details: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    """(blocks, threads of each, registers of each thread, bytes of shared memory of each block) of a kernel's launch.

    None where one of the profiler's fields is missing.
    """
    try:
        sizes = math.prod(details["grid"]), math.prod(details["block"])
        return *sizes, int(details["registers per thread"]), int(details["shared memory"])
    except (KeyError, TypeError, ValueError):
        return None


def _resident_blocks(threads: int, registers: int, shared_bytes: int, limits: DeviceLimits) -> int:
    """Blocks of such a kernel that one SM can hold: the minimum over warps, registers and shared memory.

    The occupancy calculation of CUDA's cuda_occupancy.h, without its rarer limits.
    """
    warps = math.ceil(threads / WARP)
    fits = [limits.blocks_per_sm, limits.threads_per_sm // WARP // warps]
    if registers:
        of_warp = math.ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        fits.append(SM_PARTS * (limits.registers_per_sm // SM_PARTS // of_warp) // warps)
    if shared_bytes:
        fits.append(limits.shared_bytes_per_sm // (shared_bytes + limits.reserved_bytes))
    return min(fits)


def blocks_per_sm(details: Mapping[str, Any], limits: DeviceLimits | None) -> float | None:
    """Blocks of the launch over the number of SMs: below 1 some SMs stay empty. None where it cannot be computed."""
    given = details.get("blocks per SM")
    if isinstance(given, int | float):
        return float(given)
    launch = _launch(details)
    return None if launch is None or limits is None else launch[0] / limits.sm_count


def occupancy(details: Mapping[str, Any], limits: DeviceLimits | None) -> float | None:
    """Estimated share of an SM's warps that the kernel keeps active, 0 to 1; None where it cannot be computed.

    min(resident blocks, blocks per SM) x threads of a block / threads of an SM: the formula of torch's profiler,
    whose own figure is used only where the launch is not fully known. Its 0 above 48 KiB of shared memory counts
    as unknown: its calculation ignores that a kernel may request more.
    """
    launch = _launch(details)
    if launch is not None and limits is not None and launch[1]:
        blocks, threads, registers, shared_bytes = launch
        active = min(_resident_blocks(threads, registers, shared_bytes, limits), blocks / limits.sm_count)
        # A kernel that runs has a block on some SM: 0 means that a limit here is wrong.
        return min(1.0, active * threads / limits.threads_per_sm) if active > 0 else None
    given, shared = details.get("est. achieved occupancy %"), details.get("shared memory")
    plain = isinstance(shared, int | float) and shared <= PLAIN_SHARED_BYTES
    return min(1.0, given / 100) if isinstance(given, int | float) and (given or plain) else None


# Largest difference between the clocks of host and GPU, aligned by interpolation.
SLACK_NS = 5_000
# An asynchronous copy that blocks the host for longer than this stages pageable memory.
STAGING_NS = 200_000
# Where autograd's threads are not known: who issues more of the main stream's kernels than this trains.
LEAST_TRAINING = 0.05
LAST_STAMP = 2**63 - 1

# kineto's names (cupti_strings.cpp); a sync record is a wait, not work.
SYNC_RECORDS = frozenset({"Stream Sync", "Context Sync", "Event Sync", "Stream Wait Event", "Unknown Sync"})
NO_WORK = frozenset({"gpu_user_annotation", "cuda_sync", "overhead"})
# Older versions of AMD's recorder have names of their own.
COPIES: dict[str, DeviceKind] = {
    "Memcpy HtoD": "h2d", "Memcpy DtoH": "d2h", "Memcpy DtoD": "d2d", "Memcpy PtoP": "d2d",
    "CopyHostToDevice": "h2d", "CopyDeviceToHost": "d2h", "CopyDeviceToDevice": "d2d",
}  # fmt: skip
FILLS = ("Memset", "FillBuffer")

KERNEL_LAUNCH = re.compile(r"(cu(da)?|hip)\w*Launch(?!HostFunc)")
GRAPH_LAUNCH = re.compile(r"(cu(da)?|hip)GraphLaunch")
# A kernel launched so may begin before the one ahead of it on its stream has ended (programmatic dependent launch).
OVERLAPPING_LAUNCH = re.compile(r"cu(da)?LaunchKernelEx")
COPY_CALL = re.compile(r"(cu(da)?|hip)(Memcpy|Memset)")
BLOCKING_CALL = re.compile(r"(cu(da)?|hip)(\w*Synchronize|\w*(Malloc|Free|Alloc)(?!.*Async))")
BLOCKING_COPY = re.compile(r"(cu(da)?|hip)Memcpy(?!.*Async)")
DEVICE_SYNC = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize")
HOST_CALL = re.compile(r"(cu(da)?|hip)[A-Z]")


class RawEvent(NamedTuple):
    """One record of the profiler, as plain values. Times are Unix nanoseconds."""

    name: str
    activity: str | None
    """kineto's kind (`kernel`, `gpu_memcpy`, `cuda_runtime`, ...); None where this torch does not give it."""
    on_gpu: bool
    device: int
    resource: int
    """The stream of a record of the GPU, the thread of one of the host."""
    begin_ns: int
    end_ns: int
    correlation: int
    annotation: bool
    details: Mapping[str, Any]
    """kineto's fields of a kernel; empty where they were not requested."""


Work = Sequence[tuple[DeviceKind, RawEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Data of a window besides the records."""

    begin_ns: int
    end_ns: int
    device: int
    training_threads: frozenset[int]
    """The training thread's id, in every form that the profiler may use."""
    backward_threads: frozenset[int] = frozenset()
    """The ids of autograd's threads, likewise; they also launch kernels of the training. Where none of them is among
    the calls, those that launch part of the main stream's kernels are taken."""
    limits: DeviceLimits | None = None
    waits: tuple[tuple[int, int], ...] = ()
    """(begin, end) of the training thread's calls of `next()`; kernels issued inside are the loader's."""
    loader_streams: bool = False
    """Whether the training thread issues work of the loader, too, on streams other than the training's."""
    whole: bool = True
    """False for a stretch cut from a longer recording: records beyond its ends are no error, and the device may be
    busy there."""


def convert(events: Iterable[RawEvent], window: Window, **known: Any) -> Timeline:
    """The timeline of a window; `known` are those of its fields that neither has.

    Raises LoaderprobeError with the reason when the records make no sense.
    """
    every = list(events)
    reader = _Reader(window)
    calls = [event for event in every if _is_call(event)]
    reader.launched = {call.correlation: call for call in calls if _issues(call)}
    work = [(kind, event) for event in every if event.on_gpu and (kind := device_kind(event)) is not None]
    valid = [(kind, event) for kind, event in work if reader.keep(event)]
    of_device = [(kind, event) for kind, event in valid if event.device == window.device]
    if not window.whole:
        of_device = [(kind, e) for kind, e in of_device if e.begin_ns < window.end_ns and e.end_ns > window.begin_ns]
    kept = reader.cut(of_device)
    inside = [call for call in calls if window.begin_ns <= call.begin_ns <= window.end_ns]
    issued = {call.correlation for call in inside if KERNEL_LAUNCH.match(call.name)}
    _check(inside, issued, [kind for kind, _ in kept])
    if not window.whole:
        inside = _with_earlier(calls, kept, window)
    trainers = reader.trainers(inside, kept)
    recorded = {event.correlation for _, event in valid}
    return Timeline(
        begin_ns=window.begin_ns,
        end_ns=window.end_ns,
        wait_begin_ns=tuple(begin for begin, _ in window.waits),
        wait_end_ns=tuple(end for _, end in window.waits),
        records=reader.records(kept, trainers),
        calls=reader.calls(inside, trainers, kept),
        names=tuple(reader.names),
        rejected=tuple(Rejected(reason=reason, count=count) for reason, count in sorted(reader.rejected.items())),
        launches=len(issued),
        launches_without_record=len(issued - recorded),
        **known,
    )


def device_kind(event: RawEvent) -> DeviceKind | None:
    """The kind of GPU work; None for a record that is not GPU work: annotations, syncs, copies within the host."""
    if event.annotation or event.activity in NO_WORK or event.name in SYNC_RECORDS:
        return None
    if event.name.startswith(FILLS):
        return "memset"
    if event.name.startswith("Memcpy") or event.activity == "gpu_memcpy":
        return next((kind for path, kind in COPIES.items() if event.name.startswith(path)), None)
    return "kernel" if event.activity in (None, "kernel", "concurrent_kernel") else None


def _is_call(event: RawEvent) -> bool:
    if event.on_gpu or event.annotation:
        return False
    return event.activity in (None, "cuda_runtime", "cuda_driver") and HOST_CALL.match(event.name) is not None


def _with_earlier(calls: Iterable[RawEvent], kept: Work, window: Window) -> list[RawEvent]:
    """The calls of a stretch cut from a recording: those that reach into it, and those that issued work inside it."""
    issued = {event.correlation for _, event in kept}
    return [
        call for call in calls
        if call.begin_ns <= window.end_ns and (call.end_ns >= window.begin_ns or call.correlation in issued)
    ]  # fmt: skip


def _issues(call: RawEvent) -> bool:
    return KERNEL_LAUNCH.match(call.name) is not None or COPY_CALL.match(call.name) is not None


def _kinds(call: RawEvent, copied: Mapping[int, RawEvent], moved: Collection[int]) -> list[CallKind]:
    """The kinds of a call; a copy for which the host waits both puts work on a stream and blocks.

    `copied` has the copies to and from the host by correlation, `moved` the correlations of those within the device,
    for which no host waits: where such a call takes long, the queue of launches is full.
    """
    if not _issues(call):
        return ["sync"] if BLOCKING_CALL.match(call.name) else []
    if "Memcpy" not in call.name or call.correlation in moved:
        return ["launch"]
    copy = copied.get(call.correlation)
    waits = copy is not None and ("Pageable" in copy.name or call.end_ns - call.begin_ns > STAGING_NS)
    return ["launch", "sync"] if waits or BLOCKING_COPY.match(call.name) else ["launch"]


def _check(calls: Sequence[RawEvent], issued: set[int], kinds: Sequence[DeviceKind]) -> None:
    if not issued and "kernel" not in kinds:
        raise LoaderprobeError(f"the profiler saw {len(calls)} calls to the GPU, and no kernel launched among them")
    if "kernel" not in kinds:
        raise LoaderprobeError(
            f"the profiler saw {len(issued)} kernels launched, but recorded none of them on the GPU",
            hint="stop other profilers (nsys, ncu, DCGM profiling); libcupti may be missing; WSL records no kernels",
        )


def _training_threads(calls: Sequence[RawEvent], window: Window) -> frozenset[int]:
    """The training thread's id in the profiler: the thread also waits for the device at the end of a whole window.

    Raises LoaderprobeError when no call of a whole window was made by it.
    """
    waits = [call.resource for call in calls if window.whole and DEVICE_SYNC.match(call.name)]
    threads = window.training_threads | frozenset(waits[-1:])
    if window.whole and not any(call.resource in threads for call in calls):
        numbers = join_words(sorted({str(call.resource) for call in calls}), "and")
        raise LoaderprobeError(f"the profiler numbers threads {numbers}: the training thread is not known among them")
    return threads


def _most_common(numbers: Iterable[int]) -> int | None:
    commonest = Counter(numbers).most_common(1)
    return commonest[0][0] if commonest else None


@dataclass(slots=True)
class _Reader:
    window: Window
    launched: dict[int, RawEvent] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    rejected: Counter[RejectedCode] = field(default_factory=Counter)

    def keep(self, event: RawEvent) -> bool:
        """True for a valid record; counts the reason of an invalid one."""
        reason = self._doubt(event)
        if reason:
            self.rejected[reason] += 1
        return reason is None

    def _doubt(self, event: RawEvent) -> RejectedCode | None:
        if not (0 < event.begin_ns < LAST_STAMP and 0 < event.end_ns < LAST_STAMP):
            return "no_stamp"
        if event.end_ns < event.begin_ns:
            return "backwards"
        begin_ns, end_ns = self.window.begin_ns - SLACK_NS, self.window.end_ns + SLACK_NS
        if self.window.whole and (event.begin_ns < begin_ns or event.end_ns > end_ns):
            return "outside"
        launch = self.launched.get(event.correlation)
        return "too_early" if launch is not None and event.begin_ns < launch.begin_ns - SLACK_NS else None

    def cut(self, work: Work) -> list[tuple[DeviceKind, RawEvent]]:
        """Sorted by begin. A stream runs one operation after the other, except for the parts of a graph, and for
        kernels whose launch allows them to begin sooner."""
        ordered = sorted(work, key=lambda item: (item[1].begin_ns, item[1].end_ns))
        following: dict[int, RawEvent] = {}
        kept = []
        for kind, event in reversed(ordered):
            after = following.get(event.resource)
            following[event.resource] = event
            if after is not None and self._is_cut(event, after):
                self.rejected["cut"] += 1
                event = event._replace(end_ns=after.begin_ns)
            kept.append((kind, event))
        return kept[::-1]

    def _is_cut(self, event: RawEvent, after: RawEvent) -> bool:
        if not event.begin_ns < after.begin_ns < event.end_ns or event.correlation == after.correlation:
            return False
        launch = self.launched.get(after.correlation)
        return launch is None or OVERLAPPING_LAUNCH.match(launch.name) is None

    def trainers(self, calls: Sequence[RawEvent], work: Work) -> frozenset[int]:
        """The threads that train: the training thread, and autograd's. Raises LoaderprobeError without the former.

        If no launch is of a thread that autograd is known to have, its threads, or their numbering, are not known.
        Then it is who issues part of the kernels of the main stream.
        """
        training = _training_threads(calls, self.window)
        callers = {call.resource for call in self.launched.values()}
        if self.window.backward_threads & callers:
            return training | self.window.backward_threads
        issued = self._launches(work)
        main = _most_common(event.resource for event, _ in issued)
        threads = Counter(launch.resource for event, launch in issued if event.resource == main)
        return training | {thread for thread, count in threads.items() if count > LEAST_TRAINING * threads.total()}

    def _launches(self, work: Work) -> list[tuple[RawEvent, RawEvent]]:
        """(kernel, launch) of those that compute. Communication may run longer than the training that it serves."""
        return [
            (event, launch) for kind, event in work
            if kind == "kernel" and not communicates(event.name) and (launch := self.launched.get(event.correlation))
        ]  # fmt: skip

    def records(self, work: Work, trainers: frozenset[int]) -> DeviceRecords:
        """One entry for each kernel, copy and fill."""
        # The stream that trains has most of the kernels issued by the threads that train.
        main = _most_common(event.resource for event, launch in self._launches(work) if launch.resource in trainers)
        limits = self.window.limits
        events = [event for _, event in work]
        return DeviceRecords(
            kind=tuple(kind for kind, _ in work),
            name=tuple(self._name(event) for event in events),
            begin_ns=tuple(event.begin_ns for event in events),
            end_ns=tuple(event.end_ns for event in events),
            stream=tuple(event.resource for event in events),
            correlation=tuple(event.correlation for event in events),
            loader=tuple(kind not in ("h2d", "d2h") and self._of_loader(e, main, trainers) for kind, e in work),
            occupancy=tuple(occupancy(e.details, limits) if kind == "kernel" else None for kind, e in work),
            blocks_per_sm=tuple(blocks_per_sm(e.details, limits) if kind == "kernel" else None for kind, e in work),
        )

    def calls(self, calls: Iterable[RawEvent], trainers: frozenset[int], work: Work) -> HostCalls:
        """One entry for each launch and each sync, in order."""
        copied = {event.correlation: event for kind, event in work if kind in ("h2d", "d2h")}
        moved = {event.correlation for kind, event in work if kind == "d2d"}
        rows = [
            (kind, call)
            for call in sorted(calls, key=lambda call: call.begin_ns)
            for kind in _kinds(call, copied, moved)
        ]
        return HostCalls(
            kind=tuple(kind for kind, _ in rows),
            name=tuple(self._name(call) for _, call in rows),
            begin_ns=tuple(call.begin_ns for _, call in rows),
            end_ns=tuple(call.end_ns for _, call in rows),
            correlation=tuple(call.correlation for _, call in rows),
            training=tuple(call.resource in trainers for _, call in rows),
        )

    def _of_loader(self, event: RawEvent, main: int | None, trainers: frozenset[int]) -> bool:
        """Issued inside `next()`, or by a thread that does not train; on a second stream where those are the loader's.

        A training may use many streams: that alone says nothing.
        """
        launch = self.launched.get(event.correlation)
        if communicates(event.name):
            return False
        if launch is not None and (launch.resource not in trainers or self._in_next(launch)):
            return True
        in_graph = launch is not None and GRAPH_LAUNCH.match(launch.name) is not None
        return self.window.loader_streams and main is not None and event.resource != main and not in_graph

    def _in_next(self, launch: RawEvent) -> bool:
        waits = self.window.waits
        at = bisect_right(waits, launch.begin_ns, key=lambda wait: wait[0]) - 1
        return at >= 0 and launch.begin_ns < waits[at][1]

    def _name(self, event: RawEvent) -> int:
        return self.names.setdefault(event.name, len(self.names))
