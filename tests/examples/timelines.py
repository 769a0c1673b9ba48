"""Small profiler windows, written by hand: each shows one way in which a GPU can be busy or idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from loaderprobe.records.measurement import DeviceKind, DeviceRecords, HostCalls, Timeline

_KERNEL, _PINNED, _PAGEABLE = "sm90_xmma_fprop", "Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pageable -> Device)"
_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
_NAMES = {"d2h": "Memcpy DtoH (Device -> Pageable)", "d2d": "Memcpy DtoD (Device -> Device)", "memset": "Memset"}
_BEGIN_NS = 1_800_000_000_000_000_000
STEPS = 20


@dataclass(slots=True)
class TimelineScript:
    """Collects what a device and the training thread did, and makes a `Timeline` of it.

    Times count from the begin of the window in units of `unit_ns`, microseconds unless said otherwise. `issued` is
    when the host began the call for the work; None leaves no record of that. Calls can be chained.
    """

    unit_ns: int = 1_000
    begin_ns: int = _BEGIN_NS
    _work: list[dict[str, Any]] = field(default_factory=list)
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _waits: list[tuple[int, int]] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _numbers: int = 0

    def kernel(
        self, begin: int, end: int, issued: int | None = None, *, loader: bool = False, stream: int = 7,
        graph: int | None = None, occupancy: float | None = 0.5, blocks_per_sm: float | None = 4.0,
        returned: int | None = None, exchange: bool = False,
    ) -> Self:  # fmt: skip
        """A kernel. `graph` is the correlation that those of one CUDA graph share.

        Its call ends at `returned`, by default 1 unit after its begin. `exchange` is with other GPUs.
        """
        number = self._number() if graph is None else graph
        name = _NCCL if exchange else _KERNEL
        self._add("kernel", name, begin, end, stream, number, loader, occupancy, blocks_per_sm)
        if issued is not None:
            self._call("launch", "cudaLaunchKernel", issued, issued + 1 if returned is None else returned, number)
        return self

    def copy(
        self, begin: int, end: int, issued: int | None = None, *, kind: DeviceKind = "h2d", pageable: bool = False,
        blocked_until: int | None = None, stream: int = 7,
    ) -> Self:  # fmt: skip
        """A copy or fill; until `blocked_until` its call held up the host, as one from pageable memory does."""
        number = self._number()
        self._add(kind, _NAMES.get(kind, _PAGEABLE if pageable else _PINNED), begin, end, stream, number)
        if issued is not None:
            self._call("launch", "cudaMemcpyAsync", issued, blocked_until or issued + 1, number)
        if issued is not None and blocked_until is not None:
            self._call("sync", "cudaMemcpyAsync", issued, blocked_until, number)
        return self

    def sync(self, begin: int, end: int, *, training: bool = True) -> Self:
        """The host waits for the device; if not `training`, a thread of the loader."""
        self._call("sync", "cudaStreamSynchronize", begin, end, self._number(), training=training)
        return self

    def wait(self, begin: int, end: int) -> Self:
        """The training thread is inside `next()`."""
        self._waits.append((self._at(begin), self._at(end)))
        return self

    def step(self, begin: int) -> Self:
        """A step begins."""
        self._steps.append(self._at(begin))
        return self

    def build(self, end: int, **changes: Any) -> Timeline:
        """The window up to `end`: complete, and free to record, unless `changes` replace fields."""
        work = sorted(self._work, key=lambda row: row["begin_ns"])
        calls = sorted(self._calls, key=lambda row: row["begin_ns"])
        made = Timeline(
            device="NVIDIA Example",
            steps=max(1, len(self._steps)),
            batch_size=32,
            begin_ns=self.begin_ns,
            end_ns=self._at(end),
            wait_begin_ns=tuple(begin for begin, _ in self._waits),
            wait_end_ns=tuple(end for _, end in self._waits),
            step_begin_ns=tuple(self._steps) or (self.begin_ns,),
            names=tuple(self._names),
            records=DeviceRecords(**_columns(DeviceRecords, work)),
            calls=HostCalls(**_columns(HostCalls, calls)),
            rejected=(),
            launches=sum(row["kind"] == "launch" for row in calls),
            launches_without_record=0,
            plain_ns=self._at(end) - self.begin_ns,
            plain_wait_ns=sum(end - begin for begin, end in self._waits),
        )
        return replace(made, **changes)

    def _at(self, time: int) -> int:
        return self.begin_ns + time * self.unit_ns

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _add(
        self, kind: DeviceKind, name: str, begin: int, end: int, stream: int, number: int,
        loader: bool = False, occupancy: float | None = None, blocks_per_sm: float | None = None,
    ) -> None:  # fmt: skip
        self._work.append(
            {
                "kind": kind, "name": self._name(name), "begin_ns": self._at(begin), "end_ns": self._at(end),
                "stream": stream, "correlation": number, "loader": loader, "occupancy": occupancy,
                "blocks_per_sm": blocks_per_sm,
            }
        )  # fmt: skip

    def _call(self, kind: str, name: str, begin: int, end: int, number: int, *, training: bool = True) -> None:
        self._calls.append(
            {
                "kind": kind, "name": self._name(name), "begin_ns": self._at(begin), "end_ns": self._at(end),
                "correlation": number, "training": training,
            }
        )  # fmt: skip


def _columns(table: type[Any], rows: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {column.name: tuple(row[column.name] for row in rows) for column in fields(table)}


def starved(steps: int = STEPS, **changes: Any) -> Timeline:
    """Each step waits 60 ms for its batch, copies it in 2 ms and trains for 37.8 ms. The copy is issued at once."""
    script = TimelineScript()
    for at in range(0, steps * 100_000, 100_000):
        script.step(at)
        script.wait(at, at + 60_000)
        script.copy(at + 60_100, at + 62_100, at + 60_050)
        for number in range(10):
            begin = at + 62_200 + 3_780 * number
            script.kernel(begin, begin + 3_778, at + 60_200 + 100 * number)
    return script.build(steps * 100_000, **changes)


def compute_bound(steps: int = STEPS, **changes: Any) -> Timeline:
    """The host runs ahead: every kernel of a step of 40 ms is issued while the step before it runs."""
    script = TimelineScript()
    for at in range(0, steps * 40_000, 40_000):
        script.step(max(0, at - 39_000))
        script.wait(max(0, at - 39_000), max(0, at - 34_000))
        for number in range(10):
            begin = at + 4_000 * number
            script.kernel(begin, begin + 3_998, max(0, at - 30_000 + 100 * number))
    return script.build(steps * 40_000, **changes)


def launch_bound(steps: int = STEPS, **changes: Any) -> Timeline:
    """Kernels of 10 microseconds, one every 40: the host takes longer to issue each than the device to run it."""
    script = TimelineScript()
    for at in range(0, steps * 4_000, 4_000):
        script.step(at)
        script.wait(at, at + 20)
        for begin in range(at + 30, at + 4_000, 40):
            script.kernel(begin, begin + 10, begin - 4, occupancy=0.05, blocks_per_sm=0.25)
    return script.build(steps * 4_000, **changes)


def copied_pageable(steps: int = STEPS, **changes: Any) -> Timeline:
    """The host moves 20 ms of every 50 ms step through pageable memory, and can issue nothing meanwhile."""
    script = TimelineScript()
    for at in range(0, steps * 50_000, 50_000):
        script.step(at)
        script.wait(at, at + 500)
        script.copy(at + 2_000, at + 20_500, at + 500, pageable=True, blocked_until=at + 20_500)
        script.kernel(at + 20_600, at + 49_990, at + 20_590)
    return script.build(steps * 50_000, **changes)


def copied_beside(steps: int = STEPS, **changes: Any) -> Timeline:
    """The next batch is copied on a stream of its own under the kernels of this one, and nothing waits for it."""
    script = TimelineScript()
    for at in range(0, steps * 40_000, 40_000):
        script.step(at)
        script.wait(at + 100, at + 5_000)
        script.copy(at + 6_000, at + 12_000, at + 5_500, stream=13)
        script.kernel(at, at + 39_998, max(0, at - 20_000))
    return script.build(steps * 40_000, **changes)


def as_graph(steps: int = STEPS, **changes: Any) -> Timeline:
    """A CUDA graph a step: one call issues all kernels, of which the third waits for another stream."""
    script = TimelineScript()
    for number, at in enumerate(range(0, steps * 1_000, 1_000)):
        script.step(at)
        graph = 1_000_000 + number
        script.kernel(at + 100, at + 400, at + 96, graph=graph)
        script.kernel(at + 402, at + 600, graph=graph)
        script.kernel(at + 630, at + 1_000, graph=graph)
    return script.build(steps * 1_000, **changes)
