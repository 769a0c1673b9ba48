"""The page cache: dropping files from it, filling it, and asking what it holds.

Residency is asked with mincore, whose answer the kernel falsifies ("all resident") for files that the user
neither owns nor may write; cachestat is not used, since on overlayfs it always answers 0.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

PASSES = 4
READ_BYTES = 1 << 20
PAGE_BYTES = mmap.PAGESIZE
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class LinuxPageCache:
    """Implements `protocols.PageCache` with fadvise, reads and mincore; needs only permission to read."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files' pages; a file that has gone has none.

        Pages whose read is still under way stay, and so do those not written back yet, as of a folder
        just unpacked: so it is done again, after writing back, until the resident share stops falling. Where
        the share may not be known, once more is done blindly: what is unknown may be such a folder too.
        """
        before = 1.0
        for number in range(PASSES):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    _drop(path, write_back=number > 0)
            now = self.resident(paths)
            if now == 0 or (number > 0 and (now is None or now >= before)):
                return
            before = 1.0 if now is None else now

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once into a buffer that is reused; a file that has gone is left out."""
        buffer = bytearray(READ_BYTES)
        for path in paths:
            with contextlib.suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None when one of them may not be asked."""
        pages = held = 0
        for path in paths:
            if why_unknown(path):
                return None
            of_file = _resident_pages(path)
            if of_file is None:
                return None
            pages += of_file[1]
            held += of_file[0]
        return held / pages if pages else None


def why_unknown(path: Path) -> str | None:
    """Why the kernel would not tell this user the truth about the file; None when it would."""
    try:
        owner = path.stat().st_uid
    except OSError as error:
        return f"{path} cannot be examined: {error.strerror}"
    if owner == os.geteuid() or os.geteuid() == 0 or os.access(path, os.W_OK):
        return None
    return f"{path} belongs to another user, for whose files the kernel hides what is cached"


def _drop(path: Path, *, write_back: bool) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        if write_back:
            # Read-only file systems without a write path (squashfs) answer EINVAL: nothing there is dirty.
            with contextlib.suppress(OSError):
                os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _resident_pages(path: Path) -> tuple[int, int] | None:
    """(pages in the cache, pages of the file); None where the file cannot be mapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return 0, 0
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address in (None, _MAP_FAILED):
        return None
    pages = -(-size // PAGE_BYTES)
    states = ctypes.create_string_buffer(pages)
    try:
        if _libc.mincore(address, size, states) != 0:
            return None
    finally:
        _libc.munmap(address, size)
    return sum(state & 1 for state in states.raw), pages
