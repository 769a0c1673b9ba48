"""What a bandwidth measurement means: what limits the storage, what kind of device it is, what it feeds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from loaderprobe.analyze.plan.plan import demand, judge_supply, measured_offer
from loaderprobe.analyze.plan.workload import PlanWorkload, by_slowest, known, workload_of_bandwidth
from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.bandwidth import (
    BandwidthMeasurement,
    BandwidthPhase,
    BandwidthReport,
    DeviceKind,
    Feed,
    Limit,
    LimitedBy,
    RankBandwidthReport,
)
from loaderprobe.records.plan import Asked
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Evidence

KNEE = 0.95
"""A number of readers that gets this share of the best is enough."""
FLAT = 1.4
"""More readers gain less than this on a device that one reader fills: planted ones gained 1.02 to 1.30, the
one disk at hand that one reader does not fill 1.64 and more (`scripts/bench bandwidth`)."""
SURELY_FLAT = 1.6
"""The same from the one end of the two intervals to the other: a noisy disk is given no kind."""
PROPORTIONAL = 0.7
"""Share of N times one reader's rate that N readers get where only latency limits them."""
PROPORTIONAL_READERS = 4
# A pause of twice the reading time leaves a token bucket a third of its load. On throttled
# block devices reads then took 0.05 to 0.45 of their time; on single servers and latency-bound devices 0.9 or more.
CREDIT_AT_MOST = 0.6
LOST_AT_LEAST = 0.8
UNPACED = DeviceKind(kind="unknown", code="not_paced", facts={"because": "ranks_do_not_pause"}, evidence=())
"""Of the storage that ranks read."""
ASKED = Asked(accelerators=1)
"""What is asked of a storage when nothing else is said."""


