"""The page cache: drop files from it, fill it, and ask what it holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from loaderprobe.errors import MissingPart
from loaderprobe.records.measurement import Missing
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.system.residency import OVERLAY, ask, filesystem_magic

PASSES = 4
READ_BYTES = 1 << 20
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


class LinuxPageCache:
    """Implements `protocols.PageCache` with fadvise, reads and mincore; needs only permission to read."""

    def evict(self, paths: Sequence[Path]) -> None:
        """Drop the files' pages; a file that was removed has none, and one that cannot be opened keeps them.

        Pages that are still being read stay, and so do pages not yet written back, as of a folder just unpacked.
        So this is repeated, after writing back, until the resident share stops falling. Where the share is
        unknown or is that of a sample, it is repeated once in any case.
        """
        before, all_written = 1.0, False
        for number in range(PASSES):
            for path in paths:
                with contextlib.suppress(OSError):
                    _drop(path, write_back=number > 0)
            found = ask(paths)
            now, sampled = (None, True) if isinstance(found, Missing) else (found.share, found.sampled)
            if now == 0 and not sampled:
                return
            if number > 0 and (not now or now >= before):
                if not now or all_written or not _on_overlay(paths):
                    return
                # overlayfs does not write back single files of its lower layers.
                os.sync()
                all_written = True
            before = 1.0 if now is None else now

    def warm(self, paths: Sequence[Path]) -> None:
        """Read the files once into a reused buffer; a file that was removed, or cannot be read, is skipped."""
        buffer = bytearray(READ_BYTES)
        for path in paths:
            with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def resident(self, paths: Sequence[Path]) -> float | None:
        """Share of the files' pages in the cache; None when it is unknown for one of them (`why_unknown`).

        For other users' files it is estimated from a sample. Asking leaves cold files cold.
        """
        found = ask(paths)
        return None if isinstance(found, Missing) else found.share


def why_unknown(path: Path) -> Unavailable | None:
    """Why the cached share of the file cannot be known; None when it can. Found by trying."""
    found = ask([path])
    return found.reason if isinstance(found, Missing) else None


def drop_all_caches(path: Path = DROP_CACHES) -> None:
    """Write back, then drop the machine's page cache and its cache of names, which `evict` leaves.

    All processes read cold afterwards. Raises MissingPart when that is not permitted.
    """
    os.sync()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"3\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise MissingPart(
            f"no permission to drop the machine's caches ({path}: {error.strerror})",
            hint="run as root outside a container, or leave it out: the files that are read are evicted anyway",
        ) from error


def _on_overlay(paths: Sequence[Path]) -> bool:
    for path in paths:
        with contextlib.suppress(OSError):
            if filesystem_magic(path) == OVERLAY:
                return True
    return False


def _drop(path: Path, *, write_back: bool) -> None:
    # Opening anything but a regular file could block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if write_back:
            # Read-only file systems without a write path (squashfs) answer EINVAL: nothing there is dirty.
            with contextlib.suppress(OSError):
                os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
