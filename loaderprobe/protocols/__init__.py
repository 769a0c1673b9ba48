"""The protocols of exchangeable parts. Every one is small, and `loaderprobe.testing` has a fake of each.

Loaders and computes may come from other packages: `loaderprobe explain plug-ins`.
"""

from loaderprobe.protocols.choice import BatchSizeProber, BatchSizeStrategy, NextRound
from loaderprobe.protocols.compute import (
    Checked,
    Compute,
    ComputeArguments,
    Exchanging,
    InStepCompute,
    MakeCompute,
    MakeModel,
    OnGpu,
    Peers,
    Profiling,
    Timed,
)
from loaderprobe.protocols.loader import Compared, Evicting, Files, Loader, Renewing, Switched
from loaderprobe.protocols.machine import Clock, PageCache, Sampler, UtilizationMeter
from loaderprobe.protocols.ranks import Crew, SharedStore

__all__ = [
    "BatchSizeProber", "BatchSizeStrategy", "Checked", "Clock", "Compared", "Compute", "ComputeArguments", "Crew",
    "Evicting", "Exchanging", "Files", "InStepCompute", "Loader", "MakeCompute", "MakeModel", "NextRound", "OnGpu",
    "PageCache", "Peers", "Profiling", "Renewing", "Sampler", "SharedStore", "Switched", "Timed", "UtilizationMeter",
]  # fmt: skip
