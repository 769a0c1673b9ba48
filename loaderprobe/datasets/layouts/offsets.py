"""Files of rows that begin with the offsets of all, as MDS shards and litdata's chunks do."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import LABELS, Sample, damage, named

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
