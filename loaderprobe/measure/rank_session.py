"""One rank of a configuration: the session of any other, in step, and what only several ranks can measure.

In each round ranks are also measured alone, without the input of one of them, and without the exchange of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from typing import Any

from loaderprobe.measure.further import Part
from loaderprobe.measure.in_step import Agreement, InStep, PaceInStep
from loaderprobe.measure.pace import MIN_STEPS_OF_SLOW_DEVICE, Pace
from loaderprobe.measure.segments import Steps, load_in_step, load_only, train_resident
from loaderprobe.measure.session import FIRST_STEP, Session
from loaderprobe.measure.window import OF_RANKS, why_not_profiled
from loaderprobe.protocols import Exchanging, InStepCompute, Profiling
from loaderprobe.records.measurement import Measurement, Segment

ALONE_S = 2.0
"""For ranks alone, all for the same time: what one reads after the others have ended, it reads without them."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceAhead(Pace):
    """A pace of steps that wait for all ranks by themselves: rank 0 says now and then how many more there are.

    Meeting after each of them would take time of its own, and keep hosts from running ahead of their devices.
    """

    told: Callable[[int], int]
    """What rank 0 gives."""
    until: list[int]
    """One number: the steps at which ranks agree next."""

    @classmethod
    def of(cls, pace: Pace, told: Callable[[int], int]) -> PaceAhead:
        """The same pace for all ranks."""
        return cls(**{each.name: getattr(pace, each.name) for each in fields(Pace)}, told=told, until=[1])

    def enough(self, steps: int, seconds: float) -> bool:
        """As rank 0 finds. Until then it looks ahead no further than it has come: first steps are not like others."""
        if not steps:
            self.until[0] = 1
        if steps < self.until[0]:
            return False
        over = Pace.enough(self, steps, seconds)
        self.until[0] = self.told(steps if over else min(2 * steps, self.expected(steps, seconds)))
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
        return self.meeting.told(InStep._rounds_before(self))

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
        return self.meeting.told(found[0]), self.meeting.told(found[1])

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
            return PaceAhead.of(pace, self.meeting.told)
        return InStep._agreed(self, pace)

    def _switch(self, part: Part) -> None:
        if part.activity != "alone":
            InStep._switch(self, part)
            return
        Session._switch(self, part)
        # They meet here for the last time before: who waits after its lead-in begins with full buffers.
        self._alone_s = self.meeting.told(round(min(ALONE_S, self._pace.max_s) * 1e9)) / 1e9
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
