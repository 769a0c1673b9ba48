"""What a plan starts from: the figures of one accelerator, one file and one read, each with its label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.lock_step import Batches
from loaderprobe.records.bandwidth import RISING, BandwidthPhase, StorageCeiling, fastest
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.plan import WEAKNESS, Label, PlanPart, Quantity, RampStep
from loaderprobe.records.remark import Remark

# Figures with ranges and labels, and the two ways to put them together: products and sums.
#
# Relative half-widths of a product, absolute ones of a sum, add in quadrature: the inputs were measured independently.


def known(
    value: float, unit: str, label: Label, source: str, *, half: float = 0.0, low: float | None = None
) -> Quantity:
    """A figure that is an input: measured, given, published or assumed. `half` is half its 95 % interval."""
    least = max(0.0, value - half) if low is None else low
    return Quantity(
        value=value, low=least, high=value + half, unit=unit, label=label, weakest=label, source=source
    )  # fmt: skip


def weakest(inputs: Sequence[Quantity]) -> Label:
    """The weakest label among the inputs: a derived figure is no better than that."""
    return max((each.weakest for each in inputs), key=WEAKNESS.index)


def product(
    inputs: Sequence[Quantity], unit: str, formula: str, *, factor: float = 1.0, over: Sequence[Quantity] = ()
) -> Quantity:
    """The inputs multiplied with each other and with `factor`, divided by those in `over`."""
    value = factor * math.prod(each.value for each in inputs) / math.prod(each.value for each in over)
    half = min(1.0, math.sqrt(math.fsum(_relative(each) ** 2 for each in (*inputs, *over))))
    return _derived(value, value * half, unit, formula, (*inputs, *over))


def total(inputs: Sequence[Quantity], unit: str, formula: str) -> Quantity:
    """The inputs added up."""
    value = math.fsum(each.value for each in inputs)
    half = math.sqrt(math.fsum(((each.high - each.low) / 2) ** 2 for each in inputs))
    return _derived(value, half, unit, formula, inputs)


def scaled(quantity: Quantity, factor: float, formula: str) -> Quantity:
    """The same figure times an exact number."""
    return replace(
        quantity,
        value=quantity.value * factor,
        low=quantity.low * factor,
        high=quantity.high * factor,
        label="derived",
        formula=formula,
    )


def assumed_too(quantity: Quantity) -> Quantity:
    """The same figure, when an assumption went into it besides."""
    return replace(quantity, label="derived", weakest="assumed")


def _relative(quantity: Quantity) -> float:
    return (quantity.high - quantity.low) / 2 / quantity.value if quantity.value else 0.0


def _derived(value: float, half: float, unit: str, formula: str, inputs: Sequence[Quantity]) -> Quantity:
    return Quantity(
        value=value, low=max(0.0, value - half), high=value + half, unit=unit, label="derived",
        weakest=weakest(inputs), source="", formula=formula,
    )  # fmt: skip


REQUEST_BYTES = 128 * 1024
"""What the kernel's read-ahead asks storage for at a time (read_ahead_kb of most Linux systems)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStorage:
    """The storage that the run itself measured, at the best step of its ladder."""

    name: str
    source: str
    read_bytes_per_s: Quantity
    """Read from storage, read-ahead included."""
    files_per_s: Quantity
    file_s: Quantity
    """Seconds to open and read one file; `low` with one reader or the fewest, `value` at the best step."""
    readers: int
    at_least: bool
    opens_per_s: Quantity | None = None
    """Of cold names and inodes; None where that was not measured: reads open files whose inodes are in memory."""
    opens_at_least: bool = False
    notes: tuple[Remark, ...] = ()
    ramp: tuple[RampStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Single steps of one accelerator: how much later each ended than compute alone would have ended it."""

    step_s: float
    """Of compute alone."""
    late_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWorkload:
    """One accelerator and its data. None is what the run does not tell; `refused` says why."""

    accelerator: str
    compute: str
    """For `sweep --compute`; empty where the accelerator is a real one."""
    rate: Quantity
    """Images/s of one accelerator alone."""
    file_bytes: Quantity
    """Bytes of one image's file."""
    requests_per_file: Quantity
    amplification: Quantity
    """Storage bytes over bytes asked for."""
    images: Quantity | None
    """In the whole data set."""
    cpu_s: Quantity | None = None
    """CPU time of one image in a worker."""
    other_s: Quantity | None = None
    """Time of a worker that is neither CPU nor storage."""
    wait_s: Quantity | None = None
    """Waiting for one image's file in a worker."""
    stalls: Stalls | None = None
    batches: Batches | None = None
    """Of the loader, one by one."""
    storage: MeasuredStorage | None = None
    same_files: bool = True
    """False when the planned files have another size than those the storage was measured with."""
    refused: Mapping[PlanPart, Remark] = field(default_factory=dict)
    notes: tuple[Remark, ...] = ()

    def refusing(self, part: PlanPart, why: Remark) -> PlanWorkload:
        """The same, with a part of the plan refused."""
        return replace(self, refused={**self.refused, part: why})

    def changed(self, *, images: float | None = None, file_bytes: float | None = None) -> PlanWorkload:
        """The same on another data set, as options give it."""
        found = self
        if images is not None:
            found = replace(found, images=known(images, "images", "given", "images"))
        if file_bytes is not None:
            found = replace(
                found,
                file_bytes=known(file_bytes, "B", "given", "mean_size"),
                requests_per_file=requests([file_bytes], exact=False),
                same_files=False,
            )
        return found


def requests(sizes: Sequence[float], *, exact: bool) -> Quantity:
    """Read requests of one file, on average; not `exact` where only the mean size is known."""
    mean = sum(max(1, math.ceil(size / REQUEST_BYTES)) for size in sizes) / len(sizes)
    source = "sizes of the files" if exact else "the mean size"
    return known(mean, "requests", "assumed", f"{source}, requests of {REQUEST_BYTES // 1024} KiB")


# The storage that a run measured: the best step of its ladder, if that came from storage.

HERE = "measured here"
OTHERS_FROM = 0.05
"""Other processes' reads from this share of the own rate on are worth a word."""


def storage_of(measurement: Measurement, file_bytes: float, ceiling: StorageCeiling | None) -> MeasuredStorage | Remark:
    """What the measured ceiling says, over files of this mean size; or why it says nothing."""
    if measurement.storage_kind == "memory":
        return Remark(code="no_storage_behind_files")
    if ceiling is None or not ceiling.phases:
        if ceiling is None or ceiling.missing is None:
            return Remark(code="no_ceiling")
        return Remark(code="unavailable", facts=ceiling.missing.because)
    return best_of(ceiling.phases, file_bytes)


def best_of(ladder: Sequence[BandwidthPhase], file_bytes: float) -> MeasuredStorage | Remark:
    """The fastest step of a ladder over files of this mean size, or why it is no storage's rate."""
    best = fastest(ladder)
    if best is None or not best.bw_bytes > 0:
        return Remark(code="ladder_not_measured")
    if best.cache == "unproved":
        return Remark(code="reads_unproved")
    if best.cache != "cold":
        return Remark(code="reads_not_cold", facts={"files": best.cache})
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


def _notes(phase: BandwidthPhase) -> tuple[Remark, ...]:
    found: list[Remark] = []
    others = phase.other_bytes_per_s or 0.0
    if others > OTHERS_FROM * phase.bw_bytes:
        found.append(Remark(code="others_read", facts={"bytes_per_s": others}))
    if not phase.settled:
        found.append(Remark(code="rate_unsettled"))
    return tuple(found)
