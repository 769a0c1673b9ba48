"""The loader, the device and the model of a configuration, checked and made from their names."""

from __future__ import annotations

from pathlib import Path

from loaderprobe.plugins import WITHOUT_TORCH, Kind, check_decoder, check_loader, check_name, resolve
from loaderprobe.protocols import (
    Checked,
    Clock,
    Compute,
    ComputeArguments,
    Loader,
    MakeCompute,
    Peers,
    WithAlternatives,
)
from loaderprobe.records.config import PUBLISHED_MODEL, ComputeSpec, LoaderSpec, RunConfig, refuse_options
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative
from loaderprobe.system.host import SystemClock


def check_names(loader: LoaderSpec, compute: ComputeSpec) -> None:
    """Raise at once, without importing torch, what can be known without it.

    BadValue for a name that is not known, or for an argument or an option of an emulated accelerator.
    """
    names: dict[Kind, str] = {"loader": loader.name, "compute": compute.kind, "model": compute.model}
    for kind, name in names.items():
        check_name(kind, name)
    if compute.kind in WITHOUT_TORCH:
        _checked(ComputeArguments(spec=compute, loader=loader, clock=SystemClock()))


def check_parts(loader: LoaderSpec, compute: ComputeSpec) -> None:
    """Raise now what would otherwise fail every configuration with this loader and this compute.

    BadValue for a name that is not known, a class that misses its protocol, or an option that the device does not
    take; MissingPart for a plug-in that cannot be imported, for torch where it is not installed, or for a device that
    is not there. No device is used, and a built-in loader is not imported: a torch that is broken fails later.
    """
    check_loader(loader.name)
    check_decoder(loader.decoder)
    _checked(_arguments(loader, compute, SystemClock()))


def make_compute(config: RunConfig, clock: Clock, peers: Peers | None = None) -> Compute:
    """The device of a configuration, or of one of its ranks. Raises what `check_parts` raises, and its own errors."""
    arguments = _arguments(config.loader, config.compute, clock, peers)
    return _checked(arguments)(arguments)


def _arguments(loader: LoaderSpec, compute: ComputeSpec, clock: Clock, peers: Peers | None = None) -> ComputeArguments:
    custom = compute.model != PUBLISHED_MODEL
    make_model = resolve("model", compute.model) if custom else None
    return ComputeArguments(spec=compute, loader=loader, clock=clock, make_model=make_model, peers=peers)


def _checked(arguments: ComputeArguments) -> MakeCompute:
    made: MakeCompute = resolve("compute", arguments.spec.kind)
    if isinstance(made, Checked):
        made.check(arguments)
    else:
        refuse_options(arguments.loader, arguments.spec, "it takes none")
    return made


def make_loader(config: RunConfig, files: FileSet, scratch: Path) -> Loader:
    """The loader of a configuration, to be entered; `scratch` is a directory for its temporary files."""
    made: Loader = resolve("loader", config.loader.name)(config, files, scratch)
    return made


def alternatives(config: RunConfig, files: FileSet) -> tuple[Alternative, ...]:
    """The CPU time of an image in the loader's other ways to make it; empty for a loader that knows none."""
    made = resolve("loader", config.loader.name)
    return made.alternatives(config, files) if isinstance(made, WithAlternatives) else ()
