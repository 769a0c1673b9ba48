"""The torch DataLoader inside a wrapper, and the wrapper around a copy of that DataLoader.

Accelerate, Lightning Fabric, timm and others move batches to the device, normalise them or prefetch in an object
around the DataLoader. That work is part of training, so loaderprobe drives a shallow copy of the wrapper around a
copy of the DataLoader. Nothing is iterated here, and only values stored by Python itself are read: no property,
`__getattr__` or `__class__` of a wrapper's class is called.
"""

from __future__ import annotations

import copy
import gc
import queue
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderprobe.errors import BadValue
from loaderprobe.loaders.state import copied_iterable, own_attributes, reachable
from loaderprobe.records.remark import Remark
from loaderprobe.units import join_words

NO_LOADER = "not a torch.utils.data.DataLoader"
# Wrappers of wrappers are followed so far, and so many items of a list are looked at.
DEEPEST = 4
MOST_ITEMS = 64
# What a copy of a wrapper would share with the original, so that driving the one would use up the other.
WORKING = (_BaseDataLoaderIter, types.GeneratorType, threading.Thread, queue.Queue, Executor)
# Methods by which trainers and data modules give their loaders.
GIVERS = ("get_train_dataloader", "train_dataloader")
PLAIN = (list, dict, set, deque)
LeftOut = Literal["not_one_for_one", "new_batches", "has_del", "at_work", "not_copied"]
"""Why a wrapper is not measured."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One object around a DataLoader, or around another wrapper."""

    outer: Any
    name: str
    """The attribute that holds what is inside."""
    index: Any = None
    """The index or key in the attribute, where that is a list or a dict."""

    def around(self, inner: Any) -> Any:
        """A shallow copy of the wrapper with another content; lists and dicts are copied."""
        made = object.__new__(type(self.outer))
        vars(made).update(
            {name: value.copy() if type(value) in PLAIN else value for name, value in vars(self.outer).items()}
        )
        if self.index is None:
            vars(made)[self.name] = inner
        else:
            vars(made)[self.name][self.index] = inner
        return made

    def inside(self, copy: Any) -> Any:
        value = vars(copy)[self.name]
        return value if self.index is None else value[self.index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """A DataLoader and its wrappers."""

    loader: DataLoader[Any]
    wrappers: tuple[Wrapper, ...] = ()
    """Wrappers that are kept, the outermost first."""
    path: str = "loader"
    """The path to the DataLoader, as the user would write it."""
    notes: tuple[Remark, ...] = ()
    """Notes on what is left out."""

    def rewrap(self, copied: DataLoader[Any]) -> Any:
        """Copies of the wrappers around a copy of the loader; None when there is no wrapper to keep."""
        made: Any = None
        for wrapper in reversed(self.wrappers):
            made = wrapper.around(copied if made is None else made)
        return made

    def release(self, rewrapped: Any) -> None:
        for wrapper in self.wrappers:
            # Accelerate lists the loaders that are being iterated, and takes the last for the one in training.
            if type(rewrapped).__module__.startswith("accelerate."):
                rewrapped.end()
            rewrapped = wrapper.inside(rewrapped)

    def without_wrappers(self, why: LeftOut, **facts: str) -> Unwrapped:
        """The DataLoader alone, and a note that says so."""
        name = type(self.wrappers[0].outer).__name__
        note = Remark(code="wrapper_left_out", facts={"wrapper": name, "path": self.path, "because": why, **facts})
        return replace(self, wrappers=(), notes=(*self.notes, note))


class Otherwise(BadValue):
    """The loader cannot be measured like this, but `instead` can."""

    def __init__(self, message: str, *, hint: str, instead: Unwrapped) -> None:
        super().__init__(message, hint=hint)
        self.instead = instead


class NotCopied(BadValue):
    """A part of the loader cannot be copied: it can only be iterated itself."""


class EndlessBatches:
    """The batches of a loader, epoch after epoch: some loaders count their batches and end, although there are more."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._source = source
        self._epoch: Iterator[Any] = iter(source)
        self._begun = False
        self.taken = 0
        """Number of batches so far."""

    def __iter__(self) -> EndlessBatches:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._epoch)
        except StopIteration:
            if not self._begun:
                raise  # an epoch without a batch: there is nothing more
            self._epoch, self._begun = iter(self._source), False
            return next(self)
        self._begun = True
        self.taken += 1
        return batch

    def close(self) -> None:
        """End a generator now, not when it is collected."""
        if isinstance(self._epoch, types.GeneratorType):
            self._epoch.close()


def bare_copy(loader: DataLoader[Any], *, plain: bool = False) -> DataLoader[Any]:
    """A copy that shares settings but no iterator: a sub-class may end the workers of an iterator that it keeps.

    A `plain` one is of torch's own class.
    """
    copied: DataLoader[Any] = object.__new__(DataLoader if plain else type(loader))
    settings = {name: None if is_iterator(value) else value for name, value in vars(loader).items()}
    vars(copied).update(settings)
    # torchdata's: the iterator that it was asked the state of, and would go on with; the batch that it would begin at.
    if "_initial_iter_for_state_dict" in settings:
        vars(copied).update(_initial_iter_for_state_dict=False, next_iter_state=None)
    return copied


def is_iterator(value: Any) -> bool:
    """True for an iterator of torch's DataLoader."""
    return issubclass(type(value), _BaseDataLoaderIter)


def torch_iterator(made: Any) -> Any:
    """torch's own iterator, in what a `_get_iterator` returns: a sub-class may wrap it. None where there is none.

    One that only the code around it names is of another loader.
    """
    return next((value for value in reachable([made], named=False) if is_iterator(value)), None)


def end_workers(iterator: Any) -> None:
    """End the workers of an iterator of torch's. One that dies on its way out has made its batches.

    A spawned one may: where Python ends, a thread that is in torch's code is unwound, and aborts the process.
    """
    try:
        iterator._shutdown_workers()
    except RuntimeError as error:
        # Raised by torch wherever it hears of that; it ends the other workers all the same.
        if "DataLoader worker" not in str(error):
            raise


def unwrap(given: Any) -> Unwrapped:
    """The DataLoader inside `given`, which may be a DataLoader itself.

    Raises BadValue, with a hint to the DataLoader, for an object that holds none or several, or cannot be iterated.
    """
    wrappers: list[Wrapper] = []
    path, inner = "loader", given
    while not _is_plain(inner):
        wrapper, below = _look_into(inner, path, len(wrappers))
        wrappers.append(wrapper)
        path, inner = path + below, wrapper.inside(wrapper.outer)
    whole = Unwrapped(loader=inner, wrappers=tuple(wrappers), path=path)
    for wrapper in wrappers:
        why, facts = _why_not(wrapper, inner)
        if why:
            return whole.without_wrappers(why, **facts)
    return whole


def _look_into(given: Any, path: str, depth: int) -> tuple[Wrapper, str]:
    """The one thing inside a wrapper that is a DataLoader or holds one."""
    kind = type(given)
    contents = _contents(given)
    direct = [entry for entry in contents if _is_loader(entry[2])]
    if not direct and depth < DEEPEST:
        direct = [entry for entry in contents if hasattr(type(entry[2]), "__iter__") and _holds_one(entry[2], DEEPEST)]
    problem = f"this is a {kind.__name__}, {NO_LOADER}"
    names = [path + _path_below(name, key) for name, key, _ in direct]
    if not direct:
        raise BadValue(problem, hint=_where_else(given))
    if len(direct) > 1 or not hasattr(kind, "__iter__") or issubclass(kind, Mapping | Sequence):
        raise BadValue(f"{problem}, but holds {len(names)}", hint=f"give {join_words(names, 'or')}")
    name, key, _ = direct[0]
    return Wrapper(given, name, key), _path_below(name, key)


def _contents(given: Any) -> list[tuple[str, Any, Any]]:
    """(attribute, index or key in it, value) of all that an object holds, each value once; of a list its items."""
    contents: list[tuple[str, Any, Any]] = []
    attributes = {"": given} if type(given) in (list, tuple, dict) else own_attributes(given)
    for name, value in attributes.items():
        if type(value) in (list, tuple):
            contents += [(name, number, item) for number, item in enumerate(value[:MOST_ITEMS])]
        elif type(value) is dict and len(value) <= MOST_ITEMS:
            contents += [(name, key, item) for key, item in value.items()]
        else:
            contents.append((name, None, value))
    return list({id(value): (name, key, value) for name, key, value in reversed(contents)}.values())[::-1]


def _path_below(name: str, key: Any) -> str:
    return (f".{name}" if name else "") + ("" if key is None else f"[{key!r}]")


def _is_loader(value: Any) -> bool:
    return issubclass(type(value), DataLoader)


def _is_plain(value: Any) -> bool:
    """True for a DataLoader that is not a wrapper: a wrapper holds another one of the same data set, or lacks one."""
    kind = type(value)
    if not issubclass(kind, DataLoader):
        return False
    if kind.__iter__ is DataLoader.__iter__:
        return True
    attributes = own_attributes(value)
    inner = [item for _, _, item in _contents(value) if _is_loader(item) and item is not value]
    return len(inner) != 1 or attributes.get("dataset", inner[0].dataset) is not inner[0].dataset


def _holds_one(value: Any, depth: int) -> bool:
    contents = _contents(value) if own_attributes(value) else []
    if any(_is_loader(item) for _, _, item in contents):
        return True
    return depth > 1 and any(
        hasattr(type(item), "__iter__") and own_attributes(item) and _holds_one(item, depth - 1)
        for _, _, item in contents
    )


def _where_else(given: Any) -> str:
    kind = type(given)
    giver = next((name for name in GIVERS if callable(getattr(kind, name, None))), None)
    if giver:
        return f"give what its {giver}() returns"
    if issubclass(kind, Iterator):
        return "give the DataLoader itself, not an iterator of it"
    kept = [name for name, value in own_attributes(given).items() if is_iterator(value)]
    if kept:
        return f"its .{kept[0]} is an iterator of a DataLoader: give that DataLoader itself"
    return "give the DataLoader that feeds it, or one of the same data set"


def _why_not(wrapper: Wrapper, loader: DataLoader[Any]) -> tuple[LeftOut | None, dict[str, str]]:
    """Why a wrapper's own work cannot be kept, with the facts; None when it can."""
    outer, kind = wrapper.outer, type(wrapper.outer)
    value = vars(outer).get(wrapper.name)
    if wrapper.index is not None and not (type(value) is list and len(value) == 1):
        return "new_batches", {}
    if hasattr(kind, "__del__"):
        return "has_del", {}
    # Some copy all attributes of their DataLoader, its iterator among them.
    theirs = {id(value) for value in vars(loader).values()}
    working = [
        name for name, value in vars(outer).items() if issubclass(type(value), WORKING) and id(value) not in theirs
    ]
    if working:
        return "at_work", {"attribute": working[0]}
    try:
        wrapper.around(loader)
    except (TypeError, AttributeError, KeyError) as error:
        return "not_copied", {"error": str(error)}
    return None, {}


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
    return type(value) is types.GeneratorType or any(is_iterator(referent) for referent in over)


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
    values = reachable([sampler], closed=(type(loader.dataset),))
    shared = {id(value): value for value in values if issubclass(type(value), torch.Generator)}
    shared[id(loader.dataset)] = loader.dataset
    try:
        return copy.deepcopy(sampler, shared)
    except Exception as error:  # whatever a sampler's own copying raises
        raise NotCopied(
            f"the loader's sampler cannot be copied ({error}), so measuring could change it",
            hint="use a sampler that copy.deepcopy can copy",
        ) from error


def endless(loader: DataLoader[Any], pool: Any, patience_s: float) -> DataLoader[Any]:
    """A copy of the loader, of the same class, with its own workers and batches without end."""
    copied = bare_copy(loader)
    settings = copied.__dict__
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
    return copied
