"""WebDataset: tar shards as streams, which it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator

from webdataset import WebDataset

from loaderprobe.loaders.libraries import Encoded, StreamLoader, from_tar


class WebdatasetLoader(StreamLoader):
    """Shards are not shuffled again, and samples neither: the set has them in random order."""

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        # Ranks have shards of their own already.
        return from_tar(WebDataset(shards, shardshuffle=False, nodesplitter=None, empty_check=False))
