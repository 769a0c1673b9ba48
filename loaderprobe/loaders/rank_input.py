"""What one rank takes of the data set, by the first batches of its loader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
import xxhash
from torch.utils.data import BatchSampler

from loaderprobe.batches import length_of, parts_of
from loaderprobe.records.config import RunConfig
from loaderprobe.records.loader_files import BatchFiles
from loaderprobe.records.rank_processes import RankInput

MOST_FILES = 2000
"""Files whose names are compared."""
MOST_BYTES = 1 << 20
"""Bytes of the first batch that are hashed."""


def rank_input(loader: Any, config: RunConfig, files: object, batches: Sequence[Any], *, exchanges: bool) -> RankInput:
    """Describe what a DataLoader takes: by its settings as measured, the known files and the first of its batches."""
    paths = files.paths if isinstance(files, BatchFiles) else ()
    names = islice((name for batch in paths for name in batch), MOST_FILES)
    first, *others = [_content(batch) for batch in batches[:2]] or [None]
    return RankInput(
        batch_size=0 if loader.batch_sampler is None else config.compute.batch_size,
        workers=config.loader.workers,
        prefetch_factor=config.loader.prefetch_factor,
        files=tuple(_hash([name.encode(errors="surrogateescape")]) for name in names),
        # Not where another batch has the same content, as of data that are made up.
        first=None if first in others else first,
        whole=_is_whole(loader),
        exchanges=exchanges,
    )


def _is_whole(loader: Any) -> bool:
    """False also where batches are formed by a sampler of which no more is known."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return False
    samples, taken = length_of(loader.dataset), length_of(loader.sampler if batches is None else batches.sampler)
    return samples is not None and taken is not None and taken >= samples


def _content(batch: Any) -> int | None:
    """None where the batch holds no tensors in the memory of the host, or arrays."""
    parts = [part for value in parts_of(batch) if (part := _bytes(value)) is not None]
    return _hash(parts) if parts else None


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return None
        value = value.detach().contiguous().reshape(-1).view(torch.uint8)[:MOST_BYTES].numpy()
    return bytes(value.tobytes()[:MOST_BYTES]) if hasattr(value, "tobytes") and hasattr(value, "shape") else None


def _hash(parts: Iterable[bytes]) -> int:
    """A hash of 63 bits, which JSON and every reader hold."""
    made = xxhash.xxh3_64()
    for part in parts:
        made.update(part)
    return made.intdigest() >> 1
