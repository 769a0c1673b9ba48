"""The page cache: drop files from it, fill it, and ask what it holds."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import resource
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

from loaderprobe.errors import MissingPart
from loaderprobe.records.remark import Remark
from loaderprobe.system.process import read_proc

# The share of files in the page cache: from mincore, or page by page where mincore is wrong.
#
# mincore reports "all resident" for a file that the caller neither owns nor may write (Linux 5.2 and later). For such
# files a few pages are read with RWF_NOWAIT, which returns data from the cache or none at all. cachestat is not used:
# on overlayfs it always answers 0.

PAGE_BYTES = mmap.PAGESIZE
THREADS = 16
"""Measured with an open of 1 ms, 2,000 files: warmed in 0.2 s in place of 2.3, evicted in 0.3 s in place of 4.4."""
PARTS = 8 * THREADS
"""An eighth is under way when one part raises or Ctrl-C comes: files being evicted still are, none is read on."""
T = TypeVar("T")
SAMPLED_FILES = 128
SAMPLED_PAGES = 256
"""Pages tried one by one, over all files: a cold one costs one read, so 3 s in total on a disk with 10 ms per read."""
FEWEST_PAGES = 2
# Magic numbers of statfs(2).
FUSE = 0x65735546
OVERLAY = 0x794C7630
NETWORK = {
    0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x00C36400, 0x0BD00BD0, 0x01021997, 0x5346414F, 0x6B414653, 0x19830326,
}  # fmt: skip
"""NFS, SMB 1, CIFS, SMB 2, Ceph, Lustre, 9p, two of AFS, BeeGFS."""
OWN_CACHE = {0x2FC12FC1: "ZFS", 0x47504653: "GPFS"}
CAP_FOWNER = 3
OVERFLOW_UID = 65534
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)  # not in every C library
_RESIDENT = bytes(state & 1 for state in range(256))
WINDOW_BYTES = 1 << 30
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.statfs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]


def ask(paths: Sequence[Path]) -> tuple[float | None, bool] | Remark:
    """(the cached share of the files, None without pages; whether that of some is from a sample), or why it is unknown.

    Cold files are cold again afterwards, and warm files stay warm. Only a partly warm file of which no sampled page
    was cached is dropped completely.
    """
    cached = pages = 0
    hidden: list[tuple[Path, int]] = []
    for part in _in_parts(_Asker().count, paths):
        if isinstance(part, Remark):
            return part
        cached, pages = cached + part[0], pages + part[1]
        hidden += part[2]
    share = _sampled_share(hidden)
    if isinstance(share, Remark):
        return share
    unseen = sum(of_file for _, of_file in hidden)
    return (cached + share * unseen) / (pages + unseen) if pages + unseen else None, bool(hidden)


def _in_parts(
    do: Callable[[Sequence[Path]], T], paths: Sequence[Path], *, opens: bool = True, stop: Event | None = None
) -> list[T]:
    """What `do` returns, or raises, of each part of the paths, in their order.

    `stop` is set when one raises or Ctrl-C comes. To open local files (`opens`) takes one thread, as 16 wait for
    Python's lock: up to 76 us a file on ext4, not 19.
    """
    size, one_thread = max(1, len(paths) // PARTS), opens and not _on(paths[:1], NETWORK | {FUSE})
    with ThreadPoolExecutor(1 if one_thread else THREADS) as threads:
        try:
            return list(threads.map(do, (paths[first : first + size] for first in range(0, len(paths), size))))
        except BaseException:
            if stop:
                stop.set()
            raise


def _about(path: Path, code: str, **facts: str) -> Remark:
    return Remark(code=code, facts={"path": str(path), **facts})


def _not_examined(path: Path, error: OSError) -> Remark:
    return _about(path, "not_examined", error=str(error.strerror))


def acts_as_owner(status: Path = Path("/proc/thread-self/status")) -> bool:
    """Whether this thread may act as the owner of any file, as root may unless a container forbids it."""
    lines = read_proc(status).splitlines()  # a command's name may hold any bytes
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith(b"CapEff:")), 0)
    return bool(effective >> CAP_FOWNER & 1)


def knows_all_users(uid_map: Path = Path("/proc/self/uid_map")) -> bool:
    """False in a user namespace, where all other users' files appear to have one owner."""
    return read_proc(uid_map).split() == [b"0", b"0", b"%d" % (2**32 - 1)]


