"""Probes of one size as one."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.effects import mean_interval
from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.layers import Milliseconds
from loaderprobe.stats import mean, median


def by_size(probes: Sequence[BatchSizeProbe]) -> tuple[BatchSizeProbe, ...]:
    """One for each size, from the smallest on; of sizes that do not fit, the first try."""
    sizes = sorted({each.batch_size for each in probes})
    return tuple(together([each for each in probes if each.batch_size == size]) for size in sizes)


def together(probes: Sequence[BatchSizeProbe]) -> BatchSizeProbe:
    """Probes of one size that fit, as one: the mean of their rates, with the wider of two 95 % intervals.

    One interval is from the steps within the probes, the other from what the probes differ by.
    """
    if len(probes) == 1 or not all(each.fits for each in probes):
        return probes[0]
    rates = [each.images_per_s for each in probes if each.images_per_s]
    times = [each.step_ms for each in probes if each.step_ms]
    busy = [each.utilization for each in probes if each.utilization is not None]
    return BatchSizeProbe(
        batch_size=probes[0].batch_size,
        fits=True,
        steps=sum(each.steps for each in probes),
        images_per_s=mean_interval(rates),
        step_ms=Milliseconds(
            value=median([each.value for each in times]),
            low=min(each.low for each in times),
            high=max(each.high for each in times),
        )
        if times
        else None,
        utilization=mean(busy) if busy else None,
        utilization_samples=tuple(each for probe in probes for each in probe.utilization_samples),
        memory_bytes=max((each.memory_bytes or 0 for each in probes), default=0) or None,
        wall_s=sum(each.wall_s for each in probes),
        unavailable=probes[0].unavailable,
    )
