"""What a session measures with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loaderprobe.protocols import Clock, Compute, Loader, NextRound, PageCache
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Activity, Measurement, Missing, Mode
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.waits import WaitSamples

Round = tuple[tuple[Mode, Activity], ...]
Deciding = Callable[[Measurement, Round], Round]
UNSEEN = Missing(name="waits", reason=Unavailable(code="workers_not_sampled"))


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
    """Bytes that the devices under the data have read so far; None when not visible."""
    next_round: NextRound
    deciding: Deciding = lambda _, plan: plan
    """What of a round decides, where there is no time for all of it."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
