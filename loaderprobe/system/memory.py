"""Sizes of physical memory and of shared memory, in bytes."""

from __future__ import annotations

import os
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def memory_bytes() -> int:
    """Physical memory of the machine, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """Size of the file system for shared memory, bytes; None where there is none to see."""
    stat = _stat(path)
    return None if stat is None else stat.f_blocks * stat.f_frsize


def free_shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """Free bytes in shared memory; None where there is none to see."""
    stat = _stat(path)
    return None if stat is None else stat.f_bavail * stat.f_frsize


def _stat(path: Path) -> os.statvfs_result | None:
    try:
        return os.statvfs(path)
    except OSError:
        return None
