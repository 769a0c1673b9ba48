"""A training loop and the measuring session take turns in one thread.

The session calls `step(batch)`; a loop calls `next(iterator)`. Each has a stack of its own, a greenlet: the session's
step switches to the loop, whose `__next__` returns the batch; the loop's next `__next__` switches back, and the step
is over. That takes some 2 us, and keeps the step in the thread whose clocks, gradient mode and device are the loop's.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any, NoReturn, Self

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it ships no types

from loaderprobe.errors import BadValue
from loaderprobe.measure.further import CUT_SHORT, Part
from loaderprobe.measure.segments import Pace
from loaderprobe.measure.session import Session
from loaderprobe.records.measurement import Mode, Segment
from loaderprobe.records.remark import Remark


class Interrupted(BaseException):
    """Something else than a step happened between two batches, so what was timed does not count."""


class GivenUp(BaseException):
    """The loop does not come back. No Exception, which would count as an error of the step."""


class Withdrawn(BaseException):
    """The loop goes on as if nothing had happened. No Exception, which would count as an error of the step."""


class Among:
    """What a loop of several ranks agrees on with the others; alone, nothing."""

    holds = False
    """True where interruptions are kept for `Turns.disturbed`, since all ranks must be interrupted at the same step."""

    def begin(self) -> None:
        """Before the loop gets its first batch. Raises Withdrawn where another rank cannot be measured."""

    def given_up(self) -> None:
        """The loop of this rank does not come back."""


class LoopTurns:
    """Runs `session(step)` beside the loop. Only the loop's thread may use it."""

    def __init__(self, session: Callable[[Callable[[Any], None]], Any], among: Among | None = None) -> None:
        self._session = greenlet(lambda: session(self._step))
        # A greenlet begins without any context variable.
        self._session.gr_context = contextvars.copy_context()
        self._loop = getcurrent()
        self._among = among or Among()
        self._why = ""
        self.steps = 0
        """Batches that the loop was given."""
        self.undisturbed = self.broken_off = 0
        """Steps since the last interruption, and between the last two."""
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
        self.broken_off, self.undisturbed = self.undisturbed, 0
        raise Interrupted(why)

    def _step(self, batch: Any) -> None:
        if not self.steps:
            self._among.begin()
        self.steps += 1
        self.undisturbed += 1
        try:
            self._loop.switch(batch)
        except GivenUp:
            self._among.given_up()
            raise
        if self._why and not self._among.holds:
            self.break_off(self.disturbed())


# A session whose step is the loop of a training script. What else the script does in between is measured again.

ATTEMPTS = 4
MOST_TRIES = 12
"""Those after a single step among them."""
LEAST_STEPS = 6
MOST_RESIDENT = 200
"""Steps of compute alone in a segment: more only wear out schedulers that count steps."""
AGAIN = Remark(code="measured_again")


class _SpentError(Exception):
    """The budget is spent on what the script did between its steps."""


class Counted:
    """Batches that were taken, those of a segment that was broken off among them."""

    def __init__(self, inner: Iterator[Any]) -> None:
        self._inner, self.count = inner, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = next(self._inner)
        self.count += 1
        return batch


@dataclass(slots=True)
class LoopSession(Session):
    """Measures as any session. `turns` is who takes turns with it; an update of the model takes `period` batches."""

    turns: LoopTurns = field(kw_only=True)
    period: int = field(kw_only=True, default=1)
    _counted: Counted = field(init=False)
    _begun_with: int = field(init=False, default=0)
    _number: int = field(init=False, default=0)
    """Of the round."""

    def _begin(self) -> None:
        with suppress(Interrupted):  # only warming up is cut short
            Session._begin(self)
        self._pace = replace(self._pace, multiple=lcm(self._pace.multiple, self.period))
        self._begun_with = self.taken
        self._batches = self._counted = Counted(self._batches)

    def run(self) -> None:
        """As any session. Where the script itself takes up the budget, it ends with the rounds that there are."""
        with suppress(_SpentError):
            Session.run(self)

    def _over(self) -> bool:
        """True where the budget is spent, and a whole round is there."""
        spent = self.budget_s is not None and self._spent_s() >= self.budget_s
        return spent and any(each.round < self._number for each in self.recorder.segments)

    def _segment(self, part: Part, number: int) -> Segment:
        """Of steps in a row. Raises BadValue where the loop never makes enough of them."""
        self._number = number
        why, attempts = "", 0
        for _ in range(MOST_TRIES):
            try:
                return Session._segment(self, part, number)
            except Interrupted as interrupted:
                why = str(interrupted)
                # One step is the first batch of an evaluation over the same loader: no sign of a short epoch.
                counts = self.turns.broken_off > 1
                self._forget(self.turns.broken_off if attempts and counts else 0)
                attempts += counts
                if attempts == ATTEMPTS:
                    break
                if self._over():
                    self.recorder.notes.append(CUT_SHORT)
                    raise _SpentError from None
        raise BadValue(
            f"the script never trained {LEAST_STEPS} steps in a row: {why}",
            hint="give it a larger data set, or more steps between its checks",
        )

    def _forget(self, undisturbed: int) -> None:
        """What was timed does not count, what was taken does. Short epochs make short segments."""
        self.parts.compute.finish()
        self.taken = self._begun_with + self._counted.count
        self.recorder.notes.append(AGAIN)
        if undisturbed:
            most = max(LEAST_STEPS, undisturbed - 2)
            self._pace = replace(self._pace, max_batches=min(most, self._pace.max_batches or most))

    def _paced(self, mode: Mode, untimed_steps: int) -> Pace:
        pace, most = Session._paced(self, mode, untimed_steps), self._pace.max_batches
        return pace if most is None else replace(pace, max_batches=min(most, pace.max_batches or most))

    def _resident_pace(self) -> Pace:
        most = min(MOST_RESIDENT, self._pace.max_batches or MOST_RESIDENT)
        whole = max(self.period, most // self.period * self.period)
        return replace(self._pace, multiple=self.period, max_batches=whole)
