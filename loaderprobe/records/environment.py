"""Where it was measured: the machine, its software, the storage under a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.note import Note
from loaderprobe.records.unavailable import Unavailable

StorageKind = Literal["block", "network", "fuse", "memory", "overlay", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLocation:
    """What storage a path lives on, as far as this process may see."""

    path: str
    filesystem: str
    """Type as the kernel names it: ext4, nfs4, overlay, tmpfs."""
    kind: StorageKind
    mount: str
    source: str
    devices: tuple[str, ...]
    """Kernel names of the leaf block devices (`vda`, `nvme0n1`); empty when there are none to see."""
    notes: tuple[Note, ...] = ()
    """What could not be known."""
    layers: tuple[StorageKind | Literal["hidden"], ...] = ()
    """What an overlay's layers live on, topmost first; `hidden` for one that is not visible from here."""
    read_ahead_bytes: int | None = None
    """The most that the kernel reads ahead in a file here (`read_ahead_kb` of the file system's backing device; of an
    overlay the largest of its visible layers); None where it does not say, as for files in memory."""

    @property
    def counts_reads(self) -> bool:
        """True where /proc/PID/io and diskstats see the reads, so that cold can be proved by bytes.

        An overlay whose layers are all hidden is taken to be on a disk, as a container's usually is.
        """
        visible = set(self.layers) - {"hidden"}
        if self.kind == "overlay" and visible:
            return "block" in visible and visible <= {"block", "memory"}
        return self.kind in ("block", "overlay")

    @property
    def in_memory(self) -> bool:
        """True for a file system in memory, and for an overlay whose layers are all in memory."""
        return self.kind == "memory" or set(self.layers) == {"memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as NVML or torch names it."""

    name: str
    uuid: str | None
    memory_bytes: int | None
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine a run was made on."""

    loaderprobe: str
    python: str
    torch: str | None
    torchvision: str | None
    kernel: str
    cpu_model: str
    cores_total: int
    cores_available: float
    """After CPU affinity and cgroup quota."""
    memory_bytes: int
    shared_memory_bytes: int | None
    """Size of /dev/shm, through which workers send batches."""
    gpus: tuple[Gpu, ...]
    gpu_reason: Unavailable | None
    """Why no GPU is listed; None when one is."""
    storage: tuple[StorageLocation, ...]
