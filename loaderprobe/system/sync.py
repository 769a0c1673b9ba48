"""Make written data durable on one file system, not on the whole machine."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sync_filesystem(path: Path) -> None:
    """Wait until all data written to the file system of the directory `path` is on the disk (syncfs(2)).

    Raises OSError, also for a write that failed later (reported by Linux 5.8 and newer).
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc().syncfs(directory):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(directory)
