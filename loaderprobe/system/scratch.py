"""Temporary directories that do not pile up: what a process that was killed left is removed by the next."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "loaderprobe-"
MARK = ".loaderprobe-scratch"
"""A file that is in these directories alone, and locked while its process lives, in whatever container that is."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new temporary directory, removed in the end; those of processes that were killed are removed first."""
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        unlocked = Path(name) / "mark"
        with unlocked.open("wb") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
                # Named once it is locked: nobody removes a directory before that, nor on a file system without locks.
                unlocked.rename(Path(name) / MARK)
            yield Path(name)


def remove_abandoned(folder: Path) -> None:
    """Remove the scratch directories in `folder` that no process holds any more."""
    for mark in folder.glob(f"{PREFIX}*/{MARK}"):
        with suppress(OSError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)
