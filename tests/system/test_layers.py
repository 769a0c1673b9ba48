"""Storage under storage, in kernels that are written out: the layers of overlays, the files of loop devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaderprobe.system.device import locate, read_sectors, reads_from_storage
from tests.said import all_said, said
from tests.system.fake_kernel import Kernel


@pytest.fixture
def disk(kernel: Kernel) -> Kernel:
    """With an ext4 on `vda` at `/disk`."""
    kernel.disk("vda", "254:0")
    kernel.mount("ext4", "disk", number="254:0", source="/dev/vda")
    return kernel


def _folder(kernel: Kernel, name: str) -> Path:
    folder = kernel.root / name
    folder.mkdir(parents=True)
    return folder


def test_an_overlay_has_the_devices_of_its_layers(disk: Kernel) -> None:
    """Each device once, and the kind of every layer, topmost first."""
    disk.disk("vdb", "254:16")
    lower = disk.mount("xfs", "other", number="254:16")
    disk.mount("overlay", options=f"rw,lowerdir={lower}:{_folder(disk, 'disk/a')},upperdir={_folder(disk, 'disk/b')}")
    disk.have_read(vda=10, vdb=1)
    found = locate(disk.data)
    assert (found.kind, found.devices, found.layers) == ("overlay", ("vda", "vdb"), ("block", "block", "block"))
    assert (found.notes, found.counts_reads, reads_from_storage(found)) == ((), True, 11 * 512)


def test_names_of_layers_are_unescaped(disk: Kernel) -> None:
    """Colons and commas in names have backslashes before them, which the kernel writes as octal numbers."""
    odd, plain, data = (_folder(disk, f"disk/{name}") for name in ("a,b:c", "plain", "data"))
    written = str(odd).replace(",", "\\134\\054").replace(":", "\\134:")
    disk.mount("overlay", options=f"ro,lowerdir={written}:{plain}::{data},redirect_dir=on")
    assert locate(disk.data).layers == ("block", "block", "block")


def test_layers_given_one_by_one_are_seen(disk: Kernel) -> None:
    """As mounts made with the calls of Linux 6.8 list them."""
    lower, data = _folder(disk, "disk/lower"), _folder(disk, "disk/data")
    disk.mount("overlay", options=f"rw,lowerdir+={lower},datadir+={data},uuid=on")
    assert locate(disk.data).layers == ("block", "block")


def test_hidden_layers_give_a_note(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that this user may not enter, that is not there or has no whole name is no error."""
    secret = _folder(kernel, "secret")
    kernel.mount("overlay", source="overlay", options=f"rw,lowerdir=l/short:/not/there,upperdir={secret}")
    opened = os.open

    def refuse(path: Path, flags: int) -> int:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    found = locate(kernel.data)
    assert (found.kind, found.devices, found.layers) == ("overlay", (), ("hidden", "hidden", "hidden"))
    assert "layers" in said(found.notes[0])
    assert found.counts_reads and reads_from_storage(found) is None


def test_some_hidden_layers_mean_that_not_all_is_counted(disk: Kernel) -> None:
    """The device of the visible layer is known; what all layers have read is not."""
    disk.mount("overlay", options=f"rw,lowerdir=/not/there,upperdir={_folder(disk, 'disk/upper')}")
    disk.have_read(vda=10)
    found = locate(disk.data)
    assert (found.devices, found.layers) == (("vda",), ("block", "hidden"))
    assert "1 of the 2 layers" in said(found.notes[0])
    assert reads_from_storage(found) is None


def test_a_layer_that_leads_back_to_the_overlay_is_hidden(kernel: Kernel) -> None:
    """The layer's name is the host's; in the container the same name is another folder, on the overlay itself."""
    kernel.mount("overlay", options=f"rw,upperdir={_folder(kernel, 'data/upper')}")
    assert locate(kernel.data).layers == ("hidden",)


def test_an_overlay_in_memory_is_never_cold(kernel: Kernel) -> None:
    """Neither by its note nor by what it counts."""
    upper = kernel.mount("tmpfs", "memory")
    kernel.mount("overlay", options=f"rw,lowerdir=/not/there,upperdir={upper}")
    found = locate(kernel.data)
    assert (found.layers, found.counts_reads) == (("memory", "hidden"), False)
    assert any("memory, not storage" in note for note in all_said(found.notes))


def test_a_layer_in_memory_is_named(disk: Kernel) -> None:
    """What is read there is from memory; the rest still counts."""
    upper = disk.mount("tmpfs", "memory")
    disk.mount("overlay", options=f"rw,lowerdir={_folder(disk, 'disk/lower')},upperdir={upper}")
    disk.have_read(vda=3)
    found = locate(disk.data)
    assert (found.layers, found.counts_reads) == (("memory", "block"), True)
    assert str(upper) in said(found.notes[0]) and "from memory" in said(found.notes[0])
    assert reads_from_storage(found) == 3 * 512


