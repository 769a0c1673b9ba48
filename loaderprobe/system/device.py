"""The storage under a path, and how many bytes it has read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loaderprobe.errors import masked_text
from loaderprobe.records.environment import StorageKind, StorageLocation
from loaderprobe.records.files import is_url
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.system.process import io_counters, read_proc

SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever the device's own sectors are."""
SERVER_READ_BYTES = 4
"""Place of `serverreadbytes` in the `bytes:` line (NFSIOS_SERVERREADBYTES in linux/nfs_iostat.h)."""
NAME_CALLS = {"GETATTR", "LOOKUP", "ACCESS", "OPEN", "OPEN_NOATTR"}
"""NFS's operations by which opens and stats reach the server (nfs3_procedures, nfs4_procedures)."""
NOT_UTF_8 = "backslashreplace"
"""How names in other encodings are read, which any mount and any file may have."""


def _device_read_bytes() -> dict[str, int]:
    """Bytes that each block device has read since boot, for all processes; empty where the file cannot be read."""
    # major minor name reads merged sectors ...
    rows = [line.split() for line in read_proc(PROC / "diskstats").decode().splitlines()]
    return {row[2]: int(row[5]) * SECTOR_BYTES for row in rows if len(row) > 5}


def _fuse_counters(location: StorageLocation) -> dict[str, int]:
    """`rchar` (bytes) and `syscr` (calls) that the program which serves a FUSE mount has read, for all processes.

    Its reads of requests count, too, and where it has the data from is its own affair. Empty for a block device behind
    FUSE, where the program may not be looked at, and where the kernel does not name its mount (6.18 does).
    """
    if location.kind != "fuse" or location.devices:
        return {}
    try:
        device = Path(location.mount).stat().st_dev
    except OSError:
        return {}
    connection = os.major(device) << 20 | os.minor(device)  # within the kernel
    servers = _servers_of(connection, PROC)
    if not all(_serves(server, connection) for server in servers):
        # Unmounted since, and another mount has its number.
        _servers_of.cache_clear()
        servers = _servers_of(connection, PROC)
    readings = [io_counters(server.parents[1]) for server in servers]
    if not readings or not all(readings):
        return {}
    return {name: sum(counters[name] for counters in readings) for name in ("rchar", "syscr")}


@lru_cache(maxsize=8)
def _servers_of(connection: int, proc: Path) -> tuple[Path, ...]:
    """Of each process with the FUSE connection open, the entry in fdinfo; it has the number of its file system."""
    servers: list[Path] = []
    for files in proc.glob("[0-9]*/fd"):
        with suppress(OSError):  # of another user, or ended meanwhile
            names = [file.name for file in files.iterdir() if str(file.readlink()) == "/dev/fuse"]
            infos = [files.parent / "fdinfo" / name for name in names]
            servers += [info for info in infos if _serves(info, connection)][:1]
    return tuple(servers)


def _serves(info: Path, connection: int) -> bool:
    return b"fuse_connection:\t%d\n" % connection in read_proc(info)


def _of_nfs(mount_point: str) -> list[list[str]]:
    """The words of each line on the NFS that is mounted there; a later mount hides the earlier ones.

    Empty where the file cannot be read, which only its owner may. Mounts of one export share their counters.
    """
    lines: list[list[str]] = []
    within = False
    for line in read_proc(PROC / "self/mountstats").decode(errors=NOT_UTF_8).splitlines():
        if line.startswith(("device ", "no device ")):
            # device SOURCE mounted on POINT with fstype TYPE ..., spaces within a name written as \040
            point = line.partition(" mounted on ")[2].partition(" with fstype ")[0]
            within = unescape(point) == mount_point
            lines = [] if within else lines
        elif within:
            lines.append(line.split())
    return lines


