"""A user's DataLoader with another number of workers and another prefetch factor, and its options as they are written.

The loader itself stays unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)
from torch.utils.data._utils.collate import default_convert

from loaderprobe.loaders.copied import copied_iterable
from loaderprobe.loaders.unwrap import Unwrapped, bare_copy


def resized(given: Unwrapped, workers: int, prefetch_factor: int) -> Unwrapped | None:
    """The same loader with so many workers; None for the serial loader of a data set that cannot be copied.

    The serial loader works in this process, so it gets a copy of the data set: a file that a data set opens here and
    keeps would be shared by the workers of the next loader. Only a loader that is serial itself goes without a copy.
    """
    twin = bare_copy(given.loader)
    settings = twin.__dict__
    settings["num_workers"] = workers
    settings["prefetch_factor"] = prefetch_factor or None
    if not workers:
        # What torch refuses without workers.
        settings["persistent_workers"], settings["timeout"] = False, 0
        copied = copied_iterable(given.loader.dataset)
        if copied is None and given.loader.num_workers:
            return None
        settings["dataset"] = given.loader.dataset if copied is None else copied
    return replace(given, loader=twin)


def written_options(loader: DataLoader[Any]) -> dict[str, str]:
    """The options of a loader as Python code, without workers and prefetching; those that are as usual are left out.

    An object has the name of its option or, a function or a class, its own.
    """
    found: dict[str, str] = _written_batches(loader)
    if loader.collate_fn not in (default_collate, default_convert):
        found["collate_fn"] = _name(loader.collate_fn, "collate_fn")
    if loader.pin_memory:
        found["pin_memory"] = "True"
    for option in ("timeout", "pin_memory_device"):
        if getattr(loader, option, None):
            found[option] = repr(getattr(loader, option))
    if loader.multiprocessing_context is not None:
        found["multiprocessing_context"] = repr(loader.multiprocessing_context.get_start_method())
    for option in ("worker_init_fn", "generator"):
        value = getattr(loader, option, None)
        if value is not None:
            found[option] = _name(value, option)
    return found


def _written_batches(loader: DataLoader[Any]) -> dict[str, str]:
    if type(loader.batch_sampler) is not BatchSampler:
        if loader.batch_sampler is not None:
            return {"batch_sampler": "batch_sampler"}
        return {"batch_size": "None"} | _written_order(loader)
    found = {"batch_size": str(loader.batch_size)} | _written_order(loader)
    return found | ({"drop_last": "True"} if loader.drop_last else {})


def _written_order(loader: DataLoader[Any]) -> dict[str, str]:
    sampler = loader.sampler
    if is_iterable(loader) or type(sampler) is SequentialSampler:
        return {}
    if type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        return {"shuffle": "True"}
    return {"sampler": "sampler"}


def is_iterable(loader: DataLoader[Any]) -> bool:
    """True for a data set without indices."""
    return isinstance(loader.dataset, IterableDataset)


def _name(value: Any, option: str) -> str:
    name = getattr(value, "__qualname__", "")
    return name if name and name.replace(".", "").isidentifier() else option
