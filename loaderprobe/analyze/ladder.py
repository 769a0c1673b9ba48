"""What limits a storage, by the ladder of readers and ranks that read it, and what kind of device it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from loaderprobe.analyze.verdict.rates import host_names, slow_host
from loaderprobe.records import thresholds
from loaderprobe.records.bandwidth import BandwidthMeasurement, Limit, LimitCode, LimitedBy
from loaderprobe.records.phases import FROM_MEMORY, BandwidthPhase, DeviceKind
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.verdict import Evidence

_BY: dict[LimitCode, LimitedBy] = {
    "from_memory": "memory", "probe_busy": "probe", "slow_rank": "rank", "slow_host": "host", "plateau": "bandwidth",
    "process": "process", "flat": "bandwidth", "rises": "latency",
}  # fmt: skip
"""What the ladder is limited by; not known with the other codes, except rises_then_flat that ends flat."""


def limit_of(measured: BandwidthMeasurement) -> Limit:
    """What stops the ladder from rising; of ranks by the step with the most of them."""
    best = measured.best
    if best is None:
        return _limit("no_step")
    knee = next(phase.readers for phase in measured.ladder if phase.bw_bytes >= thresholds.AT_LIMIT * best.bw_bytes)
    if measured.from_memory:
        share = "partly" if any(phase.cache in ("cold", "mixed") for phase in measured.steps) else "wholly"
        return _limit("from_memory", {"share": share}, knee)
    if best.fairness < thresholds.UNFAIR:
        return _uneven_ranks(best)
    if best.at_least:
        return _limit("probe_busy", {"best_bytes_per_s": best.bw_bytes}, knee)
    if measured.ladder_cut_short:
        return _limit("interrupted")
    if measured.by_ranks:
        return _process(measured.steps, best) or _rise_of_ranks(measured.steps, best)
    return _rise(measured.ladder, best) if len(measured.ladder) > 1 else _limit("one_step")


def has_ended(measured: BandwidthMeasurement) -> bool:
    """True where more ranks got no more, and neither the probe nor one process held them up: a ceiling."""
    best = measured.best
    if best is None or best.at_least or _process(measured.steps, best):
        return False
    return _rise_of_ranks(measured.steps, best).code == "plateau"


def _limit(code: LimitCode, facts: Facts | None = None, knee_readers: int | None = None) -> Limit:
    return Limit(by=_BY.get(code, "unknown"), knee_readers=knee_readers, code=code, facts=facts or {})


def _rise(ladder: Sequence[BandwidthPhase], best: BandwidthPhase) -> Limit:
    """Of one process: by the shape, since one reader alone shows what a file takes."""
    first, knee = ladder[0], next(phase for phase in ladder if phase.bw_bytes >= thresholds.AT_LIMIT * best.bw_bytes)
    facts: Facts = {
        "first_readers": first.readers,
        "first_bytes_per_s": first.bw_bytes,
        "file_s": (first.file_ns or first.clat_ns).percentile["50.000000"] / 1e9,
        "knee_readers": knee.readers,
        "best_readers": best.readers,
        "best_bytes_per_s": best.bw_bytes,
    }
    if best.bw_bytes <= thresholds.FLAT * first.bw_bytes:
        return _limit("flat", facts, knee.readers)
    for before, after in pairwise(phase for phase in ladder if phase.readers <= knee.readers):
        if after.bw_bytes < thresholds.AT_LIMIT * before.bw_bytes:
            facts |= {"before_readers": before.readers, "before_bytes_per_s": before.bw_bytes}
            facts |= {"after_readers": after.readers, "after_bytes_per_s": after.bw_bytes}
            return _limit("uneven", facts)
    still_rising = knee is ladder[-1]
    facts["end"] = "rising" if still_rising else "flat"
    knee_readers = None if still_rising else knee.readers
    if _scales(ladder):
        return _limit("rises", facts, knee_readers)
    by: LimitedBy = "unknown" if still_rising else "latency then bandwidth"
    return Limit(by=by, knee_readers=knee_readers, code="rises_then_flat", facts=facts)


def _uneven_ranks(phase: BandwidthPhase) -> Limit:
    """Where ranks differ: by host, by rank, or by chance."""
    slow, share = phase.slowest, phase.fairness
    assert slow is not None, "ranks that differ"
    if not phase.long_enough:
        return _limit("too_short", {"reading_s": slow.seconds, "share": share})
    hosts = host_names([(rank.node, rank.host) for rank in phase.by_rank])
    host = slow_host([(name, rank.bw_bytes) for name, rank in zip(hosts, phase.by_rank, strict=True)])
    if host and host.lead > 1 / thresholds.UNFAIR:
        facts: Facts = {"slow_ranks": host.slow, "host_ranks": host.ranks, "elsewhere_bytes_per_s": host.elsewhere}
        return _limit("slow_host", {"host": host.host, "bytes_per_s": host.rate, **facts})
    facts = {"rank": slow.rank, "bytes_per_s": slow.bw_bytes, "share": share, "nodes": phase.nodes}
    return _limit("slow_rank", {"host": slow.host, **facts})


def _process(steps: Sequence[BandwidthPhase], best: BandwidthPhase) -> Limit | None:
    """Where as many readers in fewer ranks, or on fewer nodes, get less."""
    alike = [step for step in steps if step.readers == best.readers and step is not best]
    fewer = min(alike, key=lambda step: (step.nodes, step.ranks), default=None)
    if fewer is None or best.bw_low < thresholds.HELD_BY_PROCESS * fewer.bw_high:
        return None
    facts: Facts = {"clients": best.readers, "ranks": best.ranks, "nodes": best.nodes, "bytes_per_s": best.bw_bytes}
    facts |= {"fewer_ranks": fewer.ranks, "fewer_nodes": fewer.nodes, "fewer_bytes_per_s": fewer.bw_bytes}
    return _limit("process", facts)


def _rise_of_ranks(steps: Sequence[BandwidthPhase], best: BandwidthPhase) -> Limit:
    """Of ranks: whether it has ended. What they gain may be that of more processes and nodes, and not latency."""
    fewer = [step for step in steps if step.readers < best.readers]
    if not fewer:
        return _limit("one_step_of_ranks", {"clients": best.readers})
    early = [step for step in fewer if step.readers * thresholds.TWO_DOUBLINGS <= best.readers]
    last = max(early, key=lambda step: step.readers, default=None)
    if last is not None and max(step.bw_bytes for step in steps) < thresholds.WORTH * last.bw_bytes:
        facts: Facts = {"bytes_per_s": best.bw_bytes, "clients": last.readers, "most_clients": best.readers}
        return _limit("plateau", facts)
    return _limit("rising", {"clients": best.readers, "next": 2 * best.readers})


def kind_of(measured: BandwidthMeasurement) -> DeviceKind:
    """The ladder separates latency from bandwidth; the phase with pauses shows whether idle time is credit."""
    ladder, paced = measured.ladder, measured.phase("paced")
    alone = next((phase for phase in ladder if phase.readers == 1), None)
    if alone is None or paced is None or len(ladder) < 2:
        usual = Remark(code="ranks_do_not_pause" if measured.by_ranks else "phase_interrupted")
        why = next((part.reason for part in measured.missing if part.name == "paced"), usual)
        return DeviceKind(kind="unknown", code="not_paced", facts=why.because, evidence=())
    last = ladder[-1]
    rise = last.bw_bytes / alone.bw_bytes
    ratio = _seconds_per_byte(paced) / _seconds_per_byte(alone)
    evidence = (
        Evidence(metric="rise_of_ladder", value=rise, threshold=thresholds.FLAT, unit="x"),
        Evidence(metric="paced_reading_time", value=ratio, threshold=thresholds.CREDIT_AT_MOST, unit="x"),
    )
    if measured.from_memory or paced.cache in FROM_MEMORY:
        return DeviceKind(kind="unknown", code="from_memory", evidence=evidence)
    scales = _scales(ladder) and ratio >= thresholds.LOST_AT_LEAST
    # What many readers got at least is enough to show that they scale.
    if scales and not (ladder[0].at_least or paced.at_least):
        return DeviceKind(kind="latency", code="latency", evidence=evidence)
    if any(phase.at_least for phase in (*ladder, paced)):
        return DeviceKind(kind="unknown", code="probe_busy", evidence=evidence)
    sure = alone.bw_low < alone.bw_high and last.bw_high <= thresholds.SURELY_FLAT * alone.bw_low
    flat = rise <= thresholds.FLAT and sure
    if flat and ratio <= thresholds.CREDIT_AT_MOST:
        return DeviceKind(kind="token_bucket", code="token_bucket", evidence=evidence)
    if flat and ratio >= thresholds.LOST_AT_LEAST:
        return DeviceKind(kind="single_server", code="single_server", evidence=evidence)
    facts: Facts = {"readers": last.readers, "rise": rise, "paced": ratio, "bytes_per_s": last.bw_bytes}
    return DeviceKind(kind="unknown", code="none_of_them", facts=facts, evidence=evidence)


def _scales(ladder: Sequence[BandwidthPhase]) -> bool:
    """True when several readers, but not yet many, get nearly as many times the rate of one."""
    first = ladder[0]
    return any(
        phase.bw_bytes >= thresholds.PROPORTIONAL * phase.readers / first.readers * first.bw_bytes
        for phase in ladder
        if phase.readers >= thresholds.PROPORTIONAL_READERS * first.readers
    )


def _seconds_per_byte(phase: BandwidthPhase) -> float:
    """Mean time of reading, pauses left out, a byte of the files read."""
    busy_ns = phase.file_ns.mean * phase.files_per_s if phase.file_ns else phase.clat_ns.mean * phase.iops
    return busy_ns / 1e9 / phase.bw_bytes
