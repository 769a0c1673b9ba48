"""The real kernel on overlayfs, btrfs and tmpfs, mounted for each test alone; skipped where that is not permitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.system.device import locate
from tests.system.real_kernel import ask_kernel

BYTES = 4_000_000
WRITE = f"""
path = Path(sys.argv[1]) / "file"
if not path.exists():
    path.write_bytes(os.urandom({BYTES}))
    path.chmod(0o644)
"""
ASK = """
shares = {}
cache.warm([path])
shares["warm"] = [cache.resident([path]), as_nobody(lambda: cache.resident([path]))]
cache.evict([path])
shares["cold"] = [cache.resident([path]), as_nobody(lambda: cache.resident([path])), cache.resident([path])]
place = locate(path)
before = reads_from_storage(place)
path.read_bytes()
after = reads_from_storage(place)
tell(
    shares=shares, kind=place.kind, devices=place.devices, notes=place.notes, layers=place.layers,
    read=None if before is None else after - before, reason=as_nobody(lambda: why_unknown(path)),
)
"""


@pytest.fixture
def place(public_directory: Path) -> Path:
    """Folders to mount on and from, on a disk."""
    if locate(public_directory).kind != "block":
        pytest.skip("the temporary directory is not on a block device")
    for name in ("lower", "upper", "work", "mounted", "image"):
        (public_directory / name).mkdir(mode=0o755)
    return public_directory


def _overlay(place: Path, lower: str = "lower") -> str:
    layers = f"lowerdir={place}/{lower},upperdir={place}/upper,workdir={place}/work"
    return f"mount -t overlay overlay -o {layers} {place}/mounted"


def _image(place: Path, filesystem: str) -> list[str]:
    """Commands that make a file system in a file and mount it by a loop device."""
    return [
        f"truncate -s 128M {place}/file",
        f"mkfs.{filesystem} -q {place}/file",
        f"mount -o loop {place}/file {place}/image",
        f"chmod 755 {place}/image",
    ]


@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_an_overlay_gives_its_owner_the_truth(place: Path, layer: str) -> None:
    """The owner sees warm and cold, and the layers' disk counts; others get nothing, with the reason.

    The file was not written back when it was evicted, also where overlayfs itself cannot do so, in the lower layer.
    """
    (place / layer / "file").write_bytes(bytes(BYTES))
    found = ask_kernel(WRITE + ASK, place / "mounted", mounts=[_overlay(place)])
    assert found["shares"] == {"warm": [1.0, None], "cold": [0.0, None, 0.0]}
    assert "another user" in found["reason"]
    assert (found["kind"], found["layers"]) == ("overlay", ["block", "block"])
    assert tuple(found["devices"]) == locate(place).devices
    assert found["read"] >= 0.95 * BYTES


def test_a_writable_file_of_a_read_only_layer_is_not_believed(place: Path) -> None:
    """Its mode lets every user write, and yet mincore answers others that all of it is cached."""
    found = ask_kernel(
        WRITE + "path.chmod(0o666)\ncache.evict([path])\n"
        "tell(writable=as_nobody(lambda: os.access(path, os.W_OK)), share=as_nobody(lambda: cache.resident([path])))",
        place / "mounted",
        mounts=[
            *_image(place, "ext4"), f"head -c {BYTES} /dev/zero > {place}/image/file", f"chmod 666 {place}/image/file",
            f"mount -o remount,ro {place}/image", _overlay(place, "image"),
        ],
    )  # fmt: skip
    assert found == {"writable": True, "share": None}


def test_an_overlay_in_memory(place: Path) -> None:
    """Its kind of layers is seen, and that nothing in it is read from storage."""
    found = ask_kernel(
        WRITE + "found = locate(path)\ntell(layers=found.layers, counts=found.counts_reads, notes=found.notes)",
        place / "mounted",
        mounts=[
            f"mount -t tmpfs none {place}/image", f"mkdir {place}/image/u {place}/image/w {place}/image/l",
            f"mount -t overlay overlay -o lowerdir={place}/image/l,upperdir={place}/image/u,workdir={place}/image/w"
            f" {place}/mounted",
        ],
    )  # fmt: skip
    assert (found["layers"], found["counts"]) == (["memory", "memory"], False)
    assert "memory, not storage" in found["notes"][0]


@pytest.mark.parametrize("filesystem", ["ext4", "btrfs"])
def test_a_file_system_in_a_file(place: Path, filesystem: str) -> None:
    """The loop device is its own disk and counts, its file and the disk under it are named, and all users see."""
    found = ask_kernel(WRITE + ASK, place / "image", mounts=_image(place, filesystem))
    assert found["shares"] == {"warm": [1.0, 1.0], "cold": [0.0, 0.0, 0.0]}
    assert found["reason"] is None
    (loop,) = found["devices"]
    assert loop.startswith("loop")
    assert f"{loop} is the file {place}/file on {locate(place).filesystem}" in found["notes"][0]
    assert found["read"] >= 0.95 * BYTES


def test_tmpfs_is_always_warm(place: Path) -> None:
    """To its owner; others get nothing, and nothing is counted."""
    found = ask_kernel(WRITE + ASK, place / "image", mounts=[f"mount -t tmpfs -o mode=755 none {place}/image"])
    assert found["shares"] == {"warm": [1.0, None], "cold": [1.0, None, 1.0]}
    assert (found["kind"], found["read"]) == ("memory", None)
