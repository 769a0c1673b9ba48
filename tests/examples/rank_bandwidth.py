"""Builders of what ranks got that read at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.analyze.bandwidth import UNPACED
from loaderprobe.analyze.rank_bandwidth import ranks_limit
from loaderprobe.records.bandwidth import Latency, RankBandwidthReport, RankRead, RanksPhase
from loaderprobe.records.environment import Origin
from loaderprobe.testing.fakes import example_environment, example_location

ORIGIN = Origin(created_utc="2026-11-22T10:00:00+00:00", command="test", environment=example_environment())


def example_ranks(*bw_bytes: float, readers: int = 2, nodes: int = 1, **changes: Any) -> RanksPhase:
    """A step with a rank for each of these rates."""
    rate = sum(bw_bytes)
    on = [rank * nodes // len(bw_bytes) for rank in range(len(bw_bytes))]
    by_rank = tuple(
        RankRead(
            rank=rank, node=on[rank], host=f"node{on[rank]}", bw_bytes=each, io_bytes=round(3 * each),
            seconds=3.0, storage_bytes=round(3 * each),
        )
        for rank, each in enumerate(bw_bytes)
    )  # fmt: skip
    taken = Latency(
        min=1e5, max=2e8, mean=2e7, stddev=1e7, N=500,
        percentile={"50.000000": 1e6, "95.000000": 95e6, "99.000000": 99e6, "99.900000": 120e6},
    )  # fmt: skip
    phase = RanksPhase(
        name="files", engine="threads", readers=readers * len(bw_bytes), block_bytes=None, pause_s_per_byte=0.0,
        runtime=3000.0, io_bytes=round(3 * rate), bw_bytes=rate, bw_low=0.98 * rate, bw_high=1.02 * rate, settled=True,
        iops=rate / 105_000, total_ios=round(3 * rate / 105_000), files_per_s=rate / 105_000, clat_ns=taken,
        file_ns=taken, storage_bytes=round(3 * rate), cold_fraction=1.0, amplification=1.0, other_bytes_per_s=None,
        resident_before=None, cache="cold", first_third_bw_bytes=rate, last_third_bw_bytes=rate, cpu_cores=0.1,
        at_least=False, ranks=len(bw_bytes), nodes=nodes, last_done_bw_bytes=0.99 * rate, by_rank=by_rank,
    )  # fmt: skip
    return replace(phase, **changes)


def example_rank_bandwidth(*phases: RanksPhase, **changes: Any) -> RankBandwidthReport:
    """Of a folder of 400 photographs."""
    hosts = tuple(dict.fromkeys(each.host for phase in phases for each in phase.by_rank))
    environment = ORIGIN.environment
    found = RankBandwidthReport(
        loaderprobe=environment.loaderprobe, created_utc=ORIGIN.created_utc, kernel=environment.kernel,
        cores_available=environment.cores_available, path="/data", location=example_location("/data"), files_found=800,
        files_used=400, mean_size_bytes=105_000.0, images=True, scratch=False, drop_caches=False, interrupted=False,
        phases=phases, limit=ranks_limit(phases), kind=UNPACED, feeds=(), origin=ORIGIN, hosts=hosts,
    )  # fmt: skip
    return replace(found, **changes)
