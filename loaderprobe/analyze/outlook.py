"""What 1, 8 and 64 accelerators would ask of storage and cores, for every data set of a run: the figures of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loaderprobe.analyze.plan.demand import cores_of, demand
from loaderprobe.analyze.plan.from_sweep import cold_and_fastest, workload_of
from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.supply import judge_supply, measured_offer
from loaderprobe.analyze.plan.workload import Workload
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import NO_STEP, Measurement
from loaderprobe.records.plan import USE, UTILIZATION, Asked, Quantity
from loaderprobe.records.report import ConfigurationRow, Outlook, StorageNeed, StorageSupply

COUNTS = (1, 8, 64)
"""Accelerators: one, a machine, a small cluster."""
REFERENCE = "mlperf-h100"
"""What is planned for where only a CPU trained: its own rate says nothing of an accelerator."""
_REFERENCE_SOURCE = "MLPerf Storage v1.0, ResNet-50 on H100"
_ASKED = Asked(accelerators=1)


def outlooks(
    rows: Sequence[ConfigurationRow],
    measurements: Mapping[str, Measurement],
    files: Iterable[FileSet],
    ceilings: Mapping[str, StorageCeiling],
    accelerators: Mapping[str, float],
) -> tuple[Outlook, ...]:
    """One for each data set and accelerator; for a CPU only where the run has nothing else, and then of `REFERENCE`."""
    by_fingerprint = {each.fingerprint: each for each in files}
    together: dict[tuple[str, str], list[ConfigurationRow]] = {}
    judged = [row for row in rows if row.verdict and row.config.compute.kind != NO_STEP]
    devices = [row for row in judged if row.config.compute.kind != "cpu"]
    for row in devices or judged:
        together.setdefault((row.config.data, row.config.compute.name), []).append(row)
    other = None if devices else _reference(accelerators)
    found = []
    for (data, _), some in together.items():
        fewest = min(row.config.ranks for row in some)
        row = cold_and_fastest([row for row in some if row.config.ranks == fewest])
        if data in by_fingerprint and (devices or other):
            made = _outlook(row, measurements[row.key], by_fingerprint[data], ceilings.get(data), other)
            found += [made] if made else []
    return tuple(found)


def _reference(accelerators: Mapping[str, float]) -> tuple[str, Quantity] | None:
    rate = accelerators.get(REFERENCE)
    return (REFERENCE, known(rate, "images/s", "given", _REFERENCE_SOURCE)) if rate else None


def _outlook(
    row: ConfigurationRow, measurement: Measurement, files: FileSet, ceiling: StorageCeiling | None,
    other: tuple[str, Quantity] | None,
) -> Outlook | None:  # fmt: skip
    assert row.verdict is not None
    try:
        workload = workload_of(measurement, row.verdict, files, ceiling, other)
    except BadValue:
        return None
    one = demand(workload, UTILIZATION)
    specified = other is not None or measurement.compute.specified_images_per_s is not None
    cores = cores_of(workload, UTILIZATION)
    supply = _supply(workload)
    return Outlook(
        data=row.config.resolution,
        compute=row.config.compute.name,
        accelerator=workload.accelerator if specified else measurement.compute.device,
        images_per_s=workload.rate.value,
        source=workload.rate.source,
        specified=specified,
        utilization=UTILIZATION,
        use=USE,
        needs=tuple(
            StorageNeed(
                accelerators=count,
                read_bytes_per_s=one.times(count).read_bytes.value,
                files_per_s=one.times(count).opens.value,
            )
            for count in COUNTS
        ),
        cores=cores.value if isinstance(cores, Quantity) else None,
        supply=supply,
        missing=None if supply else workload.refused.get("measured_storage"),
    )


def _supply(workload: Workload) -> StorageSupply | None:
    offer, storage = measured_offer(workload), workload.storage
    if offer is None or storage is None:
        return None
    judged = judge_supply(offer, demand(workload, UTILIZATION), _ASKED)
    if judged.feeds is None:
        return None
    return StorageSupply(
        read_bytes_per_s=storage.read_bytes_per_s.value,
        readers=storage.readers,
        at_least=storage.at_least,
        feeds=judged.feeds,
    )
