"""The process that samples what workers wait for: `python -m loaderprobe.system.waits_process FOLDER PARENT HZ`.

It is a separate process: a thread in the training process would compete with training for Python's global lock, and
could sample a serial loader only when that releases the lock. It imports only the standard library and this
package's records.

It reads lines of `PID,TID,STARTED` from its input, one word per worker and `-` for a worker that has ended; each line
replaces the one before. It writes one byte to its output before its first sample, and ends with its input or parent.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loaderprobe.system.process import die_with_parent
from loaderprobe.system.sockets import TableBudget
from loaderprobe.system.thread_files import ThreadGone
from loaderprobe.system.wait_rows import GONE, RowWriter
from loaderprobe.system.waits import WatchedProcess

# Asking the scheduler costs a tenth of a round.
CPU_ROUNDS = 8


class Watcher:
    """Samples one thread of each worker and writes the samples."""

    def __init__(self, rows: RowWriter, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._rows, self._now_ns = rows, now_ns
        self._budget = TableBudget()
        self._rounds = 0
        self._words: list[str] = []
        self._lanes: list[tuple[WatchedProcess, int] | None] = []

    def follow(self, line: str) -> None:
        """Sample the threads in this line from now on. Threads that stay are not opened again."""
        before = dict(zip(self._words, self._lanes, strict=True))
        words = line.split()
        lanes = [before.pop(word) if word in before else self._open(word) for word in words]
        for left in before.values():
            if left is not None:
                left[0].close()
        self._words, self._lanes = words, lanes

    def _open(self, word: str) -> tuple[WatchedProcess, int] | None:
        if word == GONE:
            return None
        pid, tid, started = map(int, word.split(","))
        with suppress(ThreadGone):
            return WatchedProcess(pid, started=started, budget=self._budget), tid
        return None

    def look(self) -> None:
        """One round."""
        letters_only = None
        for worker, lane in enumerate(self._lanes):
            if lane is None:
                continue
            process, tid = lane
            try:
                seen = process.look(tid)
            except ThreadGone:
                process.close()
                self._lanes[worker] = None
                continue
            self._rows.add(self._now_ns(), worker, seen)
            letters_only = letters_only or process.letters_only
        own_cpu_ns = None if self._rounds % CPU_ROUNDS else time.process_time_ns()
        self._rounds += 1
        self._rows.end_round(self._now_ns(), own_cpu_ns, letters_only)


def watch(watcher: Watcher, orders: int, period_ms: float) -> None:
    """Run a round at intervals of 0.5 to 1.5 periods, until the input ends.

    With a fixed period the samples would synchronise with batches of that duration.
    """
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    begun = b""
    while True:
        if not poll.poll(period_ms * (0.5 + os.urandom(1)[0] / 255)):
            watcher.look()
            continue
        data = os.read(orders, 1 << 16)
        if not data:
            return
        *lines, begun = (begun + data).split(b"\n")
        for line in lines:
            watcher.follow(line.decode())


def main(arguments: Sequence[str]) -> None:
    """Run the process; see the module."""
    folder, parent, rate_hz = arguments
    die_with_parent(int(parent))
    # Descriptors are kept open for every thread seen.
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = RowWriter(Path(folder))
    rows.end_round(time.perf_counter_ns(), time.process_time_ns(), None)
    os.write(1, b"r")
    watch(Watcher(rows), 0, 1e3 / float(rate_hz))


if __name__ == "__main__":
    main(sys.argv[1:])
