"""MDS shards as MosaicML's Streaming has them, in its format 2: image (bytes) and label, with an index beside them.

A shard is a count, the offset of each sample and of the end (uint32), the columns as JSON, and the samples: of each
the sizes of its columns that have no fixed one (uint32), then its columns. A worker opens a shard for each sample.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import Block, Sample
from loaderprobe.errors import BadValue
from loaderprobe.store.codec import write_atomically

COLUMNS = {
    "column_encodings": ["bytes", "int"], "column_names": ["image", "label"], "column_sizes": [None, 8],
    "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2,
}  # fmt: skip
IMAGES, LABELS = ("bytes", "jpeg"), ("int", "int64")  # encodings of columns


def write(samples: Iterable[Sample], path: Path) -> None:
    """A shard is made in memory, as its offsets come first."""
    rows = [struct.pack("<I", len(each.image)) + each.image + struct.pack("<q", each.label) for each in samples]
    columns = json.dumps(COLUMNS, sort_keys=True).encode()
    starts = accumulate(map(len, rows), initial=4 * (len(rows) + 2) + len(columns))
    path.write_bytes(struct.pack(f"<{len(rows) + 2}I", len(rows), *starts) + columns + b"".join(rows))


def complete(root: Path) -> None:
    """The index of all shards, by which Streaming finds them."""
    shards = [
        COLUMNS | {"samples": _count(path), "zip_data": None}
        | {"raw_data": {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}}
        for path in sorted(root.glob("*.mds"))
    ]  # fmt: skip
    write_atomically(root / "index.json", json.dumps({"shards": shards, "version": 2}).encode())


class Reader:
    """Of one sample of one shard."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, place: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged shard."""
        try:
            with (self._root / path).open("rb", buffering=0) as file:
                (count,) = struct.unpack("<I", file.read(4))
                offsets = struct.unpack(f"<{count + 1}I", file.read(4 * (count + 1)))
                columns = json.loads(file.read(offsets[0] - file.tell()))
                file.seek(offsets[place[0]])
                data = file.read(offsets[place[0] + 1] - file.tell())
            return _sample(data, columns)
        except (struct.error, ValueError, IndexError) as error:
            raise BadValue(f"{self._root / path} is damaged: {error}", hint="write the shard again") from error


def _sample(data: bytes, columns: dict[str, Any]) -> Sample:
    free = [size is None for size in columns["column_sizes"]]
    given = iter(struct.unpack_from(f"<{sum(free)}I", data))
    sizes = [size or next(given) for size in columns["column_sizes"]]
    ends = list(accumulate(sizes, initial=4 * sum(free)))
    parts = [data[begin:end] for begin, end in pairwise(ends)]
    found = dict(zip(columns["column_encodings"], parts, strict=True))
    if len(data) != ends[-1]:
        raise ValueError("a sample ends too early")
    image, label = (next((found[kind] for kind in kinds if kind in found), b"") for kinds in (IMAGES, LABELS))
    return Sample("", image, int.from_bytes(label, "little", signed=True))


def _count(path: Path) -> int:
    with path.open("rb") as file:
        return int.from_bytes(file.read(4), "little")


def blocks(root: Path) -> Iterator[Block]:
    """A block a sample."""
    for path in sorted(root.rglob("*.mds")):
        for number in range(_count(path)):
            yield Block(str(path.relative_to(root)), number, 1)
