"""The storage under a path, and what it has read: in kernels that are written out, and on this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.api.load import load
from loaderprobe.records.environment import StorageKind, StorageLocation
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.render.sweep import measured_on
from loaderprobe.system import device
from loaderprobe.system.device import locate, name_calls, read_sectors, reads_from_storage
from tests.examples.bandwidth import example_bandwidth
from tests.fakes import example_location
from tests.stored import RUNS
from tests.system.fake_kernel import Kernel

SECTORS = {"vda": 10, "vdb": 1, "sda": 100, "sdb": 1000, "sdc": 5, "loop3": 20, "loop4": 7, "zram0": 3}
SECTORS |= {"nvme0n1": 0, "nvme0c0n1": 40, "nvme0c11n1": 2, "nvme0c0n2": 500, "nvme1n1": 6, "nvme1c0n1": 6}
VDA = "disk vda 254:0; mount ext4 disk 254:0 /dev/vda;"
TWO_DISKS = (
    "disk sda 8:0; disk sda/sda1 8:1 partition; disk sdb 9:0; disk sdb/sdb1 9:1 partition; "
    "disk virtual/md0 10:0 sda/sda1 sdb/sdb1 sda; disk virtual/dm-0 253:0 virtual/md0; btrfs sda/sda1 sdb/sdb1;"
)
IMAGES = VDA + "loop loop3 7:3 $disk/image"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel(tmp_path, monkeypatch)
    found.have_read(**SECTORS)
    return found


class Tree(NamedTuple):
    """What is written, and what must be read from it for `$data`."""

    tree: str
    kind: StorageKind
    devices: str
    notes: str = ""
    layers: str = ""
    sectors: int | None = None
    """Read by all devices; None where they are not known or do not count."""
    counts: bool = False


TREES = {
    "a partition is its disk, whose reads are counted": Tree(
        "disk vda 254:0; disk vda/vda1 254:1 partition; mount ext4 data 254:1", "block", "vda", sectors=10, counts=True
    ),
    "dm over md over partitions is its disks, each once": Tree(
        TWO_DISKS + "mount xfs data 253:0", "block", "sda sdb", sectors=1100, counts=True
    ),
    "btrfs has an anonymous number, and is all its members": Tree(
        TWO_DISKS + "mount btrfs data 0:40 /dev/sda1", "block", "sda sdb", sectors=1100, counts=True
    ),
    "zfs hides device and cache": Tree("mount zfs data 0:40 pool/data", "unknown", "", "device_hidden zfs_cache"),
    "a mount that is not listed is not guessed by its prefix": Tree("", "unknown", "", "mount_hidden device_hidden"),
    "ntfs-3g reads its device itself": Tree("disk sdc 8:32; mount fuseblk data 8:32", "fuse", "sdc", "fuse"),
    "zram counts, with no storage behind it": Tree(
        "disk virtual/zram0 253:0; iostats virtual/zram0 0; mount ext4 data 253:0",
        "block", "zram0", "device_in_memory", sectors=3, counts=True,
    ),
    "without iostats none counts": Tree(VDA + "iostats vda 0 mq; mount ext4 data 254:0", "block", "vda", counts=True),
    "NVMe with several paths counts on them": Tree(
        "disk nvme0n1 259:0; iostats nvme0n1 0; mount ext4 data 259:0", "block", "nvme0n1", sectors=42, counts=True
    ),
    "or itself as well": Tree(
        "disk nvme1n1 259:0; iostats nvme1n1 1 mq; mount ext4 data 259:0", "block", "nvme1n1", sectors=6, counts=True
    ),
    "an overlay has the devices of its layers": Tree(
        VDA + "disk vdb 254:16; mount xfs other 254:16;"
        "mount overlay data 0:9 rw,lowerdir=$other:$disk/a,upperdir=$disk/b",
        "overlay", "vda vdb", layers="block block block", sectors=11, counts=True,
    ),
    "names of layers have backslashes before colons, written as octal numbers": Tree(
        VDA + "folder disk/a,b:c;"
        r"mount overlay data 0:9 ro,lowerdir=$disk/a\134\054b\134:c:$disk/plain::$disk/data,redirect_dir=on",
        "overlay", "vda", layers="block block block", sectors=10, counts=True,
    ),
    "layers may be given one by one": Tree(
        VDA + "mount overlay data 0:9 rw,lowerdir+=$disk/lower,datadir+=$disk/data,uuid=on",
        "overlay", "vda", layers="block block", sectors=10, counts=True,
    ),
    "a layer that may not be entered, is not there, or has no whole name is hidden": Tree(
        "mount overlay data 0:9 rw,lowerdir=l/short:/not/there,upperdir=$secret",
        "overlay", "", "layers_hidden", "hidden hidden hidden", counts=True,
    ),
    "the host's name of a layer may lead back to the overlay itself": Tree(
        "mount overlay data 0:9 rw,upperdir=$data/upper", "overlay", "", "layers_hidden", "hidden", counts=True
    ),
    "an overlay in memory is never cold": Tree(
        "mount tmpfs memory 0:41; mount overlay data 0:9 rw,lowerdir=/not/there,upperdir=$memory",
        "overlay", "", "some_layers_hidden layers_in_memory", "memory hidden",
    ),
    "beside a layer in memory the rest still counts": Tree(
        VDA + "mount tmpfs memory 0:41; mount overlay data 0:9 rw,lowerdir=$disk/lower,upperdir=$memory",
        "overlay", "vda", "some_layers_in_memory", "memory block", 10, counts=True,
    ),
    "a layer that does not count spoils the count": Tree(
        VDA + "mount fuse.images images 0:41; mount overlay data 0:9 rw,lowerdir=$images,upperdir=$disk/upper",
        "overlay", "vda", "fuse", "block fuse",
    ),
    "an overlay on an overlay has all layers": Tree(
        VDA + "mount overlay inner 0:8 ro,lowerdir=$disk/a:/not/there;"
        "mount overlay data 0:9 rw,lowerdir=$inner,upperdir=$disk/b",
        "overlay", "vda", "some_layers_hidden", "block block hidden", counts=True,
    ),
    "a loop device is its own, and its file's cache may serve its reads": Tree(
        IMAGES + "; mount ext4 data 7:3", "block", "loop3", "loop_file:own_cache", sectors=20, counts=True
    ),
    "direct I/O of a loop device passes that cache": Tree(
        IMAGES + " 1; mount ext4 data 7:3", "block", "loop3", "loop_file:none", sectors=20, counts=True
    ),
    "a loop device in memory is said to be": Tree(
        "mount tmpfs memory 0:41; loop loop3 7:3 $memory/image 1; mount ext4 data 7:3",
        "block", "loop3", "loop_file:in_memory", sectors=20, counts=True,
    ),
    "the host's name of a file may lead back to its device": Tree(
        "loop loop3 7:3 $data/image; mount ext4 data 7:3",
        "block", "loop3", "loop_file_hidden:own_cache", sectors=20, counts=True,
    ),
    "/sys may not name the file of a loop device": Tree(
        "disk virtual/loop3 7:3; mount ext4 data 7:3", "block", "loop3", "loop_hidden", sectors=20, counts=True
    ),
    "nfs": Tree("mount nfs4 data 0:40 server:/export", "network", "", "nfs"),
    "cifs": Tree("mount cifs", "network", "", "remote_uncounted"),
    "ceph": Tree("mount ceph", "network", "", "remote_uncounted"),
    "lustre": Tree("mount lustre", "network", "", "remote_uncounted"),
    "virtiofs": Tree("mount virtiofs", "network", "", "remote_uncounted"),
    "s3fs": Tree("mount fuse.s3fs", "fuse", "", "fuse"),
    "fuse": Tree("mount fuse", "fuse", "", "fuse"),
    "tmpfs": Tree("mount tmpfs", "memory", "", "in_memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_path_has_its_devices_and_what_is_hidden(name: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind, devices, layers, notes, and whether reads are counted, with what was read."""
    wanted = TREES[name]
    kernel.build(wanted.tree)
    opened = os.open

    def refuse(path: Path, flags: int) -> int:
        if path == kernel.root / "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    found = locate(kernel.data)
    notes = [note.code + (f":{note.facts['cache']}" if "cache" in note.facts else "") for note in found.notes]
    assert (found.kind, " ".join(found.devices), " ".join(notes)) == (wanted.kind, wanted.devices, wanted.notes)
    assert (" ".join(found.layers), found.counts_reads) == (wanted.layers, wanted.counts)
    assert reads_from_storage(found) == (None if wanted.sectors is None else wanted.sectors * 512)