def judge_bandwidth(measured: BandwidthMeasurement, accelerators: Mapping[str, float]) -> BandwidthReport:
    """The report of a measurement; `accelerators` gives images/s by name."""
    return BandwidthReport(
        **values(measured),
        limit=_limit(measured),
        kind=_kind(measured),
        feeds=feeds(measured, accelerators),
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
        found = [
            workload_of_bandwidth(measured, name, known(rate, "images/s", "given", name))
            for name, rate in accelerators.items()
        ]
    except BadValue:
        return ()  # read in blocks: the bytes of an image are not known
    if in_step and isinstance(measured, RankBandwidthReport):
        found = [by_slowest(each, measured) for each in found]
    return tuple(feed for each in found if (feed := feed_of(each)))


def feed_of(workload: PlanWorkload) -> Feed | None:
    """How many of the accelerators of a workload its storage feeds; None where it has none that counts."""
    offer = measured_offer(workload)
    if offer is None:
        return None
    supply = judge_supply(offer, demand(workload, ASKED.utilization), ASKED)
    if supply.feeds is None or supply.first_limit is None:
        return None
    return Feed(
        accelerator=workload.accelerator, images_per_s=workload.rate.value, count=supply.feeds,
        utilization=ASKED.utilization, use=ASKED.use, first_limit=supply.first_limit, at_least=supply.at_least,
    )  # fmt: skip


def _limit(measured: BandwidthMeasurement) -> Limit:
    ladder, best = measured.ladder, measured.best
    if best is None:
        return Limit(by="unknown", knee_readers=None, code="no_step")
    knee = next(phase for phase in ladder if phase.bw_bytes >= KNEE * best.bw_bytes)
    if measured.from_memory:
        share = "partly" if any(phase.cache in ("cold", "mixed") for phase in ladder) else "wholly"
        return Limit(by="memory", knee_readers=knee.readers, code="from_memory", facts={"share": share})
    if best.at_least:
        facts: dict[str, float | str] = {"best_bytes_per_s": best.bw_bytes}
        return Limit(by="probe", knee_readers=knee.readers, code="probe_busy", facts=facts)
    if measured.ladder_cut_short:
        return Limit(by="unknown", knee_readers=None, code="interrupted")
    if len(ladder) < 2:
        return Limit(by="unknown", knee_readers=None, code="one_step")
    return _from_shape(ladder[0], knee, best, measured)


def _from_shape(
    first: BandwidthPhase, knee: BandwidthPhase, best: BandwidthPhase, measured: BandwidthMeasurement
) -> Limit:
    facts: dict[str, float | str] = {
        "first_readers": first.readers,
        "first_bytes_per_s": first.bw_bytes,
        "file_s": (first.file_ns or first.clat_ns).percentile["50.000000"] / 1e9,
        "knee_readers": knee.readers,
        "best_readers": best.readers,
        "best_bytes_per_s": best.bw_bytes,
    }
    if best.bw_bytes <= FLAT * first.bw_bytes:
        return Limit(by="bandwidth", knee_readers=knee.readers, code="flat", facts=facts)
    fall = _fall(measured.ladder, knee)
    if fall is not None:
        for name, phase in zip(("before", "after"), fall, strict=True):
            facts |= {f"{name}_readers": phase.readers, f"{name}_bytes_per_s": phase.bw_bytes}
        return Limit(by="unknown", knee_readers=None, code="uneven", facts=facts)
    still_rising = knee is measured.ladder[-1]
    facts["end"] = "rising" if still_rising else "flat"
    knee_readers = None if still_rising else knee.readers
    if _scales(measured):
        return Limit(by="latency", knee_readers=knee_readers, code="rises", facts=facts)
    by: LimitedBy = "unknown" if still_rising else "latency then bandwidth"
    return Limit(by=by, knee_readers=knee_readers, code="rises_then_flat", facts=facts)


def _kind(measured: BandwidthMeasurement) -> DeviceKind:
    """The ladder separates latency from bandwidth; the phase with pauses shows whether idle time is credit."""
    alone = next((phase for phase in measured.ladder if phase.readers == 1), None)
    paced = measured.phase("paced")
    if alone is None or paced is None or len(measured.ladder) < 2:
        usual = Remark(code="phase_interrupted")
        why = next((part.reason for part in measured.missing if part.name == "paced"), usual)
        return DeviceKind(kind="unknown", code="not_paced", facts=why.because, evidence=())
    most = measured.ladder[-1]
    rise = most.bw_bytes / alone.bw_bytes
    ratio = _seconds_per_byte(paced) / _seconds_per_byte(alone)
    evidence = (
        Evidence(metric="rise_of_ladder", value=rise, threshold=FLAT, unit="x"),
        Evidence(metric="paced_reading_time", value=ratio, threshold=CREDIT_AT_MOST, unit="x"),
    )
    if measured.from_memory or paced.cache in ("warm", "mixed"):
        return DeviceKind(kind="unknown", code="from_memory", evidence=evidence)
    if any(phase.at_least for phase in (*measured.ladder, paced)):
        return DeviceKind(kind="unknown", code="probe_busy", evidence=evidence)
    sure = alone.bw_low < alone.bw_high and most.bw_high <= SURELY_FLAT * alone.bw_low
    flat = rise <= FLAT and sure
    if flat and ratio <= CREDIT_AT_MOST:
        return DeviceKind(kind="token_bucket", code="token_bucket", evidence=evidence)
    if flat and ratio >= LOST_AT_LEAST:
        return DeviceKind(kind="single_server", code="single_server", evidence=evidence)
    if _scales(measured) and ratio >= LOST_AT_LEAST:
        return DeviceKind(kind="latency", code="latency", evidence=evidence)
    facts: dict[str, float | str] = {"readers": most.readers, "rise": rise, "paced": ratio}
    return DeviceKind(kind="unknown", code="none_of_them", facts=facts, evidence=evidence)


def _fall(ladder: Sequence[BandwidthPhase], knee: BandwidthPhase) -> tuple[BandwidthPhase, BandwidthPhase] | None:
    """The first two steps, up to the knee, of which the later one gets less by more than a knee's share."""
    rising = [phase for phase in ladder if phase.readers <= knee.readers]
    return next((pair for pair in pairwise(rising) if pair[1].bw_bytes < KNEE * pair[0].bw_bytes), None)


def _scales(measured: BandwidthMeasurement) -> bool:
    """True when several readers, but not yet many, get nearly as many times the rate of one."""
    first = measured.ladder[0]
    return any(
        phase.bw_bytes >= PROPORTIONAL * phase.readers / first.readers * first.bw_bytes
        for phase in measured.ladder
        if phase.readers >= PROPORTIONAL_READERS * first.readers
    )


def _seconds_per_byte(phase: BandwidthPhase) -> float:
    """Mean time of reading, pauses left out, a byte of the files read."""
    taken = phase.file_ns or phase.clat_ns
    return taken.mean / 1e9 * phase.files_per_s / phase.bw_bytes
