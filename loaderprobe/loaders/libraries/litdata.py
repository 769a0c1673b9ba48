"""litdata: chunks as streams, which it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from litdata import StreamingDataset

from loaderprobe.loaders.libraries import Encoded, StreamLoader, encoded_in, linked
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class LitdataLoader(StreamLoader):
    """Chunks are not shuffled again: the set has them in random order."""

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> str:
        """A folder that holds the chunks of the set, and no others."""
        return linked(config, files, scratch, "chunks", lambda chunk: (chunk["filename"], chunk["chunk_bytes"]))

    @staticmethod
    def encoded(opened: str) -> Iterator[Encoded]:
        for row in StreamingDataset(opened):
            yield encoded_in(row)
