"""Ranks that measure together: after each step they meet, and all go on, end the segment, or begin it again.

One step more on one rank would wait for ever for the gradients of the others. So rank 0 alone decides, by its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import msgspec

from loaderprobe.errors import LostRank
from loaderprobe.measure.attach.turns import Among, GivenUp, LoopSession, LoopTurns, Withdrawn
from loaderprobe.measure.further import Part
from loaderprobe.measure.segments import MIN_STEPS_OF_SLOW_DEVICE, Pace, Steps, load_in_step, load_only, train_resident
from loaderprobe.measure.session import FIRST_STEP, OF_RANKS, Session, why_not_profiled
from loaderprobe.protocols import Clock, Crew, Exchanging, InStepCompute, Profiling, SharedStore
from loaderprobe.records import values
from loaderprobe.records.measurement import Measurement, Mode, Segment
from loaderprobe.records.ranks import Apart, RankOffer

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceInStep(Pace):
    """A pace that all ranks keep; `ends(enough)` says what they agreed on."""

    ends: Callable[[bool], bool]

    @classmethod
    def of(cls, pace: Pace, ends: Callable[[bool], bool]) -> PaceInStep:
        """The same pace for all ranks."""
        return cls(**values(pace), ends=ends)

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
        return bool(self.agreed(int(enough)))

    def meet(self) -> None:
        """Wait for all."""
        self.ends(False)

    def agreed(self, value: int) -> int:
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
        self.turns: LoopTurns | None = None
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
        return bool(self.meeting.agreed(int(LoopSession._over(self))))


# One rank of a configuration: the session of any other, in step, and what only several ranks can measure.
#
# In each round ranks are also measured alone, without the input of one of them, and without the exchange of gradients.

ALONE_S = 2.0
"""For ranks alone, all for the same time: what one reads after the others have ended, it reads without them."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceAhead(Pace):
    """A pace of steps that wait for all ranks by themselves: rank 0 says now and then how many more there are.

    Meeting after each of them would take time of its own, and keep hosts from running ahead of their devices.
    """

    agreed: Callable[[int], int]
    """What rank 0 gives."""
    until: list[int]
    """One number: the steps at which ranks agree next."""

    @classmethod
    def of(cls, pace: Pace, agreed: Callable[[int], int]) -> PaceAhead:
        """The same pace for all ranks."""
        return cls(**values(pace), agreed=agreed, until=[1])

    def enough(self, steps: int, seconds: float) -> bool:
        """As rank 0 finds. Until then it looks ahead no further than it has come: first steps are not like others."""
        if not steps:
            self.until[0] = 1
        if steps < self.until[0]:
            return False
        over = Pace.enough(self, steps, seconds)
        self.until[0] = self.agreed(steps if over else min(2 * steps, self.expected(steps, seconds)))
        return self.until[0] == steps


class _ExchangeAlone:
    """A compute of which nothing but the exchange of gradients is left."""

    def __init__(self, compute: Any) -> None:
        self.step = lambda _: compute.exchange_alone()
        self.finish, self.info, self.copy = compute.finish, compute.info, compute.copy


