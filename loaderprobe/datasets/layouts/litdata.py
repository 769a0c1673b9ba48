"""Chunks as litdata has them, of rows {image: bytes, label: int}, with an index beside them.

A chunk is a count, the offset of each row and of the end (uint32), and the rows: of each the sizes of its values
(uint32), then its values. A worker maps a chunk and reads it from its begin to its end.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from mmap import ACCESS_READ, MADV_WILLNEED, mmap
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import INDEX, Sample, damage, layout_files
from loaderprobe.datasets.layouts.mds import count_of, indexed, offsets_of, sample_of
from loaderprobe.errors import BadValue
from loaderprobe.store.codec import write_atomically

_VALUE: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
_ROW = {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [_VALUE, _VALUE]}
CONFIG = {
    "chunk_bytes": None, "chunk_size": None, "compression": None, "data_format": ["bytes", "int"],
    "data_spec": json.dumps([1, _ROW]), "encryption": None, "item_loader": "PyTreeLoader",
}  # fmt: skip


def write(samples: Iterable[Sample], path: Path) -> None:
    """A chunk is made in memory, as its offsets come first."""
    rows = [struct.pack("<2I", len(row.image), 8) + row.image + struct.pack("<q", row.label) for row in samples]
    path.write_bytes(indexed(rows))


def complete(root: Path) -> None:
    """The index of all chunks, by which litdata finds them."""
    chunks = [
        {"chunk_bytes": path.stat().st_size, "chunk_size": count_of(path), "dim": None, "filename": name}
        for path, name in layout_files(root, "litdata")
    ]
    index = {"chunks": chunks, "config": CONFIG, "updated_at": "0"}
    write_atomically(root / INDEX, json.dumps(index).encode())


class Reader:
    """Goes on in the chunk that is open, which the kernel is asked to read ahead."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, ""
        self._chunk: Any = b""
        self._offsets: tuple[int, ...] = ()
        self._kinds: list[str] = []

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged chunk, and for rows that hold no plain images."""
        with damage(self._root / path, OSError, struct.error, ValueError, LookupError):
            if path != self._path:
                self._open(self._root / path)
                self._path = path
            begin, end = self._offsets[position[1] : position[1] + 2]
            columns = range(len(self._kinds))
            return sample_of(self._chunk[begin:end], columns, self._kinds, [None] * len(self._kinds))

    def _open(self, path: Path) -> None:
        config = json.loads((path.parent / INDEX).read_bytes())["config"]
        with path.open("rb") as file:
            self._chunk = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._chunk.madvise(MADV_WILLNEED)
        self._kinds, self._offsets = config["data_format"], offsets_of(self._chunk)
        if config["compression"] or config["encryption"] or self._offsets[0] == self._offsets[-1]:
            raise BadValue(
                f"{path} is compressed, encrypted or of Arrow rows", hint="write each row as (image, class), plain"
            )


def counts(path: Path) -> list[int]:
    """A block a chunk."""
    return [count_of(path)]
