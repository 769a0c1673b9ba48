"""Batches of any form: (inputs, targets), inputs alone, dicts; their usual loss, and random images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from loaderprobe.compute.trainer import CLASSES, checked_model
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import MakeModel


def is_loader(batch: Any) -> bool:
    """True for what gives batches one after the other; tensors, tuples, lists and dicts are batches."""
    return isinstance(batch, Iterable) and not isinstance(batch, torch.Tensor | Mapping | tuple | list)


def epochs(loader: Iterable[Any]) -> Iterator[Any]:
    """Its batches, from the beginning again after the last. Raises BadValue for a loader without any."""
    while True:
        number = -1
        for number, batch in enumerate(loader):  # noqa: B007  # counted after the loop
            yield batch
        if number < 0:
            raise BadValue("the loader yields no batch", hint="iterate it yourself; is its data set empty?")


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


def out_of_memory(error: Exception) -> bool:
    """True when there was no memory for a tensor, of the GPU or of the CPU, whose allocator has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


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


def model_on(device: str, name: str, make_model: MakeModel) -> torch.nn.Module:
    """A classifier on its device. Raises BadValue, or MissingPart without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingPart("torch finds no CUDA device", hint="run `loaderprobe doctor`; or use --compute cpu")
    model: torch.nn.Module = checked_model(name, make_model).to(device)
    return model


def random_images(batch_size: int, image_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(images N x 3 x S x S, labels N) in memory."""
    return torch.randn(batch_size, 3, image_size, image_size), torch.randint(CLASSES, (batch_size,))
