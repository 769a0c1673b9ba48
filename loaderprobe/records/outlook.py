"""What accelerators would ask of the machine, beside what it has: of its storage and of its cores."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.plan_reason import PlanReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeed:
    """What so many accelerators together read while files are cold."""

    accelerators: int
    read_bytes_per_s: float
    files_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSupply:
    """The most that the storage under a data set delivered in this run."""

    read_bytes_per_s: float
    """Read from storage, read-ahead included."""
    readers: int
    at_least: bool
    """True when it may deliver more than that."""
    feeds: float
    """Accelerators, with `use` of that rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Training on one data set with accelerators of one kind, from the figures of `loaderprobe plan`."""

    data: str
    """Label of the data set."""
    compute: str
    """Name of the compute of the configurations that it follows from."""
    accelerator: str
    """Its name, or that of the device that was measured."""
    images_per_s: float
    """Of one accelerator alone."""
    source: str
    """Where that rate comes from."""
    specified: bool
    """True when it is specified, not measured."""
    utilization: float
    """Share of that rate which the accelerators shall reach."""
    use: float
    """Share of the storage's limit that one dares to use."""
    needs: tuple[StorageNeed, ...]
    cores: float | None
    """Of one accelerator; estimated from the CPU time of an image."""
    supply: StorageSupply | None
    missing: PlanReason | None
    """Why there is no supply; None where there is one."""
