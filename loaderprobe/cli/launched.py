"""A command in one of the processes that a launcher started, or without a launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue

if TYPE_CHECKING:
    from loaderprobe.measure.ranks.launch import Coordinator
    from loaderprobe.records.options import Launcher
    from loaderprobe.records.ranks import Launched


def launched_here(join: Launcher | None, ranks: str | None) -> Launched | None:
    """This process among those of a launcher; None without one. Raises BadValue where it is not known, for `ranks`."""
    from loaderprobe.system.launcher import half_set, launched

    here = launched(os.environ, join)
    if here is None and ranks is not None and (missing := half_set(os.environ)):
        raise BadValue(
            f"a launcher set the variables of a process among several, but not {missing}",
            hint=f"start it through torchrun, or set {missing} too",
        )
    return here


def in_ranks(join: Launcher | None, ranks: str | None, measure: Callable[[Coordinator | None], int]) -> int:
    """The part of this process; returns the exit code. `join` and `ranks` are as on the command line.

    Rank 0 measures, and prints: with the others that the launcher started, which take part, or without one (None).
    """
    here = launched_here(join, ranks)
    # By SIGTERM launchers end processes: what is done is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if here is None:
        return measure(None)
    from loaderprobe.loaders.ranks import recorded
    from loaderprobe.measure.ranks.launch import run_as_coordinator, run_as_worker

    def part() -> int:
        if here.rank == 0:
            return run_as_coordinator(here, measure)
        try:
            return run_as_worker(here)
        except KeyboardInterrupt:  # rank 0 says so for all
            return EXIT_INTERRUPTED

    return recorded(part)() or EXIT_DONE
