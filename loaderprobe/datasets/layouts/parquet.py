"""Parquet files as Hugging Face datasets have them: image (bytes and path) and label. A worker reads a row group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import LAYOUTS, Block, Sample, batched, damage, found
from loaderprobe.errors import BadValue

FEATURES = {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}
LABELS = ("label", "labels", "cls", "class")


def write(samples: Iterable[Sample], path: Path) -> None:
    """Encoded images do not get smaller, so they are stored as they are, a hundred a row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("image", image), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
    )
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for some in batched(samples, LAYOUTS["parquet"].block):
            rows = [{"image": {"bytes": each.image, "path": f"{each.name}.jpg"}, "label": each.label} for each in some]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _opened(path: Path) -> Any:
    """The open file. Raises BadValue for one without images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source: Any = path
    if str(path) != str(path).encode(errors="replace").decode():  # pyarrow takes no name that is not UTF-8
        with path.open("rb") as stream:
            source = pa.BufferReader(mmap(stream.fileno(), 0, access=ACCESS_READ))
    file = pq.ParquetFile(source)
    if image_column(file.schema_arrow) is None:
        raise BadValue(f"{path} has no column of encoded images", hint=f"its columns are {file.schema_arrow.names}")
    return file


def _whole(path: Path) -> AbstractContextManager[None]:
    """Raises BadValue for whatever a damaged file makes of pyarrow, and of its own values."""
    import pyarrow as pa

    return damage(path, pa.ArrowException, OSError, LookupError, TypeError, ValueError)


def image_column(schema: Any) -> str | None:
    """The first column of bytes, or of a struct with bytes."""
    import pyarrow.types as kinds

    for column in schema:
        struct = kinds.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
        within = column.type.field("bytes").type if struct else column.type
        if kinds.is_binary(within) or kinds.is_large_binary(within):
            return str(column.name)
    return None


class Reader:
    """Holds the row group of the last sample."""

    def __init__(self, root: Path) -> None:
        self._root, self._group = root, ("", -1)
        self._images: Any = None
        self._labels: Any = None

    def read(self, path: str, place: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged file."""
        with _whole(self._root / path):
            if (path, place[0]) != self._group:
                self._read(path, place[0])
            value, label = (
                self._images[place[1]].as_py(),
                self._labels[place[1]].as_py() if self._labels is not None else 0,
            )
            data, name = (value["bytes"], value.get("path") or "") if isinstance(value, dict) else (value, "")
            return Sample(name.rpartition(".")[0], bytes(data), int(label))

    def _read(self, path: str, group: int) -> None:
        if path != self._group[0]:
            self._file = _opened(self._root / path)
        schema = self._file.schema_arrow
        image, label = image_column(schema), next((name for name in LABELS if name in schema.names), None)
        table = self._file.read_row_group(group, [image, *([label] if label else [])], use_threads=False)
        self._images, self._labels, self._group = table[image], table[label] if label else None, (path, group)


def blocks(root: Path) -> Iterator[Block]:
    """A block a row group."""
    for path, name in found(root, "parquet"):
        with _whole(path):
            groups = _opened(path).metadata
            rows = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
        yield from (Block(name, number, count) for number, count in enumerate(rows))
