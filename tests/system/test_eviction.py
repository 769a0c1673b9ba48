"""Evicting files that are dirty, gone, or on a file system without a write path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from loaderprobe.system import pagecache
from loaderprobe.system.pagecache import OVERLAY, LinuxPageCache
from tests.skips import needs_cold_reads


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A file whose pages have not been written back."""
    needs_cold_reads(tmp_path)
    path = tmp_path / "fresh"
    path.write_bytes(os.urandom(500_000))
    return path


def test_a_fresh_file_is_evicted_though_another_is_gone(fresh: Path) -> None:
    """Where the share of the whole cannot be known, pages not written back are dropped all the same."""
    LinuxPageCache().evict([fresh, fresh.with_name("gone")])
    assert LinuxPageCache().resident([fresh]) == 0.0


def test_a_file_system_that_cannot_write_back_is_no_error(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """squashfs answers fdatasync with EINVAL; evicting then does what it can."""

    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fdatasync", refuse)
    LinuxPageCache().evict([fresh, fresh.with_name("gone")])


def test_an_eviction_that_does_not_help_ends(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that a process holds are given up after two tries, and the file stays as it was."""
    content, tries = fresh.read_bytes(), []
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: tries.append(1))
    LinuxPageCache().evict([fresh])
    assert len(tries) == 2
    assert fresh.read_bytes() == content


def test_pages_held_on_an_overlay_are_written_back_once(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole machine is written back only where single files cannot be, and only once."""
    written: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    monkeypatch.setattr(os, "sync", lambda: written.append(1))
    monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: OVERLAY)
    LinuxPageCache().evict([fresh.with_name("gone"), fresh])
    assert not written, "what is unknown is no reason"
    LinuxPageCache().evict([fresh])
    assert len(written) == 1
