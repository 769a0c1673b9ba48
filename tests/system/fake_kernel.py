"""A /sys and a /proc that a test writes out: mounts and devices in one line each, processes and their threads."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.system import device

PID = 42
NUMBERS = {"read": 0, "poll": 7, "nanosleep": 35, "flock": 73, "fcntl": 72, "futex": 202, "getdents64": 217}
NUMBERS |= {"epoll_wait": 232, "openat": 257, "io_uring_enter": 426, "select": 23, "sendfile": 40, "wait4": 61}


class Kernel:
    """Mounts and devices. Every path below a folder that the test mounts lies on that mount; all others lie on none
    that is listed. In what is written, `$` before a name is the folder below which everything is mounted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "root"
        self.data = self.root / "data"
        self.data.mkdir(parents=True)
        self._sys, self.proc = root / "sys", root / "proc"
        (self.proc / "self/fdinfo").mkdir(parents=True)
        # Another mount is listed first, as longer prefixes often are.
        (self.proc / "self/mountinfo").write_text("7 1 8:1 / /data/longer rw - xfs /dev/other rw\n")
        self._mounts: dict[Path, tuple[int, str]] = {}
        self._opened: dict[int, str] = {}
        self._real_open, self._real_fstat = os.open, os.fstat
        monkeypatch.setattr(device, "SYS", self._sys)
        monkeypatch.setattr(device, "PROC", self.proc)
        monkeypatch.setattr(os, "open", self._open)
        monkeypatch.setattr(os, "fstat", self._fstat)

    def build(self, tree: str) -> None:
        """What is written, each of its lines (or parts between `;`) a method below with its words."""
        for line in tree.replace("\n", ";").split(";"):
            verb, *words = line.split() or [""]
            if verb:
                getattr(self, verb)(*words)

    def mount(self, filesystem: str, at: str = "data", number: str = "0:40", source: str = "/dev/x") -> None:
        """Mount a file system with this device number; an overlay has its options in the place of a source."""
        options = "rw"
        if filesystem == "overlay":
            source, options = "overlay", source.replace("$", f"{self.root}/")
            for name in options.replace(":", "=").replace(",", "=").split("="):
                if name.startswith(str(self.root)) and "\\" not in name:
                    Path(name).mkdir(parents=True, exist_ok=True)
        folder = self.root / at
        folder.mkdir(parents=True, exist_ok=True)
        mount = 42 + len(self._mounts)
        self._mounts[folder] = mount, number
        with (self.proc / "self/mountinfo").open("a") as lines:
            lines.write(f"{mount} 1 {number} / {folder} rw shared:1 - {filesystem} {source} {options}\n")

    def folder(self, at: str) -> None:
        (self.root / at).mkdir(parents=True)

    def disk(self, path: str, number: str, *below: str) -> None:
        """A device below /sys/devices with its number: a `partition`, or one that consists of those below it."""
        directory = self._sys / "devices" / path
        _write(directory / "dev", number)
        for name in below:
            if name == "partition":
                _write(directory / name, "1")
            else:
                _link(directory / "slaves" / Path(name).name, self._sys / "devices" / name)
        _link(self._sys / "dev/block" / number, directory)
        _link(self._sys / "class/block" / directory.name, directory)

    def loop(self, name: str, number: str, file: str, dio: str = "0") -> None:
        """A loop device whose content is a file, which is made where it is below the root."""
        self.disk(f"virtual/{name}", number)
        directory = self._sys / "block" / name / "loop"
        if file.startswith("$"):
            file = f"{self.root}/{file[1:]}"
            Path(file).touch()
        _write(directory / "backing_file", file)
        _write(directory / "dio", dio)

    def btrfs(self, *members: str) -> None:
        """A btrfs over several devices, given below /sys/devices."""
        for member in members:
            _link(self._sys / "fs/btrfs/0-0/devices" / Path(member).name, self._sys / "devices" / member)

    def ahead(self, place: str, kilobytes: str) -> None:
        """The read-ahead of a backing device, given below /sys."""
        _write(self._sys / place / "read_ahead_kb", kilobytes)

    def iostats(self, path: str, value: str, *below: str) -> None:
        """Of a disk, given below /sys/devices; `mq` below it is its queue of requests."""
        for name in below:
            (self._sys / "devices" / path / name).mkdir()
        _write(self._sys / "devices" / path / "queue/iostats", value)

    def have_read(self, **sectors: int) -> None:
        """What each device has read, in sectors."""
        lines = [f"8 0 {name} 9 9 {count} 9 9 9 9\n" for name, count in sectors.items()]
        (self.proc / "diskstats").write_text("".join(lines))

    def _open(self, path: Any, flags: int, *rest: Any, **named: Any) -> int:
        fd = self._real_open(path, flags, *rest, **named)
        if flags & os.O_PATH:
            above = [folder for folder in self._mounts if Path(path).is_relative_to(folder)]
            mount, number = self._mounts[max(above, key=lambda folder: len(folder.parts))] if above else (9999, "0:99")
            (self.proc / "self/fdinfo" / str(fd)).write_text(f"pos:\t0\nflags:\t0\nmnt_id:\t{mount}\n")
            self._opened[fd] = number
        return fd

    def _fstat(self, fd: int) -> Any:
        if fd not in self._opened:
            return self._real_fstat(fd)
        major, minor = self._opened.pop(fd).split(":")
        return SimpleNamespace(st_dev=os.makedev(int(major), int(minor)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


class Processes:
    """Processes in `proc`, for a machine of the kind x86_64."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        proc.mkdir(exist_ok=True)
        self._children: dict[int, list[int]] = {}

    def begin(
        self, pid: int = PID, parent: int = 1, ticks: tuple[int, ...] = (0,) * 4, start: int = 1000, letter: str = "R"
    ) -> None:
        """A process with one thread, its user and system time, and those of children that it waited for."""
        folder = self.proc / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(_stat(letter, start, parent, ticks))
        self._children.setdefault(pid, [])
        siblings = self._children.setdefault(parent, [])
        if pid not in siblings:
            siblings.append(pid)
        for each, below in self._children.items():
            if (self.proc / str(each)).is_dir():
                (self.proc / str(each) / "task" / str(each) / "children").write_text(" ".join(map(str, below)))

    def end(self, pid: int) -> None:
        """It is gone, and whoever was its child has another parent."""
        for path in sorted((self.proc / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.proc / str(pid)).rmdir()
        for parent, below in self._children.items():
            if pid in below:
                below.remove(pid)
                (self.proc / str(parent) / "task" / str(parent) / "children").write_text(" ".join(map(str, below)))

    def runs(self, tid: int = PID) -> None:
        self._thread(tid, "R", "running\n", "0")

    def waits(self, call: str | int, *arguments: int, tid: int = PID, letter: str = "S", channel: str = "0") -> None:
        """In a system call, with these arguments."""
        number = NUMBERS[call] if isinstance(call, str) else call
        filled = (*arguments, *[0] * (6 - len(arguments)))
        self._thread(tid, letter, f"{number} {' '.join(map(hex, filled))} 0x7ffc 0x7f00\n", channel)

    def faults(self, channel: str = "folio_wait_bit_common", letter: str = "D", tid: int = PID) -> None:
        """Outside system calls."""
        self._thread(tid, letter, "-1 0x7ffc 0x7f00\n", channel)

    def hide(self, letter: str, channel: str = "0", tid: int = PID) -> None:
        """A thread without the file of its system call."""
        self._thread(tid, letter, None, channel)

    def opens(self, number: int, link: str) -> None:
        """A descriptor that leads to `link`."""
        path = self.proc / str(PID) / "fd" / str(number)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(link)

    def write(self, name: str, text: str | bytes) -> None:
        """A file of the process; `mem` is its memory, from address 0 on."""
        path = self.proc / str(PID) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def leaves(self, tid: int = PID) -> None:
        """A thread ends. Files that have been opened stay readable in a real folder, so they are emptied first."""
        folder = self.proc / str(PID) / "task" / str(tid)
        for file in list(folder.iterdir()):
            os.truncate(file, 0)
            file.unlink()
        folder.rmdir()

    def _thread(self, tid: int, letter: str, syscall: str | None, channel: str) -> None:
        folder = self.proc / str(PID) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(_stat(letter))
        (folder / "wchan").write_text(channel)
        if syscall is None:
            (folder / "syscall").unlink(missing_ok=True)
        else:
            (folder / "syscall").write_text(syscall)


def pollfds(*numbers: int) -> bytes:
    """An array of `struct pollfd`."""
    return b"".join(struct.pack("=ihh", number, 1, 0) for number in numbers)


def _stat(letter: str, start: int = 1000, parent: int = 1, ticks: tuple[int, ...] = (0, 0, 0, 0)) -> str:
    """A name may hold brackets and spaces; times are fields 14 to 17, the start is field 22."""
    return f"42 (a) R (b) {letter} {parent} {'0 ' * 9}{' '.join(map(str, ticks))} 20 0 1 0 {start} 0 0"
