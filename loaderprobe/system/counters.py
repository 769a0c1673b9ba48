"""What devices and NFS mounts have read since boot, as the kernel publishes it."""

from __future__ import annotations

import re
from pathlib import Path

SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever the device's own sectors are."""
SERVER_READ_BYTES = 4
"""Place of `serverreadbytes` in the `bytes:` line (NFSIOS_SERVERREADBYTES in linux/nfs_iostat.h)."""


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
    try:
        lines = mountstats.read_text().splitlines()
    except OSError:
        return None
    found, within = None, False
    for line in lines:
        if line.startswith(("device ", "no device ")):
            # device SOURCE mounted on POINT with fstype TYPE ..., spaces within a name written as \040
            point = line.partition(" mounted on ")[2].partition(" with fstype ")[0]
            within = unescape(point) == mount_point
            # A later mount on the same point hides the earlier ones.
            found = None if within else found
        elif within and line.lstrip().startswith("bytes:"):
            counts = line.split()[1:]
            found = int(counts[SERVER_READ_BYTES]) if len(counts) > SERVER_READ_BYTES else None
    return found


def unescape(text: str) -> str:
    """The name behind the kernel's spelling, which has octal numbers for spaces, tabs, commas and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
