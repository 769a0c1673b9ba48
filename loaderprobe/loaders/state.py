"""What a loader holds: its values, a copy of it, and its random and shared state, restored after a measurement."""

from __future__ import annotations

import copy
import ctypes
import dis
import gc
import logging
import mmap
import random
import sys
import types
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.managers import BaseProxy
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderprobe.batches import parts_of
from loaderprobe.records.remark import Remark
from loaderprobe.system.mapped import Mapping, mappings
from loaderprobe.system.stacks import is_installed

# All values that a data set, a sampler or another object holds, found without running its code.
#
# Opened is what Python's garbage collector sees: attributes, slots, the items of containers, the arguments of partial
# functions, what functions close over; and arrays of objects. Of code that is not installed also what its classes hold,
# the globals that its functions name, and what these name of a module that is not installed. Properties, `__iter__`,
# `__getattr__` and `__class__` of a user's classes are never called.

MOST = 200_000
"""Most values to find."""
DEPTH = 12
# Numbers are not found and not counted, but passing over them takes time as well: some 0.2 s for so many.
MOST_PASSED = 4_000_000
# Items of a container that are opened in one go. Containers that hold more wait until the small ones are done, and
# take turns, so that one list of a million paths does not hide everything else.
CHUNK = 1000

CONTAINERS = frozenset({list, tuple, dict, set, frozenset, deque})
DULL = frozenset({type(None), bool, int, float, complex, bytes, bytearray, type(Ellipsis), slice, range})
# Found, but not opened: their content is not the data set's, or is not a Python object.
CLOSED = (str, PurePath, types.ModuleType, logging.Filterer, torch.Tensor, torch.Generator, memoryview)


def reachable(roots: Iterable[Any], *, closed: tuple[type, ...] = (), named: bool = True) -> Iterator[Any]:
    """The roots and all values that they hold, each once, nearest first: at most `MOST`, no deeper than `DEPTH`.

    Numbers, None, bytes and plain containers are left out; objects come before their values. Large containers
    come last, and in turns. Objects of the types in `closed` are found, but not opened. Without `named`, what only
    classes hold or code names is left out.
    """
    small: deque[tuple[Iterator[Any], int]] = deque([(iter(list(roots)), 0)])
    large: deque[tuple[Iterator[Any], int]] = deque()
    # Each opened object is reachable from a root and cannot go away meanwhile, so its id stays its own.
    opened: set[int] = set()
    passed, left = 0, MOST
    while (small or large) and left > 0 and passed < MOST_PASSED:
        items, level = (small or large).popleft()
        chunk = list(islice(items, CHUNK))
        passed += len(chunk)
        if len(chunk) == CHUNK:
            large.append((items, level))
        for value in chunk:
            kind = type(value)
            if kind in DULL:
                continue
            if kind is not str:
                if id(value) in opened:
                    continue
                opened.add(id(value))
                inside = None if level >= DEPTH or issubclass(kind, closed) else _inside(value, kind, named=named)
                if inside is not None:
                    small.append((inside, level + 1))
            if kind in CONTAINERS:
                continue
            yield value
            left -= 1
            if left <= 0:
                return


def _inside(value: Any, kind: type, *, named: bool) -> Iterator[Any] | None:
    """The values inside a value; None for a type that is not opened."""
    if issubclass(kind, CLOSED):
        return None
    if issubclass(kind, np.ndarray):
        return iter(np.ndarray.tolist(value)) if value.dtype == object and value.ndim == 1 else None
    if kind is types.FunctionType:
        closed_over = gc.get_referents(*value.__closure__ or (), value.__defaults__)
        return iter([*closed_over, *(_named_globals(value) if named else ())])
    if issubclass(kind, type):
        return iter(list(_of_class(value))) if named else None
    if kind is property:
        return iter((value.fget, value.fset, value.fdel))
    if issubclass(kind, dict):  # of one whose keys are texts, the collector leaves these out
        inner = [*dict.keys(value), *dict.values(value)]
    else:  # a long list is not copied
        inner = value if kind in (list, tuple) else gc.get_referents(value)
    own = own_attributes(value)
    return iter(inner if kind in CONTAINERS else [*own.values(), *(part for part in inner if part is not own), kind])


def own_attributes(value: Any) -> dict[str, Any]:
    """Values stored on an object, by name; `__class__` and properties are not read."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _named_globals(function: types.FunctionType) -> Iterator[Any]:
    """Those that the code of a user's function names, also within its lambdas and comprehensions."""
    codes = [] if is_installed(function.__code__.co_filename) else [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if type(constant) is types.CodeType]
        yield from (function.__globals__[name] for name in code.co_names if name in function.__globals__)
        yield from _of_modules(code, function.__globals__)


