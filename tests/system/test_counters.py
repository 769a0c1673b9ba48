"""What devices and NFS mounts have read, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.records.environment import StorageKind, StorageLocation
from loaderprobe.system.device import device_read_bytes, reads_from_storage, server_name_calls, server_read_bytes

MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device server:/export/a mounted on /mnt/data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp
\tage:\t86
\tevents:\t1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
\tbytes:\t1001 1002 1003 1004 5000000 1006 1007 1008
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 86 10 10 0 10 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 9000 9000 0 1 1 0 0 0 0
\t        OPEN: 30 30 0 1 1 0 0 0 0
\t     GETATTR: 5 5 0 1 1 0 0 0 0
\t      LOOKUP: 700 701 0 1 1 0 0 0 0
\t      ACCESS: 0 0 0 0 0 0 0 0 0

device server:/b mounted on /mnt/my\\040data with fstype nfs statvers=1.1
\tbytes:\t1 2 3 4 77 6 7 8

device server:/c mounted on /mnt/hidden with fstype nfs statvers=1.1
\tbytes:\t1 2 3 4 88 6 7 8

no device mounted on /run with fstype tmpfs
device /dev/vdb mounted on /mnt/hidden with fstype ext4
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountstats").write_text(MOUNTSTATS)
    (tmp_path / "diskstats").write_text(" 254 0 vda 9 9 1000 9 9 9 9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("point", "read_bytes"),
    [("/mnt/data", 5_000_000), ("/mnt/my data", 77), ("/mnt/hidden", None), ("/proc", None), ("/mnt", None)],
)
def test_what_a_client_read_from_its_server(proc: Path, point: str, read_bytes: int | None) -> None:
    """The fifth figure of that mount; a mount that another one covers, or that is no NFS, has none."""
    assert server_read_bytes(point, proc / "self/mountstats") == read_bytes


@pytest.mark.parametrize(("point", "calls"), [("/mnt/data", 735), ("/mnt/my data", None), ("/mnt/hidden", None)])
def test_calls_for_names_are_those_of_the_mount(proc: Path, point: str, calls: int | None) -> None:
    """Opens, lookups and attributes, each counted once however often it was sent; reads are none of them."""
    assert server_name_calls(point, proc / "self/mountstats") == calls


def test_nothing_to_read_is_unknown(tmp_path: Path) -> None:
    """Files that are not there or cut short give None or nothing, never 0."""
    assert server_read_bytes("/mnt", tmp_path / "none") is None
    assert device_read_bytes(tmp_path / "none") == {}
    (tmp_path / "short").write_text("device s:/ mounted on /mnt with fstype nfs\n\tbytes:\t1 2\n")
    assert server_read_bytes("/mnt", tmp_path / "short") is None


def _location(filesystem: str, kind: StorageKind, devices: tuple[str, ...] = ()) -> StorageLocation:
    return StorageLocation(
        path="/mnt/data/a", filesystem=filesystem, kind=kind, mount="/mnt/data", source="", devices=devices
    )


@pytest.mark.parametrize(
    ("location", "read_bytes"),
    [
        (_location("ext4", "block", ("vda",)), 512_000),
        (_location("overlay", "overlay", ("vda",)), 512_000),
        (_location("nfs4", "network"), 5_000_000),
        (_location("cifs", "network"), None),
        (_location("fuseblk", "fuse", ("vda",)), None),
        (_location("tmpfs", "memory"), None),
        (_location("overlay", "overlay"), None),
        (_location("ext4", "block", ("vdz",)), None),
    ],
)
def test_each_kind_is_counted_where_it_can_be(proc: Path, location: StorageLocation, read_bytes: int | None) -> None:
    """Devices for block and overlay, the client's own count for NFS, nothing for the rest."""
    assert reads_from_storage(location, proc) == read_bytes
