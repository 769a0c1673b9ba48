"""The options of a configuration in a row: each under the one name that it has in files, tables and calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import Any, get_type_hints

from loaderprobe.errors import BadValue
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.units import join_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One field of a `RunConfig` or of a record in it."""

    name: str
    """`workers`; the `name` of a record in the configuration is called as that record is: `loader`, `compute`."""
    path: tuple[str, ...]
    """The fields that lead to it: `loader`, `workers`."""
    type: Any
    default: Any
    """`dataclasses.MISSING` where it is always asked for."""

    def of(self, config: RunConfig) -> Any:
        """Its value in a configuration."""
        return reduce(getattr, self.path, config)

    def usual(self, config: RunConfig) -> bool:
        """True when it has its default."""
        return bool(self.of(config) == self.default)


def _walk(record: type, path: tuple[str, ...] = ()) -> Iterator[Option]:
    kinds = get_type_hints(record)
    for each in fields(record):
        here = (*path, each.name)
        if is_dataclass(kinds[each.name]):
            yield from _walk(kinds[each.name], here)
        else:
            name = path[-1] if path and each.name == "name" else each.name
            yield Option(name=name, path=here, type=kinds[each.name], default=each.default)


OPTIONS: dict[str, Option] = {each.name: each for each in _walk(RunConfig)}
REQUIRED = frozenset(name for name, each in OPTIONS.items() if each.default is MISSING)


def options_of(config: RunConfig) -> dict[str, Any]:
    """The value of every option, by its name."""
    return {name: each.of(config) for name, each in OPTIONS.items()}


def with_options(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration with options changed. Raises BadValue for an option that does not exist, or such a value."""
    unknown = [name for name in changes if name not in OPTIONS]
    if unknown:
        raise BadValue(f"a configuration has no option '{unknown[0]}'")
    parts: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for name, value in changes.items():
        *into, last = OPTIONS[name].path
        (parts.setdefault(into[0], {}) if into else own)[last] = value
    nested = {part: replace(getattr(config, part), **values) for part, values in parts.items()}
    return replace(config, **own, **nested)


def alike_but_for(config: RunConfig, *names: str) -> tuple[Any, ...]:
    """The values of all other options: the same for configurations that differ in those only."""
    return tuple(each.of(config) for name, each in OPTIONS.items() if name not in names)


def asked_of_device(loader: LoaderSpec, compute: ComputeSpec) -> list[str]:
    """The names of options that are not as usual and change what a device does: not every device has them."""
    shared = [(loader, each) for each in fields(loader) if each.name in ("pin_memory", "gpu_decode")]
    own = [(compute, each) for each in fields(compute) if each.default is not MISSING]
    return [each.name for spec, each in (*own, *shared) if getattr(spec, each.name) != each.default]


def refuse_options(loader: LoaderSpec, compute: ComputeSpec, why: str) -> None:
    """Raise BadValue for options that are not as usual, for a device on which they would have no effect."""
    if asked := asked_of_device(loader, compute):
        verb = "do" if len(asked) > 1 else "does"
        raise BadValue(
            f"{join_words(asked)} {verb} not apply to {compute.name}: {why}",
            hint="train on cuda or cpu",
        )