def test_notes_name_what_they_are_about(kernel: Kernel) -> None:
    """The file of a loop device with the storage under it; layers in memory, and how many are hidden."""
    kernel.build(IMAGES + "; mount ext4 data 7:3; mount tmpfs memory 0:41")
    (note,) = locate(kernel.data).notes
    file = f"{kernel.root}/disk/image"
    assert note.facts == {"device": "loop3", "file": file, "cache": "own_cache", "filesystem": "ext4", "under": "vda"}
    kernel.build("mount overlay over 0:9 rw,lowerdir=$disk/lower:/not/there,upperdir=$memory")
    hidden, memory = locate(kernel.root / "over").notes
    assert (hidden.facts, memory.facts) == ({"hidden": 1, "layers": 3}, {"paths": f"{kernel.root}/memory"})


def test_a_loop_device_is_never_added_to_its_disk(kernel: Kernel) -> None:
    """The disk read its bytes, also with another loop between; where its file is hidden the sum is not known."""
    kernel.build(IMAGES + "; mount ext4 outer 7:3; loop loop4 7:4 $outer/image; loop loop5 7:5 /not/there")
    kernel.build("mount ext4 hidden 7:5; loop loop6 7:7 $hidden/image")
    kernel.build("mount ext4 circle 7:8; loop loop7 7:8 $circle/image")
    kernel.have_read(vda=100, loop3=30, loop4=5, vdb=1, loop5=9, loop6=2, loop7=1)
    wanted = {
        "loop3 vda": 100,
        "vda loop4 loop3 vdb": 101,
        "loop4 vda": 100,
        "loop3 vdb": 31,
        "loop4": 5,
        "loop5 vda": None,
        "loop5": 9,
        "loop6 vda": None,
        "loop7 vda": None,
        "vda sdz": None,
        "": None,
    }
    found = {names: read_sectors(names.split()) for names in wanted}
    assert found == {names: None if count is None else count * 512 for names, count in wanted.items()}
    kernel.have_read(vda=100)
    assert read_sectors(("vda",)) == 100 * 512, "also where no other device is listed"


