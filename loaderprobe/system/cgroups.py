"""The cgroups that a process is in, of both versions, and the memory that they and the machine leave for files."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.system.resident import MEMINFO, machine_available_bytes

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 writes a number beyond all memory where it means no limit."""


def cgroup_directories(controller: str, root: Path = ROOT, membership: Path = MEMBERSHIP) -> list[Path]:
    """This process's cgroup directories of one controller and their parents, for both versions; some may not exist."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        bases = [root / controllers, root / controller] if controllers else [root, root / "unified"]
        for base in bases:
            own = base / path.lstrip("/")
            found += [own, *(parent for parent in own.parents if parent.is_relative_to(base))]
    return found


def file_memory_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP, meminfo: Path = MEMINFO) -> int | None:
    """Bytes that the page cache may take beside the processes that run now; None where nothing says.

    The least of what the machine has available, which counts the cache that could be dropped, and what the memory
    limit of each cgroup above leaves when everything but files is subtracted.
    """
    of_groups = [left for each in cgroup_directories("memory", root, membership) if (left := _left(each)) is not None]
    available = machine_available_bytes(meminfo)
    return min([*of_groups, *([available] if available else [])], default=None)


def _left(directory: Path) -> int | None:
    """What the limit of one cgroup leaves for files; None without a limit."""
    try:
        if (directory / "memory.max").is_file():
            limit, used = ((directory / name).read_text().strip() for name in ("memory.max", "memory.current"))
            prefix = ""
        else:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            limit, used = ((directory / name).read_text().strip() for name in names)
            prefix = "total_"
        if limit == "max" or int(limit) >= _UNLIMITED:
            return None
        counted = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
        files = sum(int(counted[f"{prefix}{name}"]) for name in ("active_file", "inactive_file"))
    except (OSError, ValueError, KeyError):
        return None  # no controller here: no limit from this directory
    return max(0, int(limit) - int(used) + files)
