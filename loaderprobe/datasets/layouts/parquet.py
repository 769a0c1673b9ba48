"""Parquet files as Hugging Face datasets have them: image (bytes and path) and label. A worker reads a row group."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loaderprobe.datasets.layouts import LABELS, LAYOUTS, Sample, batched, class_of, damage
from loaderprobe.errors import BadValue

FEATURES = {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}
SCHEMA = pa.schema(
    {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.int64()},
    metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
)
BYTES = (pa.binary(), pa.large_binary())
DAMAGE = (pa.ArrowException, OSError, LookupError, TypeError, ValueError)


def write(samples: Iterable[Sample], path: Path) -> None:
    """Encoded images do not get smaller, so they are stored as they are, a hundred a row group."""
    with pq.ParquetWriter(path, SCHEMA, compression="none", use_dictionary=False) as writer:
        for batch in batched(samples, LAYOUTS["parquet"].block):
            rows = [{"image": {"bytes": image, "path": f"{name}.jpg"}, "label": label} for name, image, label in batch]
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def _opened(path: Path) -> tuple[Any, list[str]]:
    """The open file, and its columns as `columns_of`. Raises BadValue for one without images."""
    with path.open("rb") as named:  # pyarrow takes no name that is not UTF-8
        file = pq.ParquetFile(f"/proc/self/fd/{named.fileno()}")
    if not (columns := columns_of(file.schema_arrow)):
        raise BadValue(f"{path} has no column of encoded images", hint=f"its columns are {file.schema_arrow.names}")
    return file, columns


def columns_of(schema: Any) -> list[str]:
    """The first of bytes, or of structs with bytes, and then that of classes if there is one; none without images."""
    parts = [(field.name, part) for field in schema for part in field.flatten() if part.type in BYTES]
    images = [name for name, part in parts if part.name in (name, f"{name}.bytes")]
    return images[:1] + [name for name in LABELS if images and name in schema.names][:1]


def sample_of(image: Any, label: Any = 0) -> Sample:
    """Of what the columns of a row hold; its class is 0 where that is no number, as a word, a list or none is not."""
    data, name = (image["bytes"], image.get("path") or "") if isinstance(image, dict) else (image, "")
    if isinstance(label, str):
        label = class_of(label)
    number = int(label) if isinstance(label, int | float) and math.isfinite(label) else 0
    return Sample(name.rpartition(".")[0], bytes(data), number)


class Reader:
    """Holds the row group of the last sample."""

    def __init__(self, root: Path) -> None:
        self._root, self._path, self._group = root, "", -1

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """Raises BadValue for a damaged file."""
        with damage(self._root / path, *DAMAGE):
            if path != self._path:
                self._file, self._columns = _opened(self._root / path)
                self._path, self._group = path, -1
            if position[0] != self._group:
                rows = self._file.read_row_group(position[0], self._columns, use_threads=False)
                self._rows, self._group = rows.select(self._columns), position[0]
            (row,) = self._rows.slice(position[1], 1).to_pylist()
            return sample_of(*row.values())


def counts(path: Path) -> list[int]:
    """A block a row group."""
    with damage(path, *DAMAGE):
        groups = _opened(path)[0].metadata
        return [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
