"""The nouns: frozen values with their units in their names.

No behaviour beyond reading themselves, and nothing that measures, judges or words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")


def values(record: Any) -> dict[str, Any]:
    """The values of a record by name: what a record of a class that has the same fields and more is made of."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by what `key` makes of each, in the order in which that first comes."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
