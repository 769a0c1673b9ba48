"""One rank of a configuration, in the child of a sweep: it joins the others, and rank 0 returns what all measured."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from loaderprobe.analyze.verdict.ranks import as_one
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.crew import Crew
from loaderprobe.measure.further import joined
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.runner import Order
from loaderprobe.protocols import Clock, Group, NextRound, OnStage, Peers, Round
from loaderprobe.records.measurement import Measurement, base_mode, segment_seconds, segments_of
from loaderprobe.records.ranks import Place, RankMeasurement, ReadResult
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.thresholds import OF_STEP
from loaderprobe.stats import median
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.host import cores_allowed, host_name
from loaderprobe.system.limits import cores_available
from loaderprobe.system.others import OthersMeter
from loaderprobe.system.pagecache import LinuxPageCache

if TYPE_CHECKING:
    from loaderprobe.loaders.ranks import AtPlace


# What all measured, brought together on rank 0, which decides for all what is measured next.

KIND = "rank-measurement"

MEETINGS = 16
"""To time one."""


def meeting_s(group: Group, clock: Clock) -> float:
    """Seconds of a meeting for which no rank has to wait, the median of some."""
    took = []
    for _ in range(MEETINGS):
        begin_ns = clock.now_ns()
        group.most(0)
        took.append((clock.now_ns() - begin_ns) / 1e9)
    return median(took)


def processes_of_ranks(group: Group) -> tuple[int, ...]:
    """The processes that are the ranks of this host. All ranks call it at the same time."""
    host = host_name()
    given = group.gathered(msgspec.json.encode((host, os.getpid())))
    listed = msgspec.json.encode([msgspec.json.decode(each, type=tuple[str, int]) for each in given])
    ranks = msgspec.json.decode(group.broadcast(listed), type=list[tuple[str, int]])
    return tuple(pid for where, pid in ranks if where == host)


class Gathering:
    """One rank's side of it. All ranks call the same methods in the same order; each raises LostRank."""

    def __init__(
        self, group: Group, decide: NextRound = next_round, *, node: int = 0, device: str = "",
        earlier: Measurement | None = None,
    ) -> None:  # fmt: skip
        """`decide` is asked on rank 0, of all ranks together and what was measured `earlier`.

        `device` is a UUID.
        """
        self._group, self._decide, self._earlier = group, decide, earlier
        self._node, self._device = node, device
        self.seen: list[RankMeasurement] = []
        """What all ranks had measured when they were last asked; on rank 0."""

    def next_round(self, measurement: Measurement, *, thorough: bool) -> Round:
        """As rank 0 decides from what all ranks measured."""
        self.gather(measurement)
        plan = self._decide(self.together(), thorough=thorough) if self.seen else ()
        return msgspec.json.decode(self._group.broadcast(msgspec.json.encode(plan)), type=Round)

    def together(self) -> Measurement:
        """One measurement of all ranks, and of earlier rounds; on rank 0."""
        found = as_one(self.seen)
        return joined(self._earlier, found) if self._earlier else found

    def gather(self, measurement: Measurement) -> None:
        """Send what this rank measured to rank 0."""
        own = RankMeasurement(
            rank=self._group.rank,
            host=host_name(),
            cores=cores_available(),
            affinity=cores_allowed(),
            measurement=measurement,
            node=self._node,
            device=self._device,
        )
        given = self._group.gathered(zlib.compress(encode(KIND, own), 1))
        self.seen = [
            decode(KIND, zlib.decompress(data), RankMeasurement, f"rank {number}") for number, data in enumerate(given)
        ]


# This process as one of them.

_HELD: list[AtPlace] = []
"""What ends a group of ranks may wait for ranks that have gone. So it lasts until the process leaves, all at once."""


