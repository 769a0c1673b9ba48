"""CUDA on a fake clock, behind the host."""

from __future__ import annotations

from typing import Any, Self

from loaderprobe.testing import FakeClock


class Gpu:
    """One stream: events are reached when the work before them has run."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.free_ns, self.made, self.waits = clock, 0, 0, 0

    def launch(self, seconds: float) -> None:
        """Work of so many seconds; the host goes on at once."""
        self.free_ns = max(self.free_ns, self.clock.now_ns()) + round(seconds * 1e9)

    def synchronize(self, device: Any = None) -> None:
        """Wait."""
        self.waits += 1
        self.clock.sleep(max(0, self.free_ns - self.clock.now_ns()) / 1e9)

    def event(self, *, enable_timing: bool) -> Any:
        """As torch.cuda.Event."""
        gpu = self
        gpu.made += 1

        class Event:
            reached_ns = 0

            def record(self, stream: Any = None) -> None:
                self.reached_ns = max(gpu.free_ns, gpu.clock.now_ns())

            def elapsed_time(self, other: Self) -> float:
                return (other.reached_ns - self.reached_ns) / 1e6

        return Event()
