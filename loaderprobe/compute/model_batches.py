"""Batches of any form: (inputs, targets), inputs alone, dicts; their usual loss, and random images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from loaderprobe.compute.trainer import CLASSES, checked_model
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import MakeModel


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


def usual_loss(given: Any, batch: Any) -> Any:
    """The `loss` of what the model gave, else the cross entropy of it and the targets. Raises BadValue without."""
    loss = getattr(given, "loss", None)
    if loss is not None:
        return loss
    if isinstance(given, torch.Tensor) and isinstance(batch, tuple | list) and len(batch) == 2:
        return torch.nn.functional.cross_entropy(given, batch[1])
    raise BadValue(
        f"there is no usual loss for a {type(given).__name__} and such a batch",
        hint="give loss=function(what the model gives, batch)",
    )


def random_images(
    make_model: MakeModel, name: str, *, batch_size: int, image_size: int, device: str
) -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]:
    """A classifier on its device, and a batch for it. Raises BadValue, or MissingPart without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingPart("torch finds no CUDA device", hint="run `loaderprobe doctor`; or use --compute cpu")
    model = checked_model(name, make_model)
    images = torch.randn(batch_size, 3, image_size, image_size)
    return model.to(device), (images, torch.randint(CLASSES, (batch_size,)))
