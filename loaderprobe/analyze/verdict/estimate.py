"""What a loader would deliver without one resource, from what batches cost its workers.

Where a mode was not measured, the time that the resource takes is taken off a worker's time. For waiting that is
close to the truth. For preprocessing and transport it is the most that can be had: on a device at its limit the
workers would wait for it all the longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from loaderprobe.analyze.verdict.rates import WorkerCost, per_second
from loaderprobe.records.resources import ONLY_WAITED, RESOURCE

# A loader without bound is counted as this much faster, so that no figure is infinite.
UNBOUNDED = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a loader cannot exceed, however little its workers have to do."""

    workers: int
    cores: float
    parent_s: float
    """CPU time an image of the training thread, for receiving and releasing it."""
    storage_images_per_s: float = math.inf
    """What the storage delivers; infinite where that is not known."""


BY_TIMES = ("preprocessing", "transport")
"""Those that take a worker's time without waiting."""


def can_be(resource: str) -> bool:
    """True where the loader without this can be estimated: from times, or from samples of what workers wait for."""
    return resource in BY_TIMES or bool(RESOURCE[resource].waits)


def without(resource: str, rate: float, cost: WorkerCost, limits: Limits) -> float:
    """Images/s of a loader of `rate` images/s without `resource`: at least `rate`, at most `UNBOUNDED` times that."""
    per_image = cost.per_image()
    wall_s, busy_s = cost.wall_s / cost.images, per_image.cpu_s + per_image.run_delay_s
    collate_s = min(cost.collate_s / cost.images, busy_s)
    # Of putting a batch together, as much is CPU time as of the rest that does not wait for storage.
    collate_cpu_s = collate_s * per_image.cpu_s / busy_s if busy_s else 0.0
    whole_cpu_s = max(cost.cpu_s, cost.process_cpu_s or 0.0) / cost.images
    helped_s = cost.helped_s / cost.images
    by_resource = {
        "preprocessing": (busy_s - collate_s + helped_s, collate_cpu_s, limits.storage_images_per_s),
        "transport": (collate_s, whole_cpu_s - collate_cpu_s, limits.storage_images_per_s),
    }
    gone_s, cpu_s, most = by_resource.get(resource) or (_waited(resource, cost), whole_cpu_s, math.inf)
    # The serial loader is its only worker, and also works outside of fetching.
    left_s = wall_s - gone_s if limits.workers else 1 / rate - gone_s
    parent_s = 0.0 if resource == "transport" else limits.parent_s
    # A wait that was not there takes nothing away, however idle the workers were between batches.
    by_workers = (
        rate * per_second(wall_s, left_s)
        if resource.split()[-1] in ONLY_WAITED
        else per_second(max(limits.workers, 1), left_s)
    )
    bounds = (
        by_workers if limits.workers else per_second(1.0, left_s),
        per_second(limits.cores, cpu_s + parent_s),
        per_second(1.0, parent_s) if limits.workers else math.inf,
        most,
        UNBOUNDED * rate,
    )
    return max(rate, min(bounds))


def never_idle(cost: WorkerCost, limits: Limits) -> float:
    """Images/s of workers that make batch after batch, at what these batches cost them."""
    cpu_s = max(cost.cpu_s, cost.process_cpu_s or 0.0) / cost.images
    return min(
        per_second(limits.workers, cost.wall_s / cost.images),
        per_second(limits.cores, cpu_s + limits.parent_s),
        per_second(1.0, limits.parent_s),
    )


def _waited(resource: str, cost: WorkerCost) -> float:
    """Seconds an image that a worker waits for this: as it was seen, or the least or most that it can be."""
    end, _, name = resource.rpartition(" ")
    if end:
        return (cost.waited_at_most_s(name) if end == "most" else cost.waited_at_least_s(name)) / cost.images
    waited_s = cost.waited_s(resource)
    return (cost.blocked_s if waited_s is None else waited_s) / cost.images
