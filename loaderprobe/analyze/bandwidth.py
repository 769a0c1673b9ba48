"""The report of a bandwidth measurement: what limits the storage, what kind of device it is, what it feeds. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from loaderprobe.analyze.ladder import kind_of, limit_of
from loaderprobe.analyze.plan.needs import feed_of
from loaderprobe.analyze.plan.sources import by_slowest, workload_of_bandwidth
from loaderprobe.analyze.plan.workload import known
from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.environment import Origin
from loaderprobe.records.supply import Feed


def judge_bandwidth(
    measured: BandwidthMeasurement, accelerators: Mapping[str, float], origin: Origin
) -> BandwidthReport:
    """The report of a measurement; `accelerators` gives images/s by name."""
    return BandwidthReport(
        **values(measured),
        origin=origin,
        limit=limit_of(measured),
        kind=kind_of(measured),
        feeds=feeds(measured, accelerators),
        feeds_in_step=feeds(measured, accelerators, in_step=True) if measured.by_ranks else (),
    )


def feeds(
    measured: BandwidthMeasurement, accelerators: Mapping[str, float], *, in_step: bool = False
) -> tuple[Feed, ...]:
    """What `plan` says of the same result, at its usual utilization and use; `accelerators` gives images/s by name.

    `in_step`: of ranks, by as many times the slowest. Empty for files that are no images.
    """
    if not measured.images:
        return ()
    try:
        workloads = [
            workload_of_bandwidth(measured, name, known(rate, "images/s", "given", name))
            for name, rate in accelerators.items()
        ]
    except BadValue:
        return ()  # read in blocks: the bytes of an image are not known
    if in_step:
        workloads = [by_slowest(workload, measured) for workload in workloads]
    return tuple(feed for workload in workloads if (feed := feed_of(workload)))