@dataclass(slots=True)
class RankSession(InStep):
    """Measures one rank in step with the others. Each calls the same methods; what they do is agreed on."""

    meeting: Agreement = field(kw_only=True)
    _pair: tuple[int, int] = field(init=False, default=(UNKNOWN, UNKNOWN))
    """The slowest rank and one in the middle."""
    _alone_s: float = field(init=False, default=ALONE_S)
    """For which all are alone next."""

    def profile(self) -> None:
        """No window: one rank whose profiler fails would leave the others waiting."""
        compute = self.parts.compute
        profiling = isinstance(compute, Profiling)
        self.recorder.timeline = OF_RANKS if profiling else why_not_profiled(compute.info())

    def _window_s(self) -> float:
        return 0.0  # there is none

    def _rounds_before(self) -> int:
        return self.meeting.agreed(InStep._rounds_before(self))

    def _plan(self, number: int) -> list[Part]:
        """Beside what the verdict asks for, what only several ranks have. The first round begins with each alone."""
        plan = InStep._plan(self, number)
        if not plan:
            return []
        alone = Part(self.base_mode, "alone")
        if UNKNOWN in self._pair:
            self._pair = self._known_pair()
        if UNKNOWN in self._pair:
            self._measure(alone, number, self.config.rounds * len(plan))
            order = self.meeting.ascending(_rate_alone(self.recorder.segments[-1]))
            self._pair = order[0], order[len(order) // 2]
        else:
            plan.append(alone)
        plan += [Part(self.base_mode, "loader_only", rank) for rank in self._pair]
        if isinstance(self.parts.compute, Exchanging):
            plan += [Part("no_exchange", "training"), Part("exchange", "training")]
        return plan

    def _known_pair(self) -> tuple[int, int]:
        """As rank 0 knows from earlier rounds."""
        found = pair_of(self.recorder.earlier) if self.recorder.earlier else (UNKNOWN, UNKNOWN)
        return self.meeting.agreed(found[0]), self.meeting.agreed(found[1])

    def _segment(self, part: Part, number: int) -> Segment:
        compute = self.parts.compute
        if part.without == self.meeting.rank:
            return self._without_input(part, number)
        if part.mode == "exchange":
            return self._exchange_alone(part, number)
        if part.mode != "no_exchange" or not isinstance(compute, Exchanging):
            return InStep._segment(self, part, number)
        compute.exchange(on=False)
        try:
            return self._compute_alone(part, number)
        finally:
            compute.exchange(on=True)

    def _exchange_alone(self, part: Part, number: int) -> Segment:
        compute, clock = _ExchangeAlone(self.parts.compute), self.parts.clock
        self._ready.rest(self.taken, clock)
        train_resident([None], compute, clock, self._agreed(FIRST_STEP))
        self.parts.disturbance.begin()
        steps = train_resident([None], compute, clock, self._agreed(self._resident_pace()))
        return self._record(steps, part, number, first_batch=-1, resident=None, disk_before=None)

    def _without_input(self, part: Part, number: int) -> Segment:
        """This rank meets the others where they meet, and takes nothing; its workers rest."""
        pace = self._paced(part.mode, 0)
        self._ready.rest(self.taken, self.parts.clock)
        self.meeting.meet()
        for _ in range(self._lead_in):
            self.meeting.meet()
        self.parts.disturbance.begin()
        disk_before = self.parts.read_devices()
        steps = load_in_step(repeat(None), self.parts.clock, PaceInStep.of(pace, self.meeting.ends))
        return self._record(steps, part, number, first_batch=-1, resident=None, disk_before=disk_before)

    def _agreed(self, pace: Pace) -> Pace:
        compute = self.parts.compute
        if isinstance(compute, InStepCompute) and compute.in_step:
            return PaceAhead.of(pace, self.meeting.agreed)
        return InStep._agreed(self, pace)

    def _switch(self, part: Part) -> None:
        if part.activity != "alone":
            InStep._switch(self, part)
            return
        Session._switch(self, part)
        # They meet here for the last time before: who waits after its lead-in begins with full buffers.
        self._alone_s = self.meeting.agreed(round(min(ALONE_S, self._pace.max_s) * 1e9)) / 1e9
        self._drop(self._lead_in)

    def _load_only(self, part: Part, pace: Pace) -> Steps:
        if part.activity != "alone":
            return InStep._load_only(self, part, pace)
        least = max(MIN_STEPS_OF_SLOW_DEVICE, pace.multiple)
        pace = replace(pace, min_s=self._alone_s, max_s=self._alone_s, min_batches=least)
        return load_only(self._batches, self.parts.clock, pace)


def pair_of(measurement: Measurement) -> tuple[int, int]:
    """(the slowest rank, one in the middle) as they were chosen before: by their first segment alone."""
    places = [place for place, each in enumerate(measurement.segments) if each.activity == "alone"]
    if not places or not measurement.by_rank:
        return UNKNOWN, UNKNOWN
    rates = [each.steps[places[0]] / max(1, each.span_ns[places[0]]) for each in measurement.by_rank]
    order = sorted(range(len(rates)), key=lambda rank: rates[rank])
    return order[0], order[len(order) // 2]


def _rate_alone(segment: Segment) -> float:
    return segment.steps / max(1, segment.closed_ns - segment.begin_ns[0])


# When the loops of all ranks are taken over: all at the same step, or none.
#
# No rank waits for one that may not come. Each says in a shared store which loader it trains on, and trains on. When
# all have, rank 0 names a step ahead of itself. Those that hear of it in time say so, and wait there for its word. A
# rank that cannot be measured says so instead, and the word is the same for all: it is changed only from what it was.

AHEAD = 8
"""Backward passes from naming a step to that step: hosts of ranks run ahead of each other by a few, on a GPU."""
PATIENCE_S = 60.0
"""For all ranks to train on a loader; training goes on meanwhile."""
TURN_S = 30.0
"""For the word of rank 0 at the named step."""
POLL_S = 0.005
GO = "go"
_WORD = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverStep:
    """The step at which all loops are taken over."""

    passes: int
    """Backward passes before it, of a rank's own count."""
    loader: int


@dataclass(slots=True)
class TakeOver:
    """One rank's part in it. Ask before each batch that is trained on."""

    store: SharedStore
    rank: int
    size: int
    clock: Clock
    named: TakeOverStep | None = field(init=False, default=None)
    apart: Apart | None = field(init=False, default=None)
    """Why nothing is taken over."""
    agreed: bool = field(init=False, default=False)
    _since_ns: int | None = field(init=False, default=None)

    def ask(self, passes: int, offer: RankOffer) -> bool:
        """True at the step at which this rank's loop is taken over. `passes` are the backward passes so far."""
        if self.agreed or self.apart:
            return self.agreed
        if self._since_ns is None:
            self.store.set(f"offer/{self.rank}", msgspec.json.encode(offer).decode())
            self._since_ns = self.clock.now_ns()
        word = self._word()
        if not self._settled(word):
            if self.rank == 0:
                self._lead(word, passes, offer)
            else:
                self._follow(word, passes)
        return self.agreed

    def refuse(self, apart: Apart) -> None:
        """No rank is taken over, unless all are already."""
        word = self._put("", apart)
        while not self._settled(word):
            word = self._put(word, apart)

    def end(self) -> None:
        """The script ends before it was settled."""
        others = range(1, self.size)
        silent = tuple(each for each in others if not self.store.check([f"offer/{each}"])) if self.rank == 0 else ()
        self.refuse(Apart(code="silent", ranks=silent) if silent else Apart(code="ended", ranks=(self.rank,)))

    def heard(self) -> bool:
        """True when the word of another rank has settled it."""
        return self._settled(self._word())

    def _lead(self, word: str, passes: int, offer: RankOffer) -> None:
        others = range(1, self.size)
        if self.named is None:
            if self.store.check([f"offer/{rank}" for rank in others]):
                self._name(passes, offer)
            elif self._seconds() > PATIENCE_S:
                silent = tuple(rank for rank in others if not self.store.check([f"offer/{rank}"]))
                self.refuse(Apart(code="silent", ranks=silent))
        elif passes >= self.named.passes:
            late = tuple(rank for rank in others if not self.store.check([f"heard/{rank}"]))
            if late:
                self.refuse(Apart(code="out_of_step", ranks=late))
            else:
                self._settled(self._swap(word, GO))

    def _name(self, passes: int, offer: RankOffer) -> None:
        for rank in range(1, self.size):
            theirs = msgspec.json.decode(self.store.get(f"offer/{rank}"), type=RankOffer)
            differing = offer.differing(replace(theirs, loader=offer.loader))
            if differing:
                return self.refuse(Apart(code="loaders_differ", ranks=(rank,), detail=", ".join(differing)))
        self.named = TakeOverStep(passes=passes + AHEAD, loader=offer.loader)
        word = self._swap("", f"at {msgspec.json.encode(self.named).decode()}")
        self._settled(word)
        return None

    def _follow(self, word: str, passes: int) -> None:
        if not word:
            return
        if self.named is None:
            named = msgspec.json.decode(word.removeprefix("at "), type=TakeOverStep)
            if passes >= named.passes:
                return self.refuse(Apart(code="out_of_step", ranks=(self.rank,)))
            self.store.set(f"heard/{self.rank}", "1")
            self.named = named
        if passes < self.named.passes:
            return
        begin_ns = self.clock.now_ns()
        while not self.heard():
            if (self.clock.now_ns() - begin_ns) / 1e9 > TURN_S:
                return self.refuse(Apart(code="out_of_step", ranks=(0,)))
            self.clock.sleep(POLL_S)

    def _settled(self, word: str) -> bool:
        """Keep a word that is final; False for one that is not."""
        if word == GO:
            self.agreed = True
        elif word.startswith("{"):
            self.apart = msgspec.json.decode(word, type=Apart)
        return self.agreed or self.apart is not None

    def _seconds(self) -> float:
        return 0.0 if self._since_ns is None else (self.clock.now_ns() - self._since_ns) / 1e9

    def _word(self) -> str:
        return self.store.get(_WORD).decode() if self.store.check([_WORD]) else ""

    def _put(self, word: str, apart: Apart) -> str:
        return self._swap(word, msgspec.json.encode(apart).decode())

    def _swap(self, word: str, other: str) -> str:
        return self.store.compare_set(_WORD, word, other).decode()
