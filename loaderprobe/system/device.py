"""From a path to the storage under it, and what its devices have read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.records.environment import StorageKind, StorageLocation

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "9p", "virtiofs", "beegfs", "gpfs", "glusterfs", "afs"}
MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
SECTOR_BYTES = 512
SYS = Path("/sys")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """One line of mountinfo."""

    number: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]


def locate(path: Path) -> StorageLocation:
    """The storage that `path` lives on. Raises OSError when the path cannot be opened."""
    mount = _mount_of(path)
    kind = _kind(mount.filesystem)
    notes: list[str] = []
    devices: tuple[str, ...] = ()
    if kind == "block":
        devices = _block_devices(path, mount)
        if not devices:
            kind = "unknown"
            notes.append("the block device under this file system is not visible from here")
    elif kind == "overlay":
        devices = _overlay_devices(mount)
        if not devices:
            notes.append("the layers of this overlay, and so its devices, are not visible from inside the container")
    elif kind == "memory":
        notes.append("this is memory, not storage: nothing here can be read cold")
    elif kind in ("network", "fuse"):
        notes.append("reads of this file system are not counted by the kernel's block statistics")
    return StorageLocation(
        path=str(path),
        filesystem=mount.filesystem,
        kind=kind,
        mount=mount.point,
        source=mount.source,
        devices=devices,
        notes=tuple(notes),
    )


def read_sectors(devices: Sequence[str], diskstats: Path = PROC / "diskstats") -> int | None:
    """Bytes that the devices have read since boot, for anybody; None when one is not listed."""
    if not devices:
        return None
    try:
        lines = diskstats.read_text().splitlines()
    except OSError:
        return None
    # major minor name reads merged sectors ...
    sectors = {fields[2]: int(fields[5]) for line in lines if len(fields := line.split()) > 5}
    if any(device not in sectors for device in devices):
        return None
    return sum(sectors[device] for device in devices) * SECTOR_BYTES


def _kind(filesystem: str) -> StorageKind:
    if filesystem in MEMORY:
        return "memory"
    if filesystem in NETWORK:
        return "network"
    if filesystem == "overlay":
        return "overlay"
    return "fuse" if filesystem.startswith("fuse") and filesystem != "fuseblk" else "block"


def _mount_of(path: Path) -> _Mount:
    """By the kernel's own mount number: the longest prefix is wrong under bind mounts."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = (PROC / "self" / "fdinfo" / str(fd)).read_text()
    finally:
        os.close(fd)
    match = re.search(r"mnt_id:\s*(\d+)", info)
    number = match[1] if match else ""
    for line in (PROC / "self" / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[0] == number:
            filesystem, source, options, *_ = [*right.split(" "), "", ""]
            return _Mount(
                number=number,
                point=_unescape(left.split()[4]),
                filesystem=filesystem,
                source=_unescape(source),
                options=tuple(_unescape(options).split(",")),
            )
    return _Mount(number=number, point="?", filesystem="unknown", source="?", options=())


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _block_devices(path: Path, mount: _Mount) -> tuple[str, ...]:
    number = path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    if not (SYS / "dev/block" / name).exists():
        # btrfs and its like give files an anonymous device number.
        source = Path(mount.source)
        if not source.is_block_device():
            return ()
        number = source.stat().st_rdev
        name = f"{os.major(number)}:{os.minor(number)}"
        siblings = _btrfs_devices((SYS / "dev/block" / name).resolve().name)
        if siblings:
            return siblings
    return tuple(dict.fromkeys(_leaves(name)))


def _btrfs_devices(device: str) -> tuple[str, ...]:
    for volume in (SYS / "fs/btrfs").glob("*-*"):
        names = [entry.name for entry in (volume / "devices").iterdir()] if (volume / "devices").is_dir() else []
        if device in names:
            return tuple(sorted(names))
    return ()


def _leaves(number: str) -> list[str]:
    """The devices at the bottom: the disk of a partition, the members of dm and md; a loop device is its own."""
    device = (SYS / "dev/block" / number).resolve()
    if not device.exists():
        return []
    if (device / "partition").exists():
        return _leaves((device.parent / "dev").read_text().strip())
    below = sorted((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    if below:
        return [leaf for member in below for leaf in _leaves((member / "dev").read_text().strip())]
    return [device.name]


def _overlay_devices(mount: _Mount) -> tuple[str, ...]:
    layers: list[str] = []
    for option in mount.options:
        name, _, value = option.partition("=")
        if name in ("upperdir", "lowerdir"):
            layers += value.split(":")
    found: list[str] = []
    for layer in layers:
        # A layer of the host is not there inside the container, or may not be looked at.
        with contextlib.suppress(OSError):
            found += locate(Path(layer)).devices
    return tuple(dict.fromkeys(found))