def test_names_are_written_out(kernel: Kernel) -> None:
    """The kernel writes a space as \\040. What is no UTF-8, as any mount may have, is no error."""
    kernel.build("loop loop3 7:3 $image; mount ext4 data 7:3 /dev/donn\xe9es\\040b")
    lines, (file,) = kernel.proc / "self/mountinfo", kernel.root.parent.glob("sys/block/loop3/loop/backing_file")
    lines.write_bytes(lines.read_text().replace(str(kernel.data), r"/my\040data").encode("latin-1"))
    file.write_bytes(b"/donn\xe9es\n")
    found = locate(kernel.data)
    assert (found.mount, found.source) == ("/my data", r"/dev/donn\xe9es b")
    assert found.notes[0].facts["file"] == r"/donn\xe9es"


def test_a_hidden_mountinfo_is_no_error(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The device may still be known, by its number. A path that is not there is an error."""
    kernel.build("disk vda 254:0; mount ext4 data 254:0")
    monkeypatch.setattr(device, "PROC", tmp_path / "none")
    found = locate(kernel.data)
    assert (found.filesystem, found.kind, found.mount, found.devices) == ("unknown", "block", "?", ("vda",))
    with pytest.raises(OSError):
        locate(tmp_path / "none")


@pytest.mark.parametrize(
    ("tree", "kilobytes"),
    [
        # Of a file system of its own, where it has one; a partition has that of its disk, which is not that of dm.
        ("ahead class/bdi/253:0 2560; mount xfs data 253:0", 2560),
        ("ahead devices/sda/queue 2560; mount ext4 data 8:1", 2560),
        ("ahead class/bdi/0:40 2560; mount nfs4 data 0:40", 2560),
        ("ahead class/bdi/0:40 2560; mount fuse.s3fs data 0:40", 2560),
        ("ahead class/bdi/0:40-fuseblk 2560; mount fuseblk data 0:40 /dev/sda1", 2560),
        ("ahead fs/btrfs/0-0/bdi 2560; mount btrfs data 0:40 /dev/sda1", 2560),
        # Off is 0, and not known none.
        ("ahead class/bdi/0:40 0; mount nfs4", 0),
        ("mount nfs4", None),
        # An overlay has the largest of its layers that are no memory.
        (
            "mount xfs lower 0:51; mount tmpfs upper 0:52; ahead class/bdi/0:51 128; ahead class/bdi/0:52 4096;"
            "mount overlay data 0:53 rw,lowerdir=$lower,upperdir=$upper",
            128,
        ),
    ],
)
def test_the_read_ahead_is_that_of_the_backing_device(kernel: Kernel, tree: str, kilobytes: int | None) -> None:
    """As the kernel names it for each kind of file system."""
    kernel.build(TWO_DISKS + "ahead class/bdi/8:0 64;" + tree)
    assert locate(kernel.data).read_ahead_bytes == (None if kilobytes is None else kilobytes * 1024)


MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device server:/export/a mounted on /mnt/data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp
\tbytes:\t1001 1002 1003 1004 5000000 1006 1007 1008
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

device server:/d mounted on /mnt/short with fstype nfs statvers=1.1
\tbytes:\t1 2

no device mounted on /run with fstype tmpfs
device /dev/vdb mounted on /mnt/hidden with fstype ext4
"""


@pytest.mark.parametrize(
    ("point", "read_bytes", "calls"),
    [
        ("/mnt/data", 5_000_000, 735),
        ("/mnt/my data", 77, None),
        ("/mnt/hidden", None, None),
        ("/mnt/short", None, None),
        ("/proc", None, None),
        ("/mnt", None, None),
    ],
)
def test_what_a_client_read_from_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, read_bytes: int | None, calls: int | None
) -> None:
    """The fifth figure of that mount; calls for names are opens, lookups and attributes, each counted once. A mount
    that another one covers, or that is no NFS, has none; nor has one in a file that is not there, or files on
    several."""
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(device, "PROC", tmp_path)
    location = StorageLocation(path=point, filesystem="nfs4", kind="network", mount=point, source="", devices=())
    assert (reads_from_storage(location), name_calls(location), read_sectors(["vda"])) == (None, None, None)
    other = b"device //a/donn\xe9es mounted on /mnt/caf\xe9 with fstype cifs\n"
    (tmp_path / "self/mountstats").write_bytes(MOUNTSTATS.encode() + other)
    assert (reads_from_storage(location), name_calls(location)) == (read_bytes, calls)
    several = replace(location, kind="unknown")
    assert (reads_from_storage(several), name_calls(several)) == (None, None)


