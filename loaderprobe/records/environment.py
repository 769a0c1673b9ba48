"""Where a result comes from, what can be measured there, and the version of all files and results."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from loaderprobe.records.remark import Remark

StorageKind = Literal["block", "network", "fuse", "memory", "overlay", "object", "unknown"]
"""network: a file server's mount. object: a store behind a URL, without a mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLocation:
    """What storage a path lives on, as far as this process may see."""

    path: str
    filesystem: str
    """Type as the kernel names it: ext4, nfs4, overlay, tmpfs; of objects the scheme of the URL: s3, gs, az, http."""
    kind: StorageKind
    mount: str
    source: str
    devices: tuple[str, ...]
    """Kernel names of the leaf block devices (`vda`, `nvme0n1`); empty when there are none to see."""
    notes: tuple[Remark, ...] = ()
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
    def is_here(self) -> bool:
        """True where this very machine serves it: by a server at a loopback address, or from a file as a device."""
        files = {note.facts["under"] for note in self.notes if note.code == "loop_file"} - {"network", "fuse"}
        server = (self.source or self.path) if self.kind in ("network", "fuse", "object") else ""
        return bool(files or re.search(r"(?:^|//|[@\[#])(?:127(?:\.\d+){3}|localhost|::1)(?=[]:/]|$)", server))

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
    """Physical memory, after cgroup limits."""
    shared_memory_bytes: int | None
    """Size of /dev/shm, through which workers send batches."""
    gpus: tuple[Gpu, ...]
    gpu_reason: Remark | None
    """Why no GPU is listed; None when one is."""
    storage: tuple[StorageLocation, ...]

    @property
    def machine(self) -> str:
        """What rates depend on: the processor, the cores and the GPUs."""
        gpus = Counter(gpu.name for gpu in self.gpus)
        named = [f"{count} {name}" for name, count in gpus.items()] or ["no GPU"]
        return ", ".join([self.cpu_model, f"{self.cores_available:g} cores", *named])

    @property
    def software(self) -> str:
        """What rates depend on besides."""
        return f"torch {self.torch}, loaderprobe {self.loaderprobe}"

    def below(self, root: str) -> StorageLocation | None:
        """The storage of a data set; None where it is not known."""
        under = [location for location in self.storage if PurePath(root).is_relative_to(location.path)]
        return max(under, key=lambda location: len(location.path), default=None)


# History of stored files, and of results as JSON, which are interfaces:
# 1  2026-11  first version
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """When, by which command and on what machine a result was made."""

    created_utc: str
    command: str
    """As it was typed, or the call in Python."""
    environment: Environment


CapabilityName = Literal[
    "storage", "free_space", "cold_reads", "device_reads", "worker_reads", "waits", "run_delay", "cores",
    "other_processes", "shared_memory", "gpu_training", "gpu_utilization", "gpu_sm_occupancy",
]  # fmt: skip
"""What a sweep measures, and what it needs."""
StepCode = Literal[
    "path_on_storage", "make_space", "directory_to_write", "allow_ptrace", "add_sys_ptrace", "kernel_with_schedstat",
    "end_others", "mount_tmpfs", "more_shared_memory", "train_elsewhere", "nvidia_gpu", "hopper_gpu",
]  # fmt: skip
"""How to get what is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Something loaderprobe measures, and whether it can here."""

    name: CapabilityName
    state: Literal["yes", "limited", "no"]
    why: tuple[Remark, ...]
    next_step: StepCode | None = None
    """How to get the rest; None where there is nothing to get."""
    sentence: str = field(default="", compare=False)
    """Why, in words; added where the result leaves the program."""
