"""Counters read during training: device, workers, machine, GPU. An unavailable counter has a reason, never 0.

What a counter means does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaderprobe.protocols import Clock
from loaderprobe.samplers.host import DiskSampler, MachineSampler, WorkerSampler
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import SamplerThread


def sampling(
    clock: Clock, devices: Sequence[str], worker_pids: Callable[[], Sequence[int]], gpu_uuid: str | None
) -> SamplerThread:
    """All built-in samplers, read together in one thread."""
    return SamplerThread(
        [
            DiskSampler(clock, devices),
            WorkerSampler(clock, worker_pids),
            MachineSampler(clock),
            NvmlSampler(clock, gpu_uuid),
        ]
    )
