"""MDS shards as MosaicML's Streaming has them, in its format 2: image (bytes) and label, with an index beside them.

A shard is a count, the offset of each sample and of the end (uint32), the columns as JSON, and the samples: of each
the sizes of its columns that have no fixed one (uint32), then its columns. A worker opens a shard for each sample.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import INDEX, LABELS, Sample, damage, layout_files, named
from loaderprobe.store.codec import write_atomically

COLUMNS = {
    "column_encodings": ["bytes", "int"], "column_names": ["image", "label"], "column_sizes": [None, 8],
    "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2,
}  # fmt: skip


# Files of rows that begin with the offsets of all, as MDS shards and litdata's chunks do.

IMAGES = ("jpeg", "bytes")
"""Kinds of values, the surest first."""


def indexed(rows: Sequence[bytes], head: bytes = b"") -> bytes:
    """A file of rows: their count, the offset of each and of the end, the head, and the rows."""
    starts = accumulate(map(len, rows), initial=4 * (len(rows) + 2) + len(head))
    return struct.pack(f"<{len(rows) + 2}I", len(rows), *starts) + head + b"".join(rows)


def offsets_of(file: Any) -> tuple[int, ...]:
    """Of each row and of the end, of a file that is read from its begin. Raises struct.error where it is too short."""
    (count,) = struct.unpack("<I", file.read(4))
    return struct.unpack(f"<{count + 1}I", file.read(4 * (count + 1)))


def count_of(path: Path) -> int:
    """The rows of a file. Raises BadValue where it is too short for their offsets, MissingPart without permission."""
    with damage(path, ValueError), path.open("rb") as file:
        count = int.from_bytes(file.read(4), "little")
        if 4 * (count + 2) > path.stat().st_size:
            raise ValueError("it ends too early")
        return count


def sample_of(row: bytes, names: Iterable[Any], kinds: Sequence[str], sizes: Sequence[int | None]) -> Sample:
    """By the names and kinds of its columns; before them are the sizes of those that have no fixed one.

    Raises ValueError.
    """
    free = sizes.count(None)
    given = iter(struct.unpack_from(f"<{free}I", row))
    ends = list(accumulate((size or next(given) for size in sizes), initial=4 * free))
    if len(row) != ends[-1]:
        raise ValueError("a sample ends too early")
    columns = [*zip(names, kinds, (row[begin:end] for begin, end in pairwise(ends)), strict=True)]
    images = {name: value for wanted in IMAGES for name, kind, value in columns if kind == wanted}
    numbers = {
        name: int.from_bytes(value, "little", signed=kind.startswith("int"))
        for name, kind, value in columns
        if kind.startswith(("int", "uint"))
    }
    return Sample("", named(images, ["image"], b""), named(numbers, LABELS, 0))


def write(samples: Iterable[Sample], path: Path) -> None:
    """A shard is made in memory, as its offsets come first."""
    rows = [struct.pack("<I", len(sample.image)) + sample.image + struct.pack("<q", sample.label) for sample in samples]
    path.write_bytes(indexed(rows, json.dumps(COLUMNS, sort_keys=True).encode()))


def complete(root: Path) -> None:
    """The index of all shards, by which Streaming finds them."""
    shards = [
        COLUMNS | {"samples": count_of(path), "zip_data": None}
        | {"raw_data": {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}}
        for path, _ in layout_files(root, "mds")
    ]  # fmt: skip
    write_atomically(root / INDEX, json.dumps({"shards": shards, "version": 2}).encode())


class Reader:
    """Of one sample of one shard."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged shard."""
        with damage(self._root / path, struct.error, ValueError, LookupError):
            with (self._root / path).open("rb", buffering=0) as file:
                offsets = offsets_of(file)
                columns = json.loads(file.read(offsets[0] - file.tell()))
                file.seek(offsets[position[0]])
                data = file.read(offsets[position[0] + 1] - file.tell())
            return sample_of(data, *(columns[f"column_{kind}"] for kind in ("names", "encodings", "sizes")))


def counts(path: Path) -> list[int]:
    """A block a sample."""
    return [1] * count_of(path)
