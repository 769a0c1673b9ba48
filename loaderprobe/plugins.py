"""The class or factory behind a name: built in, an installed entry point, or `package.module:Class`.

Outsiders may add loaders, computes and models. Nothing is imported until one is needed.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Literal

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import Compute, Loader
from loaderprobe.records.config import DECODER_LIBRARIES, LIBRARIES
from loaderprobe.units import join_words

Kind = Literal["loader", "compute", "model"]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "loader": {
        "torch": "loaderprobe.loaders.torch:TorchLoader",
        **{name: f"loaderprobe.loaders.libraries.{name}:{name.capitalize()}Loader" for name in LIBRARIES},
    },
    "compute": {
        "cuda": "loaderprobe.compute.torch:CudaCompute",
        "cpu": "loaderprobe.compute.torch:CpuCompute",
        "emulated": "loaderprobe.compute.emulated:EmulatedCompute",
        "emulated-sync": "loaderprobe.compute.emulated:SynchronousCompute",
    },
    "model": {
        "mlp": "loaderprobe.compute.models:mlp",
        "convnet": "loaderprobe.compute.models:lenet5",
        "lenet5": "loaderprobe.compute.models:lenet5",
        **{name: f"torchvision.models:{name}" for name in ("resnet18", "resnet50", "resnet152", "vgg16")},
    },
}
WITHOUT_TORCH = ("emulated", "emulated-sync")
"""Computes that are imported in no time."""
# A model is made by any function, all others are classes.
PROTOCOLS: dict[Kind, type] = {"loader": Loader, "compute": Compute}
MADE_WITH: dict[Kind, tuple[str, ...]] = {
    "loader": ("config", "files", "scratch"),
    "compute": ("arguments",),
    "model": ("num_classes",),
}
NOUNS: dict[Kind, str] = {"loader": "Class", "compute": "Class", "model": "factory"}
"""What one without an entry point is, as it is named: package.module:Class."""
GUIDE = "`loaderprobe explain plug-ins` shows what it must do"


def resolve(kind: Kind, name: str) -> Any:
    """The class behind `name`, which has the methods of its protocol; for a model, the function that makes it.

    Raises BadValue for an unknown or ambiguous name and for what cannot be of this kind, MissingPart for what cannot
    be imported.
    """
    module_name, attribute = check_name(kind, name)
    try:
        loaded = getattr(import_module(module_name), attribute)
    except Exception as error:  # a module of the user's own may raise anything while it is imported
        reason = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise MissingPart(
            f"the {kind} '{name}' cannot be loaded: {reason}", hint=f"check that {module_name} can be imported"
        ) from error
    if lack := _lack(kind, loaded):
        raise BadValue(f"{module_name}:{attribute} cannot be a {kind}: it {lack}", hint=GUIDE)
    return loaded


def check_loader(name: str) -> None:
    """Raise what `resolve` raises for a loader; a built-in one is trusted, and not imported, where torch is installed.

    A torch that is installed and broken is met by the process that imports it.
    """
    check_name("loader", name)
    if name in LIBRARIES:
        check_library(f"the loader {name}", LIBRARIES[name], f"'loaderprobe[{name}]'")
    for package in ("torch", "torchvision") if name in BUILT_IN["loader"] else ():
        check_library(f"the loader {name}", package, package)
    if name not in BUILT_IN["loader"]:
        resolve("loader", name)


def check_decoder(name: str) -> None:
    """Raise MissingPart, with the line that installs it, for a decoder that is not there."""
    if name in DECODER_LIBRARIES:
        check_library(f"the decoder {name}", *DECODER_LIBRARIES[name])


def check_library(user: str, module: str, package: str) -> None:
    """Raise MissingPart, with the line that installs `package`, where `module` is not there. It is not imported."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # of the package that it is in
        spec = None
    if spec is None:
        raise MissingPart(f"{user} needs {module}, which is not installed", hint=f"pip install {package}")


def foreign_module(kind: Kind, name: str) -> str | None:
    """The module outside loaderprobe that `resolve` would import; None for a built-in name. Raises BadValue."""
    module_name, _ = check_name(kind, name)
    return None if name in BUILT_IN[kind] else module_name


def _lack(kind: Kind, candidate: Any) -> str | None:
    """What keeps it from being of this kind; None when nothing does."""
    if kind in PROTOCOLS and not inspect.isclass(candidate):
        return "is not a class"
    if not callable(candidate):
        return "is not a function"
    protocols = PROTOCOLS[kind].mro() if kind in PROTOCOLS else ()  # methods are inherited by protocols, too
    methods = [name for protocol in protocols for name, method in vars(protocol).items() if inspect.isfunction(method)]
    methods = [name for name in methods if name not in ("__init__", "__subclasshook__")]
    if missing := [name for name in methods if not callable(getattr(candidate, name, None))]:
        return f"has no {join_words(missing, 'or')}"
    arguments = MADE_WITH[kind]
    try:
        if kind == "model":
            inspect.signature(candidate).bind(**dict.fromkeys(arguments))
        else:
            inspect.signature(candidate).bind(*arguments)
    except TypeError:
        return f"is not made by {NOUNS[kind]}({'num_classes=1000' if kind == 'model' else ', '.join(arguments)})"
    except ValueError:
        return None  # what is not written in Python may show no signature
    return None


def check_name(kind: Kind, name: str) -> tuple[str, str]:
    """(module, class) behind a name; not imported. Raises BadValue for an unknown or ambiguous name, or one of none."""
    points, form = list(entry_points(group=f"loaderprobe.{kind}s")), f"package.module:{NOUNS[kind]}"
    taken = [point.value for point in points if point.name == name]
    targets = {value for value in (BUILT_IN[kind].get(name), *taken) if value}
    if len(targets) > 1:  # none of them may replace another silently
        why = f"the {kind} '{name}' is ambiguous: it is the name of {join_words(sorted(targets))}"
        raise BadValue(why, hint=f"uninstall a package, or rename its entry point; {taken[0]} names the class itself")
    target = next(iter(targets), name if ":" in name else None)
    if target is None:
        known = join_words(sorted({*BUILT_IN[kind], *(point.name for point in points)}), "or")
        raise BadValue(f"there is no {kind} named '{name}'", hint=f"use {known}, or {form} of your own")
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise BadValue(f"'{target}' names no {kind}", hint=f"write {form} for one of your own")
    return module_name, attribute
