"""The process that samples what workers wait for: `python -m loaderprobe.system.waits_process FOLDER PARENT HZ`.

It is a separate process: a thread in the training process would compete with training for Python's global lock, and
could sample a serial loader only when that releases the lock. It imports only the standard library and this
package's records.

It reads lines of `PID,TID,STARTED` from its input, one word per worker and `-` for a worker that has ended; each line
replaces the one before. It writes one byte to its output before its first sample, and ends with its input or parent.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.system.process import die_with_parent
from loaderprobe.system.waits import TableBudget, ThreadGone, Wait, WatchedProcess

# The file format of the sampling process: rows of fixed size, a second file with names, and a third that says, as JSON,
# why system calls are hidden, empty while they are seen.
#
# Each sampling round is one write, so a reader finds whole rounds at any time.

# time in ns, number of the subject or -1, worker, number of the kind
ROW = struct.Struct("<qqii")
# A worker whose number is CPU time in ns that this process has used; the first such row is from before the first look.
OWN_CPU = -1
ROWS, SUBJECTS, HIDDEN = "rows", "subjects", "hidden"
# In orders to that process: a worker that has gone.
GONE = "-"
# A million images are a million paths; so many are enough to see which files they are.
MOST_SUBJECTS = 2000
_KINDS = {kind: number for number, kind in enumerate(WAIT_KINDS)}


class RowWriter:
    """Appends to the files in a folder. Only the current round is buffered."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # Names before rows: a reader never meets a number without its name.
        self._subjects_file = os.open(folder / SUBJECTS, flags)
        self._rows_file = os.open(folder / ROWS, flags)
        self._hidden = folder / HIDDEN
        self._hidden.touch()
        self._subjects: dict[str, int] = {}
        self._letters_only: Remark | None = None
        self._round = bytearray()

    def add(self, time_ns: int, worker: int, wait: Wait) -> None:
        self._round += ROW.pack(time_ns, self._number(wait.subject), worker, _KINDS[wait.kind])

    def end_round(self, time_ns: int, own_cpu_ns: int | None, letters_only: Remark | None) -> None:
        """Write the added samples, and this process's CPU time so far where it is requested."""
        if letters_only != self._letters_only:
            self._letters_only = letters_only
            why = {"code": letters_only.code, "facts": letters_only.facts} if letters_only else None
            beside = self._hidden.with_suffix(".new")
            beside.write_text(json.dumps(why) if why else "")
            beside.replace(self._hidden)
        if own_cpu_ns is not None:
            self._round += ROW.pack(time_ns, own_cpu_ns, OWN_CPU, 0)
        if self._round:
            os.write(self._rows_file, self._round)
            self._round.clear()

    def _number(self, subject: str | None) -> int:
        if subject is None:
            return -1
        number = self._subjects.get(subject)
        if number is None:
            if len(self._subjects) >= MOST_SUBJECTS:
                return -1
            number = self._subjects[subject] = len(self._subjects)
            # Names of files may be no text at all.
            os.write(self._subjects_file, subject.encode("utf-8", "backslashreplace") + b"\0")
        return number


def read_rows(folder: Path) -> WaitSamples:
    """All complete rows so far; also works while they are being written."""
    data = (folder / ROWS).read_bytes()
    subjects = tuple(name.decode() for name in (folder / SUBJECTS).read_bytes().split(b"\0")[:-1])
    rows = list(ROW.iter_unpack(data[: len(data) - len(data) % ROW.size]))
    samples = [row for row in rows if row[2] >= 0]
    own = [(time_ns, cpu_ns) for time_ns, cpu_ns, worker, _ in rows if worker == OWN_CPU]
    hidden = (folder / HIDDEN).read_text()
    return WaitSamples(
        time_ns=tuple(row[0] for row in samples),
        worker=tuple(row[2] for row in samples),
        kind=tuple(row[3] for row in samples),
        subject=tuple(row[1] for row in samples),
        subjects=subjects,
        letters_only=Remark(**json.loads(hidden)) if hidden else None,
        cpu_ns=own[-1][1] - own[0][1] if own else 0,
        wall_ns=own[-1][0] - own[0][0] if own else 0,
    )


# Asking the scheduler costs a tenth of a round.
CPU_ROUNDS = 8


class ThreadWatcher:
    """Samples one thread of each worker and writes the samples."""

    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows
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
            self._rows.add(time.perf_counter_ns(), worker, seen)
            letters_only = letters_only or process.letters_only
        own_cpu_ns = None if self._rounds % CPU_ROUNDS else time.process_time_ns()
        self._rounds += 1
        self._rows.end_round(time.perf_counter_ns(), own_cpu_ns, letters_only)


def watch(watcher: ThreadWatcher, orders: int, period_ms: float) -> None:
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
    # Ctrl-C and SIGTERM may be for the whole process group: the parent still measures, and ends this process by itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Descriptors are kept open for every thread seen.
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = RowWriter(Path(folder))
    rows.end_round(time.perf_counter_ns(), time.process_time_ns(), None)
    os.write(1, b"r")
    watch(ThreadWatcher(rows), 0, 1e3 / float(rate_hz))


if __name__ == "__main__":
    main(sys.argv[1:])
