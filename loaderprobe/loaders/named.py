"""The files that a data set names: paths among its attributes, and the files in folders among them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import Any

from loaderprobe.loaders.held import held
from loaderprobe.system.mapped import may_hold_data

# A folder above this depth may hold anything.
LEAST_DEPTH = 2
# Strings that look like paths but are none (addresses, captions) cost a question each.
MOST_ASKED = 50_000
LONGEST_PATH = 4096


def named_files(dataset: Any, *, most: int) -> dict[str, int]:
    """Absolute path to bytes, for the files that the attributes of a data set name, directly or by their folder.

    Stops after `most` + 1 files.
    """
    found: dict[str, int] = {}
    for path in islice(_paths(dataset), MOST_ASKED):
        for file in islice(_files(path), most + 1):
            try:
                state = os.stat(file)  # noqa: PTH116  # names, not paths: there may be thousands
            except OSError:
                continue  # gone, or a link to nowhere
            if stat.S_ISREG(state.st_mode) and os.access(file, os.R_OK):
                found[file] = state.st_size
            if len(found) > most:
                return found
    return found


def _paths(dataset: Any) -> Iterator[str]:
    seen: set[str] = set()
    for leaf in held([dataset]):
        if isinstance(leaf, str | os.PathLike):
            path = os.fsdecode(leaf)
            if os.sep in path and len(path) < LONGEST_PATH and "\0" not in path and path not in seen:
                seen.add(path)
                yield os.path.abspath(path)  # noqa: PTH100  # as above


def _files(path: str) -> Iterator[str]:
    if not may_hold_data(path):
        return
    if os.path.isfile(path):  # noqa: PTH113
        yield path
    elif os.path.isdir(path) and path.count(os.sep) >= LEAST_DEPTH:  # noqa: PTH112
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, name) for name in names)  # noqa: PTH118
