"""The options of a trainer, and the devices that take them."""

from __future__ import annotations

from typing import Any

from loaderprobe.errors import BadValue
from loaderprobe.plugins import resolve, split_name
from loaderprobe.protocols import Clock, Compute
from loaderprobe.records.config import RunConfig, TrainOptions
from loaderprobe.units import join_words


def check_options(compute: str, options: TrainOptions) -> None:
    """Raise BadValue when this device does not take these options, because they would have no effect.

    A compute class that takes options has `check(options)` and is created by `Class(argument, clock, options)`.
    """
    name, _ = split_name(compute)
    check = getattr(resolve("compute", name), "check", None)
    if check is not None:
        check(options)
    elif changed := options.changed():
        why = "an emulated accelerator has a specified rate" if name.startswith("emulated") else "it takes none"
        verb = "do" if len(changed) > 1 else "does"
        raise BadValue(
            f"{join_words(changed)} {verb} not apply to --compute {compute}: {why}", hint="use --compute cuda or cpu"
        )


def make_compute(config: RunConfig, clock: Clock) -> Compute:
    """The device of a configuration. Raises BadValue for options that it does not take, MissingPart without it."""
    check_options(config.compute, config)
    name, argument = split_name(config.compute)
    made: Any = resolve("compute", name)
    compute: Compute = made(argument, clock, config) if hasattr(made, "check") else made(argument, clock)
    return compute
