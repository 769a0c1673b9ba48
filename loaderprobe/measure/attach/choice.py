"""Which loader of a script is measured, when its loop is taken over, and what prevents it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.measure.attach.script_loaders import ScriptLoader, SeenLoaders
from loaderprobe.measure.attach.script_ranks import Ranks, ranks_here
from loaderprobe.records.diagnosis import AttachRequest, WhyNot
from loaderprobe.system.process import runs

TRAINS = "trains-"
SETTLED_S = 5.0
"""A process that another Python started may have siblings, which begin to train a little later."""


def announce(scratch: Path) -> None:
    """Tell the other processes of the command that this one has made its first backward pass."""
    with suppress(OSError):  # the command that asked is over, and the script goes on
        (scratch / f"{TRAINS}{os.getpid()}").touch()


def others_that_train(scratch: Path) -> int:
    """Other processes of the command that have made a backward pass and run still."""
    pids = (int(path.name.removeprefix(TRAINS)) for path in scratch.glob(f"{TRAINS}*"))
    return sum(1 for pid in pids if pid != os.getpid() and runs(pid))


def settled(seen: ScriptLoader) -> bool:
    """True where siblings of this process, if it has any, train by now, too."""
    alone = multiprocessing.parent_process() is None
    return alone or time.perf_counter_ns() - seen.began_ns >= SETTLED_S * 1e9


def claimed(scratch: Path) -> bool:
    """True for the first process of a command that asks, while that command runs."""
    try:
        os.close(os.open(scratch / "claimed", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:  # it exists, or the folder is gone with the command
        return False
    return True


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """Why a process has no verdict."""

    why: WhyNot
    detail: str = ""
    hint: str = ""


class LoaderChoice:
    """Takes the loop over a loader once it trains: of a single process at once, of ranks when all have agreed."""

    def __init__(self, request: AttachRequest, loaders: SeenLoaders[ScriptLoader], launched: int) -> None:
        """`launched` is how many processes a launcher has started to train together."""
        self._request, self._loaders, self._launched = request, loaders, launched
        self.ranks: Ranks | None = None
        """Set where this process trains together with others."""

    @property
    def is_coordinator(self) -> bool:
        """False for ranks that are measured together with rank 0, which speaks for them."""
        return self.ranks is None or self.ranks.is_coordinator

    def decide(self, seen: ScriptLoader) -> bool | NoVerdict:
        """Whether to take over the loop over this loader now; why this process is never measured, if that is clear."""
        if self.ranks is None:
            if seen is not self._loaders.choice(self._request.loader, self._request.after_steps):
                return False
            self.ranks = ranks_here()
            if self.ranks is None and not (settled(seen) or others_that_train(Path(self._request.scratch))):
                return False
            prevented = self._prevented(seen)
            if self.ranks is None:
                return prevented or True
            if prevented is not None and prevented.why in ("other_thread", "another_process"):
                self.ranks.refuse(prevented.why)
        agreed = self.ranks.agrees(seen, self._loaders.passes)
        return NoVerdict("ranks_apart") if self.ranks.not_together else agreed

    def _prevented(self, seen: ScriptLoader) -> NoVerdict | None:
        if self._loaders.trained_in not in (0, threading.get_ident()):
            return NoVerdict("other_thread")
        scratch = Path(self._request.scratch)
        if self.ranks is None:
            if self._launched > 1:
                return NoVerdict("ranks", str(self._launched))
            if others := others_that_train(scratch):
                return NoVerdict("several_processes", str(others + 1))
        elif not self.ranks.is_coordinator:
            return None
        if not claimed(scratch):
            return NoVerdict("another_process")
        # What starting them each time costs shows in no copy, whose workers run on.
        if self.ranks is None and seen.begun_each_batch and seen.starts_workers:
            return NoVerdict("begun_each_batch")
        return None
