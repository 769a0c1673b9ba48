"""What can be measured on a machine, and why not the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.note import Note
from loaderprobe.records.unavailable import Unavailable

CapabilityName = Literal[
    "storage", "cold_reads", "device_reads", "worker_reads", "waits", "run_delay", "cores", "other_processes",
    "shared_memory", "gpu_training", "gpu_utilization", "gpu_sm_occupancy",
]  # fmt: skip
"""What a sweep measures, and what it needs."""
FindingCode = Literal[
    "on_storage", "in_memory", "always_warm", "no_trial_file", "cache_unknown", "stays_in_cache", "evicted",
    "device_counted", "device_not_counted", "reads_counted", "reads_refused", "reads_not_counted",
    "calls_seen", "no_proc", "kinds_only", "delay_counted", "delay_not_counted", "cores", "others_take",
    "no_shared_memory", "shared_memory_small", "shared_memory", "trains_on",
    "utilization_read", "occupancy_read", "gpu_not_read",
]  # fmt: skip
StepCode = Literal[
    "path_on_storage", "directory_to_write", "allow_ptrace", "add_sys_ptrace", "kernel_with_schedstat", "mount_tmpfs",
    "more_shared_memory", "train_elsewhere", "nvidia_gpu", "hopper_gpu",
]  # fmt: skip
"""How to get what is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found on this machine."""

    code: FindingCode
    facts: dict[str, float | str] = field(default_factory=dict)
    """What the sentence quotes; of `gpu_not_read` those of the reason, with its code under `because`."""
    sentence: str = field(default="", compare=False)
    """It in words; added where the result leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Something loaderprobe measures, and whether it can here."""

    name: CapabilityName
    state: Literal["yes", "limited", "no"]
    why: tuple[Finding | Note | Unavailable, ...]
    next_step: StepCode | None = None
    """How to get the rest; None where there is nothing to get."""
    sentence: str = field(default="", compare=False)
    """Why, in words; added where the result leaves the program."""
