"""The files and reads of a worker's first batches, and what the training process makes of them.

Files are seen by Python's audit events in the process that loads. One that is opened below Python (by a C library, by
memory mapping elsewhere) gives no event: reads and open files show that there is one.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from loaderprobe.loaders.fetch_log import FetchLog
from loaderprobe.loaders.state import reachable
from loaderprobe.records.diagnosis import BatchFiles, LoaderFiles, UnknownFiles, UnknownFilesCode
from loaderprobe.records.files import PartFiles
from loaderprobe.stats import median
from loaderprobe.system.host import home_folder
from loaderprobe.system.mapped import held_files, may_hold_data
from loaderprobe.system.process import io_counters
from loaderprobe.system.scratch import written_in

# Listing what is open and mapped takes some 3 ms in a process with torch in it.
LIST_EVERY_S = 0.05
# Files are read whole when read calls return about as many bytes as the opened files hold.
READ_WHOLE = (0.8, 1.25)
# What a worker reads beside: indices, clocks of the kernel.
BESIDE_BYTES = 8192
# To evict more takes longer than it is worth.
MOST_FILES = 20_000


class OpenedFiles:
    """The only audit hook of this process: a hook cannot be removed, only disabled."""

    def __init__(self) -> None:
        self._hooked = False
        self._events: list[tuple[Any, int]] | None = None

    def start(self) -> None:
        if not self._hooked:
            sys.addaudithook(self._on_event)
            self._hooked = True
        self._events = []

    def stop(self, *, and_restart: bool = False) -> list[tuple[str, int]]:
        """(absolute path, bytes) of each file opened for reading since `start`, in order; then stop recording.

        With `and_restart`, continue: threads of the data set may open files between two batches.
        """
        events, self._events = self._events or [], [] if and_restart else None
        return list(dict.fromkeys(file for file in map(_data_file, events) if file is not None))

    def _on_event(self, event: str, arguments: Sequence[Any]) -> None:
        events = self._events
        # Another thread may stop recording in between.
        if events is not None and event == "open":
            path, _, flags = arguments
            events.append((path, flags or 0))


def _data_file(event: tuple[Any, int]) -> tuple[str, int] | None:
    path, flags = event
    if isinstance(path, int) or flags & os.O_ACCMODE != os.O_RDONLY:
        return None
    with suppress(OSError):  # gone, or opened relative to a directory that is gone or is not the current one
        file = Path(os.fsdecode(path)).absolute()
        if may_hold_data(str(file)) and stat.S_ISREG((state := file.stat()).st_mode):
            return str(file), state.st_size
    return None


OPENED = OpenedFiles()


@dataclass(slots=True)
class BatchReads:
    """The files and reads of one batch."""

    files: dict[str, int] = field(default_factory=dict)
    """Path to bytes, for the files that Python opened."""
    kept_open: dict[str, int] = field(default_factory=dict)
    """The same for files that were open or mapped afterwards, opened by any code; not checked after every batch."""
    called_bytes: int = 0
    """Bytes returned by read calls, from storage, memory or a pipe."""


class ReadsRecorder:
    """Records what is read while the first batches are made in one lane, and writes one JSON object per batch."""

    def __init__(self, log: FetchLog, lane: int, *, alone: bool) -> None:
        """`alone` is True in a process that does nothing else: activity between batches counts too."""
        self._path = log.beside("files", lane)
        self._alone = alone
        self._counted = Path("/proc/self" if alone else "/proc/thread-self")
        self._list_at_s = 0.0
        self._called: int | None = None
        self._over = False
        self.batches: list[BatchReads] = []

    def begin(self, *, wanted: bool) -> bool:
        """Call before a batch is made: True where its reads are recorded. After one that is not wanted, none are."""
        if self._over or not wanted:
            if self._alone and not self._over:
                self.close()
            self._over = True
            return False
        if not self._alone or self._called is None:
            OPENED.start()
            self._called = self._read_calls()
        return True

    def end(self) -> None:
        """Call after a batch that is recorded. Raises NoSpace on a full file system."""
        called, before = self._read_calls(), self._called or 0
        files = dict(OPENED.stop(and_restart=self._alone))
        reads = BatchReads(files=files, called_bytes=max(0, called - before))
        if time.perf_counter() >= self._list_at_s:
            ours = str(self._path.parent)
            reads.kept_open = {path: size for path, size in held_files().items() if not path.startswith(ours)}
            self._list_at_s = time.perf_counter() + LIST_EVERY_S
        with written_in(self._path.parent), self._path.open("a") as out:
            out.write(json.dumps([reads.files, reads.kept_open, reads.called_bytes]) + "\n")
        self.batches.append(reads)
        # Writing, listing and asking read files, too.
        self._called = self._read_calls()

    def close(self) -> None:
        OPENED.stop()

    def _read_calls(self) -> int:
        """Bytes that read calls have returned; 0 where the kernel does not count them."""
        return io_counters(self._counted).get("rchar", 0)


def pool_reads(log: FetchLog, batches: int) -> list[BatchReads]:
    """What was read for the first batches, in order; nothing for batches not made yet."""
    lanes: list[list[BatchReads]] = []
    for path in (log.beside("files", lane) for lane in range(log.lanes)):
        lines = path.read_text().split("\n")[:-1] if path.is_file() else []
        lanes.append([BatchReads(*json.loads(line)) for line in lines])
    numbers = ((lanes[number % log.lanes], number // log.lanes) for number in range(batches))
    return [lane[made] if made < len(lane) else BatchReads() for lane, made in numbers]


def loader_files(pool: Sequence[BatchReads], dataset: Any, *, batch_size: int, in_order: bool) -> LoaderFiles:
    """The files of the pool's batches, one by one or as a whole; or why they are not known."""
    opening = [reads for reads in pool if reads.files]
    # What the first batches import is no data, so the usual batch decides.
    if 2 * len(opening) <= len(pool):
        return _part_files(pool, dataset, "opened_below_python")
    opened = [sum(reads.files.values()) for reads in opening]
    called = sorted(reads.called_bytes for reads in opening)
    if median(called) and median(called) < READ_WHOLE[0] * median(opened):
        return _part_files(pool, dataset, "read_in_parts")
    # Now and then a batch also reads what it imports, so a quarter of them must read more than they open.
    if called[len(called) // 4] > READ_WHOLE[1] * median(opened) + BESIDE_BYTES:
        return _part_files(pool, dataset, "read_beside")
    return BatchFiles(
        batch_size=batch_size,
        paths=tuple(tuple(reads.files) for reads in pool),
        file_bytes={path: size for reads in pool for path, size in reads.files.items()},
        in_order=in_order,
    )


def _part_files(pool: Sequence[BatchReads], dataset: Any, why: UnknownFilesCode) -> PartFiles | UnknownFiles:
    """All files that the data set opened, keeps open or names, unless they are too many to be evicted.

    `why` the files of a batch are not known stands where not all that it names are.
    """
    files = {path: size for reads in pool for path, size in (reads.files | reads.kept_open).items()}
    # Code may name the folder of a whole project, or one of results: where that is too much, it is left out.
    for by_code in (True, False):
        named = named_files(dataset, most=MOST_FILES, by_code=by_code)
        if named is not None and len(files | named) <= MOST_FILES:
            break
    if named is None:
        return UnknownFiles(code=why)
    files |= named
    if not files:
        return UnknownFiles(code="none_seen")
    if len(files) > MOST_FILES:
        return UnknownFiles(code="too_large")
    return PartFiles(file_bytes=files)


# The files that a data set names: paths that it holds or its methods name, and the files in folders among them.
#
# Not every text that names a file is meant to: a tokenizer's vocabulary holds `//`, `./` and `../`. Texts of dots and
# slashes alone are no names, folders that hold more than data are passed over, and looking has a limit.

# A folder above this depth may hold anything.
LEAST_DEPTH = 2
HOMES = ("/home", "/Users")
# Strings that look like paths but are none (addresses, captions) cost a question each.
MOST_ASKED = 50_000
LONGEST_PATH = 4096
# Of all folders together. Assumed: a local disk lists some 100,000 entries a second.
MOST_ENTRIES = 200_000
MOST_S = 5.0


def named_files(
    dataset: Any, *, most: int, by_code: bool = True, entries: int = MOST_ENTRIES,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, int] | None:  # fmt: skip
    """Real path to bytes, for the files that a data set names, directly or by their folder.

    Without `by_code`, only what it holds itself counts, not what its classes hold and its code names. It ends with the
    first file beyond `most`. None where folders hold more than `entries` or take longer than `MOST_S` on the clock
    `now` (in seconds).
    """
    files: dict[str, int] = {}
    walked: set[str] = set()
    end_s = now() + MOST_S
    for path in islice(_paths(dataset, by_code=by_code), MOST_ASKED):
        if now() > end_s:
            return None
        for file in _files(path, walked):
            entries -= 1
            if file and file not in files:
                files |= _size(file)
            if len(files) > most:
                return files
            if entries < 0 or now() > end_s:
                return None
    return files


def _paths(dataset: Any, *, by_code: bool) -> Iterator[str]:
    """Real paths that a data set names, each once."""
    names: set[str] = set()
    paths: set[str] = set()
    for leaf in reachable([dataset], named=by_code):
        if isinstance(leaf, str | os.PathLike):
            path = os.fsdecode(leaf)
            if path in names or len(path) >= LONGEST_PATH or "\0" in path:
                continue
            if os.sep in path and path.strip(f".{os.sep}"):
                names.add(path)
                with suppress(OSError):  # the current folder is gone
                    path = os.path.realpath(path)
                    if path not in paths:
                        paths.add(path)
                        yield path


def _files(path: str, walked: set[str]) -> Iterator[str]:
    """The file, or those of the folder; an empty text for each other entry. `walked` are folders before it."""
    if not may_hold_data(path):
        return
    if os.path.isfile(path):  # noqa: PTH113  # names, not paths: there may be thousands
        yield path
    elif os.path.isdir(path) and not holds_more_than_data(path):  # noqa: PTH112
        for folder, folders, names in os.walk(path):
            is_new = folder not in walked
            walked.add(folder)
            folders[:] = [name for name in folders if is_new and may_hold_data(f"{folder}{os.sep}{name}{os.sep}")]
            yield from [""] * len(folders)
            for name in names if is_new else ():
                file = os.path.join(folder, name)  # noqa: PTH118
                yield file if may_hold_data(file) else ""


def holds_more_than_data(folder: str) -> bool:
    """True for a folder at the top, for homes, and for what a home is in.

    `folder` is a real path. What lies in such a folder may still be named by itself.
    """
    home = home_folder()
    return (
        len(Path(folder).parts) <= LEAST_DEPTH
        or os.path.dirname(folder) in HOMES  # noqa: PTH120
        or f"{home}{os.sep}".startswith(f"{folder}{os.sep}")
    )


def _size(file: str) -> dict[str, int]:
    """Path and bytes of a regular file that can be read; else nothing."""
    try:
        state = os.stat(file)  # noqa: PTH116  # as above
        readable = stat.S_ISREG(state.st_mode) and os.access(file, os.R_OK)
    except OSError:
        return {}  # gone, a link to nowhere, or no permission
    return {file: state.st_size} if readable else {}
