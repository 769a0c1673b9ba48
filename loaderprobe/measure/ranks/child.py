"""One rank of a configuration, in the child of a sweep: it joins the others, and rank 0 returns what all measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from loaderprobe.measure.collectives import Collectives, of_all_ranks
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segment_runner import Parts
from loaderprobe.protocols import Clock, Group, OnStage, Peers
from loaderprobe.records.measurement import Measurement, Segment, segments_of
from loaderprobe.records.rank_processes import RankPlacement, ReadResult, shares
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.thresholds import OF_STEP
from loaderprobe.stats import median
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.system.host import SystemClock, host_name
from loaderprobe.system.limits import core_limits
from loaderprobe.system.others import OthersMeter
from loaderprobe.system.pagecache import LinuxPageCache

if TYPE_CHECKING:
    from loaderprobe.loaders.ranks import RankGroups


BARRIERS = 16
"""Barriers that are timed for the median of one."""


def barrier_s(group: Group, clock: Clock) -> float:
    """Seconds of a barrier at which no rank has to wait for another: the median of `BARRIERS`."""
    took = []
    for _ in range(BARRIERS):
        begin_ns = clock.now_ns()
        group.all_reduce_max(0)
        took.append((clock.now_ns() - begin_ns) / 1e9)
    return median(took)


def meeting_notes(code: str, meeting_s: float, segments: Sequence[Segment]) -> tuple[Remark, ...]:
    """The time of the barrier after each step of these, where it is a notable part of a step."""
    step_s = sum(segment.seconds for segment in segments) / max(1, sum(segment.steps for segment in segments))
    if not meeting_s > OF_STEP * step_s > 0:
        return ()
    return (Remark(code=code, facts={"meeting_s": meeting_s, "share": min(1.0, meeting_s / step_s)}),)


def processes_of_ranks(group: Group) -> tuple[int, ...]:
    """The process ids of the ranks on this host. All ranks call it at the same time."""
    host = host_name()
    return tuple(pid for name, pid in of_all_ranks(group, (host, os.getpid()), tuple[str, int]) if name == host)


_KEPT_OPEN: list[RankGroups] = []
"""Closing a group may wait for ranks that have gone, so groups stay open until the process ends."""


def join_ranks(placement: RankPlacement, on_stage: OnStage) -> RankGroups:
    """Join the groups of a configuration, once workers have been started. Raises LostRank where a rank does not."""
    from loaderprobe.loaders.ranks import join_groups

    on_stage("waiting for the other ranks", 0, 0)
    groups = join_groups(placement)
    _KEPT_OPEN.append(groups)
    return groups


def read_rank(order: Order, on_stage: OnStage) -> ReadResult:
    """Read this rank's share at the same time as the others; rank 0 returns what all report."""
    assert order.read is not None and order.placement is not None
    group = join_ranks(order.placement, on_stage).group
    on_stage("reading", 0, 0)
    reader = RankReader(order.read, group, LinuxPageCache(), cores_of(group, order.placement.node))
    return ReadResult(config=order.config, phase=read_step(reader))


class RankChild:
    """One rank of a configuration. Made once workers have been started; raises LostRank where a rank does not join."""

    def __init__(self, order: Order, placement: RankPlacement, on_stage: OnStage) -> None:
        self._order, self._placement, self._groups = order, placement, join_ranks(placement, on_stage)
        self.group = self._groups.group
        self._cores = cores_of(self.group, placement.node)
        self._ranks_here = processes_of_ranks(self.group)
        self._barrier_s = barrier_s(self.group, SystemClock())
        self._collectives = Collectives(self.group, placement.node)

    @property
    def peers(self) -> Peers:
        """The other ranks, for the device of this one."""
        return Peers(
            group=self._groups.device,
            local_rank=self._placement.local_rank,
            cores=self._cores,
            store=self._groups.store,
            timeout_s=self._placement.timeout_s,
        )

    def joined(self, parts: Parts) -> Parts:
        return replace(
            parts,
            collectives=self._collectives,
            cores_available=self._cores,
            disturbance=OthersMeter(self._ranks_here),
            counts_devices=self._placement.local_rank == 0,
        )

    def together(self, measured: Measurement) -> Measurement:
        """The measurement of all ranks and of earlier rounds, on rank 0; on the others their own."""
        self._collectives.gather(measured)
        # What a rank sent is lost where it leaves before all is received.
        self.group.all_reduce_max(0)
        if not self._collectives.by_rank:
            return measured
        together = self._collectives.together(self._order.earlier)
        loaded = segments_of(together, together.config.mode, "loader_only")
        meeting = meeting_notes("ranks_meet_loading", self._barrier_s, loaded)
        return replace(together, notes=each_once((*together.notes, *meeting)))

    @contextmanager
    def as_lost_rank(self) -> Iterator[None]:
        """Errors of the device's groups become LostRank where they mean that."""
        try:
            yield
        except RuntimeError as error:
            lost = self.group.lost_by(error)
            if lost is None:
                raise
            raise lost from error


def cores_of(group: Group, node: int) -> float:
    """The cores of this rank: its share of those that it may use, of which ranks of its host may use the same."""
    limits = {f"{node} {host_name()} {name}": cores for name, cores in core_limits().items()}
    return shares(of_all_ranks(group, limits, dict[str, float]))[group.rank]
