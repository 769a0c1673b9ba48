"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """CLOCK_MONOTONIC in ns, the same in every process of the machine."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def thread_cpu_ns(self) -> int:
        return time.thread_time_ns()

    def process_cpu_ns(self) -> int:
        return time.process_time_ns()
