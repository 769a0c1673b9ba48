"""What the ranks of a session agree on: after each step all go on, end the segment, or begin it again.

One step more on one rank would wait for ever for the gradients of the others. So rank 0 alone decides, by its clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from loaderprobe.analyze.verdict.ranks import as_one
from loaderprobe.analyze.verdict.rounds import further_round, next_round
from loaderprobe.measure.further import joined
from loaderprobe.measure.pace import Enough, Pace
from loaderprobe.measure.segments import Steps, load_only
from loaderprobe.protocols import Clock, Compute, Group, InStepCompute, Round
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.rank_processes import RankMeasurement
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.host import cores_allowed, host_name
from loaderprobe.system.limits import core_limits, cores_available

KIND = "rank-measurement"
UNLIMITED = 2**62
T = TypeVar("T")


class SingleProcessGroup:
    """The group of a single process: every answer is its own, at once."""

    rank, size = 0, 1

    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        return values

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        return (value,)

    def broadcast(self, value: bytes) -> bytes:
        return value


def of_all_ranks(group: Group, value: object, type_: type[T]) -> list[T]:
    """The value of each rank, on all ranks, which call it at the same time."""
    values = [msgspec.json.decode(answer, type=type_) for answer in group.gather(msgspec.json.encode(value))]
    return msgspec.json.decode(group.broadcast(msgspec.json.encode(values)), type=list[type_])  # type: ignore[valid-type]  # msgspec reads it


class Collectives:
    """One rank's side of what the ranks of a session agree on. All of them call the same methods in the same order.

    For a single process it is `SINGLE_PROCESS`. Where a rank is lost, each method raises LostRank.
    """

    def __init__(self, group: Group, node: int = 0) -> None:
        self._group, self._node = group, node
        self.by_rank: list[RankMeasurement] = []
        """What all ranks had measured when they were last asked; on rank 0."""

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        return self._group.size

    @property
    def is_coordinator(self) -> bool:
        return self.rank == 0

    def begin(self) -> None:
        """Before the first step of a loop. Raises Withdrawn where ranks of a script cannot be measured together."""

    def barrier(self) -> None:
        self.ends(False)

    def ends(self, enough: bool) -> bool:
        """True on all ranks where rank 0 finds, after a step, that it is `enough`."""
        return bool(self.agree(int(enough)))

    def agree(self, value: int) -> int:
        """The value of rank 0, on all ranks."""
        return self._group.all_reduce_max(value if self.is_coordinator else -UNLIMITED)[0]

    def least(self, value: int | None) -> int | None:
        """The smallest value of a rank; None where no rank has one."""
        (largest,) = self._group.all_reduce_max(-UNLIMITED if value is None else -value)
        return None if largest == -UNLIMITED else -largest

    def any(self, yes: bool) -> bool:
        """True where `yes` is true on one rank at least."""
        return bool(self._group.all_reduce_max(int(yes))[0])

    def kept(self, chosen: list[T], all_: Sequence[T]) -> list[T]:
        """The items of `all_`, the same on all ranks, that are in `chosen` on rank 0, in the order of `all_`."""
        mask = self.agree(sum(1 << all_.index(item) for item in chosen))
        return [item for index, item in enumerate(all_) if mask >> index & 1]

    def ascending(self, value: float) -> tuple[int, ...]:
        """All ranks, from the one with the smallest value to the one with the largest."""
        values = of_all_ranks(self._group, value, float)
        return tuple(sorted(range(self.size), key=lambda rank: values[rank]))

    def next_round(self, measurement: Measurement, earlier: Measurement | None, *, thorough: bool) -> Round:
        """What rank 0 decides to measure next, from what all ranks measured, and what was measured `earlier`."""
        decide = further_round if earlier else next_round
        if self.size == 1:
            return decide(measurement, thorough=thorough)
        self.gather(measurement)
        plan = decide(self.together(earlier), thorough=thorough) if self.by_rank else ()
        return msgspec.json.decode(self._group.broadcast(msgspec.json.encode(plan)), type=Round)

    def gather(self, measurement: Measurement) -> None:
        """Gather what all ranks measured into `by_rank`."""
        measured = RankMeasurement(
            rank=self.rank,
            host=host_name(),
            cores=cores_available(),
            affinity=cores_allowed(),
            measurement=measurement,
            node=self._node,
            core_limits=core_limits(),
        )
        records = self._group.gather(zlib.compress(encode(KIND, measured), 1))
        self.by_rank = [
            decode(KIND, zlib.decompress(data), RankMeasurement, f"rank {number}")
            for number, data in enumerate(records)
        ]

    def together(self, earlier: Measurement | None = None) -> Measurement:
        """One measurement of all ranks as they were gathered, and of earlier rounds; on rank 0."""
        measurement = as_one(self.by_rank)
        return joined(earlier, measurement) if earlier else measurement

    def end(self) -> None:
        """This rank leaves before the others do, which learn of it at their next barrier."""

    def enough(self, pace: Pace, compute: Compute) -> Enough:
        """When a segment of training on such devices may end, the same for all ranks."""
        if self.size == 1:
            return pace.enough
        return self.ahead(pace) if isinstance(compute, InStepCompute) and compute.in_step else self._in_step(pace)

    def load(self, batches: Iterator[Any], clock: Clock, pace: Pace) -> Steps:
        """Take batches without training on them, in step with the other ranks."""
        if self.size == 1:
            return load_only(batches, clock, pace.enough)
        return load_only(batches, clock, self._in_step(pace), in_step=True)

    def _in_step(self, pace: Pace) -> Enough:
        """Where rank 0 finds so after a step. Before the first no segment ends."""
        return lambda steps, seconds: bool(steps) and self.ends(pace.enough(steps, seconds))

    def ahead(self, pace: Pace) -> Enough:
        """For the steps of one segment that wait for all ranks by themselves: rank 0 says how many more there are.

        A barrier after each of them would take time of its own, and keep hosts from running ahead of their devices.
        """
        until = 1

        def enough(steps: int, seconds: float) -> bool:
            """Rank 0 plans no more steps than were taken: first steps are unlike others."""
            nonlocal until
            if steps < until:
                return False
            over = pace.enough(steps, seconds)
            until = self.agree(steps if over else min(2 * steps, pace.expected(steps, seconds)))
            return until == steps

        return enough


SINGLE_PROCESS = Collectives(SingleProcessGroup())
