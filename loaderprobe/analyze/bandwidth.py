"""The report of a bandwidth measurement: what limits the storage, what kind of device it is, what it feeds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loaderprobe.analyze.ladder import kind_of, limit_of
from loaderprobe.analyze.plan.needs import feed_of
from loaderprobe.analyze.plan.sources import workload_of_bandwidth
from loaderprobe.analyze.plan.workload import known
from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.environment import Origin
from loaderprobe.records.phases import fastest
from loaderprobe.records.supply import Feed


def judge_bandwidth(
    measured: BandwidthMeasurement, accelerators: Mapping[str, float], origin: Origin
) -> BandwidthReport:
    """The report of a measurement; `accelerators` gives images/s by name."""
    found, most, best = feeds(measured, accelerators), measured.best, fastest(measured.ladder)
    # Ranks in step get as many times what the slowest of the most ranks gets; of opens nothing is known there.
    in_step = most.in_step_bw_bytes / best.bw_bytes if most and best and measured.by_ranks else 0.0
    return BandwidthReport(
        **values(measured),
        origin=origin,
        limit=limit_of(measured),
        kind=kind_of(measured),
        feeds=found,
        feeds_in_step=tuple(replace(feed, count=in_step * feed.count) for feed in found) if measured.by_ranks else (),
    )


def feeds(measured: BandwidthMeasurement, accelerators: Mapping[str, float]) -> tuple[Feed, ...]:
    """What `plan` says of the same result, at its usual utilization and use; `accelerators` gives images/s by name.

    Empty for files that are no images.
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
    return tuple(feed for workload in workloads if (feed := feed_of(workload)))