def _of_modules(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """What code names of modules of the user's: of `config.FILES` and of `package.config.FILES` the files."""
    value: Any = None
    for instruction in dis.get_instructions(code):
        module = value if issubclass(type(value), types.ModuleType) and _is_users(value) else None
        value = names.get(instruction.argval) if instruction.opname == "LOAD_GLOBAL" else None
        if module is not None and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            value = own_attributes(module).get(instruction.argval)
            yield value


def _is_users(module: types.ModuleType | None) -> bool:
    """True for one that was read from a file that is not installed."""
    file = own_attributes(module).get("__file__")
    return isinstance(file, str) and not is_installed(file)


def _of_class(kind: type) -> Iterator[Any]:
    """Methods and values of a class and those above it, of the user's. What `__init__` names, attributes hold."""
    for base in type.__getattribute__(kind, "__mro__"):
        attributes = type.__getattribute__(base, "__dict__")
        module = attributes.get("__module__")
        # A notebook has no file.
        if module == "__main__" or _is_users(sys.modules.get(module)):
            for name, value in attributes.items():
                # `functools.cache` wraps a method into something else than a function.
                method = type(value) is types.FunctionType or "__wrapped__" in own_attributes(value)
                if not name.startswith("__") or (method and name != "__init__"):
                    yield value


# A copy of an iterable data set, for loaders without workers: iterating the original would advance it.

MOST_BYTES = 64 * 2**20
"""Most bytes of tensors and arrays that are copied; a larger data set is iterated itself.

And most of shared memory that is restored: of more, the smallest pieces, because counters are small."""


def kept_batch(batch: Any) -> Any:
    """The batch in memory of its own, pinned where the loader's is: of other memory, the copy to a GPU takes longer.

    What a worker sends holds shared memory as long as it is kept. A batch that cannot be copied is kept itself.
    """
    kept = batch
    with suppress(Exception):  # whatever a batch's own copying raises
        kept = copy.deepcopy(batch)
    pinned = any(part.is_pinned() for part in parts_of(batch) if hasattr(part, "is_pinned"))
    return pin_memory(kept) if pinned else kept  # type: ignore[no-untyped-call]  # torch leaves it untyped


def copied_iterable(dataset: Any) -> Any:
    """A deep copy, as a worker would have; None when it is too large or cannot be copied."""
    size = 0
    # A deep copy shares classes and functions.
    for number, value in enumerate(reachable([dataset], closed=(type, types.FunctionType)), 1):
        if issubclass(type(value), torch.Tensor | np.ndarray):
            size += value.nbytes
        if number >= MOST or size > MOST_BYTES:
            return None
    try:
        return copy.deepcopy(dataset)
    except Exception:  # noqa: BLE001  # whatever its own copying raises: files, locks and generators do
        return None


Restore = Callable[[], None]
GENERATORS = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)


def global_random_state() -> Restore:
    """Returns a function that restores the generators of torch, Python and numpy to their state of now."""
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    # Read only if CUDA is in use: reading would start it.
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    of_cuda = torch.cuda.get_rng_state_all() if on_gpu else None

    def restore() -> None:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if of_cuda is not None:
            torch.cuda.set_rng_state_all(of_cuda)

    return restore


def random_state_as_begun(loader: DataLoader[Any]) -> Restore:
    """Returns a function that restores them as they are when torch next begins to iterate the data set in this process.

    torch draws a seed for workers before. Whoever calls finds the generators as they were.
    """
    now = global_random_state()
    if loader.generator is None:
        torch.empty((), dtype=torch.int64).random_()
    begun = global_random_state()
    now()
    return begun


@contextmanager
def random_state_kept(loader: DataLoader[Any]) -> Iterator[None]:
    """Restore, at the end, the random generators that a loader or its data set holds, as far as `reachable` looks."""
    values = reachable(list(vars(loader).values()), closed=(_BaseDataLoaderIter,))
    back = [global_random_state(), *(_restorer(value) for value in values if issubclass(type(value), GENERATORS))]
    try:
        yield
    finally:
        for restore in back:
            restore()


def _restorer(generator: Any) -> Restore:
    if isinstance(generator, random.SystemRandom):
        return lambda: None  # it has no state
    if isinstance(generator, random.Random):
        of_python = generator.getstate()
        return lambda: generator.setstate(of_python)
    if isinstance(generator, np.random.Generator):
        of_numpy = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", of_numpy)
    state = generator.get_state()
    return lambda: generator.set_state(state)


# State that a loader shares with its workers, and the state of its samplers: restored after a measurement.
#
# A copy of a loader has its own workers, but shared memory is the same in all of them: an epoch counter in
# `multiprocessing.Value`, in a shared tensor or in a `SharedMemory` block advances for the user as well.

# How /proc names shared memory that is no file of the user's: blocks by name, and anonymous ones.
NO_FILE = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV")
CDATA = ctypes.Structure.__mro__[1]
MAY_BE_SHARED = (torch.Tensor, np.ndarray, memoryview, mmap.mmap, CDATA, BaseProxy)


