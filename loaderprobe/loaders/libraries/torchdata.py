"""torchdata's nodes: samples are mapped in threads, batches are made ahead in one more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, ParallelMapper, Prefetcher

from loaderprobe.loaders.libraries import PythonLoader, by_threads, samples_of
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class TorchdataLoader(PythonLoader):
    """Workers are the threads of the mapper; without any, the training thread maps."""

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """The nodes, one in another."""
        samples, collate = samples_of(config, files)
        threads = config.loader.workers
        mapped = ParallelMapper(IterableWrapper(count()), by_threads(samples), num_workers=threads, method="thread")
        batches = Mapper(Batcher(mapped, config.compute.batch_size, drop_last=True), collate)
        yield from Loader(Prefetcher(batches, config.loader.batches_ahead) if threads else batches)
