"""What a configuration reads from storage, against the ceiling of that storage at its concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loaderprobe.analyze.verdict.evidence import evidence_of
from loaderprobe.analyze.verdict.rates import cold_fraction, worker_cost
from loaderprobe.records.bandwidth import BandwidthPhase, StorageCeiling
from loaderprobe.records.measurement import COLD_AT_LEAST, Measurement, Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Evidence

# A disk that moves this share of what it can is the limit of those who read from it.
NEAR_CEILING = 0.85
_UNCOUNTED = Remark(code="reads_not_counted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Bytes that one configuration moved while training; None where they are not known, with the reason beside."""

    read_bytes_per_s: float | None
    """Fetched from storage by the loader, read-ahead included."""
    cold_fraction: float | None
    amplification: float | None
    other_bytes_per_s: float | None
    """Read from the same devices by others meanwhile."""
    ceiling_bytes_per_s: float | None
    """What the device moves for as many readers as there are workers."""
    readers: int
    unavailable: dict[str, Remark] = field(default_factory=dict)

    @property
    def ceiling_fraction(self) -> float | None:
        """Share of the ceiling; above 1 when the device did better than when its ceiling was measured."""
        if self.read_bytes_per_s is None or not self.ceiling_bytes_per_s:
            return None
        return self.read_bytes_per_s / self.ceiling_bytes_per_s

    def evidence(self) -> tuple[Evidence, ...]:
        """The figures that are known, for the verdict."""
        return (
            *evidence_of([("disk_ceiling_fraction", self.ceiling_fraction, NEAR_CEILING)]),
            *evidence_of([("cold_fraction", self.cold_fraction, None)]),
            *evidence_of([("read_amplification", self.amplification, None)], unit="x"),
            *evidence_of([("other_read_bytes_per_s", self.other_bytes_per_s, None)], unit="bytes/s"),
        )

    def facts(self) -> dict[str, float | str]:
        """How near the storage is to its ceiling, for the reason of a verdict; empty when that is not known."""
        if self.ceiling_fraction is None or self.read_bytes_per_s is None:
            return {}
        return {
            "read_bytes_per_s": self.read_bytes_per_s,
            "ceiling_share": self.ceiling_fraction,
            "concurrency": float(self.readers),
        }


def disk_use(
    measurement: Measurement, segments: Sequence[Segment], ceiling: StorageCeiling | None, images_per_s: float
) -> DiskUse:
    """The disk's side of some segments of a measurement that serve so many images/s.

    Reads are those of an image times that rate, so that both figures are of the same round, the median one.
    """
    readers = measurement.config.readers
    cost = worker_cost(measurement.worker_batches, segments)
    seconds = cost.images / images_per_s if cost is not None else 0.0
    counted = measurement.storage_counts_reads and cost is not None
    own = cost.read_bytes if counted and cost is not None else None
    moved = [segment.disk_bytes for segment in segments]
    all_moved = sum(each or 0 for each in moved) if None not in moved else None
    cold = cold_fraction(measurement, segments)
    phase, reason = ceiling_phase(measurement, ceiling, readers)
    unavailable: dict[str, Remark] = {}
    if own is None:
        for name in ("disk_read_bytes_per_s", "cold_fraction", "read_amplification"):
            unavailable[name] = _UNCOUNTED
    elif cold is None or cold < COLD_AT_LEAST:
        unavailable["read_amplification"] = Remark(code="files_came_from_memory")
    if own is None or all_moved is None:
        unavailable["other_read_bytes_per_s"] = _UNCOUNTED if own is None else Remark(code="devices_not_visible")
    if own is None or phase is None:
        unavailable["disk_ceiling_fraction"] = reason or _UNCOUNTED
    return DiskUse(
        read_bytes_per_s=None if own is None else own / seconds,
        cold_fraction=cold,
        amplification=cold if cold is not None and cold >= COLD_AT_LEAST else None,
        other_bytes_per_s=None if own is None or all_moved is None else max(0, all_moved - own) / seconds,
        ceiling_bytes_per_s=None if phase is None else phase.bw_bytes * (phase.storage_bytes or 0) / phase.io_bytes,
        readers=readers,
        unavailable=unavailable,
    )


def ceiling_phase(
    measurement: Measurement, ceiling: StorageCeiling | None, readers: int
) -> tuple[BandwidthPhase | None, Remark | None]:
    """A ceiling counts only when its own reads were cold; else the reason why there is none."""
    if measurement.config.cache == "warm":
        return None, Remark(code="warm_as_asked")
    if measurement.config.nodes > 1:
        return None, Remark(code="ceiling_of_one_node")
    if ceiling is None:
        return None, Remark(code="ceiling_not_measured")
    phase = ceiling.at(readers)
    if phase is None:
        return None, ceiling.missing or Remark(code="ceiling_not_measured")
    if phase.cache != "cold":
        return None, Remark(code="ceiling_not_cold", facts={"files": phase.cache})
    if phase.at_least:
        return None, Remark(code="cores_below_ceiling", facts={"bytes_per_s": phase.bw_bytes})
    return phase, None
