"""In which rank an error began: the others that failed lost it, or waited for it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from loaderprobe.records.devices import PlacementFailure
from loaderprobe.records.placement import RankEnd, RankError
from loaderprobe.system.process import signal_name

LOG_LINES = 20


def failure_of(ends: Sequence[RankEnd], errors: Sequence[RankError], launcher_log: Path) -> PlacementFailure:
    """Of ranks that ended: one that was killed, else one that ended without a word, else the first that raised.

    Ranks that the launcher ended itself, by SIGTERM, are consequences.
    """
    killed = [end for end in ends if end.exit_code < 0 and -end.exit_code != signal.SIGTERM]
    silent = [end for end in ends if end.exit_code > 0 and all(each.rank != end.rank for each in errors)]
    if killed:
        name = signal_name(-killed[0].exit_code)
        return PlacementFailure(kind="killed", rank=killed[0].rank, signal=name, log=log_of(killed[0]))
    if silent:
        return PlacementFailure(
            kind="exited", rank=silent[0].rank, exit_code=silent[0].exit_code, log=log_of(silent[0])
        )
    if errors:
        first = min(errors, key=lambda each: each.at_ns)
        log = next((log_of(end) for end in ends if end.rank == first.rank), ())
        return PlacementFailure(
            kind="raised", rank=first.rank, reason=first.reason, hint=first.hint, exit_code=first.exit_code, log=log
        )
    return PlacementFailure(kind="launcher", log=last_lines(launcher_log))


def behind(counts: Sequence[int]) -> int | None:
    """The rank that is behind all others, for which they wait; None when no single one is."""
    least = min(counts)
    return counts.index(least) if counts.count(least) == 1 else None


def log_of(end: RankEnd) -> tuple[str, ...]:
    """The last lines that a rank printed."""
    return last_lines(Path(end.log)) if end.log else ()


def last_lines(path: Path) -> tuple[str, ...]:
    """Of a log; empty where there is none."""
    try:
        return tuple(path.read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return ()
