"""How far a rank is: four numbers that it writes over themselves in a file, and the parent reads."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_NUMBERS = struct.Struct("=qqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Zeros before a rank began."""

    count: int = 0
    """Grows with each step and each meeting: that of ranks in step differs by a few."""
    done: int = 0
    """Segments."""
    total: int = 0
    pid: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of a file; zeros where there is none yet."""
        try:
            count, done, total, pid = _NUMBERS.unpack(path.read_bytes())
        except (FileNotFoundError, struct.error):
            return cls()
        return cls(count=count, done=done, total=total, pid=pid)


class MarksFile:
    """Written by one rank: a system call of about a microsecond for each mark."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._count = self._done = self._total = 0
        self.mark()

    def mark(self) -> None:
        """One more."""
        self._count += 1
        os.pwrite(self._fd, _NUMBERS.pack(self._count, self._done, self._total, os.getpid()), 0)

    def segment(self, done: int, total: int) -> None:
        """So many segments of `total` are done."""
        self._done, self._total = done, total
        self.mark()
