"""What devices and NFS mounts have read since boot, as the kernel publishes it."""

from __future__ import annotations

import re
from pathlib import Path

SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever the device's own sectors are."""
SERVER_READ_BYTES = 4
"""Place of `serverreadbytes` in the `bytes:` line (NFSIOS_SERVERREADBYTES in linux/nfs_iostat.h)."""
NAME_CALLS = {"GETATTR", "LOOKUP", "ACCESS", "OPEN", "OPEN_NOATTR"}
"""NFS's operations by which opens and stats reach the server (nfs3_procedures, nfs4_procedures)."""


def device_read_bytes(diskstats: Path) -> dict[str, int]:
    """Bytes that each block device has read since boot, for all processes; empty where the file cannot be read."""
    try:
        lines = diskstats.read_text().splitlines()
    except OSError:
        return {}
    # major minor name reads merged sectors ...
    return {fields[2]: int(fields[5]) * SECTOR_BYTES for line in lines if len(fields := line.split()) > 5}


def server_read_bytes(mount_point: str, mountstats: Path) -> int | None:
    """Bytes that the NFS client has read from the server for a mount, cached or direct, for all processes.

    None when no NFS is mounted there, or the file cannot be read (only the owner may read `/proc/self/mountstats`).
    Mounts of one export share their counters.
    """
    counts = next((line.split()[1:] for line in _of_mount(mount_point, mountstats) if line.startswith("bytes:")), [])
    return int(counts[SERVER_READ_BYTES]) if len(counts) > SERVER_READ_BYTES else None


def server_name_calls(mount_point: str, mountstats: Path) -> int | None:
    """Calls for names and attributes that the NFS client has sent to the server for a mount, for all processes.

    None as for `server_read_bytes`.
    """
    # NAME: operations transmissions timeouts ...
    counts = [
        int(fields[1])
        for line in _of_mount(mount_point, mountstats)
        if len(fields := line.split()) > 1 and fields[0].removesuffix(":") in NAME_CALLS
    ]
    return sum(counts) if counts else None


def _of_mount(mount_point: str, mountstats: Path) -> list[str]:
    """The lines on what is mounted there, without blanks before them; a later mount hides the earlier ones."""
    try:
        lines = mountstats.read_text().splitlines()
    except OSError:
        return []
    found: list[str] = []
    within = False
    for line in lines:
        if line.startswith(("device ", "no device ")):
            # device SOURCE mounted on POINT with fstype TYPE ..., spaces within a name written as \040
            point = line.partition(" mounted on ")[2].partition(" with fstype ")[0]
            within = unescape(point) == mount_point
            found = [] if within else found
        elif within:
            found.append(line.lstrip())
    return found


def unescape(text: str) -> str:
    """The name behind the kernel's spelling, which has octal numbers for spaces, tabs, commas and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
