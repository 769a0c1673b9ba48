"""A /sys and a /proc that a test writes out: its mounts, its devices, and what they have read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.system import device


class Kernel:
    """Every path below a folder that the test mounts lies on that mount; all others lie on none that is listed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "root"
        self.data = self.root / "data"
        self.data.mkdir(parents=True)
        self._sys, self.proc = root / "sys", root / "proc"
        (self._sys / "dev/block").mkdir(parents=True)
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

    def mount(
        self, filesystem: str, at: str = "data", *, number: str = "0:40", source: str = "/dev/x", options: str = "rw",
        point: str | None = None,
    ) -> Path:  # fmt: skip
        """Mount a file system with the device number `number`; returns its folder."""
        folder = self.root / at
        folder.mkdir(parents=True, exist_ok=True)
        mount = 42 + len(self._mounts)
        self._mounts[folder] = mount, number
        with (self.proc / "self/mountinfo").open("a") as lines:
            lines.write(f"{mount} 1 {number} / {point or folder} rw shared:1 - {filesystem} {source} {options}\n")
        return folder

    def disk(self, path: str, number: str, *, partition: bool = False, slaves: tuple[str, ...] = ()) -> None:
        """A device below /sys/devices with its number."""
        directory = self._sys / "devices" / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "dev").write_text(f"{number}\n")
        if partition:
            (directory / "partition").write_text("1\n")
        for slave in slaves:
            (directory / "slaves").mkdir(exist_ok=True)
            (directory / "slaves" / Path(slave).name).symlink_to(self._sys / "devices" / slave)
        (self._sys / "dev/block" / number).symlink_to(directory)
        (self._sys / "class/block").mkdir(parents=True, exist_ok=True)
        (self._sys / "class/block" / directory.name).symlink_to(directory)

    def loop(self, name: str, number: str, file: Path | str, dio: str = "0") -> None:
        """A loop device whose content is `file`."""
        self.disk(f"virtual/{name}", number)
        directory = self._sys / "block" / name / "loop"
        directory.mkdir(parents=True)
        (directory / "backing_file").write_text(f"{file}\n")
        (directory / "dio").write_text(f"{dio}\n")

    def btrfs(self, *members: str) -> None:
        """A btrfs over several devices, given below /sys/devices."""
        directory = self._sys / "fs/btrfs/0-0/devices"
        directory.mkdir(parents=True)
        for member in members:
            (directory / Path(member).name).symlink_to(self._sys / "devices" / member)

    def read_ahead(self, place: str, kilobytes: int) -> None:
        """Of a backing device, given below /sys."""
        directory = self._sys / place
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "read_ahead_kb").write_text(f"{kilobytes}\n")

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
