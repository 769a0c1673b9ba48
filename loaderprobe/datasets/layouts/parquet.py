"""Parquet files as Hugging Face datasets have them: image (bytes and path) and label. A worker reads a row group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from loaderprobe.datasets.layouts import LAYOUTS, Block, Sample
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
    rows: list[dict[str, Any]] = []
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for sample in samples:
            rows.append({"image": {"bytes": sample.image, "path": f"{sample.name}.jpg"}, "label": sample.label})
            if len(rows) == LAYOUTS["parquet"].block:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows = []
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema))


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raises BadValue for whatever a damaged file makes of pyarrow, and of its own values."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise BadValue(f"{path} is damaged: {error}", hint="write the file again") from error


def _opened(path: Path) -> Any:
    """The open file. Raises BadValue for a damaged one, or one without images."""
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


def image_column(schema: Any) -> str | None:
    """The first column of bytes, or of a struct with bytes."""
    import pyarrow.types as kinds

    for column in schema:
        within = column.type.field("bytes").type if _is_image_struct(column.type) else column.type
        if kinds.is_binary(within) or kinds.is_large_binary(within):
            return str(column.name)
    return None


def _is_image_struct(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_struct(kind) and kind.get_field_index("bytes") >= 0)


class Reader:
    """Holds the row group of the last sample."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file: Any = None
        self._open, self._block = "", -1
        self._images: Any = None
        self._labels: Any = None

    def read(self, path: str, place: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged file."""
        with _whole(self._root / path):
            return self._read(path, place)

    def _read(self, path: str, place: tuple[int, int]) -> Sample:
        if path != self._open:
            self._file, self._open, self._block = _opened(self._root / path), path, -1
        if place[0] != self._block:
            schema = self._file.schema_arrow
            image = image_column(schema)
            label = next((name for name in LABELS if name in schema.names), None)
            table = self._file.read_row_group(place[0], [image, *([label] if label else [])], use_threads=False)
            self._block, self._images = place[0], table[image]
            self._labels = table[label] if label else None
        value = self._images[place[1]].as_py()
        label_value = self._labels[place[1]].as_py() if self._labels is not None else 0
        data, name = (value["bytes"], value.get("path") or "") if isinstance(value, dict) else (value, "")
        return Sample(name.rpartition(".")[0], bytes(data), int(label_value))


def blocks(root: Path) -> Iterator[Block]:
    """A block a row group."""
    for path in sorted(root.rglob("*.parquet")):
        with _whole(path):
            metadata = _opened(path).metadata
            rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        for number, count in enumerate(rows):
            yield Block(str(path.relative_to(root)), number, count)
