"""Two bandwidth results: phase by phase, at the same concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from loaderprobe.analyze.compare.comparable import Facts, storage_fact
from loaderprobe.analyze.compare.rows import SideRow
from loaderprobe.analyze.effects import Reading
from loaderprobe.records.bandwidth import BandwidthMeasurement
from loaderprobe.records.compare import CompareNote, Subject
from loaderprobe.records.verdict import Interval
from loaderprobe.units import format_bytes, join_words

LADDER = "files"
Key = tuple[str, str, int]


def bandwidth_facts(found: BandwidthMeasurement) -> Facts:
    """What the probe ran on, and how."""
    engines = {phase.engine for phase in found.phases}
    return {
        "loaderprobe": found.loaderprobe,
        "kernel": found.kernel,
        "cores_available": found.cores_available,
        "storage": storage_fact([found.location]),
        "data": f"{found.files_used} files of {format_bytes(found.mean_size_bytes)}",
        "scratch": str(found.scratch),
        "engine": join_words(sorted(engines - {"processes"})) or None,
        "drop_caches": str(found.drop_caches),
        "files_were": join_words(sorted({phase.cache for phase in found.ladder})) or None,
    }


def bandwidth_rows(runs: Sequence[BandwidthMeasurement]) -> dict[Key, SideRow]:
    """Every phase and operation of a side, of all its runs."""
    found: dict[Key, list[tuple[SideRow, Reading]]] = {}
    for run in runs:
        for key, row in _rows(run).items():
            found.setdefault(key, []).append((row, row.readings[0]))
    return {
        key: SideRow(subject=rows[0][0].subject, unit=rows[0][0].unit, readings=tuple(reading for _, reading in rows))
        for key, rows in found.items()
    }


def _rows(run: BandwidthMeasurement) -> dict[Key, SideRow]:
    rows: dict[Key, SideRow] = {}
    for phase in run.phases:
        # Reads with pauses say how the device treats idle time, not how fast it is.
        if phase.name != "paced" and phase.bw_bytes:
            rows["phase", phase.name, phase.readers] = SideRow(
                subject=Subject(kind="phase", name=phase.name, readers=phase.readers),
                unit="bytes/s",
                readings=(_reading(phase.bw_bytes, phase.bw_low, phase.bw_high),),
            )
    # Names and inodes from memory say nothing of the storage.
    for each in (operation for operation in run.metadata if operation.metadata != "warm"):
        rows[each.operation, "", each.readers] = SideRow(
            subject=Subject(kind=each.operation, readers=each.readers),
            unit="1/s",
            readings=(_reading(each.ops_per_s, each.ops_low, each.ops_high),),
        )
    return rows


def _reading(value: float, low: float, high: float) -> Reading:
    return Reading(values=(value,), figure=Interval(value=value, low=low, high=high))


def in_ladder(row: SideRow) -> bool:
    """True for a step of the ladder: the mean of all is made of these."""
    return row.subject.kind == "phase" and row.subject.name == LADDER


def bandwidth_notes(side: Literal["A", "B"], runs: Sequence[BandwidthMeasurement]) -> tuple[CompareNote, ...]:
    """Steps that the probe itself limited: the storage may be faster."""
    limited = sum(phase.at_least for run in runs for phase in run.ladder)
    return (CompareNote(code="probe_limited", side=side, rows=limited),) if limited else ()
