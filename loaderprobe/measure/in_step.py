"""Ranks that measure together: after each step they meet, and all go on, end the segment, or begin it again.

One step more on one rank would wait for ever for the gradients of the others. So rank 0 alone decides, by its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

import msgspec

from loaderprobe.errors import LostRank
from loaderprobe.measure.loop_session import LoopSession
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.turns import Among, GivenUp, Turns, Withdrawn
from loaderprobe.protocols import Crew
from loaderprobe.records.measurement import Activity, Mode
from loaderprobe.records.together import Apart

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceInStep(Pace):
    """A pace that all ranks keep; `ends(enough)` says what they agreed on."""

    ends: Callable[[bool], bool]

    def enough(self, steps: int, seconds: float) -> bool:
        """As rank 0 finds. Before the first step no segment ends."""
        return bool(steps) and self.ends(Pace.enough(self, steps, seconds))


class Meeting(Among):
    """One rank's side of what ranks agree on."""

    holds = True

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.late: Callable[[], bool] = lambda: False
        """Whether time is over; asked on rank 0."""
        self.out_of_time: Callable[[], Exception] = TimeoutError
        """Makes what all raise then."""
        self.turns: Turns | None = None
        self.begun = False
        """True once the loops of all ranks are taken over."""
        self.apart: Apart | None = None
        """Why none does; on rank 0, whose word it is."""

    @property
    def leads(self) -> bool:
        """True on rank 0."""
        return self._crew.rank == 0

    def begin(self) -> None:
        """Take over on all ranks; raises Withdrawn where one refuses, or does not answer."""
        if not self._all_begin(None):
            raise Withdrawn
        self.begun = True

    def refuse(self, apart: Apart) -> None:
        """This rank's loader cannot be measured, so that of no rank is."""
        self.apart = apart
        self._all_begin(apart)

    def _all_begin(self, apart: Apart | None) -> bool:
        try:
            if not self.any(apart is not None):
                return True
            reasons = self._crew.gathered(b"" if apart is None else msgspec.json.encode(apart))
        except LostRank as error:
            self.apart = self.apart or Apart(code="lost", ranks=(), detail=error.message, hint=error.hint)
            return False
        self.apart = next((msgspec.json.decode(each, type=Apart) for each in reasons if each), self.apart)
        return False

    def given_up(self) -> None:
        """The others hear of it where they meet next."""
        with suppress(LostRank):
            self._crew.most(0, 0, 0, 1, leaving=True)

    def ends(self, enough: bool) -> bool:
        """What rank 0 finds. Raises Interrupted or GivenUp on all ranks where one was; and rank 0's error when late."""
        why = self.turns.disturbed() if self.turns else ""
        over, late, disturbed, gone = self._crew.most(
            int(enough and self.leads), int(self.leads and self.late()), self._crew.rank + 1 if why else 0, 0
        )
        if gone:
            raise GivenUp
        if late:
            raise self.out_of_time()
        if disturbed and self.turns:
            self.turns.break_off(why or f"rank {disturbed - 1} was busy with something else")
        return bool(over)

    def meet(self) -> None:
        """Wait for all."""
        self.ends(False)

    def least(self, value: int | None) -> int | None:
        """The smallest that a rank gives; None where none gives any."""
        (most,) = self._crew.most(-UNLIMITED if value is None else -value)
        return None if most == -UNLIMITED else -most

    def any(self, yes: bool) -> bool:
        """True where it is on one rank at least."""
        return bool(self._crew.most(int(yes))[0])

    def chosen(self, places: Sequence[int]) -> list[int]:
        """Those that rank 0 chose."""
        (mask,) = self._crew.most(sum(1 << place for place in places) if self.leads else 0)
        return [place for place in range(mask.bit_length()) if mask >> place & 1]


@dataclass(slots=True)
class SessionInStep(LoopSession):
    """Measures the loop of one rank, in step with those of the others."""

    meeting: Meeting = field(kw_only=True)

    @property
    def _lead_in(self) -> int:
        """Batches that ranks take in step before timing: who comes first has full buffers while it waits."""
        return self.config.loader.batches_ahead

    def _begin(self) -> None:
        LoopSession._begin(self)
        self._pace = self._agreed(self._pace)

    def _agreed(self, pace: Pace) -> Pace:
        return PaceInStep(**{each.name: getattr(pace, each.name) for each in fields(Pace)}, ends=self.meeting.ends)

    def _paced(self, mode: Mode, untimed_steps: int) -> Pace:
        """No segment is longer than the files of any rank allow."""
        pace = LoopSession._paced(self, mode, untimed_steps + self._lead_in)
        return replace(pace, max_batches=self.meeting.least(pace.max_batches))

    def _prepare(self, mode: Mode, pace: Pace) -> None:
        LoopSession._prepare(self, mode, replace(pace, min_batches=pace.min_batches + self._lead_in))

    def _switch(self, mode: Mode) -> None:
        LoopSession._switch(self, mode)
        self.meeting.meet()
        for _ in range(self._lead_in):
            self._drop(1)
            self.meeting.meet()

    def _affordable(self, plan: list[tuple[Mode, Activity]]) -> list[tuple[Mode, Activity]]:
        """As rank 0 has time for."""
        kept = LoopSession._affordable(self, plan) if self.meeting.leads else []
        return [plan[place] for place in self.meeting.chosen([plan.index(each) for each in kept])]

    def _new_batches_for(self, plan: Sequence[tuple[Mode, Activity]]) -> bool:
        return not self.meeting.any(not LoopSession._new_batches_for(self, plan))
