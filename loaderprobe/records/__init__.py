"""The nouns: frozen values with their units in their names.

No behaviour beyond reading and checking themselves, and nothing that measures, judges or words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from loaderprobe.errors import BadValue

T = TypeVar("T")
K = TypeVar("K")


def values(record: Any, *names: str) -> dict[str, Any]:
    """The values of a record by name, all or these: for one of a class with the same fields and more, or for a row."""
    return {name: getattr(record, name) for name in names or [field.name for field in fields(record)]}


def by_key(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by what `key` makes of each, in the order in which that first comes."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def check_equal_lengths(what: str, record: object, columns: Sequence[str], optional: Collection[str] = ()) -> None:
    """Raises BadValue when `columns` of `record` differ in length; those in `optional` may be empty instead."""
    lengths = {name: len(getattr(record, name)) for name in columns}
    counted = {length for name, length in lengths.items() if length or name not in optional}
    if len(counted) > 1:
        raise BadValue(f"{what}: the columns differ in length")


def check_at_least(what: str, record: object, least: Mapping[str, float]) -> None:
    """Raises BadValue when a field of `record`, or a number in one of its columns, is below the `least` of its name.

    A field that is None is not known, and passes.
    """
    for name, bound in least.items():
        value: Any = getattr(record, name)
        lowest = min(value, default=bound) if isinstance(value, tuple) else value
        if lowest is not None and not lowest >= bound:
            raise BadValue(f"{what}: {name} is {lowest}, below {bound}")
