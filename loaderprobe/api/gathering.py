"""What several ranks measured, brought together on rank 0, which decides for all what is measured next."""

from __future__ import annotations

import os
import socket
import zlib

import msgspec

from loaderprobe.measure.further import joined
from loaderprobe.protocols import Clock, Crew, Judging, NextRound, Round
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.ranks import RankMeasurement
from loaderprobe.stats import median
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.limits import cores_available

KIND = "rank-measurement"

MEETINGS = 16
"""To time one."""
WORTH_A_WORD = 0.02
"""Of a step: what the meeting after it takes."""


def meeting_s(crew: Crew, clock: Clock) -> float:
    """Seconds of a meeting for which no rank has to wait, the median of some."""
    took = []
    for _ in range(MEETINGS):
        begin_ns = clock.now_ns()
        crew.most(0)
        took.append((clock.now_ns() - begin_ns) / 1e9)
    return median(took)


def processes_of_ranks(crew: Crew) -> tuple[int, ...]:
    """The processes that are the ranks of this host. All ranks call it at the same time."""
    host = socket.gethostname()
    given = crew.gathered(msgspec.json.encode((host, os.getpid())))
    listed = msgspec.json.encode([msgspec.json.decode(each, type=tuple[str, int]) for each in given])
    ranks = msgspec.json.decode(crew.broadcast(listed), type=list[tuple[str, int]])
    return tuple(pid for where, pid in ranks if where == host)


class Gathering:
    """One rank's side of it. All ranks call the same methods in the same order; each raises LostRank."""

    def __init__(
        self, crew: Crew, judging: Judging, decide: NextRound | None = None, *, node: int = 0, device: str = "",
        earlier: Measurement | None = None,
    ) -> None:  # fmt: skip
        """`decide`, without it `next_round`, is asked on rank 0, of all ranks together and what was measured `earlier`.

        `device` is a UUID.
        """
        self._crew, self._decide, self._earlier = crew, decide or judging.next_round, earlier
        self._as_one = judging.as_one
        self._node, self._device = node, device
        self.seen: list[RankMeasurement] = []
        """What all ranks had measured when they were last asked; on rank 0."""

    def next_round(self, measurement: Measurement, *, thorough: bool) -> Round:
        """As rank 0 decides from what all ranks measured."""
        self.gather(measurement)
        plan = self._decide(self.together(), thorough=thorough) if self.seen else ()
        return msgspec.json.decode(self._crew.broadcast(msgspec.json.encode(plan)), type=Round)

    def together(self) -> Measurement:
        """One measurement of all ranks, and of earlier rounds; on rank 0."""
        found = self._as_one(self.seen)
        return joined(self._earlier, found) if self._earlier else found

    def gather(self, measurement: Measurement) -> None:
        """Send what this rank measured to rank 0."""
        own = RankMeasurement(
            rank=self._crew.rank,
            host=socket.gethostname(),
            cores=cores_available(),
            affinity=tuple(sorted(os.sched_getaffinity(0))),
            measurement=measurement,
            node=self._node,
            device=self._device,
        )
        given = self._crew.gathered(zlib.compress(encode(KIND, own), 1))
        self.seen = [
            decode(KIND, zlib.decompress(data), RankMeasurement, f"rank {number}") for number, data in enumerate(given)
        ]