def unescape(text: str) -> str:
    """The name behind the kernel's spelling, which has octal numbers for spaces, tabs, commas and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


NFS = {"nfs", "nfs4"}
NETWORK = {*NFS, "cifs", "smb3", "ceph", "lustre", "9p", "virtiofs", "beegfs", "gpfs", "glusterfs", "afs", "vboxsf"}
MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
SYS = Path("/sys")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    """One line of mountinfo, and the device number that the kernel gives the path on it."""

    number: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]
    device: str


def locate(path: Path) -> StorageLocation:
    """The storage that `path` lives on. Raises OSError when the path cannot be opened."""
    return _describe(path, _mount_of(path), frozenset())


def locate_root(root: str) -> StorageLocation:
    """The storage under a directory, or behind a URL."""
    if not is_url(root):
        return locate(Path(root))
    scheme = root.partition("://")[0]
    return StorageLocation(path=root, filesystem=scheme, kind="object", mount="", source="", devices=())


def read_sectors(devices: Sequence[str]) -> int | None:
    """Bytes that the devices have read since boot, for all processes; None when one is not listed or not counted.

    A loop device whose file is on another device of the list is left out, because its reads are counted
    there. None where the device of its file is not visible.
    """
    counted = set(devices)
    for loop in sorted(counted) if len(counted) > 1 else ():
        if loop.startswith("loop"):
            below = _below(loop, frozenset())
            if below is None:
                return None
            if below & set(devices):
                counted.discard(loop)
    read_bytes = _device_read_bytes()
    counted = {path for device in counted for path in _paths(device, read_bytes)}
    if not counted or not counted <= read_bytes.keys() or any(map(_stands_still, counted)):
        return None
    return sum(read_bytes[device] for device in counted)


def _paths(device: str, read_bytes: dict[str, int]) -> list[str]:
    """Where reads of a device are counted: of NVMe with several paths, before Linux 6.2, on these alone."""
    paths = [name for name in read_bytes if re.sub(r"^(nvme\d+)c\d+(n\d+)$", r"\1\2", name) == device != name]
    return paths if paths and not read_bytes.get(device) else [device]


def _stands_still(device: str) -> bool:
    """True where `iostats` is off. Drivers without a queue of requests, such as zram, count all the same."""
    directory = SYS / "class/block" / device
    with suppress(OSError):
        return (directory / "mq").exists() and (directory / "queue/iostats").read_text() == "0\n"
    return False


def reads_from_storage(location: StorageLocation) -> int | None:
    """Bytes that the storage under `location` has read since boot, for all processes; None where not all are counted.

    Counted by the devices of a local file system or of an overlay of such, by the client of NFS, cached or direct, and
    by the program that serves a FUSE mount.
    """
    if location.kind == "fuse":
        return _fuse_counters(location).get("rchar")
    if _is_nfs(location):
        counts = next((words[1:] for words in _of_nfs(location.mount) if words[:1] == ["bytes:"]), [])
        return int(counts[SERVER_READ_BYTES]) if len(counts) > SERVER_READ_BYTES else None
    if location.kind not in ("block", "overlay") or not {"block", "memory"}.issuperset(location.layers):
        return None
    return read_sectors(location.devices)


def name_calls(location: StorageLocation) -> int | None:
    """Calls for names and attributes that the NFS client has sent to the server, or read calls of the program that
    serves a FUSE mount, since it is mounted and for all processes; None where these are not counted."""
    if not _is_nfs(location):
        return _fuse_counters(location).get("syscr")
    # NAME: operations transmissions timeouts ...
    lines = (words for words in _of_nfs(location.mount) if len(words) > 1)
    counts = [int(words[1]) for words in lines if words[0].removesuffix(":") in NAME_CALLS]
    return sum(counts) if counts else None


def _is_nfs(location: StorageLocation) -> bool:
    """One mount: what is on several is of no known kind, and no counter has all."""
    return location.kind == "network" and location.filesystem in NFS


def process_reads_counted(location: StorageLocation) -> bool:
    """True where the kernel counts what a process reads from this storage: without I/O accounting /proc has no `io`."""
    return location.counts_reads and bool(io_counters(PROC / "self"))


def _describe(path: Path, mount: _Mount, above: frozenset[str]) -> StorageLocation:
    """`above` holds the numbers of the mounts through which the path was reached."""
    above |= {mount.number}
    kind = _kind(mount.filesystem)
    devices: tuple[str, ...] = ()
    layers: tuple[StorageLocation | None, ...] = ()
    if kind == "overlay":
        layers = tuple(_beneath(name, above) for name in _layers(mount.options))
        devices = tuple(dict.fromkeys(device for layer in layers if layer for device in layer.devices))
        ahead = [layer.read_ahead_bytes for layer in layers if layer and layer.read_ahead_bytes is not None]
        read_ahead = max(ahead, default=None)
        notes = _notes_of_layers(layers)
    else:
        if kind == "block" or mount.filesystem == "fuseblk":
            devices = _devices(mount)
        kind = "unknown" if kind == "block" and not devices else kind
        read_ahead = None if kind == "memory" else _read_ahead_bytes(mount)
        notes = [*_notes(kind, mount.filesystem), *_notes_of_devices(devices, above)]
    return StorageLocation(
        path=str(path),
        filesystem=mount.filesystem,
        kind=kind,
        mount=mount.point,
        source=mount.source,
        devices=devices,
        notes=tuple(notes),
        read_ahead_bytes=read_ahead,
        layers=tuple(kind for layer in layers for kind in (layer.layers or (layer.kind,) if layer else ("hidden",))),
    )


def _beneath(name: str, above: frozenset[str]) -> StorageLocation | None:
    """The storage of a layer or of a loop device's file; None when it is not visible from here.

    The name is the host's. If it leads back to a mount above it, it is a different file inside the container.
    """
    try:
        mount = _mount_of(Path(name))
    except OSError:
        return None
    return _describe(Path(name), mount, above) if name.startswith("/") and mount.number not in above else None


def _kind(filesystem: str) -> StorageKind:
    if filesystem in MEMORY:
        return "memory"
    if filesystem in NETWORK:
        return "network"
    if filesystem == "overlay":
        return "overlay"
    return "fuse" if filesystem in ("fuse", "fuseblk") or filesystem.startswith("fuse.") else "block"


def _notes(kind: StorageKind, filesystem: str) -> list[Remark]:
    """Limits of what can be known about storage of this kind."""
    notes = []
    if filesystem == "unknown":
        notes.append(Remark(code="mount_hidden"))
    if kind == "unknown":
        notes.append(Remark(code="device_hidden"))
        if filesystem == "zfs":
            notes.append(Remark(code="zfs_cache"))
    elif kind == "memory":
        notes.append(Remark(code="in_memory"))
    elif filesystem in NFS:
        notes.append(Remark(code="nfs"))
    elif kind == "network":
        notes.append(Remark(code="remote_uncounted", facts={"filesystem": filesystem}))
    elif kind == "fuse":
        notes.append(Remark(code="fuse"))
    return notes


def _notes_of_devices(devices: Sequence[str], above: frozenset[str]) -> list[Remark]:
    notes = []
    for device in devices:
        if device.startswith("loop"):
            notes.append(_note_of_loop(device, above))
        elif re.fullmatch(r"z?ram\d+", device):
            notes.append(Remark(code="device_in_memory", facts={"device": device}))
    return notes


def _note_of_loop(loop: str, above: frozenset[str]) -> Remark:
    file = _of_loop(loop, "backing_file")
    if file is None:
        return Remark(code="loop_hidden", facts={"device": loop})
    location = _beneath(file, above)
    cache = "none" if _of_loop(loop, "dio") == "1" else "own_cache"
    facts: dict[str, float | str] = {"device": loop, "file": file, "cache": cache}
    if location is None:
        return Remark(code="loop_file_hidden", facts=facts)
    if location.kind == "memory":
        facts["cache"] = "in_memory"
    facts |= {"filesystem": location.filesystem, "under": ", ".join(location.devices) or location.kind}
    return Remark(code="loop_file", facts=facts)


def _of_loop(loop: str, attribute: str) -> str | None:
    with suppress(OSError):
        return (SYS / "block" / loop / "loop" / attribute).read_text(errors=NOT_UTF_8).rstrip("\n")
    return None


def _below(loop: str, passed: frozenset[str]) -> frozenset[str] | None:
    """All devices under the file of a loop device, however deep; None when they are not visible."""
    file = _of_loop(loop, "backing_file")
    location = _beneath(file, frozenset()) if file and loop not in passed else None
    if location is None or (not location.devices and location.kind in ("overlay", "unknown")):
        return None
    below = frozenset(location.devices)
    for deeper in location.devices:
        if deeper.startswith("loop"):
            under = _below(deeper, passed | {loop})
            if under is None:
                return None
            below |= under
    return below


def _mount_of(path: Path) -> _Mount:
    """By the kernel's own mount number: the longest prefix is wrong under bind mounts."""
    number = line = ""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        device = os.fstat(fd).st_dev
        with suppress(OSError):  # a sandbox hides mounts
            match = re.search(r"mnt_id:\s*(\d+)", (PROC / "self/fdinfo" / str(fd)).read_text())
            lines = (PROC / "self/mountinfo").read_text(errors=NOT_UTF_8).splitlines()
            number = match[1] if match else ""
            line = next((line for line in lines if line.startswith(f"{number} ")), "")
    finally:
        os.close(fd)
    left, _, right = line.partition(" - ")
    filesystem, source, options, *_ = [*right.split(" "), "", "", ""]
    return _Mount(
        number=number,
        point=unescape(left.split()[4]) if line else "?",
        filesystem=filesystem or "unknown",
        source=masked_text(unescape(source)) or "?",
        options=tuple(unescape(option) for option in options.split(",")),
        device=f"{os.major(device)}:{os.minor(device)}",
    )


