"""The class behind a name: from a built-in table, an installed entry point, or `package.module:Class`.

Nothing is imported until a class is needed. An entry point cannot replace a built-in name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.units import join_words

Kind = Literal["loader", "compute", "sampling", "rounds", "alternatives", "catalogue"]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "loader": {"torch": "loaderprobe.loaders.torch:TorchLoader"},
    "compute": {
        "cuda": "loaderprobe.compute.torch:CudaCompute",
        "cpu": "loaderprobe.compute.torch:CpuCompute",
        "emulated": "loaderprobe.compute.emulated:EmulatedCompute",
        "emulated-sync": "loaderprobe.compute.emulated:SynchronousCompute",
    },
    "sampling": {"standard": "loaderprobe.samplers:sampling"},
    "alternatives": {"torch": "loaderprobe.loaders.alternatives:alternatives"},
    "rounds": {"standard": "loaderprobe.analyze.verdict.rounds:next_round"},
    "catalogue": {},
}


def split_name(text: str) -> tuple[str, str]:
    """(name, argument) of `emulated:mlperf-h100`; `package.module:Class` is all name."""
    head, _, argument = text.partition(":")
    return (text, "") if "." in head else (head, argument)


def resolve(kind: Kind, name: str) -> Callable[..., Any]:
    """The class behind `name`.

    Raises BadValue for an unknown name, MissingPart for one that cannot be imported.
    """
    module_name, attribute = _target(kind, name)
    try:
        found = getattr(import_module(module_name), attribute)
    except Exception as error:  # a module of the user's own may raise anything while it is imported
        reason = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise MissingPart(
            f"the {kind} '{name}' cannot be loaded: {reason}", hint=f"check that {module_name} can be imported"
        ) from error
    if not callable(found):
        raise BadValue(f"{module_name}:{attribute} is not a class", hint=f"name a class for the {kind} protocol")
    made: Callable[..., Any] = found
    return made


def foreign_module(kind: Kind, name: str) -> str | None:
    """The module outside loaderprobe that `resolve` would import; None for a built-in name. Raises BadValue."""
    return None if name in BUILT_IN[kind] else _target(kind, name)[0]


def installed(kind: Kind) -> tuple[str, ...]:
    """The names that installed plug-ins add to the built-in ones. Imports nothing."""
    return tuple(sorted({point.name for point in entry_points(group=f"loaderprobe.{kind}s")} - set(BUILT_IN[kind])))


def _target(kind: Kind, name: str) -> tuple[str, str]:
    """(module, class) behind a name, checked and not imported. Raises BadValue."""
    target = BUILT_IN[kind].get(name) or _entry_point(kind, name) or (name if ":" in name else None)
    if target is None:
        known = join_words(sorted(BUILT_IN[kind]), "or")
        raise BadValue(f"there is no {kind} named '{name}'", hint=f"use {known}, or package.module:Class of your own")
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise BadValue(f"'{target}' names no class", hint=f"write package.module:Class for a {kind} of your own")
    return module_name, attribute


def _entry_point(kind: Kind, name: str) -> str | None:
    found = [point for point in entry_points(group=f"loaderprobe.{kind}s") if point.name == name]
    return found[0].value if found else None
