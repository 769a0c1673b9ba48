"""What is cached of other users' files, where mincore does not give the truth, or nothing does."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.system import pagecache
from loaderprobe.system.pagecache import (
    PAGE_BYTES,
    SAMPLED_PAGES,
    LinuxPageCache,
    acts_as_owner,
    knows_all_users,
    why_unknown,
)
from tests.said import said
from tests.skips import needs_cold_reads
from tests.system.real_kernel import ask_kernel

PAGES = 64


@pytest.fixture
def files(public_directory: Path) -> list[Path]:
    """Files of one user, which others may read, on a file system whose page cache can be emptied."""
    needs_cold_reads(public_directory)
    paths = [public_directory / f"{number:03}" for number in range(20)]
    for path in paths:
        path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
        path.chmod(0o644)
    LinuxPageCache().evict(paths)
    return paths


@pytest.fixture
def lied_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file were another user's."""
    monkeypatch.setattr(pagecache._Asker, "gets_the_truth", lambda *_: False)


def _warm(path: Path, pages: int) -> None:
    """Read the first pages, and no others ahead of them."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, pages * PAGE_BYTES, 0)
    os.close(fd)


def test_another_user_sees_what_is_cached(files: list[Path]) -> None:
    """User 65534 finds root's warm files warm and the cold ones cold, and leaves both so."""
    LinuxPageCache().warm(files[:10])
    found = ask_kernel(
        """
files = [Path(name) for name in sys.argv[1:]]
tell(
    shares=as_nobody(lambda: [cache.resident(files[:10]), cache.resident(files[10:]), cache.resident(files)]),
    reasons=as_nobody(lambda: [why_unknown(path) for path in files]),
)
""",
        *files,
    )
    warm, cold, all_files = found["shares"]
    assert warm > 0.9 and cold < 0.1 and 0.4 < all_files < 0.6
    assert found["reasons"] == [None] * len(files)
    # Memory that is short may cost a warm page; no look makes a cold one warm.
    assert LinuxPageCache().resident(files[:10]) == pytest.approx(1.0, abs=0.05)
    assert LinuxPageCache().resident(files[10:]) == 0.0


def test_another_user_may_evict(files: list[Path]) -> None:
    """To drop a file takes only the right to read it, and the other user sees that it was dropped."""
    LinuxPageCache().warm(files)
    found = ask_kernel(
        """
files = [Path(name) for name in sys.argv[1:]]
tell(share=as_nobody(lambda: [cache.evict(files), cache.resident(files)])[1])
""",
        *files,
    )
    assert found == {"share": 0.0}
    assert LinuxPageCache().resident(files) == 0.0


