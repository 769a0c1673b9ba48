"""How many files and connections a process may hold open, and how many a launcher's processes need of one."""

from __future__ import annotations

import resource
from contextlib import suppress

A_RANK = 7
"""Connections to the store of all: two of each process, and five of its child, one of them for a group of the user's
own code."""
BESIDE = 100
"""Files that the process with the store has open beside."""


def connections_of(ranks: int) -> int:
    """Open files of the process that holds the store of so many ranks."""
    return A_RANK * ranks + BESIDE


def allow_open_files(least: int, pid: int = 0) -> int | None:
    """Let a process, this one or another of this user, hold so many open; returns how many it may, None if unlimited.

    The soft limit is raised where it is lower, as far as the hard one allows. None also where that cannot be seen.
    """
    with suppress(OSError, ValueError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft >= least:
            return None if soft == resource.RLIM_INFINITY else soft
        wanted = least if hard == resource.RLIM_INFINITY else min(least, hard)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return None
