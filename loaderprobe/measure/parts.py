"""What a session measures with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.measure.collectives import SINGLE_PROCESS, Collectives
from loaderprobe.protocols import Clock, Compute, Loader, NextRound, PageCache
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitSamples
from loaderprobe.system.device import read_sectors, reads_from_storage
from loaderprobe.system.limits import cores_available
from loaderprobe.system.others import OthersMeter

UNSEEN = Missing(name="waits", reason=Remark(code="workers_not_sampled"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The independent parts of one measurement."""

    loader: Loader
    compute: Compute
    clock: Clock
    cache: PageCache
    location: StorageLocation
    cores_available: float
    read_devices: Callable[[], int | None]
    """Bytes that the devices under the data, or the server, have read so far; None when not visible."""
    next_round: NextRound
    """Chooses the segments of the next round."""
    disturbance: OthersMeter
    """Sees what other processes do to the machine while something is timed."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
    collectives: Collectives = SINGLE_PROCESS
    """The ranks that measure in step with this process; usually none but itself."""


def join_parts(
    loader: Loader, compute: Compute, clock: Clock, cache: PageCache, location: StorageLocation,
    waits: Callable[[], WaitSamples | Missing], decide: NextRound = next_round,
    own: Sequence[int] = (),
) -> Parts:  # fmt: skip
    """The parts of a session on this machine; `waits` are the samples so far of what workers wait for.

    `decide` is asked which segments to measure next. `own` are processes that belong to the measurement with all that
    they start, beside this one.
    """
    return Parts(
        loader=loader,
        compute=compute,
        clock=clock,
        cache=cache,
        location=location,
        cores_available=cores_available(),
        read_devices=lambda: read_sectors(location.devices) if location.devices else reads_from_storage(location),
        next_round=decide,
        waits=waits,
        disturbance=OthersMeter(own),
    )
