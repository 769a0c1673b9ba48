"""A function of the user's that makes a loader, by its name; and the loader that it makes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.diagnosis import OwnLoader
from loaderprobe.records.files import FileSet

FORM = "name a function: train.py:make_loader, or package.module:make_loader"
RETURNS = "let it return the loader, or the loader and the step: return loader, step"
NO_GROUP = ("process group has not been initialized", "rendezvous: environment variable")
"""torch's words where code asks for its rank, or joins the others, in a process that has none."""


def named(text: str) -> OwnLoader:
    """The function behind `train.py:make_loader` or `package.module:make_loader`. Imports nothing. Raises BadValue."""
    where, colon, function = text.rpartition(":")
    path = Path(where)
    of_file = path.suffix == ".py"
    module = path.stem if of_file else where
    if not colon or not all(part.isidentifier() for part in (*module.split("."), function)):
        raise BadValue(f"'{text}' names no function in a module", hint=FORM)
    if of_file and not path.is_file():
        raise BadValue(f"there is no file {where}", hint=FORM)
    folder = path.parent if of_file else Path()
    return OwnLoader(name=text, folder=str(folder.absolute()), module=module, function=function)


def module_file(own: OwnLoader) -> FileSet:
    """The file of its module, which all nodes must have. Imports nothing. Raises MissingPart where there is none."""
    path = _found(own)
    if path is None:
        raise MissingPart(f"there is no module {own.module}", hint=FORM)
    return FileSet(
        label=own.name, root=str(path.parent), generated=False, paths=(path.name,), classes=(0,),
        size_bytes=(path.stat().st_size,), images_found=1,
    )  # fmt: skip


def _found(own: OwnLoader) -> Path | None:
    """Not by `find_spec` of the whole name, which imports the packages around the module."""
    top, *below = own.module.split(".")
    specs = (finder.find_spec(top, [own.folder, *sys.path]) for finder in sys.meta_path)
    spec = next((each for each in specs if each is not None), None)
    if spec is None:
        return None
    places = [Path(place, *below) for place in spec.submodule_search_locations or ()] if below else []
    origin = [] if below or spec.origin is None else [Path(spec.origin)]
    files = [*origin, *(file for place in places for file in (place / "__init__.py", place.with_suffix(".py")))]
    return next((each for each in files if each.is_file()), None)


def made(own: OwnLoader) -> tuple[Any, Callable[[Any], Any] | None]:
    """(loader, step or None) as the function makes them. Raises BadValue, MissingPart, and what it raises."""
    with _as_script(own):
        found = _called(own, _function(own))
    if not isinstance(found, tuple):
        return found, None
    if len(found) != 2 or not callable(found[1]):
        kinds = ", ".join(type(each).__name__ for each in found)
        raise BadValue(f"{own.name} returned ({kinds})", hint=RETURNS)
    return found


def _function(own: OwnLoader) -> Callable[[], Any]:
    try:
        found = getattr(import_module(own.module), own.function)
    except (Exception, SystemExit) as error:  # a module of the user's own may raise anything while it is imported
        reason = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        hint = f"check that {own.module} can be imported; what trains stands under if __name__ == '__main__'"
        raise MissingPart(f"{own.name} cannot be loaded: {reason}", hint=hint) from error
    if not callable(found):
        raise BadValue(f"{own.name} is a {type(found).__name__}, not a function", hint=FORM)
    function: Callable[[], Any] = found
    return function


def _called(own: OwnLoader, function: Callable[[], Any]) -> Any:
    try:
        found = function()
    except LoaderprobeError:
        raise
    except (Exception, SystemExit) as error:
        hint = "call it yourself, without arguments"
        if any(words in str(error) for words in NO_GROUP):
            hint = "it asks for its rank: add --ranks 2, or start it with torchrun"
        raise LoaderprobeError(f"{own.name} raised {type(error).__name__}: {error}", hint=hint) from error
    if found is None:
        raise BadValue(f"{own.name} returned nothing", hint=RETURNS)
    return found


@contextmanager
def _as_script(own: OwnLoader) -> Iterator[None]:
    """Modules beside it are found first, also later by workers; it sees no arguments of the command line."""
    if own.folder not in sys.path[:1]:
        sys.path.insert(0, own.folder)
    arguments = sys.argv
    sys.argv = [own.name.rpartition(":")[0]]
    try:
        yield
    finally:
        sys.argv = arguments
