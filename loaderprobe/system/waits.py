"""What a thread waits for now, read from /proc: no root, no eBPF, no patched library.

`/proc/PID/task/TID/syscall` is read first. One read shows whether the thread runs and, if not, in which call it
waits and with which arguments. Reading the letter of the state first would cost more, and a wait that ends between
the two reads would count as running: 10 us of each wait, a tenth of a read from NVMe.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.waits import WaitKind
from loaderprobe.system.descriptors import Descriptors
from loaderprobe.system.sockets import TableBudget
from loaderprobe.system.syscalls import Call, calls_of
from loaderprobe.system.thread_files import ThreadFiles, ThreadGone, ThreadTable
from loaderprobe.system.wait_kinds import RUNNING, CallWaits, Wait, by_channel, outside_calls

# Documentation/admin-guide/LSM/Yama.rst: "Yama" in ASCII.
PR_SET_PTRACER = 0x59616D61
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
# Each costs some 5 us; a process with more threads than these is seen in part.
MOST_THREADS = 64
# What threads do on behalf of one that waits for them. The first counts most: a pool of which one thread reads and
# another decodes is waited for because of the read. A socket counts least: libraries keep connections that are idle.
_WORK: tuple[WaitKind, ...] = ("storage", "metadata", "memory", "uninterruptible", "running", "network")


def let_be_read_by(pid: int) -> None:
    """Allow process `pid` and its descendants to see what this process waits for; 0 revokes that.

    Needed where Yama allows only ancestors (`kernel.yama.ptrace_scope` is 1, as on Ubuntu), ignored elsewhere.
    """
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def start_ticks(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Start time of a process in clock ticks since boot; with its id it identifies the process uniquely."""
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def yama_scope(yama: Path = YAMA) -> int:
    """Yama's scope, who may trace a process: 0 the same user, 1 ancestors, 2 with a capability, 3 no process."""
    with suppress(OSError, ValueError):
        return int(yama.read_text())
    return 0


class WatchedProcess:
    """A process whose threads can be sampled. Raises ThreadGone when it has ended or its id was reused."""

    def __init__(
        self,
        pid: int,
        *,
        started: int | None = None,
        proc: Path = Path("/proc"),
        budget: TableBudget | None = None,
        machine: str | None = None,
    ) -> None:
        machine = machine or platform.machine()
        calls = calls_of(machine)
        self._calls: Mapping[int, Call] = calls or {}
        self._unknown = None if calls is not None else Unavailable(code="calls_unknown", facts={"machine": machine})
        self.letters_only: Unavailable | None = None
        """Why the last sample saw no system call; None while system calls are visible."""
        path = proc / str(pid)
        try:
            self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ThreadGone from error
        self._threads = ThreadTable(self._directory)
        self._descriptors = Descriptors(self._directory, str(path), budget or TableBudget())
        self._waits = CallWaits(self._descriptors)
        # From here on the folder is that of the process it shows now, whatever becomes of the number.
        if started is not None and start_ticks(pid, proc) != started:
            self.close()
            raise ThreadGone

    def close(self) -> None:
        """Close all descriptors."""
        self._threads.close()
        self._descriptors.close()
        os.close(self._directory)

    def look(self, tid: int) -> Wait:
        """What this thread does or, if it waits for other threads of its process, what they do. Raises ThreadGone."""
        seen = self._look(tid)
        return self._look_at_others(tid, seen) if seen.inside else seen

    def _look_at_others(self, tid: int, own: Wait) -> Wait:
        """The work of the threads waited for; `own` where they do none."""
        best, rank = own, len(_WORK)
        for other in islice(self._threads.others(tid), MOST_THREADS):
            with suppress(ThreadGone):
                seen = self._look(other)
                if seen.kind in _WORK[:rank]:
                    best, rank = seen, _WORK.index(seen.kind)
            if not rank:
                break
        return best

    def _look(self, tid: int) -> Wait:
        files = self._threads.files(tid)
        try:
            try:
                text = files.read("syscall")
            except OSError as error:
                return self._by_letter(files, error)
            self.letters_only = self._unknown
            return RUNNING if text.startswith(b"running") else self._in_call(files, text.split())
        except ThreadGone:
            self._threads.forget(tid)
            raise

    def _in_call(self, files: ThreadFiles, fields: list[bytes]) -> Wait:
        number = int(fields[0])
        if number < 0:
            return outside_calls(files)
        call = self._calls.get(number)
        if call is None:
            return by_channel(files.channel(), files.letter(), f"system call {number}")
        return self._waits.read(files, call, [int(field, 16) for field in fields[1:5]])

    def _by_letter(self, files: ThreadFiles, error: OSError) -> Wait:
        """The wait without a system call: from the letter of the state and, where readable, the kernel function."""
        letter = files.letter()
        self.letters_only = _why_refused(error)
        if letter == "R":
            return RUNNING
        seen = by_channel(files.channel(), letter, None)
        # A lock, or an unknown wait, may be another thread of this process.
        return seen._replace(inside=seen.kind in ("lock", "other"))


def _why_refused(error: OSError) -> Unavailable:
    if isinstance(error, FileNotFoundError):
        return Unavailable(code="no_syscall_file")
    scope = yama_scope()
    return Unavailable(code="ptrace_scope", facts={"scope": scope}) if scope else Unavailable(code="trace_refused")
