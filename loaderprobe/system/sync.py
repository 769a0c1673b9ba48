"""Making what was written durable: one file system, not the whole machine."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sync_filesystem(path: Path) -> None:
    """Wait until all that was written to the file system of the directory `path` is on the medium (syncfs(2)).

    Raises OSError, also for a write that failed on its way to the medium (Linux 5.8 and newer say so).
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc().syncfs(directory):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(directory)
