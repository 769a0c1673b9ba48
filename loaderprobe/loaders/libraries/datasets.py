"""Hugging Face datasets: Parquet files as a stream, which it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator

from datasets import load_dataset

from loaderprobe.datasets.layouts.parquet import LABELS, image_column
from loaderprobe.loaders.libraries import Encoded, StreamLoader


class DatasetsLoader(StreamLoader):
    """Files are read one after the other, each from its begin to its end."""

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        """Rows as they are stored: images are not decoded by the library."""
        stream = load_dataset("parquet", data_files=shards, split="train", streaming=True).decode(False)
        image = image_column(stream.features.arrow_schema)
        label = next((name for name in LABELS if name in stream.features), None)
        for row in stream:
            value = row[image]
            yield value["bytes"] if isinstance(value, dict) else value, int(row[label]) if label else 0
