"""The files that a data set opens, from Python's audit events in the process that loads.

A file that is opened below Python (by a C library, by memory mapping elsewhere) gives no event; the caller must
handle that.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loaderprobe.system.mapped import may_hold_data


class OpenedFiles:
    """The only audit hook of this process: a hook cannot be removed, only disabled."""

    def __init__(self) -> None:
        self._hooked = False
        self._heard: list[tuple[Any, int]] | None = None

    def listen(self) -> None:
        """Start recording opened files."""
        if not self._hooked:
            sys.addaudithook(self._on_event)
            self._hooked = True
        self._heard = []

    def heard(self, *, and_listen: bool = False) -> list[tuple[str, int]]:
        """(absolute path, bytes) of each file opened for reading since `listen`, in order; then stop recording.

        With `and_listen`, continue: threads of the data set may open files between two batches.
        """
        events, self._heard = self._heard or [], [] if and_listen else None
        return list(dict.fromkeys(file for file in map(_data_file, events) if file is not None))

    def _on_event(self, event: str, arguments: Sequence[Any]) -> None:
        heard = self._heard
        # Another thread may stop listening in between.
        if heard is not None and event == "open":
            path, _, flags = arguments
            heard.append((path, flags or 0))


def _data_file(event: tuple[Any, int]) -> tuple[str, int] | None:
    path, flags = event
    if isinstance(path, int) or flags & os.O_ACCMODE != os.O_RDONLY:
        return None
    found = Path(os.fsdecode(path)).absolute()
    if not may_hold_data(str(found)):
        return None
    with suppress(OSError):  # gone, or opened relative to a directory that is not the current one
        state = found.stat()
        if stat.S_ISREG(state.st_mode):
            return str(found), state.st_size
    return None


OPENED = OpenedFiles()
