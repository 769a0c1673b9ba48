"""Reads the files of a folder over and over past the page cache, and reports each read: so is a slow disk verified.

As a program: `python -m tests.planted.slow_reader FOLDER READERS SECONDS`.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PIECE_BYTES = 1 << 17


class Read(NamedTuple):
    """One read of at most PIECE_BYTES: when it ended, in s since the first began, its size and its duration."""

    end_s: float
    size_bytes: int
    seconds: float


def read_folder(folder: Path, *, readers: int, seconds: float) -> list[Read]:
    """Read the files over and over past the page cache, on so many threads, each for so long and at least once."""
    pieces = itertools.cycle(
        [(file, offset) for file in files_in(folder) for offset in range(0, file.stat().st_size, PIECE_BYTES)]
    )
    begun = time.perf_counter()

    def run(_: int) -> list[Read]:
        reads: list[Read] = []
        with mmap.mmap(-1, PIECE_BYTES) as buffer:
            while not reads or time.perf_counter() - begun < seconds:
                file, offset = next(pieces)
                fd = _open_cold(file)
                try:
                    start = time.perf_counter()
                    size_bytes = os.preadv(fd, [buffer], offset)
                    end = time.perf_counter()
                finally:
                    os.close(fd)
                reads.append(Read(end - begun, size_bytes, end - start))
        return reads

    with ThreadPoolExecutor(readers) as pool:
        return sorted(itertools.chain.from_iterable(pool.map(run, range(readers))))


def _open_cold(file: Path) -> int:
    """A handle whose next read comes from storage."""
    with suppress(OSError):
        return os.open(file, os.O_RDONLY | os.O_DIRECT)
    evict([file])
    return os.open(file, os.O_RDONLY)


def evict(files: Sequence[Path]) -> None:
    """Drop their pages, and what the kernel remembers of those that it dropped before."""
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Read FOLDER with READERS threads for SECONDS; print its reads as JSON."""
    folder, readers, seconds = sys.argv[1:]
    sys.stdout.write(json.dumps(read_folder(Path(folder), readers=int(readers), seconds=float(seconds))))


if __name__ == "__main__":
    main()
