"""Files that a process holds open or has mapped into its memory, and unmapping their pages so that they can be evicted.

Dropping a file from the page cache leaves the pages that a process has mapped. A process can unmap its own clean
pages (MADV_DONTNEED); a later read faults them in again. Measured: after that, evicting a mapped file removes all of
it, and without it none.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MADV_DONTNEED = 4
OWN = Path("/proc/self")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
# Parts of programs, and files that are not on storage.
CODE_SUFFIXES = (".py", ".pyc", ".so", ".pth")
NO_STORAGE = ("/proc/", "/sys/", "/dev/", "/memfd:", "/run/", "/usr/lib/", "/usr/share/zoneinfo/", "/usr/share/locale/")
# Fedora, Arch and openSUSE mount external disks below /run, which is in memory.
DISKS = "/run/media/"
PACKAGES = ("/site-packages/", "/dist-packages/", ".so.")


def may_hold_data(path: str) -> bool:
    """False for code, packages, devices and virtual file systems of the kernel."""
    if not path.startswith("/") or (path.startswith(NO_STORAGE) and not path.startswith(DISKS)):
        return False
    return not path.endswith(CODE_SUFFIXES) and not any(part in path for part in PACKAGES)


def held_files() -> dict[str, int]:
    """Bytes by path of the regular files that this process has open for reading only, or mapped and not as code."""
    return _sizes({*_open_for_reading(), *(mapping.path for mapping in _of_files())})


def let_go(paths: Collection[str] | None = None, clean: set[Mapping] | None = None) -> None:
    """Unmap the pages of these files, else of all that are mapped and not as code.

    A later read brings them back. Private mappings that can be, or have been, written to are skipped, because
    changes would be lost. `clean` keeps those that cannot be written and were found unchanged: they stay so.
    """
    clean = set() if clean is None else clean
    mapped = _of_files(paths)
    clean.intersection_update(mapped)
    if any(not mapping.shared and "w" not in mapping.access and mapping not in clean for mapping in mapped):
        changed = _changed()
        clean.update(mapping for mapping in mapped if "w" not in mapping.access and mapping.begin not in changed)
        # That took some ms, in which another thread may have unmapped a file.
        mapped = _of_files(paths)
    for mapping in mapped:
        if mapping.shared or mapping in clean:
            _libc.madvise(mapping.begin, mapping.end - mapping.begin, MADV_DONTNEED)


class Evicted:
    """Some files of which this process drops all pages from the page cache, often and cheaply.

    Of pages that other processes have mapped, those stay. Files that are removed are left out.
    """

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = frozenset(str(Path(path).resolve()) for path in paths)
        self._files: list[int] = []
        for path in sorted(self._paths):
            with suppress(OSError):
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        self._clean: set[Mapping] = set()

    def drop(self) -> None:
        """Unmap the pages of the files here, and evict them. Some 2 ms in a process with torch in it."""
        let_go(self._paths, self._clean)
        for file in self._files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def size_bytes(self) -> int:
        return sum(os.fstat(file).st_size for file in self._files)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


class Mapping(NamedTuple):
    """A line of /proc/self/maps."""

    begin: int
    end: int
    access: str
    """Such as `rw-s`."""
    device: str
    inode: str
    path: str
    """Empty for memory of its own."""

    @property
    def shared(self) -> bool:
        return self.access[3] == "s"


def mappings(wanted: Callable[[str], bool] = lambda _: True) -> list[Mapping]:
    """Those of this process with such paths, in the order of their addresses; none where they are not readable."""
    listed = []
    with suppress(OSError):
        for line in _lines(OWN / "maps"):
            span, access, _, device, inode, *name = line.split(maxsplit=5)
            if wanted(path := "".join(name)):
                begin, _, end = span.partition("-")
                listed.append(Mapping(int(begin, 16), int(end, 16), access, device, inode, path))
    return listed


def _lines(path: Path) -> list[str]:
    """A name of a file may hold a carriage return, but no newline."""
    return os.fsdecode(path.read_bytes()).split("\n")[:-1]


def _of_files(paths: Collection[str] | None = None) -> list[Mapping]:
    """Mappings of these files; else of data files: a file with any part mapped as code is a library."""
    if paths is not None:
        return mappings(paths.__contains__)
    of_data = mappings(lambda path: may_hold_data(path) and not path.endswith(" (deleted)"))
    code = {mapping.path for mapping in of_data if "x" in mapping.access}
    return [mapping for mapping in of_data if mapping.path not in code]


def _changed() -> set[int]:
    """Start addresses of the mappings of which this process has private copies of pages."""
    changed, begin = set(), 0
    for line in _lines(OWN / "smaps"):
        head = line.split(maxsplit=1)[0]
        if head == "Anonymous:" and int(line.split()[1]):
            changed.add(begin)
        elif not head.endswith(":"):
            begin = int(head.partition("-")[0], 16)
    return changed


def _open_for_reading() -> Iterator[str]:
    for entry in list((OWN / "fd").iterdir()):
        with suppress(OSError, ValueError):  # closed meanwhile
            path = str(entry.readlink())
            if may_hold_data(path) and _flags(OWN / "fdinfo" / entry.name) & os.O_ACCMODE == os.O_RDONLY:
                yield path


def _flags(info: Path) -> int:
    lines = info.read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("flags:")), 8)


def _sizes(paths: Collection[str]) -> dict[str, int]:
    sizes = {}
    for path in sorted(paths):
        with suppress(OSError):
            state = os.stat(path)  # noqa: PTH116  # names, not paths: there may be thousands
            if stat.S_ISREG(state.st_mode):
                sizes[path] = state.st_size
    return sizes
