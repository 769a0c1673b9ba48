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
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.system.process import die_with_parent
from loaderprobe.system.waits import TableBudget, ThreadGone, Wait, WatchedProcess

ROUNDS = "rounds"
"""A file of JSON, a line for each round: its samples, new subjects, [time, CPU time] of this process in ns now and
then, and why system calls are hidden. Each is one write, so a reader finds whole rounds at any time."""
# In orders to that process: a worker that has gone.
GONE = "-"
# A million images are a million paths; so many are enough to see which files they are.
MOST_SUBJECTS = 2000
_KINDS = {kind: number for number, kind in enumerate(WAIT_KINDS)}


class RoundWriter:
    """Appends to the file in a folder. Only the current round is buffered."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / ROUNDS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._subjects: dict[str, int] = {}
        self._new: list[str] = []
        self._samples: list[tuple[int, int, int, int]] = []

    def add(self, time_ns: int, worker: int, wait: Wait) -> None:
        self._samples.append((time_ns, worker, _KINDS[wait.kind], self._number(wait.subject)))

    def end_round(self, time_ns: int, own_cpu_ns: int | None, letters_only: Remark | None) -> None:
        """Write the added samples, and this process's CPU time so far where it is requested."""
        own = None if own_cpu_ns is None else (time_ns, own_cpu_ns)
        why = {"code": letters_only.code, "facts": letters_only.facts} if letters_only else None
        if self._samples or own:
            os.write(self._file, json.dumps((self._samples, self._new, own, why)).encode() + b"\n")
            self._samples, self._new = [], []

    def _number(self, subject: str | None) -> int:
        if subject is None:
            return -1
        if subject not in self._subjects and len(self._subjects) < MOST_SUBJECTS:
            self._subjects[subject] = len(self._subjects)
            # Names of files may be no text at all.
            self._new.append(subject.encode("utf-8", "backslashreplace").decode())
        return self._subjects.get(subject, -1)


def read_rounds(folder: Path) -> WaitSamples:
    """All complete rounds so far; also works while they are being written."""
    rounds = []
    for line in (folder / ROUNDS).read_bytes().split(b"\n")[:-1]:
        try:
            rounds.append(json.loads(line))
        except ValueError:
            break  # a full disk has cut it short, and with it names that later samples have by number
    samples = [sample for each, *_ in rounds for sample in each]
    own = [each for *_, each, _ in rounds if each]
    hidden = rounds[-1][-1] if rounds else None
    time_ns, worker, kind, subject = zip(*samples, strict=True) if samples else ((), (), (), ())
    return WaitSamples(
        time_ns=time_ns,
        worker=worker,
        kind=kind,
        subject=subject,
        subjects=tuple(name for _, new, *_ in rounds for name in new),
        letters_only=Remark(**hidden) if hidden else None,
        cpu_ns=own[-1][1] - own[0][1] if own else 0,
        wall_ns=own[-1][0] - own[0][0] if own else 0,
    )


# Asking the scheduler costs a tenth of a round.
CPU_ROUNDS = 8


class ThreadWatcher:
    """Samples one thread of each worker and writes the samples."""

    def __init__(self, rounds: RoundWriter) -> None:
        self._rounds = rounds
        self._budget = TableBudget()
        self._round = 0
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
            self._rounds.add(time.perf_counter_ns(), worker, seen)
            letters_only = letters_only or process.letters_only
        own_cpu_ns = None if self._round % CPU_ROUNDS else time.process_time_ns()
        self._round += 1
        self._rounds.end_round(time.perf_counter_ns(), own_cpu_ns, letters_only)


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
    rounds = RoundWriter(Path(folder))
    rounds.end_round(time.perf_counter_ns(), time.process_time_ns(), None)
    os.write(1, b"r")
    watch(ThreadWatcher(rounds), 0, 1e3 / float(rate_hz))


if __name__ == "__main__":
    main(sys.argv[1:])
