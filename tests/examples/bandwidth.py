"""Builders of phases of the bandwidth probe, and of a finished report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.analyze.plan.sources import judge_bandwidth
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, MetadataOperation, MetadataPhase
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import Missing
from loaderprobe.records.phases import BandwidthPhase, Latency, RankRead
from loaderprobe.records.remark import Remark
from tests.fakes import example_environment, example_location

FILE_BYTES = 114_000
ORIGIN = Origin(
    created_utc="2026-11-21T07:00:00+00:00", command="loaderprobe bandwidth /data/imagenet-like/500x375",
    environment=replace(example_environment(), kernel="6.8.0", cores_available=16.0),
)  # fmt: skip

BUSY = Remark(code="probe_busy", facts={"cores": 15.5, "cores_available": 16.0})


def example_latency(mean_s: float) -> Latency:
    """A skewed distribution with this mean."""
    ns = mean_s * 1e9
    return Latency(
        min=0.4 * ns,
        max=9.0 * ns,
        mean=ns,
        stddev=0.6 * ns,
        N=5000,
        percentile={"50.000000": 0.9 * ns, "95.000000": 2.0 * ns, "99.000000": 3.1 * ns, "99.900000": 5.0 * ns},
    )


def example_phase(readers: int, bw_bytes: float, **changes: Any) -> BandwidthPhase:
    """A cold phase of three seconds over files of 114 kB, whose latency follows from its rate."""
    file_s = readers * FILE_BYTES / bw_bytes
    phase = BandwidthPhase(
        name="files",
        engine="threads",
        readers=readers,
        block_bytes=None,
        pause_s_per_byte=0.0,
        runtime=3000.0,
        io_bytes=round(3 * bw_bytes),
        bw_bytes=bw_bytes,
        bw_low=0.97 * bw_bytes,
        bw_high=1.03 * bw_bytes,
        settled=True,
        iops=bw_bytes / FILE_BYTES,
        total_ios=round(3 * bw_bytes / FILE_BYTES),
        files_per_s=bw_bytes / FILE_BYTES,
        clat_ns=example_latency(0.95 * file_s),
        file_ns=example_latency(file_s),
        storage_bytes=round(3 * 1.02 * bw_bytes),
        cold_fraction=1.0,
        amplification=1.02,
        other_bytes_per_s=0.0,
        resident_before=0.0,
        cache="cold",
        first_third_bw_bytes=bw_bytes,
        last_third_bw_bytes=bw_bytes,
        cpu_cores=0.2,
        at_least=False,
    )
    return replace(phase, **changes)


def example_operations(
    rates: dict[int, float], operation: MetadataOperation = "open", **changes: Any
) -> tuple[MetadataPhase, ...]:
    """Cold opens or stats/s by number of readers, each ±3 %, for which 4 KiB of inodes were read."""
    return tuple(
        replace(
            MetadataPhase(
                operation=operation,
                readers=readers,
                runtime=1000.0,
                total_ops=round(rate),
                ops_per_s=rate,
                ops_low=0.97 * rate,
                ops_high=1.03 * rate,
                op_ns=example_latency(readers / rate),
                drops=1,
                storage_bytes=4096 * round(rate),
                server_calls=None,
                metadata="cold",
                cpu_cores=0.1,
                at_least=False,
            ),
            **changes,
        )
        for readers, rate in rates.items()
    )


def example_bandwidth() -> BandwidthReport:
    """A ladder of 1 to 32 readers that saturates, with one phase that the probe itself bounds."""
    measured = BandwidthMeasurement(
        path="/data/imagenet-like/500x375",
        location=example_location("/data/imagenet-like/500x375"),
        files_found=4094,
        files_used=4094,
        mean_size_bytes=float(FILE_BYTES),
        images=True,
        scratch=False,
        drop_caches=False,
        interrupted=False,
        phases=(
            example_phase(1, 61.3e6),
            example_phase(2, 118e6),
            example_phase(4, 204e6, other_bytes_per_s=12.5e6),
            example_phase(8, 287e6, settled=False, bw_low=241e6, bw_high=333e6),
            example_phase(
                16, 296e6, cache="unproved", storage_bytes=None, cold_fraction=None, amplification=None,
                resident_before=None, other_bytes_per_s=None,
            ),
            example_phase(32, 301e6, at_least=True, notes=(BUSY,)),
            example_phase(16, 322e6, name="direct"),
            example_phase(1, 20.1e6, name="paced", pause_s_per_byte=3.3e-8),
        ),
        missing=(Missing(name="sequential", reason=Remark(code="no_large_file")),),
        notes=(Remark(code="read_again", facts={"size_bytes": 467e6, "times": 3}),),
    )  # fmt: skip
    return judge_bandwidth(measured, {"mlperf-a100": 919.5, "mlperf-h100": 1785.7}, ORIGIN)


def example_ranks(*bw_bytes: float, readers: int = 2, nodes: int = 1, **changes: Any) -> BandwidthPhase:
    """A step with a rank for each of these rates, of so many readers each, over files of 105 kB."""
    rate = sum(bw_bytes)
    on = [rank * nodes // len(bw_bytes) for rank in range(len(bw_bytes))]
    by_rank = tuple(
        RankRead(
            rank=rank, node=on[rank], host=f"node{on[rank]}", bw_bytes=rank_rate, io_bytes=round(3 * rank_rate),
            seconds=3.0, storage_bytes=round(3 * rank_rate),
        )
        for rank, rank_rate in enumerate(bw_bytes)
    )  # fmt: skip
    taken = Latency(
        min=1e5, max=2e8, mean=2e7, stddev=1e7, N=500,
        percentile={"50.000000": 1e6, "95.000000": 95e6, "99.000000": 99e6, "99.900000": 120e6},
    )  # fmt: skip
    figures: dict[str, Any] = {
        "runtime": 3000.0 / 0.99, "bw_low": 0.98 * rate, "bw_high": 1.02 * rate, "iops": rate / 105_000,
        "total_ios": round(3 * rate / 105_000), "files_per_s": rate / 105_000, "clat_ns": taken, "file_ns": taken,
        "storage_bytes": round(3 * rate), "amplification": 1.0, "other_bytes_per_s": None, "resident_before": None,
        "ranks": len(bw_bytes), "nodes": nodes, "by_rank": by_rank,
    }  # fmt: skip
    return example_phase(readers * len(bw_bytes), rate, **{**figures, **changes})


def example_rank_bandwidth(*phases: BandwidthPhase, **changes: Any) -> BandwidthReport:
    """Of a folder of 400 photographs."""
    measured = BandwidthMeasurement(
        path="/data", location=example_location("/data"), files_found=800, files_used=400, mean_size_bytes=105_000.0,
        images=True, scratch=False, drop_caches=False, interrupted=False, phases=phases,
    )  # fmt: skip
    return replace(judge_bandwidth(measured, {}, ORIGIN), **changes)
