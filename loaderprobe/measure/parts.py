"""What a session measures with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from loaderprobe.measure.collectives import SINGLE_PROCESS, Collectives
from loaderprobe.protocols import Clock, Compute, Loader, PageCache
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
    """The independent parts of one measurement; what is not given is that of this machine."""

    loader: Loader
    compute: Compute
    clock: Clock
    cache: PageCache
    location: StorageLocation
    cores_available: float = field(default_factory=cores_available)
    counts_devices: bool = True
    """False where another rank of the node reads what its devices count."""
    disturbance: OthersMeter = field(default_factory=OthersMeter)
    """Sees what other processes do to the machine while something is timed."""
    waits: Callable[[], WaitSamples | Missing] = lambda: UNSEEN
    """The samples of the workers' waits so far, or why there are none."""
    collectives: Collectives = SINGLE_PROCESS
    """The ranks that measure in step with this process; usually none but itself."""

    def read_devices(self) -> int | None:
        """Bytes that the devices under the data, or the server, have read so far; None when not visible."""
        if not self.counts_devices:
            return None
        devices = self.location.devices
        return read_sectors(devices) if devices else reads_from_storage(self.location)
