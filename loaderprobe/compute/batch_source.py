"""Batches of one size: the same one over and over, or those of a loader; and batches made from others' samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from loaderprobe.compute.model_batches import epochs, is_loader, moved, samples_in
from loaderprobe.errors import BadValue


@dataclass(slots=True)
class BatchSource:
    """The same batch on the device, over and over, or one after the other from a loader."""

    made: Any
    device: torch.device
    part: Callable[[str], AbstractContextManager[None]]
    _stream: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        if is_loader(self.made):
            self._stream = epochs(self.made)
            return
        with self.part("copy"):
            self.made = moved(self.made, self.device)

    @property
    def prefetched(self) -> int:
        """Batches that workers may have ready before the first step, which would flatter a short probe."""
        if self._stream is None:
            return 0
        return int(getattr(self.made, "num_workers", 0) or 0) * int(getattr(self.made, "prefetch_factor", 0) or 0)

    def take(self) -> Any:
        """A batch on the device."""
        if self._stream is None:
            return self.made
        with self.part("load"):
            batch = next(self._stream)
        with self.part("copy"):
            return moved(batch, self.device)

    def close(self) -> None:
        """Stop workers, and let go of the batch."""
        if self._stream is not None:
            self._stream.close()
        self.made = self._stream = None


def repeated(batch: Any, batch_size: int) -> Any:
    """A batch of that size, from the samples of another, round and round: tensors whose first dimension counts them.

    Raises BadValue for a batch without samples.
    """
    count = samples_in(batch)
    if not count:
        raise BadValue("the batch has no samples", hint="give a batch of tensors whose first dimension is its size")
    order = torch.arange(batch_size) % count

    def made(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value[order.to(value.device)] if value.ndim and value.shape[0] == count else value
        if isinstance(value, Mapping):
            return {name: made(each) for name, each in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(made(each) for each in value)
        return value

    return made(batch)
