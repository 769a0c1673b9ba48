"""A fake GPU that records its work, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loaderprobe.records.measurement import ComputeInfo
from loaderprobe.records.timeline import CallKind, DeviceKind, DeviceRecords, HostCalls, Timeline
from loaderprobe.testing.fakes import FakeClock


@dataclass(slots=True)
class ProfiledCompute:
    """A GPU on a fake clock: steps of `step_s`, one after the other, one kernel each, and the host waits for each.

    `profile` records what happened, or raises `trouble`.
    """

    clock: FakeClock
    step_s: float
    trouble: Exception | None = None
    _begun_ns: list[int] = field(default_factory=list)
    _ended_ns: list[int] = field(default_factory=list)
    _last_begun_ns: tuple[int, ...] = ()

    def info(self) -> ComputeInfo:
        """A GPU that is timed."""
        return ComputeInfo(
            name="cuda", device="Fake GPU", synchronous=True, specified_images_per_s=None, source="a fake of a GPU"
        )

    def copy(self, batch: Any) -> Any:
        """Takes no time."""
        return batch

    def step(self, batch: Any) -> None:
        """One kernel."""
        self._begun_ns.append(self.clock.now_ns())
        self.clock.sleep(self.step_s)
        self._ended_ns.append(self.clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        """When each kernel ended."""
        ended, self._ended_ns = tuple(self._ended_ns), []
        self._last_begun_ns, self._begun_ns = tuple(self._begun_ns), []
        return ended

    def begun(self) -> tuple[int, ...]:
        """When each of those began."""
        return self._last_begun_ns

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        """One kernel a step, right after its wait."""
        if self.trouble is not None:
            raise self.trouble
        before, after, *_, plain_ns = self._play(feed(warm_up + steps), warm_up)
        waits, left, ended, begin_ns, span_ns = self._play(feed(warm_up + steps), warm_up)
        count = len(ended)
        kernel: DeviceKind = "kernel"
        launch: CallKind = "launch"
        return Timeline(
            device="Fake GPU",
            steps=count,
            batch_size=batch_size,
            begin_ns=begin_ns,
            end_ns=begin_ns + span_ns,
            wait_begin_ns=waits,
            wait_end_ns=left,
            step_begin_ns=waits,
            names=("kernel", "cudaLaunchKernel"),
            records=DeviceRecords(
                kind=(kernel,) * count, name=(0,) * count, begin_ns=left, end_ns=ended, stream=(7,) * count,
                correlation=tuple(range(count)), loader=(False,) * count, occupancy=(0.5,) * count,
                blocks_per_sm=(2.0,) * count,
            ),
            calls=HostCalls(
                kind=(launch,) * count, name=(1,) * count, begin_ns=left, end_ns=left,
                correlation=tuple(range(count)), training=(True,) * count,
            ),
            rejected=(),
            launches=count,
            launches_without_record=0,
            plain_ns=plain_ns,
            plain_wait_ns=sum(after) - sum(before),
        )  # fmt: skip

    def _play(self, batches: Iterator[Any], warm_up: int) -> tuple[Any, Any, Any, int, int]:
        waits, left = [], []
        for number in range(warm_up):
            self.step(next(batches))
            if number == warm_up - 1:
                self.finish()
        begin_ns = entered_ns = self.clock.now_ns()
        for batch in batches:
            waits.append(entered_ns)
            left.append(self.clock.now_ns())
            self.step(batch)
            entered_ns = self.clock.now_ns()
        return tuple(waits), tuple(left), self.finish(), begin_ns, entered_ns - begin_ns
