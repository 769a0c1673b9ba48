"""Counters of a thread and of its process, cheap enough to read around every batch (a few microseconds)."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

BLOCK_BYTES = 512


class ThreadMeter:
    """Reads CPU time, run-queue delay and bytes read from storage of the thread that created it."""

    def __init__(self, schedstat: Path = Path("/proc/thread-self/schedstat")) -> None:
        try:
            self._schedstat: int | None = os.open(schedstat, os.O_RDONLY)
        except OSError:
            self._schedstat = None  # a kernel without schedstat: run_delay_known says so
        if self._schedstat is not None and not any(map(int, os.pread(self._schedstat, 64, 0).split())):
            # This thread has run, so all zeros mean that the kernel does not count.
            self.close()

    def close(self) -> None:
        """Close the file descriptor; the delay reads as 0 from then on."""
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    @property
    def run_delay_known(self) -> bool:
        """False where the kernel counts no run-queue delay; it then reads as 0 and counts as blocked time."""
        return self._schedstat is not None

    def read(self) -> tuple[int, int, int]:
        """(CPU ns, run-queue delay ns, bytes read from storage) since the thread began."""
        delay_ns = int(os.pread(self._schedstat, 64, 0).split()[1]) if self._schedstat is not None else 0
        blocks = resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
        return time.thread_time_ns(), delay_ns, blocks * BLOCK_BYTES


def process_usage() -> tuple[int, int]:
    """(CPU ns, bytes read from storage) of all threads of this process, also of those that have ended."""
    return time.process_time_ns(), resource.getrusage(resource.RUSAGE_SELF).ru_inblock * BLOCK_BYTES
