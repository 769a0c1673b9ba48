"""The devices that take the options of a configuration, and those that do not."""

from __future__ import annotations

from typing import Any

from loaderprobe.errors import BadValue
from loaderprobe.plugins import resolve, split_name
from loaderprobe.protocols import Clock, Compute
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.options import asked_of_device
from loaderprobe.units import join_words


def check_options(loader: LoaderSpec, compute: ComputeSpec) -> None:
    """Raise BadValue when this device does not take these options, because they would have no effect.

    A compute class that takes options has `check(loader, compute)` and is created by `Class(argument, clock, config)`.
    """
    name, _ = split_name(compute.name)
    check = getattr(resolve("compute", name), "check", None)
    if check is not None:
        check(loader, compute)
    elif asked := asked_of_device(loader, compute):
        why = "an emulated accelerator has a specified rate" if name.startswith("emulated") else "it takes none"
        verb = "do" if len(asked) > 1 else "does"
        raise BadValue(
            f"{join_words(asked)} {verb} not apply to --compute {compute.name}: {why}",
            hint="use --compute cuda or cpu",
        )


def make_compute(config: RunConfig, clock: Clock) -> Compute:
    """The device of a configuration. Raises BadValue for options that it does not take, MissingPart without it."""
    check_options(config.loader, config.compute)
    name, argument = split_name(config.compute.name)
    made: Any = resolve("compute", name)
    compute: Compute = made(argument, clock, config) if hasattr(made, "check") else made(argument, clock)
    return compute
