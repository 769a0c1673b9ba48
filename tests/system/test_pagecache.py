"""The page cache: what is evicted and warmed, what is known of other users' files, and mounts that lie about both."""

from __future__ import annotations

import errno
import json
import mmap
import os
import resource
import subprocess
import threading
from collections.abc import Callable, Sequence
from ctypes import CDLL
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from loaderprobe.errors import MissingPart
from loaderprobe.records.remark import Remark
from loaderprobe.system import pagecache
from loaderprobe.system.device import locate, reads_from_storage
from loaderprobe.system.mapped import held_files, let_go, may_hold_data
from loaderprobe.system.pagecache import OVERLAY, PAGE_BYTES, LinuxPageCache, why_unknown
from tests.conftest import needs_cold_reads

PAGES = 64
CACHE = LinuxPageCache()


@pytest.fixture
def files(open_path: Path) -> list[Path]:
    """Files of one user, which others may read, on a file system whose page cache can be emptied; not written back."""
    needs_cold_reads(open_path)
    paths = [open_path / f"{number:03}" for number in range(20)]
    for path in paths:
        path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
        path.chmod(0o644)
    return paths


@pytest.fixture
def lied_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file were another user's."""
    monkeypatch.setattr(pagecache._Asker, "gets_the_truth", lambda *_: False)


def test_exactly_the_files_named_are_evicted_and_warmed(files: list[Path]) -> None:
    """The share is of pages over all files asked about; files written a moment ago can be read cold, too."""
    CACHE.evict(files)
    assert CACHE.resident(files) == 0.0
    CACHE.warm(files[:5])
    assert (CACHE.resident(files), CACHE.resident(files[:5])) == (0.25, 1.0)
    CACHE.warm(files)
    assert CACHE.resident(files) == 1.0
    CACHE.evict(files[:10])
    assert (CACHE.resident(files[:10]), CACHE.resident(files[10:])) == (0.0, 1.0)


def test_ctrl_c_ends_the_warming_of_a_file_that_is_being_read() -> None:
    """One without an end here."""

    class Interrupts(type(Path())):  # type: ignore[misc]
        def open(self, *_: object, **__: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CACHE.warm([Interrupts("a"), Path("/dev/zero")])


def test_a_file_that_is_gone_or_closed_ends_nothing(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are dropped all the same, also where single files cannot be written back, as on squashfs."""
    usual = os.open

    def opened(path: Any, *given: Any, **named: Any) -> int:
        if path == files[0]:
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, *given, **named)

    monkeypatch.setattr(os, "open", opened)
    CACHE.evict([*files[:10], files[0].with_name("gone")])
    assert CACHE.resident(files[1:10]) == 0.0
    monkeypatch.setattr(os, "fdatasync", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    CACHE.evict([*files[10:], files[0]])


@pytest.mark.parametrize(("act", "share"), [(CACHE.evict, 0.0), (CACHE.warm, 1.0), (CACHE.resident, 1.0)])
def test_files_behind_a_server_do_not_wait_for_each_other(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, act: Callable[[list[Path]], object], share: float
) -> None:
    """The answer to the first open comes after the last was asked for; of two reasons the first file's is given."""
    first, last, asked = files[0], files[-1], threading.Event()

    def behind_server(call: Callable[..., Any]) -> Callable[..., Any]:
        def answered(path: Any, *rest: Any, **named: Any) -> Any:
            if path == last:
                asked.set()
            assert path != first or asked.wait(10)
            return call(path, *rest, **named)

        return answered

    CACHE.evict(files)
    if act != CACHE.evict:
        CACHE.warm(files)
    monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: 0x6969)
    monkeypatch.setattr(os, "open", behind_server(os.open))
    monkeypatch.setattr(Path, "open", behind_server(Path.open))
    act(files)
    assert CACHE.resident(files) == pytest.approx(share, abs=0.05)
    for path in (first, last):
        path.unlink()
    found = pagecache.ask(files)
    assert isinstance(found, Remark) and found.facts["path"] == str(first)


def test_an_eviction_that_does_not_help_ends(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """After two tries; on overlayfs after the whole machine is written back, once, where single files cannot be."""
    content, tries, written = files[0].read_bytes(), [], []
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: tries.append(1))
    monkeypatch.setattr(os, "sync", lambda: written.append(1))
    CACHE.evict(files[:1])
    assert (len(tries), written, files[0].read_bytes()) == (2, [], content)
    monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: OVERLAY)
    CACHE.evict([files[0].with_name("gone"), files[0]])
    assert not written, "what is unknown is no reason"
    CACHE.evict(files[:1])
    assert len(written) == 1


