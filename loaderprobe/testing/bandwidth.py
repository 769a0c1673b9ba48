"""The builder of a finished bandwidth ladder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BandwidthLeg, BandwidthReport
from loaderprobe.testing.machine import example_location


def _leg(readers: int, bytes_per_s: float, latency_s: float, **changes: Any) -> BandwidthLeg:
    files = int(bytes_per_s * 3 / 114_000)
    leg = BandwidthLeg(
        readers=readers,
        seconds=3.0,
        files=files,
        delivered_bytes=files * 114_000,
        storage_bytes=files * 114_700,
        bytes_per_s=bytes_per_s,
        files_per_s=bytes_per_s / 114_000,
        latency_p50_s=latency_s,
        latency_p99_s=latency_s * 3.1,
        resident_before=0.0,
        cache="cold",
        probe_bound=False,
    )
    return replace(leg, **changes)


def example_bandwidth() -> BandwidthReport:
    """A ladder of 1 to 32 readers that saturates, with one leg that the probe itself bounds."""
    return BandwidthReport(
        schema=BANDWIDTH_SCHEMA,
        schema_version=1,
        path="/data/imagenet-like/500x375",
        location=example_location("/data/imagenet-like/500x375"),
        files_found=4094,
        files_used=4094,
        mean_size_bytes=114_000.0,
        images=True,
        scratch=False,
        legs=(
            _leg(1, 61.3e6, 1.7e-3),
            _leg(2, 118e6, 1.8e-3),
            _leg(4, 204e6, 2.1e-3),
            _leg(8, 287e6, 3.0e-3),
            _leg(16, 296e6, 5.9e-3, cache="unproved", storage_bytes=None, resident_before=None),
            _leg(32, 301e6, 11.8e-3, probe_bound=True, note="the probe used 97 % of the cores it may use"),
        ),
        notes=("the files fill 467 MB, 3 % of the memory, so each leg evicted them before it began",),
    )
