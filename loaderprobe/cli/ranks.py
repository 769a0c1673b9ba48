"""The part of this process where a launcher, such as torchrun, started several."""

from __future__ import annotations

import os
from collections.abc import Callable

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue
from loaderprobe.measure.ranks.launch import Coordinator, run_as_coordinator, run_as_worker
from loaderprobe.records.options import Launcher
from loaderprobe.system.launcher import half_set, launched


def in_ranks(join: Launcher | None, ranks: str | None, measure: Callable[[Coordinator | None], int]) -> int:
    """The part of this process; returns the exit code. `join` and `ranks` are as on the command line.

    Rank 0 measures, and prints: with the others that the launcher started, which take part, or without one (None).
    Raises BadValue for `ranks` where it is not known which of them this is.
    """
    here = launched(os.environ, join)
    if here is None and ranks is not None and (missing := half_set(os.environ)):
        raise BadValue(
            f"a launcher set the variables of a process among several, but not {missing}",
            hint=f"start it through torchrun, or set {missing} too",
        )
    if here is None:
        return measure(None)
    from loaderprobe.loaders.ranks import recorded  # imports torch

    def part() -> int:
        if here.rank == 0:
            return run_as_coordinator(here, measure)
        try:
            return run_as_worker(here)
        except KeyboardInterrupt:  # rank 0 says so for all
            return EXIT_INTERRUPTED

    return recorded(part)() or EXIT_DONE
