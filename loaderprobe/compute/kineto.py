"""`DeviceRecords` and `HostCalls` from the records of torch's profiler, without invalid ones. Needs no torch.

The profiler returns misleading records: annotations as long as a step that count as work of the GPU, stamps of zero
or 2^63, records before their own launch. Newer versions of torch give the kind of each record; in older ones only its
name shows the kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loaderprobe.compute.occupancy import DeviceLimits, blocks_per_sm, occupancy
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.timeline import CallKind, DeviceKind, DeviceRecords, HostCalls, Rejected, RejectedCode
from loaderprobe.units import join_words

# Largest difference between the clocks of host and GPU, aligned by interpolation.
SLACK_NS = 5_000
# An asynchronous copy that blocks the host for longer than this stages pageable memory.
STAGING_NS = 200_000
LAST_STAMP = 2**63 - 1

# kineto's names (cupti_strings.cpp); a sync record is a wait, not work.
SYNC_RECORDS = frozenset({"Stream Sync", "Context Sync", "Event Sync", "Stream Wait Event", "Unknown Sync"})
NO_WORK = frozenset({"gpu_user_annotation", "cuda_sync", "overhead"})
COPIES: dict[str, DeviceKind] = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "d2d"}

KERNEL_LAUNCH = re.compile(r"cu(da)?(Launch(?!HostFunc)|GraphLaunch)")
GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch")
COPY_CALL = re.compile(r"cu(da)?(Memcpy|Memset)")
BLOCKING_CALL = re.compile(r"cu(da)?(\w*Synchronize|\w*(Malloc|Free|Alloc)(?!.*Async))")
BLOCKING_COPY = re.compile(r"cu(da)?Memcpy(?!.*Async)")
DEVICE_SYNC = re.compile(r"cudaDeviceSynchronize|cuCtxSynchronize")
HOST_CALL = re.compile(r"cu(da)?[A-Z]")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Data of a window besides the records."""

    begin_ns: int
    end_ns: int
    device: int
    training_threads: frozenset[int]
    """The training thread's id, in every form that the profiler may use."""
    backward_threads: frozenset[int] = frozenset()
    """The ids of autograd's threads, likewise; they also launch kernels of the training."""
    limits: DeviceLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A `Timeline`'s columns."""

    names: tuple[str, ...]
    records: DeviceRecords
    calls: HostCalls
    rejected: tuple[Rejected, ...]
    launches: int
    launches_without_record: int


def convert(events: Iterable[RawEvent], window: Window) -> Converted:
    """The columns of a window. Raises LoaderprobeError with the reason when the records make no sense."""
    known = list(events)
    reader = _Reader(window)
    calls = [event for event in known if _is_call(event)]
    reader.launched = {call.correlation: call for call in calls if _kinds(call, False)[:1] == ["launch"]}
    work = [(kind, event) for event in known if event.on_gpu and (kind := device_kind(event)) is not None]
    valid = [(kind, event) for kind, event in work if reader.keep(event)]
    kept = reader.cut([(kind, event) for kind, event in valid if event.device == window.device])
    inside = [call for call in calls if window.begin_ns <= call.begin_ns <= window.end_ns]
    issued = {call.correlation for call in inside if KERNEL_LAUNCH.match(call.name)}
    _check(inside, issued, [kind for kind, _ in kept])
    own = _training_threads(inside, window)
    recorded = {event.correlation for _, event in valid}
    return Converted(
        records=reader.records(kept, own),
        calls=reader.calls(inside, own, {e.correlation for _, e in kept if "Pageable" in e.name}),
        names=tuple(reader.names),
        rejected=tuple(Rejected(reason=reason, count=count) for reason, count in sorted(reader.rejected.items())),
        launches=len(issued),
        launches_without_record=len(issued - recorded),
    )


def device_kind(event: RawEvent) -> DeviceKind | None:
    """The kind of GPU work; None for a record that is not GPU work: annotations, syncs, copies within the host."""
    if event.annotation or event.activity in NO_WORK or event.name in SYNC_RECORDS:
        return None
    if event.name.startswith("Memset"):
        return "memset"
    if event.name.startswith("Memcpy"):
        return next((kind for path, kind in COPIES.items() if event.name.startswith(f"Memcpy {path}")), None)
    return "kernel" if event.activity in (None, "kernel", "concurrent_kernel") else None


def _is_call(event: RawEvent) -> bool:
    if event.on_gpu or event.annotation:
        return False
    return event.activity in (None, "cuda_runtime", "cuda_driver") and HOST_CALL.match(event.name) is not None


def _kinds(call: RawEvent, pageable: bool) -> list[CallKind]:
    """The kinds of a call; a copy that stages pageable memory both puts work on a stream and blocks."""
    if KERNEL_LAUNCH.match(call.name):
        return ["launch"]
    if COPY_CALL.match(call.name):
        blocks = pageable or BLOCKING_COPY.match(call.name) or call.end_ns - call.begin_ns > STAGING_NS
        return ["launch", "sync"] if blocks and "Memcpy" in call.name else ["launch"]
    return ["sync"] if BLOCKING_CALL.match(call.name) else []


