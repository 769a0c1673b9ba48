"""The files behind a worker's first batches, and how the training process gets them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loaderprobe.loaders.fetch_log import FetchLog
from loaderprobe.loaders.opened import OPENED
from loaderprobe.system.mapped import held_files

# Listing what is open and mapped takes some 3 ms in a process with torch in it.
HELD_EVERY_S = 0.05


@dataclass(slots=True)
class Lesson:
    """The files and reads of one batch."""

    files: dict[str, int] = field(default_factory=dict)
    """Path to bytes, for the files that Python opened."""
    held: dict[str, int] = field(default_factory=dict)
    """The same for files that were open or mapped afterwards, opened by any code; not checked after every batch."""
    called_bytes: int = 0
    """Bytes returned by read calls, from storage, memory or a pipe."""
    again: bool = False
    """True when an iterable restarted."""

    @property
    def opened(self) -> list[str]:
        """The paths that Python opened, in order."""
        return list(self.files)


class Learner:
    """Records the opened files while batches are made in one lane, and writes one JSON object per batch."""

    def __init__(self, log: FetchLog, lane: int, *, alone: bool) -> None:
        self._path = _path(log, lane)
        self._alone = alone
        self._counter = Path("/proc/self/io" if alone else "/proc/thread-self/io")
        self._next_look_s = 0.0
        self._called: int | None = None

    def listen(self) -> None:
        """Call before a batch is made. In a process that does nothing else, activity between batches counts too."""
        if not self._alone or self._called is None:
            OPENED.listen()
            self._called = self._read_calls()

    def heard(self, *, again: bool) -> Lesson:
        """Call after the batch."""
        called, before = self._read_calls(), self._called or 0
        found = Lesson(
            files=dict(OPENED.heard(and_listen=self._alone)), called_bytes=max(0, called - before), again=again
        )
        if time.perf_counter() >= self._next_look_s:
            own = str(self._path.parent)
            found.held = {path: size for path, size in held_files().items() if not path.startswith(own)}
            self._next_look_s = time.perf_counter() + HELD_EVERY_S
        with self._path.open("a") as out:
            out.write(json.dumps([found.files, found.held, found.called_bytes, found.again]) + "\n")
        # Writing, looking and asking read files, too.
        self._called = self._read_calls()
        return found

    def close(self) -> None:
        """Stop recording."""
        OPENED.heard()

    def _read_calls(self) -> int:
        """Bytes that read calls have returned; 0 where the kernel does not count them."""
        try:
            return int(self._counter.read_bytes().split()[1])
        except OSError:
            return 0


def lessons(log: FetchLog, lane: int) -> list[Lesson]:
    """The lessons of a lane so far, by batch."""
    path = _path(log, lane)
    lines: list[Any] = path.read_text().split("\n")[:-1] if path.is_file() else []
    return [Lesson(*json.loads(line)) for line in lines]


def _path(log: FetchLog, lane: int) -> Path:
    return log.path.with_name(f"{log.path.name}.files-{lane}")