@contextmanager
def shared_state_kept(loader: DataLoader[Any]) -> Iterator[list[Remark]]:
    """Restore, at the end, the shared memory of a loader's parts and the attributes of its samplers.

    Yields notes on what will not be restored, known before anything is touched. Leave it after the workers have
    ended. No user code is called: values are found by inspection.
    """
    parts = [value for value in vars(loader).values() if not isinstance(value, _BaseDataLoaderIter)]
    # The values that were found keep their memory mapped, unless they are closed.
    reached = reachable(parts, closed=(_BaseDataLoaderIter,))
    values = [value for value in reached if issubclass(type(value), MAY_BE_SHARED)]
    mapped, in_use = mappings(), {piece for value in values if (piece := _memory(value))}
    pieces = [piece for piece in in_use if (mapping := _mapping_of(piece, mapped)) and _is_shared(mapping)]
    saved, left_out = _within(_merged(pieces))
    attributes = [(vars(owner), dict(vars(owner))) for owner in _owners(loader)]
    place_in_epoch = _place_in_epoch(loader)
    notes = []
    if left_out:
        notes.append(Remark(code="shared_memory_stays", facts={"size_bytes": left_out}))
    if any(issubclass(type(value), BaseProxy) for value in values):
        notes.append(Remark(code="manager_stays"))
    copies = [(piece, _mapping_of(piece, mapped), ctypes.string_at(piece.start, len(piece))) for piece in saved]
    try:
        yield notes
    finally:
        _put_back(copies)
        for namespace, before in attributes:
            namespace.clear()
            namespace.update(before)
        if place_in_epoch:
            vars(loader.dataset).update(place_in_epoch)


def _memory(value: Any) -> range | None:
    """The addresses of a value's bytes; None for a value without memory in this process."""
    kind = type(value)
    with suppress(ValueError, TypeError, RuntimeError, NotImplementedError):  # closed, released, empty, not dense
        if kind is torch.Tensor:
            if value.device.type != "cpu" or not value.is_shared():
                return None
            storage = value.untyped_storage()
            return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        if issubclass(kind, CDATA):
            return range(ctypes.addressof(value), ctypes.addressof(value) + ctypes.sizeof(value))
        if issubclass(kind, memoryview | mmap.mmap):
            value = np.frombuffer(value, np.uint8)
        if isinstance(value, np.ndarray):
            return _bounds(value)
    return None


def _bounds(array: np.ndarray[Any, Any]) -> range | None:
    if not array.size:
        return None
    ends = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    below = sum(end for end in ends if end < 0)
    above = sum(end for end in ends if end > 0)
    return range(array.ctypes.data + below, array.ctypes.data + above + array.itemsize)


def _merged(pieces: Iterable[range]) -> list[range]:
    """Overlapping ones are merged: they are of one mapping."""
    merged: list[range] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if merged and piece.start < merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, piece.stop))
        else:
            merged.append(piece)
    return merged


def _within(pieces: Iterable[range]) -> tuple[list[range], int]:
    """(the smallest ones within the limit, the bytes of the others)."""
    kept: list[range] = []
    used = left_out = 0
    for piece in sorted(pieces, key=len):
        if used + len(piece) <= MOST_BYTES:
            kept.append(piece)
            used += len(piece)
        else:
            left_out += len(piece)
    return kept, left_out


def _put_back(copies: Iterable[tuple[range, Mapping | None, bytes]]) -> None:
    """Write back only changed bytes, and only where the same memory is still mapped."""
    mapped = mappings()
    for piece, old, before in copies:
        now = _mapping_of(piece, mapped)
        same = now and old and (now.device, now.inode, now.path) == (old.device, old.inode, old.path)
        if same and ctypes.string_at(piece.start, len(piece)) != before:
            ctypes.memmove(piece.start, before, len(piece))


def _owners(loader: DataLoader[Any]) -> list[Any]:
    """Objects whose attributes are restored.

    Wrappers call `set_epoch` on samplers and data sets of this process. A data set that works in this process
    keeps what it has opened and cached.
    """
    batch_sampler = loader.batch_sampler
    owners = [loader.sampler, batch_sampler, getattr(batch_sampler, "__dict__", {}).get("sampler")]
    if loader.num_workers:
        owners.append(loader.dataset)
    return list({id(owner): owner for owner in owners if type(getattr(owner, "__dict__", None)) is dict}.values())


def _place_in_epoch(loader: DataLoader[Any]) -> dict[str, Any]:
    """Of a data set that works in this process, and can continue from a position, the attributes that can be one.

    Threads and files opened since then stay.
    """
    resumes, plain = hasattr(type(loader.dataset), "load_state_dict"), (int, float, bool, str, type(None))
    attributes = own_attributes(loader.dataset) if resumes and not loader.num_workers else {}
    return {name: value for name, value in attributes.items() if type(value) in plain}


def _is_shared(mapping: Mapping) -> bool:
    """True for writable memory that is shared with other processes and is not a file of the user."""
    return mapping.access == "rw-s" and (mapping.path.startswith(NO_FILE) or mapping.path.endswith("(deleted)"))


def _mapping_of(piece: range, mapped: list[Mapping]) -> Mapping | None:
    """The one that holds all of it."""
    number = bisect_right(mapped, piece.start, key=lambda mapping: mapping.begin) - 1
    return mapped[number] if number >= 0 and piece.stop <= mapped[number].end else None
