"""A /proc that tests write: processes with threads that wait as written."""

from __future__ import annotations

import os
import struct
from pathlib import Path

PID = 42
NUMBERS = {"read": 0, "poll": 7, "nanosleep": 35, "flock": 73, "fcntl": 72, "futex": 202, "getdents64": 217}
NUMBERS |= {"epoll_wait": 232, "openat": 257, "io_uring_enter": 426, "select": 23, "sendfile": 40, "wait4": 61}


class FakeThreads:
    """Processes in `proc`, for a machine of the kind x86_64."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        proc.mkdir(exist_ok=True)

    def begin(self, pid: int = PID, started: int = 1000) -> None:
        """A process with one thread, which runs."""
        (self.proc / str(pid) / "fd").mkdir(parents=True)
        (self.proc / str(pid) / "fdinfo").mkdir()
        (self.proc / str(pid) / "net").mkdir()
        (self.proc / str(pid) / "stat").write_text(_stat("R", started))
        self.runs(pid=pid)

    def runs(self, tid: int = PID, pid: int = PID) -> None:
        self._write(pid, tid, "R", "running\n", "0")

    def waits(
        self, call: str | int, *arguments: int, tid: int = PID, pid: int = PID, letter: str = "S", channel: str = "0"
    ) -> None:
        """In a system call, with these arguments."""
        number = NUMBERS[call] if isinstance(call, str) else call
        filled = (*arguments, *[0] * (6 - len(arguments)))
        self._write(pid, tid, letter, f"{number} {' '.join(map(hex, filled))} 0x7ffc 0x7f00\n", channel)

    def faults(self, channel: str = "folio_wait_bit_common", letter: str = "D", tid: int = PID) -> None:
        """Outside system calls."""
        self._write(PID, tid, letter, "-1 0x7ffc 0x7f00\n", channel)

    def hide(self, letter: str, channel: str = "0", tid: int = PID) -> None:
        """A thread without the file of its system call."""
        self._write(PID, tid, letter, None, channel)

    def opens(self, number: int, link: str, pid: int = PID) -> None:
        """A descriptor that leads to `link`."""
        path = self.proc / str(pid) / "fd" / str(number)
        path.unlink(missing_ok=True)
        path.symlink_to(link)

    def remembers(self, data: bytes, pid: int = PID) -> None:
        """The process's memory, from address 0 on."""
        (self.proc / str(pid) / "mem").write_bytes(data)

    def connects(self, inode: int, remote: str, state: str = "01", pid: int = PID) -> None:
        """A line of the table of TCP connections."""
        line = f"   0: 0100007F:0001 {remote} {state} 0:0 00:0 0 1000 0 {inode} 1\n"
        with (self.proc / str(pid) / "net" / "tcp").open("a") as table:
            table.write(line)

    def ends(self, tid: int = PID, pid: int = PID) -> None:
        """Files that have been opened stay readable in a real folder, so they are emptied first."""
        folder = self.proc / str(pid) / "task" / str(tid)
        for file in list(folder.iterdir()):
            os.truncate(file, 0)
            file.unlink()
        folder.rmdir()

    def _write(self, pid: int, tid: int, letter: str, syscall: str | None, channel: str) -> None:
        folder = self.proc / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(_stat(letter, 1000))
        (folder / "wchan").write_text(channel)
        if syscall is None:
            (folder / "syscall").unlink(missing_ok=True)
        else:
            (folder / "syscall").write_text(syscall)


def pollfds(*numbers: int) -> bytes:
    """An array of `struct pollfd`."""
    return b"".join(struct.pack("=ihh", number, 1, 0) for number in numbers)


def _stat(letter: str, started: int) -> str:
    return f"42 (a) R (b) {letter} {' '.join(['0'] * 18)} {started} 0 0"
