"""The files that a data set names: paths among its attributes, and the files in folders among them.

Not every text that names a file is meant to: a tokenizer's vocabulary holds `//`, `./` and `../`. Texts of dots and
slashes alone are no names, folders that hold more than data are passed over, and looking has a limit.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from loaderprobe.loaders.state import reachable
from loaderprobe.system.host import home_folder
from loaderprobe.system.mapped import may_hold_data

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
    dataset: Any, *, most: int, entries: int = MOST_ENTRIES, now: Callable[[], float] = time.monotonic
) -> dict[str, int] | None:
    """Real path to bytes, for the files that the attributes of a data set name, directly or by their folder.

    It ends with the first file beyond `most`. None where folders hold more than `entries` or take longer than `MOST_S`
    on the clock `now` (in seconds).
    """
    files: dict[str, int] = {}
    walked: set[str] = set()
    end_s = now() + MOST_S
    for path in islice(_paths(dataset), MOST_ASKED):
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


def _paths(dataset: Any) -> Iterator[str]:
    """Real paths among the attributes of a data set, each once."""
    asked: set[str] = set()
    given: set[str] = set()
    for leaf in reachable([dataset]):
        if isinstance(leaf, str | os.PathLike):
            path = os.fsdecode(leaf)
            if path in asked or len(path) >= LONGEST_PATH or "\0" in path:
                continue
            if os.sep in path and path.strip(f".{os.sep}"):
                asked.add(path)
                with suppress(OSError):  # the current folder is gone
                    path = os.path.realpath(path)
                    if path not in given:
                        given.add(path)
                        yield path


def _files(path: str, walked: set[str]) -> Iterator[str]:
    """The file, or those of the folder; an empty text for each entry that is none. `walked` are folders before it."""
    if not may_hold_data(path):
        return
    if os.path.isfile(path):  # noqa: PTH113  # names, not paths: there may be thousands
        yield path
    elif os.path.isdir(path) and not holds_more_than_data(path):  # noqa: PTH112
        for folder, folders, names in os.walk(path):
            inside = [os.path.join(folder, name) for name in folders]  # noqa: PTH118
            folders[:] = [
                name
                for name, path in zip(folders, inside, strict=True)
                if path not in walked and may_hold_data(f"{path}{os.sep}")
            ]
            if folder in walked:
                continue
            walked.add(folder)
            yield from ("" for _ in inside)
            for name in names:
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
