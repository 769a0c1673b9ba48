"""From a path to its devices, in kernels that are written out: partitions, dm, btrfs, FUSE, bind mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.system import device
from loaderprobe.system.device import locate
from tests.said import said
from tests.system.fake_kernel import Kernel


def test_a_partition_is_its_disk(kernel: Kernel) -> None:
    """Reads are counted for the whole disk, which is what limits them."""
    kernel.disk("vda", "254:0")
    kernel.disk("vda/vda1", "254:1", partition=True)
    kernel.mount("ext4", number="254:1")
    found = locate(kernel.data)
    assert (found.kind, found.devices, found.notes, found.counts_reads) == ("block", ("vda",), (), True)


def test_a_volume_is_its_members(kernel: Kernel) -> None:
    """dm over md over two partitions of two disks gives the two disks, each once."""
    for name, major in (("sda", 8), ("sdb", 9)):
        kernel.disk(name, f"{major}:0")
        kernel.disk(f"{name}/{name}1", f"{major}:1", partition=True)
    kernel.disk("virtual/md0", "10:0", slaves=("sda/sda1", "sdb/sdb1", "sda"))
    kernel.disk("virtual/dm-0", "253:0", slaves=("virtual/md0",))
    kernel.mount("xfs", number="253:0")
    assert locate(kernel.data).devices == ("sda", "sdb")


def test_btrfs_is_the_disks_of_all_its_members(kernel: Kernel) -> None:
    """Its files have an anonymous number; the source, of which a container has no node, is found by its name."""
    for name, major in (("sda", 8), ("sdb", 9)):
        kernel.disk(name, f"{major}:0")
        kernel.disk(f"{name}/{name}1", f"{major}:1", partition=True)
    kernel.btrfs("sda/sda1", "sdb/sdb1")
    kernel.mount("btrfs", source="/dev/sda1")
    found = locate(kernel.data)
    assert (found.kind, found.devices) == ("block", ("sda", "sdb"))


def test_a_device_that_is_not_visible_is_unknown(kernel: Kernel) -> None:
    """An anonymous device number without a block device as its source is no device, and a note says so."""
    kernel.mount("zfs", source="pool/data")
    found = locate(kernel.data)
    assert (found.kind, found.devices, found.counts_reads) == ("unknown", (), False)
    assert "not visible" in said(found.notes[0]) and "its own cache" in said(found.notes[1])


@pytest.mark.parametrize(
    ("filesystem", "kind"),
    [
        ("nfs4", "network"), ("ceph", "network"), ("lustre", "network"), ("virtiofs", "network"),
        ("fuse.s3fs", "fuse"), ("fuse", "fuse"), ("tmpfs", "memory"), ("overlay", "overlay"), ("fuseblk", "fuse"),
    ],
)  # fmt: skip
def test_kinds_follow_the_name_of_the_file_system(kernel: Kernel, filesystem: str, kind: str) -> None:
    """What is not a local block device has no devices, and a note of why its reads cannot be seen."""
    kernel.mount(filesystem, source="server:/export")
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.devices, found.source) == (filesystem, kind, (), "server:/export")
    assert found.notes
    assert found.counts_reads == (kind == "overlay")


@pytest.mark.parametrize(
    ("filesystem", "says"),
    [
        ("tmpfs", "memory, not storage"), ("nfs", "the server's cache"), ("cifs", "counts what cifs reads"),
        ("fuse.sshfs", "another program reads"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_said(kernel: Kernel, filesystem: str, says: str) -> None:
    """The note is of that kind of storage."""
    kernel.mount(filesystem)
    assert says in said(locate(kernel.data).notes[0])


def test_fuseblk_is_fuse_on_a_device(kernel: Kernel) -> None:
    """ntfs-3g reads the device itself, so the device is listed, but a reader's own reads are not counted."""
    kernel.disk("sdc", "8:32")
    kernel.mount("fuseblk", number="8:32")
    found = locate(kernel.data)
    assert (found.kind, found.devices, found.counts_reads) == ("fuse", ("sdc",), False)


def test_a_device_in_memory_is_said_to_be(kernel: Kernel) -> None:
    """zram counts its reads like a disk, though no storage is behind it."""
    kernel.disk("virtual/zram0", "253:0")
    kernel.mount("ext4", number="253:0")
    assert "zram0 is a device in memory" in said(locate(kernel.data).notes[0])


def test_names_with_spaces_are_unescaped(kernel: Kernel) -> None:
    """The kernel writes a space as \\040."""
    kernel.mount("nfs", source="a\\040b:/", point="/my\\040data")
    assert (locate(kernel.data).mount, locate(kernel.data).source) == ("/my data", "a b:/")


def test_a_mount_that_is_not_listed_is_unknown(kernel: Kernel) -> None:
    """As in a sandbox that hides mountinfo's lines: no guess by the path's prefix is made, and a note says so."""
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.mount) == ("unknown", "unknown", "?")
    assert "not listed" in said(found.notes[0])


def test_a_hidden_mountinfo_is_no_error(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The device may still be known, by its number."""
    kernel.disk("vda", "254:0")
    kernel.mount("ext4", number="254:0")
    monkeypatch.setattr(device, "PROC", tmp_path / "none")
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.devices) == ("unknown", "block", ("vda",))


@pytest.mark.parametrize(
    ("filesystem", "number", "place"),
    [
        ("xfs", "253:0", "class/bdi/253:0"),
        ("ext4", "254:1", "devices/vda/queue"),
        ("nfs4", "0:40", "class/bdi/0:40"),
        ("fuse.s3fs", "0:40", "class/bdi/0:40"),
        ("fuseblk", "0:40", "class/bdi/0:40-fuseblk"),
        ("btrfs", "0:40", "fs/btrfs/0-0/bdi"),
    ],
)
def test_the_read_ahead_is_that_of_the_backing_device(kernel: Kernel, filesystem: str, number: str, place: str) -> None:
    """Of a file system of its own, where it has one; a partition has that of its disk, which is not that of dm."""
    kernel.disk("vda", "254:0")
    kernel.disk("vda/vda1", "254:1", partition=True)
    kernel.disk("virtual/dm-0", "253:0", slaves=("vda/vda1",))
    kernel.btrfs("vda/vda1")
    kernel.read_ahead("class/bdi/254:0", 64)
    kernel.read_ahead(place, 2560)
    kernel.mount(filesystem, number=number, source="/dev/vda1")
    assert locate(kernel.data).read_ahead_bytes == 2560 * 1024


def test_a_read_ahead_that_is_not_known_is_none(kernel: Kernel) -> None:
    """Off is 0; an overlay has the largest of its layers."""
    kernel.mount("nfs4")
    assert locate(kernel.data).read_ahead_bytes is None
    kernel.read_ahead("class/bdi/0:40", 0)
    assert locate(kernel.data).read_ahead_bytes == 0
    lower, upper = kernel.mount("xfs", "lower", number="0:51"), kernel.mount("tmpfs", "upper", number="0:52")
    kernel.read_ahead("class/bdi/0:51", 128)
    kernel.read_ahead("class/bdi/0:52", 4096)
    over = kernel.mount("overlay", "over", number="0:53", options=f"rw,lowerdir={lower},upperdir={upper}")
    assert locate(over).read_ahead_bytes == 128 * 1024
