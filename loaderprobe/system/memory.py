"""How much memory there is, and how much of it may be shared."""

from __future__ import annotations

import os
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def memory_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """Size of the file system that holds shared memory; None where there is none to see."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_blocks * stat.f_frsize


def free_shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """What is free of it."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize
