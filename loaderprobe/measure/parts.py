"""What a session measures with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loaderprobe.protocols import Clock, Compute, Loader, NextRound, PageCache
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Activity, Measurement, Missing, Mode, Others
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.waits import WaitSamples

Round = tuple[tuple[Mode, Activity], ...]
Deciding = Callable[[Measurement, Round], Round]
UNSEEN = Missing(name="waits", reason=Unavailable(code="workers_not_sampled"))


class Disturbance(Protocol):
    """Sees what other processes do to the machine while something is timed."""

    def begin(self) -> None:
        """Timing begins."""
        ...

    def end(self) -> Others | None:
        """It has ended: what others did since; None where that is not seen."""
        ...

    def missing(self) -> Sequence[Missing]:
        """Why it is not seen; nothing where it is."""
        ...


class NotWatched:
    """Of parts without one."""

    def begin(self) -> None:
        """Reads nothing."""

    def end(self) -> None:
        """Has seen nothing."""

    def missing(self) -> Sequence[Missing]:
        """It was not to be seen."""
        return ()


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
    disturbance: Disturbance = field(default_factory=NotWatched)
    """What other processes do meanwhile."""
