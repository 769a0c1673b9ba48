"""Every field of a configuration, found by walking its records, with another value than the usual one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, get_args, get_type_hints

from loaderprobe.records.config import RunConfig

Path = tuple[str, ...]


def walk(record: Any = RunConfig, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """(the fields that lead to it, its type) of every field that is no record itself."""
    kinds = get_type_hints(record)
    for each in fields(record):
        if is_dataclass(kinds[each.name]):
            yield from walk(kinds[each.name], (*path, each.name))
        else:
            yield (*path, each.name), kinds[each.name]


PATHS = list(walk())


def flat_name(path: Path) -> str:
    """The name that a field has in flat tables."""
    return path[-2] if len(path) > 1 and path[-1] == "name" else path[-1]


def value_at(config: RunConfig, path: Path) -> Any:
    """The value of a field."""
    return reduce(getattr, path, config)


def with_another(config: RunConfig, path: Path, kind: Any) -> RunConfig:
    """The configuration with another value of this one field."""

    def changed(record: Any, path: Path) -> Any:
        first, *rest = path
        found = getattr(record, first)
        return replace(record, **{first: changed(found, tuple(rest)) if rest else _another(kind, found)})

    if path == ("nodes",):
        config = replace(config, ranks=2)  # they are spread over the nodes evenly
    made: RunConfig = changed(config, path)
    return made


def _another(kind: Any, value: Any) -> Any:
    if kind is bool:
        return not value
    if kind is int:
        return value + 1
    return f"{value}x" if kind is str else next(each for each in get_args(kind) if each != value)
