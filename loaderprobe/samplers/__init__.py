"""Counters read during training: disk, GPU, what workers wait for. An unavailable counter has a reason, never 0.

What a counter means does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.protocols import Clock
from loaderprobe.samplers.host import DiskSampler
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import SamplerThread


def sampling(clock: Clock, devices: Sequence[str], gpu_uuid: str | None) -> SamplerThread:
    """The samplers of a disk and of a GPU, read together in one thread."""
    return SamplerThread([DiskSampler(clock, devices), NvmlSampler(clock, gpu_uuid)])