def test_root_of_a_user_namespace_sees_what_is_cached(files: list[Path]) -> None:
    """There root does not get the truth of files of users whom the namespace does not know."""
    try:
        for path in files:
            os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("files cannot be given to another user here")
    script = "tell(share=cache.resident([Path(name) for name in sys.argv[1:]]))"
    assert ask_kernel(script, *files, user_namespace=True) == {"share": 0.0}
    LinuxPageCache().warm(files)
    # As above, memory that is short may cost a warm page.
    assert ask_kernel(script, *files, user_namespace=True)["share"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.usefixtures("lied_to")
def test_asking_leaves_a_file_as_it_was(files: list[Path]) -> None:
    """Of a file in part warm no page is lost, and of none is a page left that was not there."""
    _warm(files[0], PAGES // 2)
    assert pagecache._resident_pages(files[0], PAGES * PAGE_BYTES) == PAGES // 2
    assert LinuxPageCache().resident(files[:1]) == pytest.approx(0.5, abs=0.1)
    assert pagecache._resident_pages(files[0], PAGES * PAGE_BYTES) == PAGES // 2


@pytest.mark.usefixtures("lied_to")
def test_few_pages_are_asked_of_many_files(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files there are, a sample of them is opened; small ones give all their pages."""
    paths = [public_directory / str(number) for number in range(1000)]
    for path in paths:
        path.write_bytes(b"x")
    asked = []

    def read(*call: Any) -> int:
        asked.append(call)
        return 1

    monkeypatch.setattr(os, "preadv", read)
    assert LinuxPageCache().resident(paths) == 1.0
    assert 100 < len(asked) <= SAMPLED_PAGES


@pytest.mark.usefixtures("lied_to")
def test_shares_are_weighed_by_size(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm file of three pages and a cold one of one are three quarters warm; an empty one has no say."""
    sizes = {"warm": 3 * PAGE_BYTES, "cold": 1, "empty": 0}
    for name, size in sizes.items():
        (public_directory / name).write_bytes(bytes(size))

    def share(path: Path, pages: object) -> float:
        return float(path.name == "warm")

    monkeypatch.setattr(pagecache, "_share_of_file", share)
    assert LinuxPageCache().resident([public_directory / name for name in sizes]) == 0.75


@pytest.mark.usefixtures("lied_to")
def test_a_sample_without_a_page_is_evicted_once_more(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not asked may not be written back yet."""
    written: list[int] = []
    monkeypatch.setattr(os, "fdatasync", written.append)
    LinuxPageCache().evict(files[:3])
    assert len(written) == 3


@pytest.mark.usefixtures("lied_to")
def test_a_file_system_without_trial_reads_is_unknown(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """overlayfs and tmpfs answer EOPNOTSUPP; then nothing is guessed."""
    (public_directory / "file").write_bytes(b"x")

    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert LinuxPageCache().resident([public_directory / "file"]) is None
    assert "another user" in said(why_unknown(public_directory / "file"))


@pytest.mark.parametrize(("magic", "says"), [(pagecache.FUSE, "FUSE"), (0x2FC12FC1, "ZFS")])
def test_some_file_systems_are_not_asked(
    public_directory: Path, monkeypatch: pytest.MonkeyPatch, magic: int, says: str
) -> None:
    """On FUSE opening may change the answer, on ZFS mincore knows nothing: not even the owner's file is opened."""
    path = public_directory / "file"
    path.write_bytes(b"x")
    monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: magic)

    def refuse(*_: object) -> int:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(os, "open", refuse)
    assert LinuxPageCache().resident([path]) is None
    assert says in said(why_unknown(path))


def test_trial_reads_are_not_made_over_a_network(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There mincore gives an owner what the client caches, and others nothing."""
    path = public_directory / "file"
    path.write_bytes(b"x")
    monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: 0x6969)
    assert LinuxPageCache().resident([path]) == 1.0
    monkeypatch.setattr(pagecache._Asker, "gets_the_truth", lambda *_: False)
    assert "network" in said(why_unknown(path))


def test_what_is_no_file_is_unknown(public_directory: Path) -> None:
    """A pipe would block whoever opens it."""
    os.mkfifo(public_directory / "pipe")
    assert "not a regular file" in said(why_unknown(public_directory / "pipe"))


def test_users_unknown_to_a_namespace_are_not_taken_for_this_one(tmp_path: Path) -> None:
    """A user namespace gives all of them one number, which may be the asker's as well."""
    ask = pagecache._Asker(euid=65534, owns_all=True, knows_all=False)
    assert not ask.gets_the_truth(tmp_path / "none", 65534, 0)
    assert ask.gets_the_truth(tmp_path / "none", 1000, 0)
    assert pagecache._Asker(euid=65534, owns_all=False, knows_all=True).gets_the_truth(tmp_path / "none", 65534, 0)


def test_the_right_to_write_shows_nothing_on_an_overlay(tmp_path: Path) -> None:
    """There the layer under the file decides, which may be read-only."""
    ask = pagecache._Asker(euid=-1, owns_all=False, knows_all=True)
    assert ask.gets_the_truth(tmp_path, 0, 0)
    assert not ask.gets_the_truth(tmp_path, 0, pagecache.OVERLAY)


def test_rights_are_read_from_proc(tmp_path: Path) -> None:
    """Bit 3 of the effective capabilities, and a map of all users onto themselves; what is hidden is not had."""
    (tmp_path / "status").write_text("Name:\tx\nCapPrm:\t0000000000000008\nCapEff:\t0000000000000008\n")
    assert acts_as_owner(tmp_path / "status")
    (tmp_path / "status").write_text("CapPrm:\t0000000000000008\nCapEff:\t00000000fffffff7\n")
    assert not acts_as_owner(tmp_path / "status")
    assert not acts_as_owner(tmp_path / "none")
    (tmp_path / "uid_map").write_text("         0          0 4294967295\n")
    assert knows_all_users(tmp_path / "uid_map")
    (tmp_path / "uid_map").write_text("         0       1000          1\n         1     100000      65536\n")
    assert not knows_all_users(tmp_path / "uid_map")
    assert not knows_all_users(tmp_path / "none")


@pytest.mark.usefixtures("lied_to")
def test_a_page_that_comes_in_time_was_not_there(public_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick device may answer a trial read before it is given up; that the thread read from storage shows it."""
    (public_directory / "file").write_bytes(bytes(3 * PAGE_BYTES))
    blocks = iter([0, 8, 8, 8, 8, 16])
    monkeypatch.setattr(os, "preadv", lambda *_: 1)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_inblock=next(blocks)))
    assert LinuxPageCache().resident([public_directory / "file"]) == pytest.approx(1 / 3)
