"""The first steps of a device, which are slower than those after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import train_resident
from loaderprobe.protocols import Clock, Compute
from loaderprobe.records.config import RunConfig

# The first half dozen steps of a CPU took 1.4 times as long as those after them.
WARM_UP = Pace(min_s=0.0, min_batches=20, max_s=2.0)


def warm_up(on_device: Sequence[Any], config: RunConfig, compute: Compute, clock: Clock, pace: Pace = WARM_UP) -> None:
    """Train in turn on batches that stay on the device, until it is as fast as later; an emulated one always is."""
    if compute.info().specified_images_per_s is not None:
        return
    if config.compute.compile:
        # The first step compiles, for minutes.
        train_resident(on_device, compute, clock, Pace(max_batches=1))
    train_resident(on_device, compute, clock, pace)