def filesystem_magic(path: Path) -> int:
    """Type of the file system, from statfs, which opens nothing. Raises OSError."""
    answer = (ctypes.c_long * 64)()
    if _libc.statfs(os.fsencode(path), answer) != 0:
        raise _error()
    return answer[0] & 0xFFFFFFFF


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


@dataclass(slots=True)
class _Asker:
    """The caller's identity and the file systems; created for each call, because both change."""

    euid: int = field(default_factory=os.geteuid)
    owns_all: bool = field(default_factory=acts_as_owner)
    knows_all: bool = field(default_factory=knows_all_users)
    kinds: dict[int, int] = field(default_factory=dict)

    def kind(self, path: Path, device: int) -> int:
        if device not in self.kinds:
            self.kinds[device] = filesystem_magic(path)
        return self.kinds[device]

    def gets_the_truth(self, path: Path, owner: int, kind: int) -> bool:
        """The rule of `can_do_mincore` in the kernel's mm/mincore.c."""
        # One number stands for all users that a user namespace does not know.
        owner_is_known = owner != OVERFLOW_UID or self.knows_all
        if owner_is_known and (owner == self.euid or self.owns_all):
            return True
        # In an overlay the layer's own file counts, and mincore was seen to lie where that layer is read-only.
        return kind != OVERLAY and os.access(path, os.W_OK, effective_ids=True)

    def count(self, paths: Sequence[Path]) -> tuple[int, int, list[tuple[Path, int]]] | Remark:
        """(cached pages, pages of the same files, the files of which it is hidden), or why one cannot be known."""
        cached = pages = 0
        hidden: list[tuple[Path, int]] = []
        for path in paths:
            try:
                status = path.stat()
                kind = self.kind(path, status.st_dev)
                truth = self.gets_the_truth(path, status.st_uid, kind)
                if why := _why_not(path, status.st_mode, kind, truth):
                    return why
                of_file = -(-status.st_size // PAGE_BYTES)
                if not truth and of_file:
                    hidden.append((path, of_file))
                elif of_file:
                    cached += _resident_pages(path, status.st_size)
                    pages += of_file
            except OSError as error:
                return _not_examined(path, error)
        return cached, pages, hidden


def _why_not(path: Path, mode: int, kind: int, truth: bool) -> Remark | None:
    if not stat.S_ISREG(mode):
        return _about(path, "not_regular")
    if kind == FUSE:
        return _about(path, "on_fuse")
    if kind in OWN_CACHE:
        return _about(path, "own_cache", filesystem=OWN_CACHE[kind])
    if kind in NETWORK and not truth:
        return _about(path, "foreign_on_network")
    return None


def _resident_pages(path: Path, size_bytes: int) -> int:
    """Cached pages, from mincore. Raises OSError where the file cannot be mapped."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # In windows: the answer takes a byte a page.
        windows = range(0, size_bytes, WINDOW_BYTES)
        return sum(_resident_within(fd, offset, min(WINDOW_BYTES, size_bytes - offset)) for offset in windows)
    finally:
        os.close(fd)


def _resident_within(fd: int, offset: int, size_bytes: int) -> int:
    address = _libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
    if address in (None, _MAP_FAILED):
        raise _error()
    states = ctypes.create_string_buffer(-(-size_bytes // PAGE_BYTES))
    try:
        if _libc.mincore(address, size_bytes, states) != 0:
            raise _error()
    finally:
        _libc.munmap(address, size_bytes)
    return states.raw.translate(_RESIDENT).count(1)


def _sampled_share(files: Sequence[tuple[Path, int]]) -> float | Remark:
    """Cached share of the files' pages, from evenly spread pages of evenly spread files; or why it cannot be known.

    `files` are paths and how many pages each has, at least one.
    """
    sample = files[:: -(-len(files) // SAMPLED_FILES) or 1]
    most_pages = max(FEWEST_PAGES, SAMPLED_PAGES // max(1, len(sample)))
    cached = 0.0
    for path, pages in sample:
        count = min(pages, most_pages)
        try:
            cached += pages * _share_of_file(path, [(2 * n + 1) * pages // (2 * count) for n in range(count)])
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return _about(path, "foreign_hidden")
            return _not_examined(path, error)
    return cached / sum(pages for _, pages in sample) if sample else 0.0


def _share_of_file(path: Path, pages: Sequence[int]) -> float:
    """Cached share of these pages, given by number; afterwards the same pages are cached as before.

    Raises OSError, EOPNOTSUPP where the file system does not support RWF_NOWAIT.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Asking for a page that is not there begins to read it; without this, many after it too.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        missing = [page * PAGE_BYTES for page in pages if not _is_there(fd, page * PAGE_BYTES)]
        for offset in missing:
            # Waits for that read: a page that is under way would not be dropped.
            os.pread(fd, 1, offset)
        for offset in missing:
            os.posix_fadvise(fd, offset, PAGE_BYTES, os.POSIX_FADV_DONTNEED)
        if len(missing) == len(pages):
            # A compressed or large block brings its neighbours along; of a cold file, all may go.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return 1 - len(missing) / len(pages)


def _is_there(fd: int, offset: int) -> bool:
    if _NOWAIT is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
    with contextlib.suppress(BlockingIOError):
        os.preadv(fd, [bytearray(1)], offset, _NOWAIT)
        # A quick device may have brought the page in time: up to 14 of 240 were seen so on a virtual disk.
        return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock == before
    return False


PASSES = 4
MOST_ASKED_BYTES = 16 << 30
"""Of files that are evicted and asked for: mincore takes 0.2 s for so many, and as long whatever they have cached."""
READ_BYTES = 1 << 20
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


class LinuxPageCache:
    """Implements `protocols.PageCache` with fadvise, reads and mincore; needs only permission to read."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files' pages; a file that was removed has none, and one that cannot be opened keeps them.

        Pages that are still being read stay, and so do pages not yet written back, as of a folder just unpacked.
        So this is repeated, after writing back, until the resident share stops falling. Where the share is
        unknown, is that of a sample, or takes long to ask for, it is repeated once in any case.
        """
        before, all_written = 1.0, False
        for number in range(PASSES):
            size = sum(_in_parts(partial(_drop, write_back=number > 0), paths))
            answer = ask(paths) if size <= MOST_ASKED_BYTES else (None, True)
            now, sampled = (None, True) if isinstance(answer, Remark) else answer
            if now == 0 and not sampled:
                return
            if number > 0 and (not now or now >= before):
                if not now or all_written or not _on(paths, {OVERLAY}):
                    return
                # overlayfs does not write back single files of its lower layers.
                os.sync()
                all_written = True
            before = 1.0 if now is None else now

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once into a reused buffer; a file that was removed, or cannot be read, is skipped."""
        stop = Event()
        _in_parts(partial(_read, stop), paths, opens=False, stop=stop)

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None when it is unknown for one of them (`why_unknown`).

        For other users' files it is estimated from a sample. Asking leaves cold files cold.
        """
        answer = ask(paths)
        return None if isinstance(answer, Remark) else answer[0]


def why_unknown(path: Path) -> Remark | None:
    """Why the cached share of the file cannot be known; None when it can. Found by trying."""
    answer = ask([path])
    return answer if isinstance(answer, Remark) else None


def drop_all_caches(path: Path = DROP_CACHES) -> None:
    """Write back, then drop the machine's page cache and its cache of names, which `evict` leaves.

    All processes read cold afterwards. Raises MissingPart when that is not permitted.
    """
    os.sync()
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=0) as file:
            file.write(b"3\n")
    except OSError as error:
        raise MissingPart(
            f"no permission to drop the machine's caches ({path}: {error.strerror})",
            hint="run as root outside a container, or leave it out: the files that are read are evicted anyway",
        ) from error


def _on(paths: Sequence[Path], kinds: set[int]) -> bool:
    for path in paths:
        with contextlib.suppress(OSError):
            if filesystem_magic(path) in kinds:
                return True
    return False


def _drop(paths: Sequence[Path], *, write_back: bool) -> int:
    """Returns the bytes of the files."""
    size = 0
    for path in paths:
        with contextlib.suppress(OSError):
            # Opening anything but a regular file could block.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if write_back:
                    # Read-only file systems without a write path (squashfs) answer EINVAL: nothing there is dirty.
                    with contextlib.suppress(OSError):
                        os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                size += os.fstat(fd).st_size
            finally:
                os.close(fd)
    return size


def _read(stop: Event, paths: Sequence[Path]) -> None:
    buffer = bytearray(READ_BYTES)
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            while not stop.is_set() and file.readinto(buffer):
                pass
