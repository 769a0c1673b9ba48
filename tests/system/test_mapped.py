"""Files that a process holds, and unmapping their pages."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from loaderprobe.system.mapped import held_files, let_go, may_hold_data
from loaderprobe.system.pagecache import LinuxPageCache
from tests.skips import needs_cold_reads

SIZE = 1 << 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file on storage."""
    needs_cold_reads(tmp_path)
    path = tmp_path / "shard.bin"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_open_and_mapped_files_are_held(data: Path, tmp_path: Path) -> None:
    """Whoever opened them; not those open for writing, and none that is closed."""
    with data.open("rb") as file, (tmp_path / "log").open("w") as log:
        assert held_files()[str(data)] == SIZE
        assert log.name not in held_files()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            os.close(os.dup(file.fileno()))
            assert held_files()[str(data)] == SIZE
    assert str(data) not in held_files()


def test_a_mapped_file_can_be_evicted_after_its_pages_were_let_go(data: Path) -> None:
    """Dropping alone leaves what is mapped; afterwards it reads as before."""
    cache = LinuxPageCache()
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        before = bytes(mapped)
        cache.evict([data])
        assert let_go() >= 1
        cache.evict([data])
        assert cache.resident([data]) == 0.0
        assert bytes(mapped) == before


def test_changes_of_a_private_mapping_are_kept(data: Path) -> None:
    """They are nowhere else."""
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        mapped[:5] = b"mine!"
        let_go()
        assert mapped[:5] == b"mine!"


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/data/a.tar", True),
        ("/lib/x.so.1", False),
        ("/x/site-packages/a.bin", False),
        ("/dev/shm/a", False),
        ("a", False),
    ],
)
def test_code_and_devices_hold_no_data(path: str, data: bool) -> None:
    """Nor does a relative name."""
    assert may_hold_data(path) is data
