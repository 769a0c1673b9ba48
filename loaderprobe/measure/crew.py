"""The ranks of a session: after each step they meet, and all go on, end the segment, or begin it again.

One step more on one rank would wait for ever for the gradients of the others. So rank 0 alone decides, by its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import Steps, load_in_step, load_only
from loaderprobe.protocols import Clock, Compute, Group, InStepCompute
from loaderprobe.records import values

UNLIMITED = 2**62
T = TypeVar("T")


class GroupOfOne:
    """The group of a single process: every answer is its own, at once."""

    rank, size = 0, 1

    def most(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        return values

    def gathered(self, value: bytes) -> tuple[bytes, ...]:
        return (value,)

    def broadcast(self, value: bytes) -> bytes:
        return value


class Crew:
    """One rank's side of what the ranks of a session agree on. All of them call the same methods in the same order.

    A single process is a crew of one, `ALONE`. Where a rank is lost, each method raises LostRank.
    """

    def __init__(self, group: Group) -> None:
        self._group = group

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    @property
    def leads(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def begin(self) -> None:
        """Before the first step of a loop. Raises Withdrawn where ranks of a script cannot be measured together."""

    def meet(self) -> None:
        self.ends(False)

    def ends(self, enough: bool) -> bool:
        """What rank 0 finds, after a step."""
        return bool(self.agree(int(enough)))

    def agree(self, value: int) -> int:
        """What rank 0 gives."""
        return self._group.most(value if self.leads else -UNLIMITED)[0]

    def least(self, value: int | None) -> int | None:
        """The smallest that a rank gives; None where none gives any."""
        (most,) = self._group.most(-UNLIMITED if value is None else -value)
        return None if most == -UNLIMITED else -most

    def any(self, yes: bool) -> bool:
        """True where it is on one rank at least."""
        return bool(self._group.most(int(yes))[0])

    def kept(self, some: list[T], all_: Sequence[T]) -> list[T]:
        """Those of `all_`, which is the same on all ranks, that rank 0 kept, in the order of `all_`."""
        if self.size == 1:
            return some
        (mask,) = self._group.most(sum(1 << all_.index(each) for each in some) if self.leads else 0)
        return [each for place, each in enumerate(all_) if mask >> place & 1]

    def ascending(self, value: float) -> tuple[int, ...]:
        """All ranks, from the one with the smallest value to the one with the largest."""
        given = [msgspec.json.decode(each, type=float) for each in self._group.gathered(msgspec.json.encode(value))]
        order = sorted(range(len(given)), key=lambda rank: given[rank])
        return msgspec.json.decode(self._group.broadcast(msgspec.json.encode(order)), type=tuple[int, ...])

    def end(self) -> None:
        """This rank leaves before the others do, who hear of it where they meet next."""

    def pace(self, pace: Pace, compute: Compute) -> Pace:
        """The same for all ranks, of training on such devices."""
        if self.size == 1:
            return pace
        if isinstance(compute, InStepCompute) and compute.in_step:
            return PaceAhead.of(pace, self.agree)
        return PaceInStep.of(pace, self.ends)

    def load(self, batches: Iterator[Any], clock: Clock, pace: Pace) -> Steps:
        """Take batches without training on them, in step."""
        if self.size == 1:
            return load_only(batches, clock, pace)
        return load_in_step(batches, clock, PaceInStep.of(pace, self.ends))


ALONE = Crew(GroupOfOne())


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
