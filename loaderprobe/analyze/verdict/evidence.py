"""Figures that support a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loaderprobe.records.verdict import Evidence, EvidenceCode, How, Speedup


def evidence_of(
    rows: Iterable[tuple[EvidenceCode, float | None, float | None]], unit: str = "", how: How | None = None
) -> tuple[Evidence, ...]:
    """One record a (metric, value, threshold) whose value is known."""
    return tuple(
        Evidence(metric=metric, value=value, threshold=threshold, unit=unit, how=how)
        for metric, value, threshold in rows
        if value is not None
    )


def speedup_evidence(speedups: Mapping[str, Speedup], threshold: float) -> tuple[Evidence, ...]:
    """One record a speed-up, with how it is known."""
    return tuple(
        Evidence(metric=f"speedups.{name}", value=each.value, threshold=threshold, unit="x", how=each.how)
        for name, each in speedups.items()
    )


def waiting_for_cores(delay: Evidence, cores: Evidence, *, full: float) -> dict[str, float | str]:
    """Facts where workers wait for cores that they do not keep busy themselves; `full`: the share at its threshold."""
    if cores.threshold is None or cores.value >= cores.threshold:
        return {}
    return {"run_delay_share": delay.value, "own_cores": cores.value, "cores": cores.threshold / full}
