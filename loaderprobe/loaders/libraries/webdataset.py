"""WebDataset: tar shards as streams, which it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator

from webdataset import WebDataset

from loaderprobe.loaders.libraries import Encoded, StreamLoader
from loaderprobe.records.files import IMAGE_SUFFIXES


class WebdatasetLoader(StreamLoader):
    """Shards are not shuffled again, and samples neither: the set has them in random order."""

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        """Of each sample the first image, and its class where it has one."""
        # Ranks have shards of their own already.
        for sample in WebDataset(shards, shardshuffle=False, nodesplitter=None, empty_check=False):
            images = (data for suffix, data in sample.items() if f".{suffix.rpartition('.')[2]}" in IMAGE_SUFFIXES)
            label = sample.get("cls", b"").strip()
            for image in images:
                yield image, int(label) if label.isdigit() else 0
                break
