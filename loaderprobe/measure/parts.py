"""What a session measures with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loaderprobe.measure.crew import ALONE, Crew
from loaderprobe.protocols import Clock, Compute, Loader, NextRound, PageCache
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing, Others
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitSamples

UNSEEN = Missing(name="waits", reason=Remark(code="workers_not_sampled"))


class Disturbance(Protocol):
    """Sees what other processes do to the machine while something is timed."""

    def begin(self) -> None: ...

    def end(self) -> Others | None:
        """What others did since `begin`; None where that is not seen."""
        ...

    def missing(self) -> Sequence[Missing]:
        """Why it is not seen; empty where it is."""
        ...


class NotWatched:
    """The `Disturbance` of a session that does not ask for it."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def missing(self) -> Sequence[Missing]:
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
    """Chooses the segments of the next round."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
    disturbance: Disturbance = field(default_factory=NotWatched)
    crew: Crew = ALONE
    """The ranks that measure in step with this process; usually none but itself."""
