"""What an object holds, as far as its attributes, lists, tuples, sets and dicts reach; runs no code of theirs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

MOST = 200_000
DEPTH = 8


def held(values: Iterable[Any]) -> Iterator[Any]:
    """The objects that these hold, themselves first."""
    todo = deque((value, 0) for value in values)
    seen: set[int] = set()
    count = 0
    while todo and count < MOST:
        value, depth = todo.popleft()
        count += 1
        if isinstance(value, str | os.PathLike):
            yield value
            continue
        if id(value) in seen or isinstance(value, int | float | bytes | type | None.__class__):
            continue
        seen.add(id(value))
        yield value
        if depth >= DEPTH:
            continue
        inner: Iterable[Any] = ()
        if isinstance(value, dict):
            inner = [*value.values(), *(k for k in value if isinstance(k, str))]
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif hasattr(value, "__dict__") and not callable(value):
            inner = vars(value).values()
        todo.extend((each, depth + 1) for each in inner)
