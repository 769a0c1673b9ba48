"""torch's DataLoader over image files: serial, or with N worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, Sampler

from loaderprobe.errors import NoSpace
from loaderprobe.loaders.alternatives import alternatives
from loaderprobe.loaders.images import SIDE, EncodedFiles, ImageFiles, pack
from loaderprobe.loaders.switched import SHARED_MEMORY_HINT, SwitchedLoader
from loaderprobe.records.config import RunConfig, TensorType
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative
from loaderprobe.system.memory import free_shared_memory_bytes, shared_memory_bytes
from loaderprobe.units import format_bytes

VALUE_BYTES: dict[TensorType, int] = {"float32": 4, "uint8": 1}


class InOrder(Sampler[int]):
    """0, 1, 2, ... without end: the file set's own order is already random."""

    def __iter__(self) -> Iterator[int]:
        return count()


def shared_memory_needed(config: RunConfig, largest_file_bytes: int = 0) -> int:
    """Bytes of shared memory that a configuration's batches in flight take at most."""
    spec = config.loader
    image = largest_file_bytes if spec.gpu_decode else 3 * SIDE * SIDE * VALUE_BYTES[spec.tensor]
    batch = config.compute.batch_size * image
    # Those ahead, the one in the training thread's hands, and one a worker is making.
    return batch * (spec.batches_ahead + 1 + spec.workers) if spec.workers else 0


def image_loader(config: RunConfig, files: FileSet, **options: Any) -> DataLoader[Any]:
    """The DataLoader of a configuration: (images N x 3 x 224 x 224, labels int64 N), without end, in order.

    For a GPU that decodes: packed files, see `pack`.
    """
    spec = config.loader
    if spec.gpu_decode:
        options["collate_fn"] = pack
    return DataLoader(
        EncodedFiles(files) if spec.gpu_decode else ImageFiles(files, spec.pipeline, spec.decoder, spec.tensor),
        batch_size=config.compute.batch_size,
        sampler=InOrder(),
        drop_last=True,
        num_workers=spec.workers,
        prefetch_factor=spec.prefetch_factor or None,
        # The GPU's decoder takes files from ordinary memory.
        pin_memory=config.compute.name.startswith("cuda") and spec.pin_memory and not spec.gpu_decode,
        generator=torch.Generator().manual_seed(config.seed),
        # Workers are tied to this process, whose children they must be.
        multiprocessing_context="fork" if spec.workers else None,
        **options,
    )


class TorchLoader(SwitchedLoader):
    """`torch.utils.data.DataLoader` over image files.

    Raises NoSpace before any worker starts when shared memory is too small for the batches in flight: a
    worker would die there of a bus error.
    """

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        self._config = config
        self._largest_file_bytes = max(files.size_bytes, default=0)
        loader = image_loader(config, files)
        super().__init__(loader, scratch, files_of=loader.dataset.files_of, tied=True)  # type: ignore[attr-defined]  # it is our own data set

    @staticmethod
    def alternatives(config: RunConfig, files: FileSet) -> tuple[Alternative, ...]:
        """CPU time of an image with the other decoder, and sent as bytes; none of that where the GPU decodes."""
        return () if config.loader.gpu_decode else alternatives(config, files)

    def __enter__(self) -> Self:
        free = free_shared_memory_bytes()
        needed = shared_memory_needed(self._config, self._largest_file_bytes)
        if free is not None and free < needed:
            raise NoSpace(
                f"shared memory has {format_bytes(free)} free, but the batches in flight take {format_bytes(needed)}",
                hint=SHARED_MEMORY_HINT,
            )
        # What the other ranks of the node take may be free still.
        size, ranks = shared_memory_bytes(), self._config.ranks // self._config.nodes
        if size is not None and size < ranks * needed:
            raise NoSpace(
                f"shared memory has {format_bytes(size)}, but the batches in flight of {ranks} ranks take "
                f"{format_bytes(ranks * needed)}",
                hint=SHARED_MEMORY_HINT,
            )
        return super().__enter__()