def _devices(mount: _Mount) -> tuple[str, ...]:
    if (SYS / "dev/block" / mount.device).exists():
        return tuple(dict.fromkeys(_leaves(mount.device)))
    # btrfs and its like give files an anonymous device number.
    source = _number_of(mount.source)
    if source is None:
        return ()
    members = [member / "dev" for path in _btrfs_of(source)[:1] for member in sorted((path / "devices").iterdir())]
    siblings = [member.read_text().strip() for member in members] or [source]
    return tuple(dict.fromkeys(leaf for number in siblings for leaf in _leaves(number)))


def _read_ahead_bytes(mount: _Mount) -> int | None:
    """Of the backing device of the file system, which NFS, FUSE, dm and loop devices each have of their own."""
    folders = [SYS / "class/bdi" / mount.device, SYS / "class/bdi" / f"{mount.device}-fuseblk"]
    device = (SYS / "dev/block" / mount.device).resolve()
    # A partition has that of its disk; btrfs one that is named by its volume.
    folders += [(device.parent if (device / "partition").exists() else device) / "queue"]
    source = None if device.exists() else _number_of(mount.source)
    if source is not None:
        folders += [path / "bdi" for path in _btrfs_of(source)]
    for folder in folders:
        with suppress(OSError, ValueError):
            return int((folder / "read_ahead_kb").read_text()) * 1024
    return None


