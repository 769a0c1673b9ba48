from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.errors import MissingPart
from loaderprobe.system.pagecache import LinuxPageCache, drop_all_caches, why_unknown
from tests.said import said
from tests.skips import needs_cold_reads


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files on a file system whose page cache can be emptied."""
    needs_cold_reads(tmp_path)
    paths = [tmp_path / str(number) for number in range(20)]
    for path in paths:
        path.write_bytes(os.urandom(50_000))
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return paths


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
    assert "gone" in said(why_unknown(tmp_path / "gone"))
    assert LinuxPageCache().resident([tmp_path / "gone"]) is None


def test_evict_passes_over_files_that_are_gone(tmp_path: Path) -> None:
    """A file that vanished holds no cache, so evicting it is no error."""
    LinuxPageCache().evict([tmp_path / "gone"])


def test_a_file_that_cannot_be_opened_ends_nothing(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are dropped and read all the same."""
    usual = os.open

    def opened(path: Any, *given: Any, **named: Any) -> int:
        if path == files[0]:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *given, **named)

    cache = LinuxPageCache()
    cache.warm(files)
    monkeypatch.setattr("loaderprobe.system.pagecache.os.open", opened)
    cache.evict(files)
    assert cache.resident(files[1:]) == 0.0


def test_freshly_written_files_are_evicted(tmp_path: Path) -> None:
    """Files written a moment ago, as by the generator, can be read cold."""
    needs_cold_reads(tmp_path)
    path = tmp_path / "fresh"
    path.write_bytes(os.urandom(500_000))
    cache = LinuxPageCache()
    cache.evict([path])
    assert cache.resident([path]) == 0.0


def test_all_caches_are_dropped_after_writing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dirty pages are not dropped, so they are written first; 3 stands for pages, names and inodes."""
    switch = tmp_path / "drop_caches"
    switch.write_text("0\n")
    content = []
    monkeypatch.setattr(os, "sync", lambda: content.append(switch.read_text()))
    drop_all_caches(switch)
    assert (content, switch.read_text()) == (["0\n"], "3\n")


def test_caches_that_may_not_be_dropped_are_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file and the reason, and says how to go on; no file is made."""
    monkeypatch.setattr(os, "sync", lambda: None)
    with pytest.raises(MissingPart, match="none: No such file") as caught:
        drop_all_caches(tmp_path / "none")
    assert "root" in caught.value.hint
    assert not (tmp_path / "none").exists()
