from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.system.device import locate, read_sectors
from tests.said import all_said

DISKSTATS = """\
   7       0 loop0 10 0 80 0 0 0 0 0 0 0 0
 254       0 vda 85516 33963 6310994 13510 29384 54722 19080272 74413 0 12200 89152
 254       1 vda1 85000 33963 6300000 13510 29384 54722 19080272 74413 0 12200 89152
 259       0 nvme0n1 5 0 1000 0 0 0 0 0 0 0 0
"""


@pytest.fixture
def diskstats(tmp_path: Path) -> Path:
    path = tmp_path / "diskstats"
    path.write_text(DISKSTATS)
    return path


def test_bytes_are_sectors_of_512(diskstats: Path) -> None:
    """diskstats counts sectors of 512 bytes; devices under one file system add up."""
    assert read_sectors(("vda",), diskstats) == 6310994 * 512
    assert read_sectors(("vda", "nvme0n1"), diskstats) == (6310994 + 1000) * 512


def test_unlisted_devices_are_unknown(diskstats: Path, tmp_path: Path) -> None:
    """A device that is not listed, no device at all, or no file to read is None, never 0."""
    assert read_sectors(("vda", "sdz"), diskstats) is None
    assert read_sectors((), diskstats) is None
    assert read_sectors(("vda",), tmp_path / "none") is None


def test_memory_is_not_storage() -> None:
    """A memory file system is called so, has no devices, and does not count reads."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    found = locate(Path("/dev/shm"))
    if found.filesystem != "tmpfs":
        pytest.skip("/dev/shm is not a tmpfs here")
    assert found.kind == "memory" and found.devices == () and not found.counts_reads
    assert any("memory" in note for note in all_said(found.notes))


def test_no_device_means_a_note() -> None:
    """A file system without a visible device is unknown, and a note says so."""
    found = locate(Path("/proc"))
    assert found.kind == "unknown" and found.devices == () and found.notes


def test_block_devices_are_listed(tmp_path: Path) -> None:
    """The leaf devices of a block file system are those that diskstats lists."""
    found = locate(tmp_path)
    if found.kind != "block":
        pytest.skip("the temporary directory is not on a visible block device")
    assert found.devices and (read_sectors(found.devices) or 0) > 0


def test_a_bad_path_raises(tmp_path: Path) -> None:
    """A path that is not there is an error, not an unknown storage."""
    with pytest.raises(OSError):
        locate(tmp_path / "none")
