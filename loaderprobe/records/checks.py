"""What must hold of the numbers in a record, whoever wrote them: columns of one length, and nothing negative."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from loaderprobe.errors import BadValue


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
