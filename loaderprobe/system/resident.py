"""Memory of this process, now and at most, and what the machine has left, in bytes."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

SELF = Path("/proc/self")
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
PEAK_FROM_HERE = "5"
"""Written to `clear_refs`, it sets the peak to what is resident now (proc(5))."""


def resident_bytes(process: Path = SELF) -> int:
    """What is resident now; 0 where /proc does not say."""
    return _field(process / "status", "VmRSS") or 0


def release_free() -> None:
    """Give the kernel back what the allocator keeps of freed memory; nothing where the C library cannot (musl)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def reset_peak(process: Path = SELF) -> bool:
    """Begin a new peak; False where the kernel does not allow it."""
    try:
        (process / "clear_refs").write_text(PEAK_FROM_HERE)
    except OSError:
        return False
    return True


def peak_bytes(process: Path = SELF) -> int:
    """The most that was resident since `reset_peak`; 0 where /proc does not say."""
    return _field(process / "status", "VmHWM") or 0


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """What may still be allocated without swapping, on this machine and in this container; 0 where it is not known."""
    free = machine_available_bytes(meminfo)
    most, now = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    return min(free, max(0, most - now)) if most is not None and now is not None else free


def machine_available_bytes(meminfo: Path = MEMINFO) -> int:
    """What the machine has available, the cache that it could drop included; 0 where it is not known."""
    return _field(meminfo, "MemAvailable") or 0


def _field(file: Path, name: str) -> int | None:
    """A line `name:  123 kB`."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None  # `max` is no limit
