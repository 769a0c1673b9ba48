"""Ranks that measure together: after each step they meet, and all go on, end the segment, or begin it again.

One step more on one rank would wait for ever for the gradients of the others. So rank 0 alone decides, by its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

import msgspec

from loaderprobe.errors import LostRank
from loaderprobe.measure.further import Part
from loaderprobe.measure.loop_session import LoopSession
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import Steps, load_in_step
from loaderprobe.measure.session import Session
from loaderprobe.measure.turns import Among, GivenUp, Turns, Withdrawn
from loaderprobe.protocols import Crew
from loaderprobe.records.measurement import Mode
from loaderprobe.records.together import Apart

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceInStep(Pace):
    """A pace that all ranks keep; `ends(enough)` says what they agreed on."""

    ends: Callable[[bool], bool]

    @classmethod
    def of(cls, pace: Pace, ends: Callable[[bool], bool]) -> PaceInStep:
        """The same pace for all ranks."""
        return cls(**{each.name: getattr(pace, each.name) for each in fields(Pace)}, ends=ends)

    def enough(self, steps: int, seconds: float) -> bool:
        """As rank 0 finds. Before the first step no segment ends."""
        return bool(steps) and self.ends(Pace.enough(self, steps, seconds))


class Agreement:
    """One rank's side of what ranks agree on. All of them call the same methods in the same order."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        return self._crew.rank

    @property
    def leads(self) -> bool:
        """True on rank 0."""
        return self._crew.rank == 0

    def ends(self, enough: bool) -> bool:
        """What rank 0 finds."""
        return bool(self.told(int(enough)))

    def meet(self) -> None:
        """Wait for all."""
        self.ends(False)

    def told(self, value: int) -> int:
        """What rank 0 gives."""
        return self._crew.most(value if self.leads else -UNLIMITED)[0]

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

    def ascending(self, value: float) -> tuple[int, ...]:
        """All ranks, from the one with the smallest value to the one with the largest."""
        given = [msgspec.json.decode(each, type=float) for each in self._crew.gathered(msgspec.json.encode(value))]
        order = sorted(range(len(given)), key=lambda rank: given[rank])
        return msgspec.json.decode(self._crew.broadcast(msgspec.json.encode(order)), type=tuple[int, ...])


class Meeting(Agreement, Among):
    """What the loops of scripts agree on besides: to be measured at all, and to begin a segment again."""

    holds = True

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew)
        self.late: Callable[[], bool] = lambda: False
        """Whether time is over; asked on rank 0."""
        self.out_of_time: Callable[[], Exception] = TimeoutError
        """Makes what all raise then."""
        self.turns: Turns | None = None
        self.begun = False
        """True once the loops of all ranks are taken over."""
        self.apart: Apart | None = None
        """Why none does; on rank 0, whose word it is."""

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


class InStep(Session):
    """How any session measures in step with those of other ranks."""

    __slots__ = ()
    meeting: Agreement

    @property
    def _lead_in(self) -> int:
        """Batches that ranks take in step before timing: who comes first has full buffers while it waits."""
        return self.config.loader.batches_ahead

    def _agreed(self, pace: Pace) -> Pace:
        return PaceInStep.of(pace, self.meeting.ends)

    def _load_only(self, part: Part, pace: Pace) -> Steps:
        return load_in_step(self._batches, self.parts.clock, PaceInStep.of(pace, self.meeting.ends))

    def _paced(self, mode: Mode, untimed_steps: int) -> Pace:
        """No segment is longer than the files of any rank allow."""
        pace = super()._paced(mode, untimed_steps + self._lead_in)
        return replace(pace, max_batches=self.meeting.least(pace.max_batches))

    def _prepare(self, mode: Mode, pace: Pace) -> None:
        super()._prepare(mode, replace(pace, min_batches=pace.min_batches + self._lead_in))

    def _switch(self, part: Part) -> None:
        super()._switch(part)
        self.meeting.meet()
        for _ in range(self._lead_in):
            self._drop(1)
            self.meeting.meet()

    def _affordable(self, plan: list[Part]) -> list[Part]:
        """As rank 0 has time for."""
        kept = super()._affordable(plan) if self.meeting.leads else []
        return [plan[place] for place in self.meeting.chosen([plan.index(each) for each in kept])]

    def _new_batches_for(self, plan: Sequence[Part]) -> bool:
        return not self.meeting.any(not super()._new_batches_for(plan))


@dataclass(slots=True)
class SessionInStep(InStep, LoopSession):
    """Measures the loop of one rank, in step with those of the others."""

    meeting: Meeting = field(kw_only=True)

    def _over(self) -> bool:
        """As rank 0 finds: all ranks were interrupted at the same step."""
        return bool(self.meeting.told(int(LoopSession._over(self))))
