"""From a path to its devices, in kernels that are written out: partitions, dm, btrfs, overlays, bind mounts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from loaderprobe.system import device
from loaderprobe.system.device import locate

DESCRIPTORS = 100
"""More than a test has open, so that any descriptor has its `fdinfo`."""


class Kernel:
    """A /sys and a /proc in which the path `data` lies on a mount that the test describes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = root / "data"
        self.data.mkdir()
        self._sys, self._proc = root / "sys", root / "proc"
        monkeypatch.setattr(device, "SYS", self._sys)
        monkeypatch.setattr(device, "PROC", self._proc)

    def mount(self, filesystem: str, source: str = "/dev/x", options: str = "rw", point: str = "/data") -> None:
        """The mount under every path; another one is listed before it, as longer prefixes often are."""
        (self._proc / "self/fdinfo").mkdir(parents=True)
        for number in range(DESCRIPTORS):
            (self._proc / f"self/fdinfo/{number}").write_text("pos:\t0\nflags:\t0\nmnt_id:\t42\n")
        (self._proc / "self/mountinfo").write_text(
            "7 1 8:1 / /data/longer rw - xfs /dev/other rw\n"
            f"42 1 8:1 / {point} rw,relatime shared:1 - {filesystem} {source} {options}\n"
        )

    def disk(self, path: str, number: str, *, partition: bool = False, slaves: tuple[str, ...] = ()) -> None:
        """A device below /sys/devices with its number."""
        directory = self._sys / "devices" / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "dev").write_text(f"{number}\n")
        if partition:
            (directory / "partition").write_text("1\n")
        for slave in slaves:
            (directory / "slaves").mkdir(exist_ok=True)
            (directory / "slaves" / Path(slave).name).symlink_to(self._sys / "devices" / slave)
        (self._sys / "dev/block").mkdir(parents=True, exist_ok=True)
        (self._sys / "dev/block" / number).symlink_to(directory)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def _on(monkeypatch: pytest.MonkeyPatch, major: int, minor: int) -> None:
    monkeypatch.setattr(Path, "stat", lambda *_, **__: SimpleNamespace(st_dev=os.makedev(major, minor)))


def _exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Path.exists` without `Path.stat`, which the test has replaced."""
    monkeypatch.setattr(Path, "exists", lambda path: os.path.exists(path))
    monkeypatch.setattr(Path, "is_dir", lambda path: os.path.isdir(path))


def test_a_partition_is_its_disk(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are counted for the whole disk, which is what limits them."""
    kernel.disk("vda", "254:0")
    kernel.disk("vda/vda1", "254:1", partition=True)
    kernel.mount("ext4")
    _exists(monkeypatch)
    _on(monkeypatch, 254, 1)
    assert (locate(kernel.data).kind, locate(kernel.data).devices) == ("block", ("vda",))


def test_a_volume_is_its_members(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """dm over md over two partitions of two disks gives the two disks, each once."""
    for name, major in (("sda", 8), ("sdb", 9)):
        kernel.disk(name, f"{major}:0")
        kernel.disk(f"{name}/{name}1", f"{major}:1", partition=True)
    kernel.disk("virtual/md0", "10:0", slaves=("sda/sda1", "sdb/sdb1", "sda"))
    kernel.disk("virtual/dm-0", "253:0", slaves=("virtual/md0",))
    kernel.mount("xfs")
    _exists(monkeypatch)
    _on(monkeypatch, 253, 0)
    assert locate(kernel.data).devices == ("sda", "sdb")


def test_a_device_that_is_not_visible_is_unknown(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An anonymous device number without a block device as its source is no device, and a note says so."""
    kernel.mount("zfs", source="pool/data")
    found = locate(kernel.data)
    assert (found.kind, found.devices, found.counts_reads) == ("unknown", (), False)
    assert "not visible" in found.notes[0]


@pytest.mark.parametrize(
    ("filesystem", "kind"),
    [
        ("nfs4", "network"), ("ceph", "network"), ("lustre", "network"), ("virtiofs", "network"),
        ("fuse.s3fs", "fuse"), ("fuse", "fuse"), ("tmpfs", "memory"), ("overlay", "overlay"), ("fuseblk", "unknown"),
    ],
)  # fmt: skip
def test_kinds_follow_the_name_of_the_file_system(kernel: Kernel, filesystem: str, kind: str) -> None:
    """What is not a local block device has no devices, and a note of why its reads cannot be seen."""
    kernel.mount(filesystem, source="server:/export")
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.devices, found.source) == (filesystem, kind, (), "server:/export")
    assert found.notes


def test_names_with_spaces_are_unescaped(kernel: Kernel) -> None:
    """The kernel writes a space as \\040."""
    kernel.mount("nfs", source="a\\040b:/", point="/my\\040data")
    assert (locate(kernel.data).mount, locate(kernel.data).source) == ("/my data", "a b:/")


def test_layers_that_may_not_be_looked_at_are_passed_over(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that this user may not enter, or that is not there, gives a note, not an error."""
    secret = tmp_path / "secret"
    secret.mkdir()
    kernel.mount("overlay", source="overlay", options=f"rw,lowerdir={secret}:/not/there,upperdir={secret}")
    opened = os.open

    def refuse(path: Path, flags: int) -> int:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    found = locate(kernel.data)
    assert (found.kind, found.devices) == ("overlay", ())
    assert "layers" in found.notes[0]


def test_a_mount_that_is_not_listed_is_unknown(kernel: Kernel) -> None:
    """As in a sandbox that hides mountinfo's lines: no guess by the path's prefix is made."""
    kernel.mount("ext4")
    (device.PROC / "self/mountinfo").write_text("7 1 8:1 / / rw - xfs /dev/other rw\n")
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.mount) == ("unknown", "unknown", "?")
