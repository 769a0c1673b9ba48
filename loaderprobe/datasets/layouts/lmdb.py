"""One LMDB of all images: a key each, by number and class, and the encoded image as its value.

A worker maps it and reads by key in random order, without the kernel's read-ahead, as torchvision's LSUN does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb

from loaderprobe.datasets.layouts import Sample, batched, class_of, damage

MOST_BYTES = 1 << 40
"""Of addresses; the file takes what is written."""
TOGETHER = 256
"""Samples a transaction, whose pages are in memory."""


def write(samples: Iterable[Sample], path: Path) -> None:
    """In the order of keys, so that pages are full."""
    with lmdb.open(str(path), subdir=False, map_size=MOST_BYTES, lock=False) as environment:
        for batch in batched(enumerate(samples), TOGETHER):
            with environment.begin(write=True) as transaction:
                for number, sample in batch:
                    transaction.put(f"{number:08}_{sample.label}".encode(), sample.image, append=True)


class _Database:
    """The open database of a process, which may not open it twice, and its keys."""

    def __init__(self, path: Path) -> None:
        with damage(path, lmdb.Error, OSError), path.open("rb"):  # lmdb has no error of its own without permission
            self.environment = lmdb.open(os.fsencode(path), subdir=False, readonly=True, lock=False, readahead=False)
            end = (self.environment.info()["last_pgno"] + 1) * self.environment.stat()["psize"]
            if path.stat().st_size < end:  # reading there would be a bus error
                raise lmdb.Error("it ends too early")
            with self.environment.begin() as transaction, transaction.cursor() as cursor:
                self.keys: list[bytes] = list(cursor.iternext(values=False))


_opened: WeakValueDictionary[tuple[int, Path], _Database] = WeakValueDictionary()


def _database(path: Path) -> _Database:
    database = _opened.get((os.getpid(), path)) or _Database(path)
    return _opened.setdefault((os.getpid(), path), database)


class Reader:
    """Of the value of one key."""

    def __init__(self, root: Path) -> None:
        self._root, self._database = root, dict[str, _Database]()

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged database."""
        if path not in self._database:
            self._database[path] = _database(self._root / path)
        database = self._database[path]
        key = database.keys[position[0]]
        with database.environment.begin() as transaction:
            return Sample(key.decode(errors="replace"), transaction.get(key), class_of(key.rpartition(b"_")[2]))


def counts(path: Path) -> list[int]:
    """A block a key."""
    return [1] * len(_database(path).keys)
