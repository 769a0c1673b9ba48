"""A copy of a DataLoader that can be iterated while the loader itself stays unchanged."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from loaderprobe.errors import BadValue
from loaderprobe.loaders.copied import copied_iterable
from loaderprobe.loaders.random_state import torch_generators
from loaderprobe.loaders.unwrap import bare_copy, is_iterator

FOREIGN = "this loader does not iterate as torch's DataLoader does"
SHARED = f"{FOREIGN}: it takes batches of an iterator that the script uses"
FOREIGN_HINT = "give a plain torch.utils.data.DataLoader of the same data set"


def kept_iterators(loader: DataLoader[Any]) -> list[str]:
    """Attributes in which a sub-class keeps its own iterators, besides torch's."""
    return [name for name, value in vars(loader).items() if is_iterator(value) and name != "_iterator"]


def check_untouched(loader: DataLoader[Any]) -> None:
    """Raise BadValue for a loader whose own iterator a copy would consume."""
    parts = ("dataset", "sampler", "batch_sampler")
    used = [name for name, value in vars(loader).items() if name not in parts and _iterates(value)]
    if used:
        raise BadValue(f"{FOREIGN}: it keeps an iterator of its own ({', '.join(used)})", hint=FOREIGN_HINT)


def _iterates(value: Any) -> bool:
    """True for a generator, and for `cycle` and the like over an iterator of a DataLoader."""
    over = gc.get_referents(value) if issubclass(type(value), Iterator) and not is_iterator(value) else ()
    return type(value) is GeneratorType or any(is_iterator(each) for each in over)


def _own_dataset(loader: DataLoader[Any]) -> Any:
    """The data set for the copy of the loader. Workers have copies; without workers an iterable is copied here."""
    dataset = loader.dataset
    if loader.num_workers or not isinstance(dataset, IterableDataset):
        return dataset
    copied = copied_iterable(dataset)
    if copied is None and isinstance(dataset, Iterator):
        raise BadValue(
            "the data set can be iterated only once, and without workers measuring would consume it",
            hint="make its __iter__ restart each time, or use workers, which have copies of it",
        )
    return dataset if copied is None else copied


def own_sampler(loader: DataLoader[Any]) -> Any:
    """A copy of the loader's index sampler, so that the original keeps its state; the data set is not copied."""
    sampler = loader._index_sampler
    if isinstance(sampler, Iterator):
        raise BadValue(
            "the loader's sampler can be iterated only once, so measuring would consume it",
            hint="use a sampler whose __iter__ restarts",
        )
    # Generators are shared too: whoever calls puts their states back.
    shared = {id(each): each for each in (loader.dataset, *torch_generators(loader))}
    try:
        return copy.deepcopy(sampler, shared)
    except Exception as error:  # whatever a sampler's own copying raises
        raise BadValue(
            f"the loader's sampler cannot be copied ({error}), so measuring could change it",
            hint="use a sampler that copy.deepcopy can copy",
        ) from error


def endless(loader: DataLoader[Any], pool: Any, patience_s: float) -> DataLoader[Any]:
    """A copy of the loader, of the same class, with its own workers and batches without end."""
    twin = bare_copy(loader)
    settings = twin.__dict__
    settings["dataset"] = _own_dataset(loader)
    settings["persistent_workers"] = False
    settings["in_order"] = True
    # Its length is not that of the data set, about which torch would warn.
    settings["_IterableDataset_len_called"] = None
    # As torch does, but without its warning.
    settings["pin_memory"] = loader.pin_memory and torch.accelerator.is_available()
    if loader.num_workers and not loader.timeout:
        settings["timeout"] = patience_s
    if pool is not None:
        if loader._auto_collation and getattr(loader.batch_sampler, "sampler", None) is loader.sampler:
            # What sets the epoch of the sampler sets that of the copy.
            settings["sampler"] = pool.sampler
        settings["batch_sampler" if loader._auto_collation else "sampler"] = pool
    return twin
