"""The files of one thread in /proc, kept open."""

from __future__ import annotations

import os
from collections.abc import Iterator

MOST_BYTES = 1024


class ThreadGone(Exception):
    """The thread, or its whole process, has ended."""


class ThreadFiles:
    """`syscall`, `stat` and `wchan` of a thread. `directory` is its process's folder in /proc, open.

    Open descriptors stay with their thread: when its number is reused, they report that it has ended. Opening costs
    three times as much as reading.
    """

    def __init__(self, directory: int, tid: int) -> None:
        self._directory, self._tid = directory, tid
        self._open: dict[str, int] = {}

    def close(self) -> None:
        """Close the descriptors."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def read(self, name: str) -> bytes:
        """The file's text. Raises OSError."""
        file = self._open.get(name)
        if file is None:
            file = os.open(f"task/{self._tid}/{name}", os.O_RDONLY, dir_fd=self._directory)
            self._open[name] = file
        return os.pread(file, MOST_BYTES, 0)

    def letter(self) -> str:
        """The state's letter. Raises ThreadGone."""
        try:
            # The command's name, in brackets, may hold anything.
            letter = self.read("stat").rpartition(b")")[2][1:2].decode()
        except OSError as error:
            raise ThreadGone from error
        if letter in "ZXx":  # also where there is no letter
            raise ThreadGone
        return letter

    def channel(self) -> str:
        """The kernel function in which it sleeps; empty where the kernel hides that."""
        try:
            channel = self.read("wchan").decode()
        except OSError:
            return ""
        return "" if channel == "0" else channel


class ThreadTable:
    """The files of all sampled threads of a process."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._task: int | None = None
        self._files: dict[int, ThreadFiles] = {}

    def close(self) -> None:
        """Close all descriptors."""
        for files in self._files.values():
            files.close()
        self._files.clear()
        if self._task is not None:
            os.close(self._task)
            self._task = None

    def files(self, tid: int) -> ThreadFiles:
        """The files of one thread."""
        files = self._files.get(tid)
        if files is None:
            files = self._files[tid] = ThreadFiles(self._directory, tid)
        return files

    def forget(self, tid: int) -> None:
        """Close the files of a thread that has ended."""
        files = self._files.pop(tid, None)
        if files is not None:
            files.close()

    def others(self, tid: int) -> Iterator[int]:
        """All current threads of the process except this one."""
        try:
            if self._task is None:
                self._task = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._directory)
            listed = {int(name) for name in os.listdir(self._task)}  # noqa: PTH208  # of a descriptor
        except OSError:
            return
        for ended in self._files.keys() - listed:
            self.forget(ended)
        yield from sorted(listed - {tid})
