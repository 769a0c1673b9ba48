"""The storage that a run measured: the best step of its ladder, if that came from storage."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.workload import MeasuredStorage
from loaderprobe.records.bandwidth import RISING, BandwidthPhase, StorageCeiling, fastest
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.note import Note
from loaderprobe.records.plan import Quantity
from loaderprobe.records.plan_curves import RampStep
from loaderprobe.records.plan_reason import PlanReason

HERE = "measured here"
OTHERS_FROM = 0.05
"""Other processes' reads from this share of the own rate on are worth a word."""


def storage_of(
    measurement: Measurement, file_bytes: float, ceiling: StorageCeiling | None
) -> MeasuredStorage | PlanReason:
    """What the measured ceiling says, over files of this mean size; or why it says nothing."""
    if measurement.storage_kind == "memory":
        return PlanReason(code="files_in_memory")
    if ceiling is None or not ceiling.phases:
        if ceiling is None or ceiling.missing is None:
            return PlanReason(code="ceiling_not_measured")
        return PlanReason(code="unavailable", facts=ceiling.missing.because)
    return best_of(ceiling.phases, file_bytes)


def best_of(ladder: Sequence[BandwidthPhase], file_bytes: float) -> MeasuredStorage | PlanReason:
    """The fastest step of a ladder over files of this mean size, or why it is no storage's rate."""
    best = fastest(ladder)
    if best is None or not best.bw_bytes > 0:
        return PlanReason(code="ladder_not_measured")
    if best.cache == "unproved":
        return PlanReason(code="reads_unproved")
    if best.cache != "cold":
        return PlanReason(code="reads_not_cold", facts={"files": best.cache})
    first = min(ladder, key=lambda phase: phase.readers)
    return MeasuredStorage(
        name=HERE,
        source=f"{best.readers} readers of whole files",
        read_bytes_per_s=_read_rate(best),
        files_per_s=known(
            best.files_per_s, "1/s", "measured", f"{best.readers} readers", half=_half(best) / file_bytes
        ),
        file_s=_file_s(first, best),
        readers=best.readers,
        at_least=best.at_least or _still_rising(ladder),
        ramp=tuple(_step(phase) for phase in sorted(ladder, key=lambda phase: phase.readers)),
        notes=_notes(best),
    )


def _step(phase: BandwidthPhase) -> RampStep:
    def percentile(key: str) -> float | None:
        found = phase.file_ns.percentile.get(key) if phase.file_ns else None
        return None if found is None else found / 1e9

    return RampStep(
        readers=phase.readers,
        files_per_s=phase.files_per_s,
        bytes_per_s=phase.bw_bytes,
        p50_s=percentile("50.000000"),
        p99_s=percentile("99.000000"),
    )


def _still_rising(ladder: Sequence[BandwidthPhase]) -> bool:
    """True when more readers than were tried would get more."""
    rates = [phase.bw_bytes for phase in sorted(ladder, key=lambda phase: phase.readers)]
    return len(rates) == 1 or rates[-1] > RISING * max(rates[:-1])


def _read_rate(phase: BandwidthPhase) -> Quantity:
    """What the storage delivered, read-ahead included."""
    factor = phase.storage_bytes / phase.io_bytes if phase.storage_bytes and phase.io_bytes else 1.0
    source = f"{phase.readers} readers of whole files"
    return known(phase.bw_bytes * factor, "B/s", "measured", source, half=_half(phase) * factor)


def _half(phase: BandwidthPhase) -> float:
    return max(0.0, phase.bw_high - phase.bw_bytes)


def _file_s(first: BandwidthPhase, best: BandwidthPhase) -> Quantity:
    low, high = sorted((_mean_s(first), _mean_s(best)))
    source = f"{first.readers} and {best.readers} readers" if first is not best else f"{best.readers} readers"
    return known(high, "s", "measured", source, low=low)


def _mean_s(phase: BandwidthPhase) -> float:
    """Seconds of one whole file; by Little's law where the engine does not time files."""
    if phase.file_ns is not None:
        return phase.file_ns.mean / 1e9
    return phase.readers / phase.files_per_s if phase.files_per_s else 0.0


def _notes(phase: BandwidthPhase) -> tuple[Note, ...]:
    found: list[Note] = []
    others = phase.other_bytes_per_s or 0.0
    if others > OTHERS_FROM * phase.bw_bytes:
        found.append(Note(code="others_read", facts={"bytes_per_s": others}))
    if not phase.settled:
        found.append(Note(code="rate_unsettled"))
    return tuple(found)
