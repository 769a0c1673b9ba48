"""What this process may use and what is left of it: cores, memory, open files, by its cgroups and the machine."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from typing import TypeVar

from loaderprobe.system.host import cores_allowed
from loaderprobe.system.process import read_proc

Answer = TypeVar("Answer")
SELF = Path("/proc/self")
MEMINFO = Path("/proc/meminfo")
PEAK_FROM_HERE = "5"
"""Written to `clear_refs`, it sets the peak to what is resident now (proc(5))."""


def resident_bytes(process: Path = SELF) -> int:
    """What is resident now; 0 where /proc does not say."""
    return _field(process / "status", "VmRSS") or 0


def release_free() -> None:
    """Give the kernel back what the allocator keeps of freed memory. Only with glibc, as torch is built for it."""
    ctypes.CDLL(None).malloc_trim(0)


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


def _field(file: Path, name: str) -> int | None:
    """A line `name:  123 kB`."""
    match = re.search(rf"^{name}:\s+(\d+) kB".encode(), read_proc(file), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 writes a number beyond all memory where it means no limit."""


def _in_cgroups(ask: Callable[[Path], Answer | None], controller: str, root: Path, membership: Path) -> list[Answer]:
    """What this process's cgroups of one controller and their parents say, of both versions; some may not exist."""
    answers: list[Answer] = []
    for line in filter(None, os.fsdecode(read_proc(membership)).split("\n")):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        bases = [root / controllers, root / controller] if controllers else [root, root / "unified"]
        for base in bases:
            cgroup = base / path.lstrip("/")
            directories = (cgroup, *(parent for parent in cgroup.parents if parent.is_relative_to(base)))
            answers += [answer for answer in map(ask, directories) if answer is not None]
    return answers


def memory_left_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP, meminfo: Path = MEMINFO) -> int | None:
    """Bytes that files, or this process, may take beside what processes have now, without swapping; None where nothing
    says.

    The least of what the machine has available, which counts the cache that could be dropped, and what the memory
    limit of each cgroup above leaves when everything but files is subtracted.
    """
    available = _field(meminfo, "MemAvailable")
    return min([*_in_cgroups(_left, "memory", root, membership), *([available] if available else [])], default=None)


def _limit(directory: Path) -> int | None:
    """Bytes from which on the kernel takes memory back from one cgroup; None without a limit."""
    limits = []
    for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no controller here, or `max`
            limits.append(int((directory / name).read_text()))
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def _left(directory: Path) -> int | None:
    """What the limit of one cgroup leaves for files; None without a limit."""
    limit = _limit(directory)
    if limit is None:
        return None
    old = (directory / "memory.limit_in_bytes").is_file()
    used, prefix = ("memory.usage_in_bytes", "total_") if old else ("memory.current", "")
    try:
        counted = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
        files = sum(int(counted[f"{prefix}{name}"]) for name in ("active_file", "inactive_file"))
        return max(0, limit - int((directory / used).read_text()) + files)
    except (OSError, ValueError, KeyError):
        return None


def cores_available(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float:
    """Cores within CPU affinity and the smallest cgroup quota (v1 or v2) of this process and its parents."""
    return min(core_limits(root, membership).values())


def core_limits(root: Path = ROOT, membership: Path = MEMBERSHIP) -> dict[str, float]:
    """What limits the cores of this process: its CPU affinity, and the cgroup quotas of it and its parents.

    In cores, by a name that all processes of this host have for the same limit.
    """
    allowed = cores_allowed()
    return {str(allowed): float(len(allowed)), **dict(_in_cgroups(_quota, "cpu", root, membership))}


def _quota(directory: Path) -> tuple[str, float] | None:
    try:
        if (directory / "cpu.max").is_file():
            quota, period = (directory / "cpu.max").read_text().split()
        else:
            quota, period = ((directory / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        status, cores = directory.stat(), int(quota) / int(period)
    except (OSError, ValueError):
        return None  # no controller here, or `max`: no limit from this directory
    return (f"{status.st_dev}:{status.st_ino}", cores) if cores > 0 else None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name; the architecture where the kernel gives none, and on ARM `implementer/part` after it."""
    fields: dict[str, str] = {}
    for line in read_proc(cpuinfo).decode().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    of_arm = "/".join(fields[name] for name in ("CPU implementer", "CPU part") if name in fields)
    return fields.get("model name") or f"{platform.machine()} {of_arm}".strip()


SHARED_MEMORY = Path("/dev/shm")


def memory_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int:
    """Physical memory of the machine within the smallest limit of this process's cgroups, bytes."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_in_cgroups(_limit, "memory", root, membership)])


def shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """Size of the file system for shared memory, bytes; None where there is none to see."""
    with suppress(OSError):
        return disk_usage(path).total
    return None


def free_shared_memory_bytes(path: Path = SHARED_MEMORY) -> int | None:
    """Free bytes in shared memory; None where there is none to see."""
    with suppress(OSError):
        return disk_usage(path).free
    return None


A_RANK = 6
"""Connections to the store of all: one of each process, and five of its child, one of them for a group of the user's
own code."""
BESIDE = 100
"""Files that the process with the store has open beside."""


def connections_of(ranks: int) -> int:
    """Open files of the process that holds the store of so many ranks."""
    return A_RANK * ranks + BESIDE


def allow_open_files(least: int, pid: int = 0) -> int | None:
    """Let a process, this one or another of this user, hold so many open; returns how many it may, None if unlimited.

    The soft limit is raised where it is lower, as far as the hard one allows. None also where that cannot be seen.
    """
    with suppress(OSError, ValueError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= least:
            return None if soft == resource.RLIM_INFINITY else soft
        wanted = least if hard == resource.RLIM_INFINITY else min(least, hard)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return None
