from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache, why_unknown


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files on a file system whose page cache can be emptied."""
    if locate(tmp_path).kind != "block":
        pytest.skip("the temporary directory is not on a block device, whose pages can be dropped")
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_bytes(os.urandom(50_000))
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return paths


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user may enter, as pytest's own may not be."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_evict_and_warm(files: list[Path]) -> None:
    """After an eviction nothing is resident, after warming everything is."""
    cache = LinuxPageCache()
    cache.evict(files)
    assert cache.resident(files) == 0.0
    cache.warm(files)
    assert cache.resident(files) == 1.0


def test_resident_counts_pages(files: list[Path]) -> None:
    """The share is of pages over all files asked about, not of files that are wholly there."""
    cache = LinuxPageCache()
    cache.evict(files)
    cache.warm(files[:5])
    assert cache.resident(files) == 0.25


def test_evicting_some_leaves_the_others(files: list[Path]) -> None:
    """Exactly the files named are dropped."""
    cache = LinuxPageCache()
    cache.warm(files)
    cache.evict(files[:10])
    assert cache.resident(files[:10]) == 0.0
    assert cache.resident(files[10:]) == 1.0


def test_empty_files_have_no_share(tmp_path: Path) -> None:
    """A file without pages is neither cached nor not cached."""
    (tmp_path / "empty").touch()
    assert LinuxPageCache().resident([tmp_path / "empty"]) is None
    assert LinuxPageCache().resident([]) is None


def test_own_file_is_known_and_missing_is_not(tmp_path: Path) -> None:
    """An owner may ask; for a file that is not there the reason names it."""
    (tmp_path / "own").write_bytes(b"x")
    assert why_unknown(tmp_path / "own") is None
    assert "gone" in str(why_unknown(tmp_path / "gone"))
    assert LinuxPageCache().resident([tmp_path / "gone"]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_file_is_unknown(public_directory: Path) -> None:
    """A user who neither owns nor may write a file gets None and a reason, never the kernel's false 100 %."""
    path = public_directory / "file"
    path.write_bytes(os.urandom(50_000))
    path.chmod(0o644)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    can_drop = locate(path).kind == "block"
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from loaderprobe.system.pagecache import LinuxPageCache, why_unknown\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "path = Path(sys.argv[1]); cache = LinuxPageCache(); cache.evict([path])\n"
        "sys.stdout.write(f'{cache.resident([path])} {why_unknown(path) is not None}')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "None True"
    assert not can_drop or LinuxPageCache().resident([path]) == 0.0, "an eviction needs only the right to read"


def test_evict_passes_over_files_that_are_gone(tmp_path: Path) -> None:
    """A file that vanished holds no cache, so evicting it is no error."""
    LinuxPageCache().evict([tmp_path / "gone"])


def test_freshly_written_files_are_evicted(tmp_path: Path) -> None:
    """Files written a moment ago, as by the generator, can be read cold."""
    if locate(tmp_path).kind != "block":
        pytest.skip("the temporary directory is not on a block device, whose pages can be dropped")
    path = tmp_path / "fresh"
    path.write_bytes(os.urandom(500_000))
    cache = LinuxPageCache()
    cache.evict([path])
    assert cache.resident([path]) == 0.0