def test_layers_that_do_not_count_spoil_the_count(disk: Kernel) -> None:
    """With a layer on FUSE, bytes prove nothing; its note is the overlay's."""
    lower = disk.mount("fuse.images", "images")
    disk.mount("overlay", options=f"rw,lowerdir={lower},upperdir={_folder(disk, 'disk/upper')}")
    found = locate(disk.data)
    assert (found.layers, found.counts_reads, reads_from_storage(found)) == (("block", "fuse"), False, None)
    assert "FUSE" in said(found.notes[0])


def test_an_overlay_on_an_overlay_has_all_layers(disk: Kernel) -> None:
    """As in a container within a container."""
    inner = disk.mount("overlay", "inner", options=f"ro,lowerdir={_folder(disk, 'disk/a')}:/not/there")
    disk.mount("overlay", options=f"rw,lowerdir={inner},upperdir={_folder(disk, 'disk/b')}")
    assert locate(disk.data).layers == ("block", "block", "hidden")


def _image(kernel: Kernel, name: str) -> Path:
    path = kernel.root / name
    path.touch()
    return path


def test_a_loop_device_is_its_own_and_its_file_is_named(disk: Kernel) -> None:
    """With the file system and the disk of the file, and that the file's own cache may serve reads."""
    image = _image(disk, "disk/image")
    disk.loop("loop3", "7:3", image)
    disk.mount("ext4", number="7:3")
    found = locate(disk.data)
    assert (found.kind, found.devices) == ("block", ("loop3",))
    assert f"loop3 is the file {image} on ext4 (vda)" in said(found.notes[0])
    assert "look cold" in said(found.notes[0])


def test_a_loop_device_past_the_cache_is_cold_when_it_looks_so(disk: Kernel) -> None:
    """With direct I/O nothing is said of the file's cache."""
    disk.loop("loop3", "7:3", _image(disk, "disk/image"), dio="1")
    disk.mount("ext4", number="7:3")
    assert "look cold" not in said(locate(disk.data).notes[0])


def test_a_loop_device_in_memory_is_said_to_be(kernel: Kernel) -> None:
    """Its reads are counted like a disk's, though no storage is behind them."""
    kernel.mount("tmpfs", "memory")
    kernel.loop("loop3", "7:3", _image(kernel, "memory/image"), dio="1")
    kernel.mount("ext4", number="7:3")
    assert "in memory" in said(locate(kernel.data).notes[0])


@pytest.mark.parametrize("file", ["/not/there", "/gone (deleted)"])
def test_a_hidden_file_of_a_loop_device_is_said_to_be(kernel: Kernel, file: str) -> None:
    """Its name is given, but no place is guessed."""
    kernel.loop("loop3", "7:3", file)
    kernel.mount("ext4", number="7:3")
    assert f"the file {file}, which is not visible from here" in said(locate(kernel.data).notes[0])


def test_a_loop_device_of_which_nothing_is_known(kernel: Kernel) -> None:
    """Where /sys does not name the file, a note says so."""
    kernel.disk("virtual/loop3", "7:3")
    kernel.mount("ext4", number="7:3")
    assert "cannot be seen" in said(locate(kernel.data).notes[0])


def test_a_file_that_leads_back_to_its_device_is_hidden(kernel: Kernel) -> None:
    """The file's name is the host's; in the container the same name is a file on the device itself."""
    kernel.loop("loop3", "7:3", _image(kernel, "data/image"))
    kernel.mount("ext4", number="7:3")
    kernel.have_read(loop3=5, vda=7)
    assert "not visible" in said(locate(kernel.data).notes[0])
    assert read_sectors(("loop3", "vda")) is None


def test_a_loop_device_is_never_added_to_its_disk(disk: Kernel) -> None:
    """Bytes that the loop device read from storage were read by the disk, also with another loop in between."""
    disk.loop("loop3", "7:3", _image(disk, "disk/image"))
    disk.mount("ext4", "outer", number="7:3")
    disk.loop("loop4", "7:4", _image(disk, "outer/image"))
    disk.have_read(vda=100, loop3=30, loop4=5, vdb=1)
    assert read_sectors(("loop3", "vda")) == 100 * 512
    assert read_sectors(("vda", "loop4", "loop3", "vdb")) == 101 * 512
    assert read_sectors(("loop4", "vda")) == 100 * 512
    assert read_sectors(("loop3", "vdb")) == 31 * 512
    assert read_sectors(("loop4",)) == 5 * 512


def test_a_loop_device_of_unknown_place_is_not_added(kernel: Kernel) -> None:
    """It may be on the very disk beside it, so the sum is not known; alone it is."""
    kernel.loop("loop3", "7:3", "/not/there")
    kernel.have_read(vda=100, loop3=30)
    assert read_sectors(("loop3", "vda")) is None
    assert read_sectors(("loop3",)) == 30 * 512