@pytest.mark.parametrize(("number", "here"), [((0, 63), 63), ((0, 319), 319), ((259, 2), 271_581_186)])
def test_what_the_program_behind_a_fuse_mount_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: tuple[int, int], here: int
) -> None:
    """Of those that serve this mount, by the kernel's number (319 of 0:319, Linux 6.18), which may be used again."""
    monkeypatch.setattr(device, "PROC", tmp_path)
    place = replace(example_location(str(tmp_path)), kind="fuse", mount="/mnt/fuse", devices=())
    stat, mounted = Path.stat, SimpleNamespace(st_dev=os.makedev(*number))
    monkeypatch.setattr(Path, "stat", lambda path, **how: mounted if str(path) == place.mount else stat(path, **how))

    def serve(pid: str, connection: int, read_bytes: int) -> Path:
        process = tmp_path / pid
        for folder in ("fd", "fdinfo"):
            (process / folder).mkdir(parents=True)
        (process / "fd/7").symlink_to("/dev/fuse")
        (process / "fd/8").symlink_to("/dev/null")
        (process / "fdinfo/7").write_text(f"pos:\t0\nino:\t90\nfuse_connection:\t{connection}\n")
        (process / "io").write_text(f"rchar: {read_bytes}\nwchar: 5\nsyscr: {read_bytes // 10}\n")
        return process

    serve("20", here + 1, 999)
    first = serve("10", here, 1000)
    assert (reads_from_storage(place), name_calls(place)) == (1000, 100)
    shutil.rmtree(first)
    serve("30", here, 70)
    assert reads_from_storage(place) == 70
    (tmp_path / "30/io").unlink()
    assert reads_from_storage(place) is None
    assert reads_from_storage(replace(place, devices=("sda",))) is None


