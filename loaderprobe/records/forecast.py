"""What training would run at after a change, with its range, or why nothing can be said; and the knee of workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Bottleneck, How, Interval

Changed = Literal[
    "workers", "prefetch_factor", "batch_size", "cores", "disk_speed", "disk", "accelerator", "page_cache_share",
    "pinned_share", "tensor", "decoder",
]  # fmt: skip
"""page_cache_share: of the files that the kernel's page cache can hold. pinned_share: of the files that always stay
in memory, locked there or as a copy in tmpfs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Images/s of training after one change to a measured configuration. Either a rate, or why there is none."""

    changed: Changed
    to: str
    """What it is changed to: `4`, `2.5 times as fast`, `mlperf-h100`."""
    images_per_s: Interval | None
    """Not an interval over rounds, but the range in which the rate is to be expected."""
    bottleneck: Bottleneck | None
    """The resource that then limits training."""
    rising: bool = False
    """True when it is the time that a single worker takes, so that more workers would gain."""
    how: How
    """measured: such a configuration, or such a mode, was measured. estimated: by a law."""
    refused: Remark | None
    """Why there is no rate."""
    sentence: str = field(default="", compare=False)
    """The refusal in words; `render` adds it where the summary leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The smallest number of workers that trains within 2 % of the best, and why more do not help."""

    keys: tuple[str, ...]
    """Of the configurations that it is drawn from, which differ in workers only."""
    workers: int | None
    """None when no forecast was possible and too little was measured; `forecasts` say why."""
    images_per_s: Interval | None
    how: How
    bottleneck: Bottleneck | None
    """What limits training there; None when the rate still rises at the most workers that can be judged."""
    sentence: str = field(default="", compare=False)
    """The knee in words; `render` adds it where the summary leaves the program."""
    forecasts: tuple[Forecast, ...]
    """For the worker counts that were looked at, in their order."""
