"""A training loop and the measuring session take turns in one thread.

The session calls `step(batch)`; a loop calls `next(iterator)`. Each has a stack of its own, a greenlet: the session's
step switches to the loop, whose `__next__` returns the batch; the loop's next `__next__` switches back, and the step
is over. That takes some 2 us, and keeps the step in the thread whose clocks, gradient mode and device are the loop's.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it ships no types

from loaderprobe.measure.collectives import SINGLE_PROCESS, Collectives
from loaderprobe.measure.session import GivenUp, Interrupted
from loaderprobe.records.rank_processes import NotTogether


class Withdrawn(BaseException):
    """The loop goes on as if nothing had happened. No Exception, which would count as an error of the step."""

    def __init__(self, why: NotTogether) -> None:
        super().__init__(why)
        self.why = why


class SessionCoroutine:
    """Runs `session(step)` beside the loop. Only the loop's thread may use it."""

    def __init__(
        self, session: Callable[[Callable[[Any], None]], Any], collectives: Collectives = SINGLE_PROCESS
    ) -> None:
        self._session = greenlet(lambda: session(self._step))
        # A greenlet begins without any context variable.
        self._session.gr_context = contextvars.copy_context()
        self._loop = getcurrent()
        self._collectives = collectives
        self._why = ""
        self.steps = 0
        """Batches that the loop was given."""
        self.undisturbed = 0
        """Steps since the last interruption."""
        self.result: Any = None

    @property
    def inside(self) -> bool:
        """True while the session runs: loaders that are iterated now are its own."""
        return getcurrent() is self._session

    @property
    def over(self) -> bool:
        """True when the session has ended; `result` is what it returned."""
        return bool(self._session.dead)

    def next(self) -> Any:
        """The batch that the loop trains on next; without meaning when the session is over. Raises what it raises."""
        self._loop = self._session.parent = getcurrent()
        batch = self._session.switch()
        if self.over:
            self.result = batch
        return batch

    def interrupt(self, why: str) -> None:
        """The step that is under way took time for something else."""
        self._why = self._why or why

    def give_up(self) -> None:
        """The loop does not come back: the session concludes from what it has. Raises what it raises."""
        if self.steps and not self.over:
            self._session.parent = getcurrent()
            self.result = self._session.throw(GivenUp())

    def disturbed(self) -> str:
        """Why the last step took time for something else; empty where it did not. Asking forgets it."""
        why, self._why = self._why, ""
        return why

    def break_off(self, why: str) -> NoReturn:
        """Raise Interrupted: the steps that were timed together do not count."""
        steps, self.undisturbed = self.undisturbed, 0
        raise Interrupted(why, steps)

    def _step(self, batch: Any) -> None:
        if not self.steps:
            self._collectives.begin()
        self.steps += 1
        self.undisturbed += 1
        try:
            self._loop.switch(batch)
        except GivenUp:
            self._collectives.end()
            raise
        # Ranks are all interrupted at the same step.
        if self._why and self._collectives.size == 1:
            self.break_off(self.disturbed())
