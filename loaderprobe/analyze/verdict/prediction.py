"""From the rates of the parts to the rate of the whole: how a training loop overlaps loading and compute."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A training loop: how it overlaps, and what a batch costs the training thread.

    The three laws were chosen in earlier experiments on throttled disks; the prediction_error in every verdict
    holds them against the run at hand.
    """

    workers: int
    batch_size: int
    synchronous: bool
    compute_images_per_s: float
    overhead_s: float
    """Seconds a batch that the training thread works on receiving and releasing it."""

    def end_to_end(self, loader_images_per_s: float) -> float:
        """Images/s of training on a loader of this rate."""
        compute = self.compute_images_per_s
        if self.workers == 0:
            return self._serial(loader_images_per_s)
        overhead = self.overhead_s / self.batch_size
        if self.synchronous:
            return min(loader_images_per_s, 1 / (1 / compute + overhead))
        return min(loader_images_per_s, compute, 1 / overhead if overhead else math.inf)

    def _serial(self, loader_images_per_s: float) -> float:
        """Without workers nothing loads while the training thread waits for the device.

        A synchronised loop adds the two times. An asynchronous device overlaps its step with the loading
        of the next batch, which the host begins as soon as it has submitted a step.
        """
        if self.synchronous:
            return 1 / (1 / loader_images_per_s + 1 / self.compute_images_per_s)
        return min(loader_images_per_s, self.compute_images_per_s)
