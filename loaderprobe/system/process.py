"""Counters of processes and threads, and the link between a process and its parent."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
DEATH_S = 1.0
"""A dying process closes its connections a moment before its exit code is there."""


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Places in the fields of /proc/PID/stat: ppid, utime, stime, cutime, cstime, starttime.
_PARENT, _USER, _SYSTEM, _USER_REAPED, _SYSTEM_REAPED, _START = 1, 11, 12, 13, 14, 19


class ProcessCounters(NamedTuple):
    """A process, and the resources that it has used since it began."""

    parent: int
    start: int
    """In ticks since boot: a number that was given again is another process."""
    own: int
    """Ticks of all its threads, those that ended among them; `schedstat` of a process is that of its first thread."""
    reaped: int
    """Ticks of its children that ended and that it waited for, and of theirs."""
    read_bytes: int | None
    """From storage, of all its threads; None where that may not be read."""

    @property
    def cpu_s(self) -> float:
        return self.own / TICKS_PER_S


def read_process(pid: int, proc: Path | str = "/proc") -> ProcessCounters | None:
    """The counters of a process; None when it has ended."""
    row = stat_fields(f"{proc}/{pid}")
    if len(row) <= _START:
        return None
    return ProcessCounters(
        parent=int(row[_PARENT]),
        start=int(row[_START]),
        own=int(row[_USER]) + int(row[_SYSTEM]),
        reaped=int(row[_USER_REAPED]) + int(row[_SYSTEM_REAPED]),
        read_bytes=io_counters(f"{proc}/{pid}").get("read_bytes"),
    )


def read_proc(path: Path | str) -> bytes:
    """A whole file of /proc; empty where it is not there, or may not be read."""
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123  # Path takes longer than reading
        return file.read()
    return b""


def stat_fields(directory: Path | str) -> list[bytes]:
    """Of the process with this directory of /proc, from the letter of its state on; empty where it has ended."""
    # The command's name, in brackets, may hold any bytes; the fields after it are numbers.
    return read_proc(f"{directory}/stat").rpartition(b")")[2].split()


def io_counters(directory: Path | str) -> dict[str, int]:
    """Of the process with this directory of /proc, by the kernel's names; empty without permission."""
    lines = read_proc(f"{directory}/io").decode().splitlines()
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


def children_of(pid: int, proc: Path | str = "/proc") -> Iterator[int]:
    """Also those that have ended and were not waited for. None where the kernel lists none (CONFIG_PROC_CHILDREN)."""
    with suppress(OSError):
        for thread in os.listdir(f"{proc}/{pid}/task"):  # noqa: PTH208  # a reading lists many: Path is slow
            with suppress(OSError):  # a thread that ended meanwhile
                yield from map(int, read_proc(f"{proc}/{pid}/task/{thread}/children").split())


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to kill this process when `parent` ends, so that no orphan keeps reading."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        # The parent ended before the request.
        os._exit(1)


def ask_where(pid: int) -> bool:
    """Ask a process to write the stacks of its threads, by SIGUSR1; False where it would end by that, or has ended."""
    try:
        caught = re.search(rb"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_bytes(), re.MULTILINE)
        if not caught or not int(caught[1], 16) >> signal.SIGUSR1 - 1 & 1:
            return False
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return False
    return True


def runs(pid: int) -> bool:
    """False for a process that has ended, also where its parent has not asked for that yet."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in b"ZX"


def child_environment() -> dict[str, str]:
    """Ours, with our module search path: what a plug-in's name means must not depend on the current directory."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}


def threads_of(workers: Sequence[int]) -> list[tuple[int, int]]:
    """(process, thread) that makes the batches of each worker; without workers, the calling thread."""
    return [(pid, pid) for pid in workers] or [(os.getpid(), threading.get_native_id())]


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number itself for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_ended(code: int) -> tuple[str, str]:
    """(how a process ended, by its exit code or minus its signal, a hint). By SIGKILL the kernel makes memory free."""
    if code >= 0:
        return f"ended with code {code}", ""
    hint = "check dmesg for the out-of-memory killer" if code == -signal.SIGKILL else ""
    return f"was killed by {signal_name(-code)}", hint


SHARED_MEMORY_HINT = (
    "give the container more /dev/shm (docker run --shm-size), or use smaller batches, fewer workers or a lower "
    "prefetch factor"
)


def how_worker_ended(pid: int | None, code: int) -> tuple[str, str]:
    """(the whole sentence for a worker of a loader, a hint). Of a bus error it dies where shared memory has run out."""
    if code == -signal.SIGBUS:
        return f"a loader worker (pid {pid}) ran out of shared memory", SHARED_MEMORY_HINT
    how, hint = how_ended(code)
    return f"a loader worker (pid {pid}) {how}", hint and f"{hint}; fewer workers need less memory"


def end_of(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """`how_ended` for a child that does not answer any more; it may still run."""
    with suppress(subprocess.TimeoutExpired):
        return how_ended(process.wait(DEATH_S))
    return "does not answer", ""


BLOCK_BYTES = 512


class ThreadMeter:
    """Reads CPU time, run-queue delay and bytes read from storage of the thread that created it, in a few us."""

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


class Usage(NamedTuple):
    """Of all threads of this process, also of those that ended; and of the commands that it ran and waited for."""

    cpu_ns: int
    read_bytes: int
    """From storage."""
    commands_cpu_ns: int
    commands_read_bytes: int

    @property
    def all_read_bytes(self) -> int:
        return self.read_bytes + self.commands_read_bytes


def process_usage() -> Usage:
    """So far."""
    process, ran = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ran_ns = round((ran.ru_utime + ran.ru_stime) * 1e9)
    return Usage(time.process_time_ns(), process.ru_inblock * BLOCK_BYTES, ran_ns, ran.ru_inblock * BLOCK_BYTES)