def _check(calls: Sequence[RawEvent], issued: set[int], kinds: Sequence[DeviceKind]) -> None:
    if not issued:
        raise LoaderprobeError(f"the profiler saw {len(calls)} CUDA calls, and no kernel launched among them")
    if "kernel" not in kinds:
        raise LoaderprobeError(
            f"the profiler saw {len(issued)} kernels launched, but recorded none of them on the GPU",
            hint="stop other profilers (nsys, ncu, DCGM profiling); libcupti may be missing; WSL records no kernels",
        )


def _training_threads(calls: Sequence[RawEvent], window: Window) -> frozenset[int]:
    """The training thread's id in the profiler: the thread also waits for the device at the end of the window.

    Raises LoaderprobeError when no call was made by it.
    """
    waits = [call.resource for call in calls if DEVICE_SYNC.match(call.name)]
    threads = window.training_threads | frozenset(waits[-1:])
    if not any(call.resource in threads for call in calls):
        seen = join_words(sorted({str(call.resource) for call in calls}), "and")
        raise LoaderprobeError(f"the profiler numbers threads {seen}: the training thread is not known among them")
    return threads


@dataclass(slots=True)
class _Reader:
    """Reads the records of one window once."""

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
        if event.begin_ns < self.window.begin_ns - SLACK_NS or event.end_ns > self.window.end_ns + SLACK_NS:
            return "outside"
        launch = self.launched.get(event.correlation)
        return "too_early" if launch is not None and event.begin_ns < launch.begin_ns - SLACK_NS else None

    def cut(self, work: Iterable[tuple[DeviceKind, RawEvent]]) -> list[tuple[DeviceKind, RawEvent]]:
        """Sorted by begin. A stream runs one operation after the other, except for the parts of a graph."""
        ordered = sorted(work, key=lambda item: (item[1].begin_ns, item[1].end_ns))
        following: dict[int, RawEvent] = {}
        found = []
        for kind, event in reversed(ordered):
            after = following.get(event.resource)
            following[event.resource] = event
            overlaps = after is not None and event.begin_ns < after.begin_ns < event.end_ns
            if after is not None and overlaps and event.correlation != after.correlation:
                self.rejected["cut"] += 1
                event = event._replace(end_ns=after.begin_ns)
            found.append((kind, event))
        return found[::-1]

    def records(self, work: Sequence[tuple[DeviceKind, RawEvent]], own: frozenset[int]) -> DeviceRecords:
        """One entry for each kernel, copy and fill."""
        of_kernels = [event for kind, event in work if kind == "kernel"]
        main, limits = self._main_stream(of_kernels, own), self.window.limits
        # If no launch is autograd's, the numbering is unknown, and threads are ignored.
        seen = {call.resource for call in self.launched.values()}
        backward = self.window.backward_threads if self.window.backward_threads & seen else frozenset()
        trainers = own | backward if backward else frozenset()
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

    def calls(self, calls: Sequence[RawEvent], own: frozenset[int], pageable: set[int]) -> HostCalls:
        """One entry for each launch and each sync, in order."""
        rows = [
            (kind, call)
            for call in sorted(calls, key=lambda call: call.begin_ns)
            for kind in _kinds(call, call.correlation in pageable)
        ]
        return HostCalls(
            kind=tuple(kind for kind, _ in rows),
            name=tuple(self._name(call) for _, call in rows),
            begin_ns=tuple(call.begin_ns for _, call in rows),
            end_ns=tuple(call.end_ns for _, call in rows),
            correlation=tuple(call.correlation for _, call in rows),
            training=tuple(call.resource in own for _, call in rows),
        )

    def _main_stream(self, kernels: Sequence[RawEvent], own: frozenset[int]) -> int | None:
        """The stream that trains: the one on which kernels of the training thread run longest."""
        busy: Counter[int] = Counter()
        for event in kernels:
            launch = self.launched.get(event.correlation)
            if launch is not None and launch.resource in own:
                busy[event.resource] += event.end_ns - event.begin_ns
        return busy.most_common(1)[0][0] if busy else None

    def _of_loader(self, event: RawEvent, main: int | None, trainers: frozenset[int]) -> bool:
        """On a second stream, or from a thread that does not train. `trainers` is empty where they are not known."""
        launch = self.launched.get(event.correlation)
        if event.name.startswith("nccl"):
            return False
        if launch is not None and trainers and launch.resource not in trainers:
            return True
        in_graph = launch is not None and GRAPH_LAUNCH.match(launch.name) is not None
        return main is not None and event.resource != main and not in_graph

    def _name(self, event: RawEvent) -> int:
        return self.names.setdefault(event.name, len(self.names))
