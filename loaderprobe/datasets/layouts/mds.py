"""MDS shards as MosaicML's Streaming has them, in its format 2: image (bytes) and label, with an index beside them.

A shard is a count, the offset of each sample and of the end (uint32), the columns as JSON, and the samples: of each
the sizes of its columns that have no fixed one (uint32), then its columns. A worker opens a shard for each sample.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path

from loaderprobe.datasets.layouts import INDEX, Sample, damage, found
from loaderprobe.datasets.layouts.offsets import count_of, indexed, offsets_of, sample_of
from loaderprobe.store.codec import write_atomically

COLUMNS = {
    "column_encodings": ["bytes", "int"], "column_names": ["image", "label"], "column_sizes": [None, 8],
    "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2,
}  # fmt: skip


def write(samples: Iterable[Sample], path: Path) -> None:
    """A shard is made in memory, as its offsets come first."""
    rows = [struct.pack("<I", len(each.image)) + each.image + struct.pack("<q", each.label) for each in samples]
    path.write_bytes(indexed(rows, json.dumps(COLUMNS, sort_keys=True).encode()))


def complete(root: Path) -> None:
    """The index of all shards, by which Streaming finds them."""
    shards = [
        COLUMNS | {"samples": count_of(path), "zip_data": None}
        | {"raw_data": {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}}
        for path, _ in found(root, "mds")
    ]  # fmt: skip
    write_atomically(root / INDEX, json.dumps({"shards": shards, "version": 2}).encode())


class Reader:
    """Of one sample of one shard."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, place: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged shard."""
        with damage(self._root / path, struct.error, ValueError, LookupError):
            with (self._root / path).open("rb", buffering=0) as file:
                offsets = offsets_of(file)
                columns = json.loads(file.read(offsets[0] - file.tell()))
                file.seek(offsets[place[0]])
                data = file.read(offsets[place[0] + 1] - file.tell())
            return sample_of(data, *(columns[f"column_{each}"] for each in ("names", "encodings", "sizes")))


def counts(path: Path) -> list[int]:
    """A block a sample."""
    return [1] * count_of(path)
