"""Hugging Face datasets: Parquet files as a stream, which it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator

from datasets import load_dataset

from loaderprobe.datasets.layouts.parquet import columns_of, sample_of
from loaderprobe.loaders.libraries import Encoded, StreamLoader


class DatasetsLoader(StreamLoader):
    """Files are read one after the other, each from its begin to its end."""

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        """Rows as they are stored: images are not decoded by the library."""
        stream = load_dataset("parquet", data_files=shards, split="train", streaming=True).decode(False)
        columns = columns_of(stream.features.arrow_schema)
        for row in stream:
            sample = sample_of(*(row[name] for name in columns))
            yield sample.image, sample.label
