"""Writes the files of a set with several processes, and records the complete ones."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from loaderprobe.datasets.generate.files import write_files
from loaderprobe.datasets.generate.journal import Entry, Journal
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.pool import Pool
from loaderprobe.errors import LoaderprobeError
from loaderprobe.system.process import die_with_parent

CHUNK = 32
# A killed run loses the files of about so many seconds.
SYNC_S = 5.0
GO_ON = "run the same command again: it resumes where it stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The files of one set of so many images."""

    directory: Path
    spec: SetSpec
    pool: Pool
    images: int

    def chunk(self, numbers: Sequence[int]) -> list[Entry]:
        """Write these files."""
        return write_files(self.directory, self.spec, self.pool, numbers, self.images)

    def write(self, numbers: Sequence[int], processes: int, found: Callable[[list[Entry]], None], book: Book) -> None:
        """Write all of these. `found` is called with each chunk once it is recorded, and may raise to end the work.

        Raises OSError, and LoaderprobeError when a process died. Complete files are recorded in any case.
        """
        size = 1 if self.spec.layout == "shards" else CHUNK
        chunks = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        try:
            if processes == 1 or len(chunks) <= 1:
                for chunk in chunks:
                    book.add(entries := self.chunk(chunk))
                    found(entries)
            else:
                self._write_together(chunks, processes, found, book)
        except BaseException:
            # Ctrl-C as much as a full disk, which cannot hold a line either: files that no line names are only
            # made again.
            with suppress(OSError):
                book.close()
            raise
        book.close()

    def _write_together(
        self, chunks: Sequence[Sequence[int]], processes: int, found: Callable[[list[Entry]], None], book: Book
    ) -> None:
        seen: set[Future[list[Entry]]] = set()
        futures: list[Future[list[Entry]]] = []
        try:
            with process_pool(min(processes, len(chunks)), self) as executor:
                futures += [executor.submit(_write_chunk, chunk) for chunk in chunks]
                for future in as_completed(futures):
                    entries = future.result()
                    seen.add(future)
                    book.add(entries)
                    found(entries)
        finally:
            # Chunks that ended while the processes were being stopped.
            for future in futures:
                if future not in seen and future.done() and not future.cancelled() and future.exception() is None:
                    book.add(future.result())


@dataclass(slots=True)
class Book:
    """Enters files in the journal periodically, and when the work ends for any reason."""

    journal: Journal
    _fresh: list[Entry] = field(default_factory=list)
    _last_s: float = field(default_factory=time.monotonic)
    _failed: bool = False

    def add(self, entries: list[Entry]) -> None:
        """Record complete files. Raises OSError when they cannot be made durable."""
        self._fresh += entries
        if time.monotonic() - self._last_s > SYNC_S:
            self.close()
            self._last_s = time.monotonic()

    def close(self) -> None:
        """Enter all of them. Raises OSError when they cannot be made durable.

        The kernel reports a failed write once, without its file: after that nothing more is entered.
        """
        if self._failed:
            return
        fresh, self._fresh = self._fresh, []
        try:
            self.journal.add(fresh)
        except OSError:
            self._failed = True
            raise


@contextmanager
def process_pool(processes: int, work: Work | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes that inherit the work and end with this one. Raises LoaderprobeError when one of them dies."""
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(os.getpid(), work))
    try:
        yield executor
    except BrokenProcessPool as error:
        raise LoaderprobeError("a process that generated images died", hint=GO_ON) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_work: Work | None = None


def _begin(parent: int, work: Work | None) -> None:
    """Ctrl-C reaches the whole group: a process finishes its chunk, and the parent assigns no more."""
    global _work  # of a process that does nothing else; a pool is too large to be sent with each chunk
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    _work = work


def _write_chunk(numbers: Sequence[int]) -> list[Entry]:
    assert _work is not None
    return _work.chunk(numbers)
