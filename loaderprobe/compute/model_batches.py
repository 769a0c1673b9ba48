"""Batches of any form: (inputs, targets), inputs alone, dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch


def called(model: torch.nn.Module, batch: Any) -> Any:
    """What the model gives for a batch: of (inputs, targets), for the inputs; a dict is given by name."""
    inputs = batch[0] if isinstance(batch, tuple | list) and len(batch) == 2 else batch
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch with all its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: moved(each, device) for name, each in batch.items()}
    return type(batch)(moved(each, device) for each in batch) if isinstance(batch, tuple | list) else batch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (each for item in value.values() for each in tensors_in(item))
    elif isinstance(value, tuple | list):
        yield from (each for item in value for each in tensors_in(item))


def samples_in(batch: Any) -> int:
    """Samples in a batch: the first dimension of its first tensor."""
    first = next(tensors_in(batch), None)
    return int(first.shape[0]) if first is not None and first.ndim else 0