def test_the_storage_of_this_machine(tmp_path: Path) -> None:
    """Its disk is listed by diskstats; /dev/shm and /proc have none, and notes say so."""
    found = locate(tmp_path)
    if found.kind == "block":
        assert found.devices and (read_sectors(found.devices) or 0) > 0
    hidden = locate(Path("/proc"))
    assert hidden.kind == "unknown" and hidden.devices == () and hidden.notes
    shared = Path("/dev/shm")
    if shared.is_dir() and locate(shared).filesystem == "tmpfs":
        assert locate(shared).kind == "memory" and not locate(shared).counts_reads


FACTS: Facts = {"device": "loop0", "file": "/a", "filesystem": "ext4", "under": "vda", "cache": "none"}
LOOP = Remark(code="loop_file", facts=FACTS)


@pytest.mark.parametrize(
    ("changes", "here"),
    [
        ({"kind": "network", "source": "127.0.0.1:/srv"}, True), ({"kind": "network", "source": "[::1]:/srv"}, True),
        ({"kind": "network", "source": "//localhost/srv"}, True), ({"kind": "network", "source": "nas:/srv"}, False),
        ({"kind": "network", "source": "127.0.0.1.example.org:/srv"}, False),
        ({"kind": "fuse", "source": "me@127.0.0.1:/srv"}, True),
        ({"kind": "fuse", "source": "/mnt/localhost"}, False), ({"source": "/dev/mapper/localhost"}, False),
        ({"kind": "object", "source": "http://127.0.0.1:9000"}, True), ({"notes": (LOOP,)}, True),
        ({"kind": "object", "source": "", "path": "http://localhost:9000/train"}, True),
        ({"notes": (replace(LOOP, facts={**LOOP.facts, "under": "network"}),)}, False), ({}, False),
    ],
)  # fmt: skip
def test_the_page_says_where_this_very_machine_is_the_storage(changes: dict[str, Any], here: bool) -> None:
    """A server at a loopback address, or a file as a device, unless that file is elsewhere."""
    place = replace(example_location("/data"), **changes)
    assert place.is_here == here
    assert ("on this machine" in Bandwidth.of(replace(example_bandwidth(), location=place)).headline()) == here
    run = load(RUNS / "storage").report()
    environment = replace(run.environment, storage=(place,))
    assert ("on this machine" in measured_on(replace(run, environment=environment))) == here
