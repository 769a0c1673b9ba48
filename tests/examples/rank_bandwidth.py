"""Builders of what ranks got that read at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    times = {"50.000000": 1e6, "95.000000": 95e6, "99.000000": 99e6, "99.900000": 120e6}
    phase = RanksPhase(
        ranks=len(bw_bytes), nodes=nodes, readers=readers, runtime=3000.0, bw_bytes=rate, bw_low=0.98 * rate,
        bw_high=1.02 * rate, settled=True, last_done_bw_bytes=0.99 * rate, files_per_s=rate / 105_000,
        file_ns=Latency(min=1e5, max=2e8, mean=2e7, stddev=1e7, N=500, percentile=times), cold_fraction=1.0,
        cache="cold", cpu_cores=0.1, at_least=False, by_rank=by_rank,
    )  # fmt: skip
    return replace(phase, **changes)


def example_rank_bandwidth(*phases: RanksPhase, **changes: Any) -> RankBandwidthReport:
    """Of a folder of 400 photographs."""
    hosts = tuple(dict.fromkeys(each.host for phase in phases for each in phase.by_rank))
    found = RankBandwidthReport(
        origin=ORIGIN, path="/data", location=example_location("/data"), hosts=hosts, files_found=800,
        files_used=400, mean_size_bytes=105_000.0, images=True, whole_files=True, interrupted=False, phases=phases,
        limit=ranks_limit(phases),
    )  # fmt: skip
    return replace(found, **changes)
