"""All values that a data set, a sampler or another object holds, found without running its code.

Only what Python itself stores is opened: attributes, slots, the items of lists, tuples, sets and dicts, the
arguments of partial functions, what functions close over, and arrays of objects. Properties, `__iter__`,
`__getattr__` and `__class__` of a user's classes are never called.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

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
CLOSED = (str, PurePath, type, types.ModuleType, torch.Tensor, torch.Generator, memoryview)


def held(
    roots: Iterable[Any], *, most: int = MOST, depth: int = DEPTH, closed: tuple[type, ...] = ()
) -> Iterator[Any]:  # fmt: skip
    """The roots and all values that they hold, each once, nearest first: at most `most`, no deeper than `depth`.

    Numbers, None, bytes and plain containers are left out; objects come before their values. Large containers
    come last, and in turns. Objects of the types in `closed` are found, but not opened.
    """
    small: deque[tuple[Iterator[Any], int]] = deque([(iter(list(roots)), 0)])
    large: deque[tuple[Iterator[Any], int]] = deque()
    # Each opened object is reachable from a root and cannot go away meanwhile, so its id stays its own.
    opened: set[int] = set()
    passed = 0
    while (small or large) and most > 0 and passed < MOST_PASSED:
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
                inside = None if level >= depth or issubclass(kind, closed) else _inside(value, kind)
                if inside is not None:
                    small.append((inside, level + 1))
            if kind in CONTAINERS:
                continue
            yield value
            most -= 1
            if most <= 0:
                return


def _inside(value: Any, kind: type) -> Iterator[Any] | None:
    """The values inside a value; None for a type that is not opened."""
    if issubclass(kind, CLOSED):
        return None
    if issubclass(kind, np.ndarray):
        return iter(np.ndarray.tolist(value)) if value.dtype == object and value.ndim == 1 else None
    if issubclass(kind, functools.partial):
        return iter((value.func, value.args, value.keywords))
    if kind is types.MethodType:
        return iter((value.__self__, value.__func__))
    if kind is types.FunctionType:
        return iter(list(_closed_over(value)))
    items = _items(value, kind)
    return items if kind in CONTAINERS else chain(_attributes(value, kind), items)


def _items(value: Any, kind: type) -> Iterator[Any]:
    """The items of a container, also of a sub-class with a changed iteration; else nothing."""
    for ordered in (list, tuple):
        if issubclass(kind, ordered):
            items: Iterator[Any] = ordered.__iter__(value)
            return items
    for unordered in (set, frozenset, deque):
        if issubclass(kind, unordered):
            # Copied in one go: another thread may change it meanwhile.
            return iter(list(unordered.__iter__(value)))
    if issubclass(kind, dict):
        return chain(list(dict.keys(value)), list(dict.values(value)))
    return iter(())


def _attributes(value: Any, kind: type) -> Iterator[Any]:
    """The values of `__dict__` and of slots."""
    found: list[Any] = []
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = None
    if type(own) is dict:
        found += own.values()
    for base in kind.__mro__:
        for name, member in type.__getattribute__(base, "__dict__").items():
            if type(member) is types.MemberDescriptorType and name != "__weakref__":
                try:
                    found.append(member.__get__(value))
                except (AttributeError, TypeError):
                    continue  # a slot that was never filled
    return iter(found)


def _closed_over(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not filled yet
    yield from function.__defaults__ or ()
