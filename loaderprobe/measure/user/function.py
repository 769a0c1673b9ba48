"""A function of the user's that makes a loader: by its name, called here, or called in each rank."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
from psutil import Process

from loaderprobe.analyze.verdict.ranks import differing, same_samples
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.ranks.child import RankChild
from loaderprobe.measure.ranks.launch import Coordinator, error_of, order_of_own
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segment_runner import Parts
from loaderprobe.measure.user.loader import Deadline, LoaderProperties, LoaderRequest, compute_of, measure_loader
from loaderprobe.protocols import Exchanging, Group, OnStage
from loaderprobe.records.config import CacheState, RunConfig
from loaderprobe.records.diagnosis import OwnLoader, OwnMeasured, UnknownFiles
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.rank_processes import RankInput
from loaderprobe.records.remark import Remark

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
    path = _module_path(own)
    if path is None:
        raise MissingPart(f"there is no module {own.module}", hint=FORM)
    return FileSet(
        label=own.name, root=str(path.parent), generated=False, paths=(path.name,), classes=(0,),
        size_bytes=(path.stat().st_size,), images_found=1,
    )  # fmt: skip


def _module_path(own: OwnLoader) -> Path | None:
    """Not by `find_spec` of the whole name, which imports the packages around the module."""
    top, *below = own.module.split(".")
    specs = (finder.find_spec(top, [own.folder, *sys.path]) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None:
        return None
    folders = [Path(folder, *below) for folder in spec.submodule_search_locations or ()] if below else []
    origin = [] if below or spec.origin is None else [Path(spec.origin)]
    files = [*origin, *(file for folder in folders for file in (folder / "__init__.py", folder.with_suffix(".py")))]
    return next((file for file in files if file.is_file()), None)


def made(own: OwnLoader) -> tuple[Any, Callable[[Any], Any] | None]:
    """(loader, step or None) as the function makes them. Raises BadValue, MissingPart, and what it raises."""
    with _as_script(own):
        returned = _called(own, _function(own))
    if not isinstance(returned, tuple):
        return returned, None
    if len(returned) != 2 or not callable(returned[1]):
        kinds = ", ".join(type(part).__name__ for part in returned)
        raise BadValue(f"{own.name} returned ({kinds})", hint=RETURNS)
    return returned


MOST_NAMED = 10
"""Functions in an error."""


def _function(own: OwnLoader) -> Callable[[], Any]:
    file = Path(own.folder, Path(own.name.rpartition(":")[0]).name)
    try:
        module = _of_file(own.module, file) if file.suffix == ".py" else import_module(own.module)
    except LoaderprobeError:
        raise
    except (Exception, SystemExit) as error:  # a module of the user's own may raise anything while it is imported
        reason = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        hint = f"check that {own.module} can be imported; what trains stands under if __name__ == '__main__'"
        raise MissingPart(f"{own.name} cannot be loaded: {reason}", hint=hint) from error
    member = getattr(module, own.function, None)
    if member is None:
        own_names = (name for name, value in vars(module).items() if isinstance(value, FunctionType))
        there = [name for name in own_names if not name.startswith("_")][:MOST_NAMED]
        hint = f"functions there: {', '.join(there)}" if there else "write a function there that returns the loader"
        raise MissingPart(f"{own.name} cannot be loaded: {own.module} has no {own.function}", hint=hint)
    if not callable(member):
        raise BadValue(f"{own.name} is a {type(member).__name__}, not a function", hint=FORM)
    function: Callable[[], Any] = member
    return function


_IMPORTED: dict[Path, tuple[int, int]] = {}
"""By file of a module that was imported here: when it was changed last, in ns, and its bytes, at that time."""


def _of_file(name: str, file: Path) -> ModuleType:
    """The module of a file, imported again where that was changed since.

    Where the user has imported it, the time of that is not known: it counts as changed where its file was since this
    process began. Raises BadValue where it is hidden by a module of the same name that Python has imported before.
    """
    state = file.stat().st_mtime_ns, file.stat().st_size
    known = sys.modules.get(name)
    if known is not None and _is_of(known, file):
        # The start of a process is known to a second, and may be later than is said.
        changed = _IMPORTED[file] != state if file in _IMPORTED else state[0] > (Process().create_time() + 1) * 1e9
        if changed:
            del sys.modules[name]
    module = import_module(name)
    if not _is_of(module, file):
        where = getattr(module, "__file__", None) or "Python itself"
        raise BadValue(f"{file} has the name of another module, {where}", hint="give the file another name")
    _IMPORTED[file] = state
    return module


def _is_of(module: ModuleType, file: Path) -> bool:
    imported = getattr(module, "__file__", None)
    return imported is not None and file.samefile(imported)


def _called(own: OwnLoader, function: Callable[[], Any]) -> Any:
    try:
        returned = function()
    except LoaderprobeError:
        raise
    except (Exception, SystemExit) as error:
        hint = "call it yourself, without arguments"
        if any(words in str(error) for words in NO_GROUP):
            hint = "it asks for its rank: add --ranks 2, or start it with torchrun"
        raise LoaderprobeError(f"{own.name} raised {type(error).__name__}: {error}", hint=hint) from error
    if returned is None:
        raise BadValue(f"{own.name} returned nothing", hint=RETURNS)
    return returned


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


LIMIT_S, LIMIT_TIMES = 1200.0, 4.0
"""After which the ranks are ended, or so many times the budget. A quarter of it a rank may take longer than the others
to make its loader: looking for files on remote storage takes minutes."""


def measure_in_ranks(
    own: OwnLoader,
    coordinator: Coordinator,
    ranks: int,
    nodes: int,
    *,
    cache: CacheState,
    budget_s: float,
    on_stage: OnStage,
) -> OwnMeasured:
    """What all ranks measured, each in a child of one of the processes that `coordinator` has.

    Raises what the rank ended with in which it began, named with its host; BadValue for what the processes cannot do.
    """
    # As far as it is known before the loader is made: the rest each rank learns.
    order = replace(order_of_own(module_file(own), ranks, nodes, cache), budget_s=budget_s, own=own)
    coordinator.admit((order.config,), (order.files,), what="module of")
    outcome = coordinator.run(order, time_limit_s=max(LIMIT_S, LIMIT_TIMES * budget_s), on_stage=on_stage)
    if isinstance(outcome, RunFailure):
        raise error_of(outcome)
    assert isinstance(outcome, OwnMeasured)
    return outcome


def measure_own(order: Order, on_stage: OnStage) -> OwnMeasured:
    """Make this rank's loader by the user's function, learn it alone, and measure it in step with the other ranks."""
    from loaderprobe.loaders.ranks import join_group, rank_input
    from loaderprobe.loaders.unwrap import unwrap

    own, placement, config = order.own, order.placement, order.config
    assert own is not None and placement is not None and order.budget_s is not None
    on_stage("joining the process group", 0, 0)
    join_group(placement)
    on_stage(f"calling {own.name}", 0, 0)
    loader, step = made(own)
    given = unwrap(loader)
    child: RankChild | None = None
    said: tuple[Remark, ...] = ()

    def among(parts: Parts, config: RunConfig, properties: LoaderProperties) -> Parts:
        nonlocal child, said
        if child is not None:
            raise BadValue(
                "while it was measured, some workers had no more data, or its wrapper took more batches than it gave",
                hint="give every worker data, or give the DataLoader itself",
            )
        # Workers have been started: none holds the connections of the ranks open.
        child = RankChild(order, placement, on_stage)
        files = None if isinstance(properties.files, UnknownFiles) else properties.files
        exchanges = isinstance(parts.compute, Exchanging)
        takes = rank_input(given.loader, config, files, properties.resident_batches, exchanges=exchanges)
        said = agreed(child.group, takes)
        return child.joined(parts)

    def together(measured: Measurement) -> Measurement:
        assert child is not None
        joined = child.together(measured)
        return replace(joined, notes=(*said, *joined.notes)) if placement.rank == 0 else joined

    request = LoaderRequest(
        cache=config.cache,
        budget_s=order.budget_s,
        among=among,
        # What one node's storage delivers is measured after all, by rank 0.
        ceiling=placement.rank == 0 and config.nodes == 1,
        deadline=lambda budget_s: Deadline(budget_s, lambda: child is not None),
        joined=together,
        ranks=config.ranks,
        nodes=config.nodes,
    )
    measured = measure_loader(given, compute_of(step, in_ranks=True), request, on_stage)
    # As it was asked for: the loader's own settings are in the measurement's.
    return replace(measured, config=config)


def agreed(group: Group, rank_input: RankInput) -> tuple[Remark, ...]:
    """What rank 0 says of what all ranks take. Raises BadValue on all of them where their loaders differ."""
    ranks = [msgspec.json.decode(text, type=RankInput) for text in group.gather(msgspec.json.encode(rank_input))]
    differs = differing(ranks) if ranks else None
    difference = msgspec.json.decode(group.broadcast(msgspec.json.encode(differs)), type=tuple[int, str] | None)
    if difference is not None:
        rank, setting = difference
        raise BadValue(
            f"the loader of rank {rank} has another {setting.replace('_', ' ')} than that of rank 0",
            hint="give all ranks the same: they take each step together",
        )
    same = same_samples(ranks) if ranks else None
    return () if same is None else (same,)
