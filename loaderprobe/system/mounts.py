"""The mounts of this process, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    mount_id: int
    device: str
    """`major:minor`; for btrfs and overlay a number that no block device has."""
    root: str
    """Which directory of the file system is mounted; `/` for all of it."""
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]
    """Options of the file system, like `lowerdir=/a:/b`."""


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts of a mountinfo file; lines that are not complete are left out."""
    found = []
    for line in text.splitlines():
        front, separator, back = line.partition(" - ")
        fields, tail = front.split(" "), back.split(" ")
        if not separator or len(fields) < 6 or len(tail) < 2:
            continue
        found.append(
            Mount(
                mount_id=int(fields[0]),
                device=fields[2],
                root=_unescape(fields[3]),
                point=_unescape(fields[4]),
                filesystem=tail[0],
                source=_unescape(tail[1]),
                options=tuple(_unescape(tail[2]).split(",")) if len(tail) > 2 else (),
            )
        )
    return tuple(found)


def mounts(proc: Path = PROC) -> tuple[Mount, ...]:
    """All mounts that this process sees; empty when /proc is hidden."""
    try:
        return parse_mountinfo((proc / "self/mountinfo").read_text(errors="surrogateescape"))
    except OSError:
        return ()  # callers say "unknown" when the mount that they look for is not listed


def mount_of(path: Path, proc: Path = PROC) -> Mount | None:
    """The mount that `path` is on, asked of the kernel; None when it will not say. Raises OSError for a bad path.

    The longest mount point that is a prefix of the path would be wrong under bind mounts, symbolic links
    and mounts that hide one another.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        details = (proc / f"self/fdinfo/{descriptor}").read_text()
    except OSError:
        return None  # no fdinfo in this sandbox: the caller reports the storage as unknown
    finally:
        os.close(descriptor)
    match = re.search(r"^mnt_id:\s*(\d+)", details, re.MULTILINE)
    if match is None:
        return None
    return next((mount for mount in mounts(proc) if mount.mount_id == int(match[1])), None)