def joined_with(place: Place, on_stage: OnStage) -> AtPlace:
    """This process as one rank. To be called once workers have been started; raises LostRank where not all come."""
    from loaderprobe.loaders.ranks import joined_at

    on_stage("waiting for the other ranks", 0, 0)
    at = joined_at(place)
    _HELD.append(at)
    return at


def read_rank(order: Order, on_stage: OnStage) -> ReadResult:
    """Read this rank's share at the same time as the others; rank 0 returns what all report."""
    assert order.read is not None and order.place is not None
    group = joined_with(order.place, on_stage).group
    on_stage("reading", 0, 0)
    return ReadResult(config=order.config, phase=read_step(RankReader(order.read, group, LinuxPageCache())))


def peers_of(at: AtPlace, place: Place, cores: float) -> Peers:
    """For the device of a rank."""
    return Peers(group=at.device, local_rank=place.local_rank, cores=cores, store=at.store, timeout_s=place.timeout_s)


@contextmanager
def named(at: AtPlace) -> Iterator[None]:
    """Errors of the device's groups become LostRank where they mean that."""
    try:
        yield
    except RuntimeError as error:
        lost = at.group.lost_by(error)
        if lost is None:
            raise
        raise lost from error


class RankChild:
    """One rank of a configuration. To be made once workers have been started; raises LostRank where not all come."""

    def __init__(self, order: Order, place: Place, on_stage: OnStage) -> None:
        self._order, self._place, self._at = order, place, joined_with(place, on_stage)
        self._cores = cores_of(self._at.group, place.node)
        self._ranks_here = processes_of_ranks(self._at.group)
        self._meeting_s = meeting_s(self._at.group, SystemClock())
        self._gathering: Gathering | None = None

    @property
    def group(self) -> Group:
        """By which it meets the others."""
        return self._at.group

    @property
    def peers(self) -> Peers:
        return peers_of(self._at, self._place, self._cores)

    def joined(self, parts: Parts, device: str = "") -> Parts:
        """Those of a session in step with the others. `device` is the UUID of its GPU, or empty."""
        group = self._at.group
        self._gathering = Gathering(
            group, parts.next_round, node=self._place.node, device=device, earlier=self._order.earlier
        )
        of_rank = replace(
            parts,
            crew=Crew(group),
            cores_available=self._cores,
            next_round=self._gathering.next_round,
            disturbance=OthersMeter(self._ranks_here),
        )
        return replace(of_rank, read_devices=lambda: None) if self._place.local_rank else of_rank

    def together(self, measured: Measurement) -> Measurement:
        """That of all ranks and of earlier rounds, on rank 0; on the others their own."""
        assert self._gathering is not None
        self._gathering.gather(measured)
        # One that left before all was received would take it along.
        self._at.group.most(0)
        if not self._gathering.seen:
            return measured
        found = self._gathering.together()
        return replace(found, notes=each_once((*found.notes, *self._notes(found))))

    def _notes(self, found: Measurement) -> Iterator[Remark]:
        """The time of meeting after each batch, where that is worth a word."""
        loaded = segments_of(found, base_mode(found), "loader_only")
        step_s = sum(map(segment_seconds, loaded)) / max(1, sum(each.steps for each in loaded))
        if self._meeting_s > OF_STEP * step_s > 0:
            share = self._meeting_s / step_s
            yield Remark(code="ranks_meet_loading", facts={"meeting_s": self._meeting_s, "share": share})

    def named(self) -> AbstractContextManager[None]:
        """Errors of the device's groups become LostRank where they mean that."""
        return named(self._at)


def cores_of(group: Group, node: int) -> float:
    """For this rank: what it may run on, shared evenly by the ranks that may run on the same."""
    own = node, host_name(), list(cores_allowed())
    given = group.gathered(msgspec.json.encode(own))
    sharing = [given.count(each) for each in given]
    agreed = msgspec.json.decode(group.broadcast(msgspec.json.encode(sharing)), type=list[int])
    return cores_available() / agreed[group.rank]
