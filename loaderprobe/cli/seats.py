"""A command whose configurations have several ranks: in the processes of a launcher, or in those it starts itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue

if TYPE_CHECKING:
    from loaderprobe.measure.ranks.crew import Lead
    from loaderprobe.records.options import Launcher
    from loaderprobe.records.ranks import Launched
    from loaderprobe.store.run_directory import RunDirectory


def launched_here(join: Launcher | None, *, several: bool) -> Launched | None:
    """This process among those of a launcher; None without one. `several` is true where ranks were asked for."""
    from loaderprobe.system.launcher import half_set, launched

    here = launched(os.environ, join)
    if here is None and several and (missing := half_set(os.environ)):
        raise BadValue(
            f"a launcher set the variables of a process among several, but not {missing}",
            hint=f"start it through torchrun, or set {missing} too",
        )
    return here


def in_ranks(run: RunDirectory, options: Sequence[str]) -> int:
    """A run of several ranks completed by processes on this machine, with these options; returns the exit code."""
    from loaderprobe.measure.ranks.launch import start_ranks, wait_for

    _ended_by_sigterm()
    return wait_for(start_ranks(run, options))


def in_ranks_here(ranks: int, arguments: Sequence[str]) -> int:
    """The same command in so many processes on this machine; returns the exit code."""
    from loaderprobe.measure.ranks.launch import start_here, wait_for

    _ended_by_sigterm()
    return wait_for(start_here(ranks, arguments))


def in_seat(here: Launched, lead_by: Callable[[Lead], int]) -> int:
    """The part of one process of a launcher. Rank 0 leads the others, and prints; returns the exit code."""
    from loaderprobe.api.child import forkserver
    from loaderprobe.measure.ranks.launch import follows, leads, recorded

    def part() -> int:
        if here.rank == 0:
            return leads(here, lead_by)
        try:
            return follows(here, forkserver)
        except KeyboardInterrupt:  # rank 0 says so for all
            return EXIT_INTERRUPTED

    _ended_by_sigterm()
    return recorded(part)() or EXIT_DONE


def _ended_by_sigterm() -> None:
    """SIGTERM, by which launchers end processes, is an interrupt from now on: what is done is kept."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
