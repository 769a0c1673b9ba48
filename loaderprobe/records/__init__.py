"""The nouns: frozen values with their units in their names.

No behaviour beyond reading themselves, and nothing that measures, judges or words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")


def values(record: Any, *names: str) -> dict[str, Any]:
    """The values of a record by name, all or these: for one of a class with the same fields and more, or for a row."""
    return {name: getattr(record, name) for name in names or [field.name for field in fields(record)]}


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by what `key` makes of each, in the order in which that first comes."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
