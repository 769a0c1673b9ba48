"""MosaicML's Streaming: MDS shards, whose samples it deals out to torch's workers, which begin each pass together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from streaming import StreamingDataset
from streaming.base.shared import SharedMemory

from loaderprobe.errors import BadValue
from loaderprobe.loaders.libraries import Encoded, PythonLoader, Stream, encoded_in, linked
from loaderprobe.loaders.torch import image_loader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.system.scratch import scratch_directory


class MdsLoader(PythonLoader):
    """Workers are torch's. They cannot be switched: one that begins a pass waits for all others to do so."""

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Samples are not shuffled again: the set has its shards in random order."""
        with scratch_directory() as scratch:
            folder = linked(
                config, files, scratch, "shards",
                lambda shard: (shard["raw_data"]["basename"], shard["raw_data"]["bytes"]),
            )  # fmt: skip
            batch, workers = config.compute.batch_size, max(1, config.loader.workers)
            # As many for each: where one has more, it begins pass after pass later, until the others wait for ever.
            images = files.count - files.count % (batch * workers)
            if not images:
                raise BadValue(
                    f"{files.count} images do not give each of {workers} workers a batch of {batch}",
                    hint="use more images, fewer workers or a smaller batch",
                )
            samples = StreamingDataset(local=folder, batch_size=batch, epoch_size=images)
            try:
                yield from image_loader(config, files, Stream(config, files, partial(_endless, samples)))
            finally:
                # The library does this at the end of the process, which may be another's child.
                for value in vars(samples).values():
                    memory = getattr(value, "shm", value)
                    if isinstance(memory, SharedMemory):
                        memory.cleanup()


def _endless(samples: Any) -> Iterator[Encoded]:
    """In a worker."""
    while True:
        for row in samples:
            yield encoded_in(row)
