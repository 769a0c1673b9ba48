"""The first steps of a device, which are slower than those after them."""

from __future__ import annotations

from typing import Any

from loaderprobe.measure.pace import Pace
from loaderprobe.measure.segments import train_resident
from loaderprobe.measure.session import WARM_UP
from loaderprobe.protocols import Clock, Compute
from loaderprobe.records.config import RunConfig


def warm_up(batch: Any, config: RunConfig, compute: Compute, clock: Clock) -> None:
    """Train on a batch until the device is as fast as later; an emulated one always is."""
    if compute.info().specified_images_per_s is not None:
        return
    resident = [compute.copy(batch)]
    if config.compute.compile:
        # The first step compiles, for minutes.
        train_resident(resident, compute, clock, Pace(max_batches=1))
    train_resident(resident, compute, clock, WARM_UP)
