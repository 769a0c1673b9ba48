"""Grain: processes that make whole batches, and send them in shared memory as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grain
import torch

from loaderprobe.loaders.libraries import PythonLoader, samples_of
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class GrainLoader(PythonLoader):
    """Workers are its processes, each with one thread; without any, the training thread makes the batches."""

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Batch `k` is made by process `k` modulo their number, as torch does."""
        spec = config.loader
        samples, collate = samples_of(config, files)
        batches = (
            grain.MapDataset.range(files.count)
            .repeat()
            .map(samples.__getitem__)
            .batch(config.compute.batch_size, drop_remainder=True, batch_fn=collate)
            .map(_as_arrays)
            .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
            .mp_prefetch(grain.MultiprocessingOptions(spec.workers, spec.prefetch_factor), worker_init_fn=_begin)
        )
        with closing(iter(batches)) as made:
            for batch in made:
                yield tuple(torch.from_numpy(array) for array in batch)


def _begin(_number: int, _count: int) -> None:
    """In a process: torch takes one thread, as in its own workers; more would spin for each small operation."""
    torch.set_num_threads(1)


def _as_arrays(batch: Any) -> tuple[Any, ...]:
    return tuple(tensor.numpy() for tensor in batch)