def test_of_much_data_no_page_is_asked_for(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes long, for 150 GB 1.8 s. It is evicted twice: what was not written back may be there still."""
    CACHE.warm(files)
    with monkeypatch.context() as patch:
        patch.setattr(pagecache, "MOST_ASKED_BYTES", sum(path.stat().st_size for path in files) - 1)
        patch.setattr(pagecache, "ask", lambda _: pytest.fail("it was asked"))
        CACHE.evict(files)
    assert CACHE.resident(files) == 0.0


def test_all_caches_are_dropped_after_writing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dirty pages are not dropped, so they are written first; where it is not permitted, no file is made."""
    switch, content = tmp_path / "drop_caches", []
    switch.write_text("0\n")
    monkeypatch.setattr(os, "sync", lambda: content.append(switch.read_text()))
    pagecache.drop_all_caches(switch)
    assert (content, switch.read_text()) == (["0\n"], "3\n")
    with pytest.raises(MissingPart, match="none: No such file") as caught:
        pagecache.drop_all_caches(tmp_path / "none")
    assert "root" in caught.value.hint and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "magic", "owner", "share", "code"),
    [
        ("file", 0, True, 1.0, None),
        ("empty", 0, True, None, None),
        ("gone", None, True, None, "not_examined"),
        ("pipe", None, True, None, "not_regular"),
        ("closed", pagecache.FUSE, True, None, "on_fuse"),
        ("closed", 0x2FC12FC1, True, None, "own_cache"),
        ("file", 0x6969, True, 1.0, None),
        ("closed", 0x6969, False, None, "foreign_on_network"),
        ("file", 0, False, None, "foreign_hidden"),
    ],
)
def test_what_is_not_known_has_a_reason(
    open_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, magic: int | None, owner: bool, share: float | None,
    code: str | None,
) -> None:  # fmt: skip
    """A pipe would block, FUSE may change its answer, ZFS has a cache of its own: those are not even opened. Over a
    network mincore gives an owner what the client caches; without trial reads nothing is guessed."""
    for made, content in (("file", b"x"), ("closed", b"x"), ("empty", b"")):
        (open_path / made).write_bytes(content)
    os.mkfifo(open_path / "pipe")
    opened = os.open

    def open_some(path: Any, *rest: Any, **named: Any) -> int:
        assert Path(path).name not in ("closed", "pipe"), "the file was opened"
        return opened(path, *rest, **named)

    monkeypatch.setattr(os, "open", open_some)
    monkeypatch.setattr(os, "preadv", Mock(side_effect=OSError(errno.EOPNOTSUPP, "Operation not supported")))
    if magic is not None:
        monkeypatch.setattr(pagecache, "filesystem_magic", lambda _: magic)
    monkeypatch.setattr(pagecache._Asker, "gets_the_truth", lambda *_: owner)
    why = why_unknown(open_path / name)
    assert (CACHE.resident([open_path / name]), why and why.code) == (share, code)
    assert CACHE.resident([]) is None


