"""Locks of `waits` that someone else holds most of the time.

Run as a program it holds a file lock, over and over, until its standard input ends.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

HELD_S = 0.15
FREE_S = 0.00015
"""Spun, since a sleep takes longer: enough for those who wait to wake up, too short for a second batch."""


class SharedFlock:
    """A shared flock of a file, opened in each process for itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> None:
        if self._file is None:
            self._file = Path(self._path).open("rb")  # stays open in the worker
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


def _spin() -> None:
    end_s = time.perf_counter() + FREE_S
    while time.perf_counter() < end_s:
        pass


def _hold(lock: Any) -> None:
    owner = os.getppid()
    while os.getppid() == owner:
        with lock:
            time.sleep(HELD_S)
        _spin()


@contextmanager
def lock_of(kind: str, scratch: Path) -> Iterator[Any]:
    """A lock for the data set, which another process holds most of the time; None for none."""
    if not kind:
        yield None
    elif kind == "writer":
        context = multiprocessing.get_context("fork")
        lock = context.Lock()
        holder = context.Process(target=_hold, args=(lock,), daemon=True)
        holder.start()
        try:
            yield lock
        finally:
            holder.terminate()
            holder.join()
    else:
        path = scratch / f"{os.getpid()}.lock"
        path.touch()
        with subprocess.Popen([sys.executable, __file__, str(path)], stdin=subprocess.PIPE) as process:
            assert process.stdin
            yield SharedFlock(str(path))
            process.stdin.close()
        path.unlink()


def hold_file() -> None:
    def run() -> None:
        with Path(sys.argv[1]).open("rb") as file:
            while True:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(HELD_S)
                fcntl.flock(file, fcntl.LOCK_UN)
                _spin()

    Thread(target=run, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    hold_file()
