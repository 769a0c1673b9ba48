"""What `loaderprobe bandwidth` found: how fast storage hands over whole files at random."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.environment import StorageLocation

BANDWIDTH_SCHEMA = "loaderprobe/bandwidth"


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthLeg:
    """One step of the ladder: `readers` threads reading whole files in random order."""

    readers: int
    seconds: float
    files: int
    delivered_bytes: int
    storage_bytes: int | None
    """What this process read from storage; None where the file system does not account reads."""
    bytes_per_s: float
    files_per_s: float
    latency_p50_s: float
    """Open, read to the end and close, per file."""
    latency_p99_s: float
    resident_before: float | None
    cache: str
    """`cold`, `warm`, `mixed` (from bytes), or `unproved`."""
    probe_bound: bool
    """True when the probe's own CPU use may be the limit: read the figure as `at least`."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthReport:
    """The ladder, the files it was made with, and where they live."""

    schema: str
    schema_version: int
    path: str
    location: StorageLocation
    files_found: int
    files_used: int
    mean_size_bytes: float
    images: bool
    """True when the files are images, so that files/s are images/s."""
    scratch: bool
    legs: tuple[BandwidthLeg, ...]
    notes: tuple[str, ...] = ()
