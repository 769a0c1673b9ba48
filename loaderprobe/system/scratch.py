"""Temporary directories that do not pile up: what a process that was killed left is removed by the next."""

from __future__ import annotations

import errno
import fcntl
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loaderprobe.errors import MissingPart, NoSpace
from loaderprobe.system.limits import SHARED_MEMORY

SPACE_HINT = "free some, or let TMPDIR name a directory with more"
WRITTEN_HINT = "mount one (docker run --tmpfs /tmp), or let TMPDIR name one with space that can be written"
PREFIX = "loaderprobe-"
MARK = ".loaderprobe-scratch"
"""A file that is in these directories alone, and locked while its process lives, in whatever container that is."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new temporary directory, removed in the end; those of killed processes are removed before and after.

    Raises NoSpace on a full file system, MissingPart where no directory can be written.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise MissingPart("no directory for temporary files can be written", hint=WRITTEN_HINT) from error
    remove_abandoned(folder)
    with written_in(folder):
        made = tempfile.TemporaryDirectory(prefix=PREFIX)
    with made as name:
        unlocked = Path(name) / "mark"
        with unlocked.open("wb") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
                # Named once it is locked: before that no process removes it, nor on a file system without locks.
                unlocked.rename(Path(name) / MARK)
            yield Path(name)
    remove_abandoned(folder)


@contextmanager
def written_in(scratch: Path) -> Iterator[None]:
    """Raises NoSpace, with what to do, where temporary files are written and their file system is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(f"no space left for temporary files in {scratch}", hint=SPACE_HINT) from error


def remove_abandoned(folder: Path) -> None:
    """Remove the scratch directories in `folder` that no process holds any more."""
    for mark in folder.glob(f"{PREFIX}*/{MARK}"):
        with suppress(OSError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)


def remove_batches(workers: Iterable[int], shared: Path = SHARED_MEMORY) -> None:
    """Remove what workers that have ended left in shared memory.

    torch unlinks the memory of a batch once it has all of it: not where it is full, nor in a worker that is killed.
    """
    for worker in workers:
        for path in shared.glob(f"torch_{worker}_*"):
            with suppress(OSError):
                path.unlink()
