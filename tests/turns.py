"""Which tests run at once, in all processes of one run: those that measure the machine after all others."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OTHERS, SINGLY = Path(__file__).parent, Path(__file__)
"""`OTHERS` is held, shared, by all that is not alone. `SINGLY` is held by tests that are alone:
exclusively by one that runs by itself, else shared."""


class Turns:
    """The turns of one process. It has something else to run until its first test that is alone, or its end."""

    def __init__(self) -> None:
        self._others = os.open(OTHERS, os.O_RDONLY)
        fcntl.flock(self._others, fcntl.LOCK_SH)

    def end_others(self) -> None:
        """This process has nothing else to run."""
        fcntl.flock(self._others, fcntl.LOCK_UN)

    @contextmanager
    def alone(self, *, by_itself: bool) -> Iterator[None]:
        """While no process runs anything else; `by_itself`, while none runs anything at all."""
        # No two can wait for each other: Linux gives up the shared lock before it waits for the exclusive one.
        fcntl.flock(self._others, fcntl.LOCK_EX)
        self.end_others()
        with SINGLY.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX if by_itself else fcntl.LOCK_SH)
            try:
                yield
            finally:
                # A process that was forked meanwhile may keep the file open.
                fcntl.flock(lock, fcntl.LOCK_UN)