def _number_of(source: str) -> str | None:
    """Major and minor number of a device by its node, or, where a container has no node, by its kernel name."""
    with suppress(OSError):
        status = Path(source).stat()
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if stat.S_ISBLK(status.st_mode) else None
    with suppress(OSError):
        return (SYS / "class/block" / source.removeprefix("/dev/") / "dev").read_text().strip()
    return None


def _btrfs_of(number: str) -> list[Path]:
    """Where the kernel describes the btrfs that the device of this number belongs to; empty for another device."""
    name = (SYS / "dev/block" / number).resolve().name
    return [volume for volume in (SYS / "fs/btrfs").glob("*-*") if (volume / "devices" / name).exists()]


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


def _layers(options: Sequence[str]) -> list[str]:
    """Paths of an overlay's layers, topmost first; mounts made one layer at a time (Linux 6.8) say `lowerdir+`."""
    upper, lower = [], []
    for option in options:
        name, _, value = option.partition("=")
        if name == "upperdir":
            upper.append(value)
        elif name in ("lowerdir+", "datadir+"):
            lower.append(value)
        elif name == "lowerdir":
            # `::` leads to layers that hold data only; a colon within a name has a backslash before it.
            parts = re.findall(r"(?:\\.|[^:\\])+", value)
            lower += [re.sub(r"\\(.)", r"\1", part) for part in parts]
    return upper + lower


def _notes_of_layers(layers: Sequence[StorageLocation | None]) -> list[Remark]:
    """Limits of what can be known about an overlay, each once."""
    visible = [layer for layer in layers if layer]
    in_memory = [layer.path for layer in visible if layer.kind == "memory"]
    notes = []
    if not visible:
        notes.append(Remark(code="layers_hidden"))
    elif hidden := len(layers) - len(visible):
        notes.append(Remark(code="some_layers_hidden", facts={"hidden": hidden, "layers": len(layers)}))
    if in_memory and len(in_memory) == len(visible):
        notes.append(Remark(code="layers_in_memory"))
    elif in_memory:
        notes.append(Remark(code="some_layers_in_memory", facts={"paths": ", ".join(in_memory)}))
    others = [note for layer in visible if layer.kind != "memory" for note in layer.notes]
    return list(each_once([*notes, *others]))