@pytest.mark.usefixtures("lied_to")
def test_asking_leaves_a_file_as_it_was(files: list[Path]) -> None:
    """Of a file in part warm no page is lost, and of none is a page left that was not there."""
    CACHE.evict(files[:1])
    fd = os.open(files[0], os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, PAGES // 2 * PAGE_BYTES, 0)
    os.close(fd)
    assert pagecache._resident_pages(files[0], PAGES * PAGE_BYTES) == PAGES // 2
    assert CACHE.resident(files[:1]) == pytest.approx(0.5, abs=0.1)
    assert pagecache._resident_pages(files[0], PAGES * PAGE_BYTES) == PAGES // 2


@pytest.mark.usefixtures("lied_to")
def test_few_pages_are_asked_of_many_files(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files there are, a sample of them is opened; small ones give all their pages."""
    paths = [open_path / str(number) for number in range(1000)]
    for path in paths:
        path.write_bytes(b"x")
    read = Mock(return_value=1)
    monkeypatch.setattr(os, "preadv", read)
    assert CACHE.resident(paths) == 1.0
    assert 100 < read.call_count <= pagecache.SAMPLED_PAGES


@pytest.mark.usefixtures("lied_to")
def test_shares_are_weighed_by_size(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm file of three pages and a cold one of one are three quarters warm; an empty one has no say."""
    sizes = {"warm": 3 * PAGE_BYTES, "cold": 1, "empty": 0}
    for name, size in sizes.items():
        (open_path / name).write_bytes(bytes(size))
    monkeypatch.setattr(pagecache, "_share_of_file", lambda path, _: float(path.name == "warm"))
    assert CACHE.resident([open_path / name for name in sizes]) == 0.75


@pytest.mark.usefixtures("lied_to")
def test_a_sample_without_a_page_is_evicted_once_more(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not asked may not be written back yet."""
    CACHE.evict(files)
    written: list[int] = []
    monkeypatch.setattr(os, "fdatasync", written.append)
    CACHE.evict(files[:3])
    assert len(written) == 3


@pytest.mark.usefixtures("lied_to")
def test_a_page_that_comes_in_time_was_not_there(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick device may answer a trial read before it is given up; that the thread read from storage shows it."""
    (open_path / "file").write_bytes(bytes(3 * PAGE_BYTES))
    blocks = iter([0, 8, 8, 8, 8, 16])
    monkeypatch.setattr(os, "preadv", lambda *_: 1)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_inblock=next(blocks)))
    assert CACHE.resident([open_path / "file"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("euid", "owns_all", "knows_all", "owner", "kind", "truth"),
    [
        (65534, True, False, 65534, 0, False),
        (65534, True, False, 1000, 0, True),
        (65534, False, True, 65534, 0, True),
        (-1, False, True, 0, 0, True),
        (-1, False, True, 0, OVERLAY, False),
    ],
)
def test_who_gets_the_truth(
    tmp_path: Path, euid: int, owns_all: bool, knows_all: bool, owner: int, kind: int, truth: bool
) -> None:
    """A user namespace gives all unknown users one number, which may be the asker's. The right to write shows it, but
    not on an overlay, where the layer under the file decides."""
    asker = pagecache._Asker(euid=euid, owns_all=owns_all, knows_all=knows_all)
    path = tmp_path if euid == -1 else tmp_path / "none"
    assert asker.gets_the_truth(path, owner, kind) is truth


def test_rights_are_read_from_proc(tmp_path: Path) -> None:
    """Bit 3 of the effective capabilities, and a map of all users onto themselves; what is hidden is not had."""
    status, uid_map = tmp_path / "status", tmp_path / "uid_map"
    assert not pagecache.acts_as_owner(status) and not pagecache.knows_all_users(uid_map)
    for mask, own in (("0000000000000008", True), ("00000000fffffff7", False)):
        status.write_text(f"Name:\tx\nCapPrm:\t0000000000000008\nCapEff:\t{mask}\n")
        assert pagecache.acts_as_owner(status) is own
    for users, known in (("0 0 4294967295\n", True), ("0 1000 1\n 1 100000 65536\n", False)):
        uid_map.write_text(users)
        assert pagecache.knows_all_users(uid_map) is known


def test_held_files_are_let_go_before_they_can_be_evicted(files: list[Path], tmp_path: Path) -> None:
    """Files open for reading or mapped, of any name: dropping alone leaves what is mapped; it reads as before."""
    path = files[0].rename(files[0].with_name("a\rb"))
    with path.open("rb") as file, (tmp_path / "log").open("w") as log:
        assert held_files()[str(path)] == PAGES * PAGE_BYTES
        assert log.name not in held_files()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            os.close(os.dup(file.fileno()))
            assert held_files()[str(path)] == PAGES * PAGE_BYTES
            before = bytes(mapped)
            CACHE.evict([path])
            let_go()
            CACHE.evict([path])
            assert CACHE.resident([path]) == 0.0 and bytes(mapped) == before
        with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
            mapped[:5] = b"mine!"
            let_go()
            assert mapped[:5] == b"mine!", "changes of a private mapping are nowhere else"
    assert str(path) not in held_files()


def test_code_and_devices_hold_no_data() -> None:
    """Nor does a relative name."""
    data = ("/data/a.tar", "/run/media/me/disk/a.tar")
    others = ("/run/media/me/disk/a.py", "/run/a", "/lib/x.so.1", "/x/site-packages/a.bin", "/dev/shm/a", "a")
    assert (*filter(may_hold_data, data + others),) == data


OTHER_USER, NOT_PERMITTED, BYTES = 65534, 77, 4_000_000
NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
"""Flags of unshare(2), which Python itself has from 3.12 on."""


def apart(ask: Callable[[], Any], *, user: int = 0, flags: int = 0, mounts: Sequence[str] = (), at: str = "/") -> Any:
    """What `ask` returns in a child of root: as another user, or in namespaces of its own, with mounts that shell
    commands make in the folder `at`. They, and the loop devices under them, are gone when the child ends."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, or mount")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            own = mounts and ["mount --make-rprivate /", *mounts]
            if (
                CDLL(None).unshare(flags)
                or subprocess.run(["sh", "-c", " && ".join(own)], cwd=at, check=False).returncode
            ):
                raise PermissionError("these namespaces or mounts cannot be made")
            if flags & NEW_USERS:
                Path("/proc/self/uid_map").write_text("0 0 1")
            if user:
                os.setgroups([])
                os.setresuid(user, user, user)
            os.write(write, json.dumps(ask(), default=lambda remark: [remark.code, remark.facts]).encode())
            ended = 0
        except (PermissionError, pytest.skip.Exception):
            ended = NOT_PERMITTED
        finally:
            os._exit(ended)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == NOT_PERMITTED:
        pytest.skip("not permitted here, or a tool is missing")
    assert code == 0
    return json.loads(text)


def test_another_user_sees_what_is_cached_and_may_evict_it(files: list[Path]) -> None:
    """User 65534 finds root's warm files warm and the cold ones cold, leaves both so, and can drop them."""

    def ask() -> list[Any]:
        shares = [CACHE.resident(paths) for paths in (files[:10], files[10:], files)]
        return [shares, [why_unknown(path) for path in files]]

    CACHE.evict(files)
    CACHE.warm(files[:10])
    (warm, cold, all_files), reasons = apart(ask, user=OTHER_USER)
    assert warm > 0.9 and cold < 0.1 and 0.4 < all_files < 0.6
    assert reasons == [None] * len(files)
    # Memory that is short may cost a warm page; no look makes a cold one warm.
    assert [CACHE.resident(files[:10]), CACHE.resident(files[10:])] == [pytest.approx(1.0, abs=0.05), 0.0]
    apart(lambda: CACHE.evict(files), user=OTHER_USER)
    assert CACHE.resident(files) == 0.0


def test_root_of_a_user_namespace_sees_what_is_cached(files: list[Path]) -> None:
    """There root does not get the truth of files of users whom the namespace does not know."""
    try:
        for path in files:
            os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("files cannot be given to another user here")
    CACHE.evict(files)
    assert apart(lambda: CACHE.resident(files), flags=NEW_USERS) == 0.0
    CACHE.warm(files)
    # As above, memory that is short may cost a warm page.
    assert apart(lambda: CACHE.resident(files), flags=NEW_USERS) == pytest.approx(1.0, abs=0.05)


@pytest.fixture
def place(open_path: Path) -> Path:
    """Folders to mount on and from, on a disk."""
    if locate(open_path).kind != "block":
        pytest.skip("the temporary directory is not on a block device")
    for name in ("lower", "upper", "work", "mounted", "image"):
        (open_path / name).mkdir(mode=0o755)
    (open_path / "lower/in_lower").write_bytes(bytes(BYTES))
    return open_path


OVERLAY_MOUNT = "mount -t overlay overlay -o lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work mounted"
MEMORY_MOUNT = "mount -t tmpfs -o mode=755 none image"


def told(path: Path) -> dict[str, Any]:
    """Of a file that is warmed, evicted and read again: shares as its owner and as another user, and its storage."""

    def shares() -> list[float | None]:
        return [CACHE.resident([path]), apart(lambda: CACHE.resident([path]), user=OTHER_USER)]

    if not path.exists():
        path.write_bytes(os.urandom(BYTES))
        path.chmod(0o644)
    CACHE.warm([path])
    found: dict[str, Any] = {"warm": shares()}
    CACHE.evict([path])
    found |= {"cold": [*shares(), CACHE.resident([path])]}
    storage = locate(path)
    before = reads_from_storage(storage)
    path.read_bytes()
    after = reads_from_storage(storage)
    found |= {name: getattr(storage, name) for name in ("kind", "devices", "notes", "layers")}
    found["read"] = None if before is None or after is None else after - before >= 0.95 * BYTES
    return found | {"reason": apart(lambda: why_unknown(path), user=OTHER_USER)}


def image(filesystem: str) -> list[str]:
    """Commands that make a file system in a file and mount it by a loop device."""
    return ["truncate -s 128M file", f"mkfs.{filesystem} -q file", "mount -o loop file image", "chmod 755 image"]


ON_DISK = {"warm": [1.0, None], "cold": [0.0, None, 0.0], "kind": "overlay", "layers": ["block"] * 2, "read": True}
IN_A_FILE = {"warm": [1.0, 1.0], "cold": [0.0] * 3, "reason": None, "read": True}
MOUNTS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    # The owner sees warm and cold, and the layers' disk counts; others get nothing. The file was not written back when
    # it was evicted, also where overlayfs itself cannot do so, in the lower layer.
    "overlay, lower layer": ([OVERLAY_MOUNT], "mounted/in_lower", ON_DISK),
    "overlay, upper layer": ([OVERLAY_MOUNT], "mounted/file", ON_DISK),
    "overlay in memory": (
        [
            MEMORY_MOUNT, "mkdir image/u image/w image/l",
            "mount -t overlay overlay -o lowerdir=$PWD/image/l,upperdir=$PWD/image/u,workdir=$PWD/image/w mounted",
        ],
        "mounted/file",
        {"kind": "overlay", "layers": ["memory"] * 2, "read": None, "notes": [["layers_in_memory", {}]]},
    ),
    # All users see; the loop device counts.
    "ext4 in a file": (image("ext4"), "image/file", IN_A_FILE),
    "btrfs in a file": (image("btrfs"), "image/file", IN_A_FILE),
    "tmpfs is always warm": (
        [MEMORY_MOUNT], "image/file", {"warm": [1.0, None], "cold": [1.0, None, 1.0], "kind": "memory", "read": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOUNTS)
def test_a_mounted_file_system_gives_its_owner_the_truth(place: Path, name: str) -> None:
    """Warm, evicted and read again, as owner and as another user; skipped where mounting is not permitted."""
    mounts, file, expected = MOUNTS[name]
    found = apart(lambda: told(place / file), flags=NEW_MOUNTS, mounts=mounts, at=str(place))
    assert {key: found[key] for key in expected} == expected
    if found["warm"][1] is None:
        assert found["reason"][0] == "foreign_hidden"
    if "layer" in name:
        assert tuple(found["devices"]) == locate(place).devices
    if "in a file" in name:
        ((code, facts),) = found["notes"]
        assert (code, facts["file"], facts["filesystem"]) == ("loop_file", f"{place}/file", locate(place).filesystem)
        assert found["devices"] == [facts["device"]] and facts["device"].startswith("loop")


def test_a_writable_file_of_a_read_only_layer_is_not_believed(place: Path) -> None:
    """Its mode lets every user write, and yet mincore answers others that all of it is cached."""
    path = place / "mounted/file"
    mounts = [*image("ext4"), "head -c 4000000 /dev/zero > image/file", "chmod 666 image/file"]
    mounts += ["mount -o remount,ro image", OVERLAY_MOUNT.replace("/lower", "/image")]

    def ask() -> Any:
        CACHE.evict([path])
        return apart(lambda: [os.access(path, os.W_OK), CACHE.resident([path])], user=OTHER_USER)

    assert apart(ask, flags=NEW_MOUNTS, mounts=mounts, at=str(place)) == [True, None]
