"""What is shown: the report, and the summary (a public interface) that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION, Environment
from loaderprobe.records.files import Staged
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import Bottleneck
from loaderprobe.records.studies import BufferEffect, Epochs
from loaderprobe.records.supply import SupplyLimit
from loaderprobe.records.verdict import (
    Advice,
    Bound,
    Forecast,
    FunctionTime,
    GpuWindow,
    Interval,
    Knee,
    TimelineView,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file of a stored run that cannot be used: it does not decode, its numbers cannot be, or it may not be read."""

    file: str
    """Relative to the run: `measurements/0123456789abcdef.json`."""
    reason: str
    """What is wrong with it, without its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeed:
    """What so many accelerators together read while files are cold."""

    accelerators: int
    read_bytes_per_s: float
    files_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Training on one data set with accelerators of one kind, from the figures of `loaderprobe plan`."""

    data: str
    """Label of the data set."""
    compute: str
    """Name of the compute of the configurations that it follows from."""
    model: str
    accelerator: str
    """Its name, or that of the device that was measured."""
    images_per_s: float
    """Of one accelerator alone."""
    source: str
    specified: bool
    """True when it is specified, not measured."""
    utilization: float
    """Share of that rate which the accelerators shall reach."""
    use: float
    """Share of the storage's limit that one dares to use."""
    needs: tuple[StorageNeed, ...]
    cores: float | None
    """Of one accelerator; estimated from the CPU time of an image."""
    supply: SupplyLimit | None
    """The most that the storage under the data set delivered in this run, read-ahead included."""
    missing: Remark | None
    """Why there is no supply; None where there is one."""
    planned: bool = False
    """True of the data set that a plan takes without a choice: of several, the one nearest to ImageNet's file size."""
    pace: Remark | None = None
    """That the rate is the pace of a storage benchmark; None for that of a training."""


Status = Literal["measured", "failed", "skipped"]
SUMMARY_SCHEMA = "loaderprobe/summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInfo:
    """One data set of a run."""

    label: str
    root: str
    generated: bool
    images_found: int
    images_used: int
    mean_size_bytes: float
    skipped_count: int
    skipped: tuple[str, ...]
    """`path: reason` of the first few."""
    staged: Staged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The run as a whole."""

    name: str
    created_utc: str
    command: str
    complete: bool
    """False when configurations of the sweep are still to be measured."""
    pending: int
    wall_s: float
    data: tuple[DataInfo, ...]
    damaged: tuple[DamagedFile, ...] = ()
    """Files of the run that cannot be used; what depends on them is missing."""
    notes: tuple[Remark, ...] = ()
    """What else is to know of all its measurements, such as what other processes took of the machine."""


Role = Literal["slowest", "median", "fastest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank. Times are seconds of a step of the loader alone, in step with the others."""

    rank: int
    node: int
    host: str
    alone_images_per_s: float | None
    """Of its loader by itself; None where ranks were measured in step only."""
    input_s: float
    """In `next()`."""
    waiting_s: float
    """For the other ranks, with its batch in hand."""
    role: Role | None = None
    """By its rate alone, or by its time in `next()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What the pages have of one measured configuration, and `summary.json` has not."""

    key: str
    compute_device: str
    compute_source: str
    first_batch_s: float
    notes: tuple[Remark, ...]
    ablations: Remark | None = None
    """Which resources were made free, and why no more."""
    view: TimelineView | None = None
    """The profiler window, to be drawn."""
    ranks: tuple[RankRow, ...] = ()
    """Of a configuration with several, the slowest first."""
    then: Mapping[str, Bottleneck] = field(default_factory=dict)
    """By resource: what limits training once that is free."""
    sample: Literal["image", "sample"] = "image"
    """What is counted: `sample` where batches hold no images."""
    functions: tuple[FunctionTime, ...] = ()
    """Of the pipeline, the slowest first; empty where workers were not looked at."""
    looks: int = 0
    """At the stacks of workers, from which that is known."""
    looks_cpu_s: float = 0.0
    """CPU time of looking, in all workers; part of no other figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """One configuration: what was asked, what came of it, and what that says."""

    config: RunConfig
    status: Status
    reason: Remark | None
    """Why there is no verdict."""
    verdict: Verdict | None
    """None unless `status` is `measured`."""
    emulated: bool
    """True when the accelerator's throughput is specified, not measured."""
    forecasts: tuple[Forecast, ...] = ()
    """Of every change that was looked at, whether worth making, not, or beyond what the data can tell."""
    gpu_window: GpuWindow | None = None
    """One profiler window; estimates, where the verdict's `gpu` has what counters measured."""
    buffer: BufferEffect | None = None
    """What a full buffer does to short benchmarks; None for the serial loader."""
    epochs: Epochs | None = None
    """None where no epochs were asked for."""
    detail: Detail | None = None
    """None unless `status` is `measured`, as is the next."""
    measurement: Measurement | None = None
    """The raw values that all of it follows from."""

    @property
    def key(self) -> str:
        return self.config.key

    @property
    def bound(self) -> Bound | None:
        return self.verdict.bound if self.verdict else None

    @property
    def images_per_s(self) -> Interval | None:
        return self.verdict.images_per_s if self.verdict else None

    @property
    def advice(self) -> tuple[Advice, ...]:
        return self.verdict.advice if self.verdict else ()

    @property
    def notes(self) -> tuple[Remark, ...]:
        return self.detail.notes if self.detail else ()

    @property
    def unavailable(self) -> dict[str, Remark]:
        """The reason for every figure that does not exist; without a verdict one for all, under `*`."""
        if self.verdict:
            return self.verdict.unavailable
        return {"*": self.reason} if self.reason else {}


# The first screen, before it is put into words. Configurations are given by their keys.
NOT_SURE = Remark(code="how_sure", facts={"level": "low"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What one model gains on one device, with one number of ranks."""

    configuration: str
    """Its key: the one with the workers that are enough."""
    speedup: Interval | None = None
    """Over the fewest ranks of the same model and device; None for those themselves, and where rates are too noisy."""
    efficiency: float | None = None
    """The speed-up over how many times the hardware there is: GPUs, or nodes of CPUs, whose cores ranks share."""
    over_cpu: Interval | None = None
    """The speed-up over the fewest ranks of the same model on the CPU; None on the CPU, and without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What to do next: a change to configurations, with a piece of advice for each, or a remark."""

    remark: Remark | None = None
    advice: tuple[Advice, ...] = ()
    command: str = ""
    """What to type; empty where nothing can be typed."""
    configurations: tuple[str, ...] = ()
    """Those that it is for; none where it is for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a renderer needs; without details and raw values it is `summary.json`, and what `--json` prints."""

    schema: str = SUMMARY_SCHEMA
    schema_version: int = SCHEMA_VERSION
    run: RunInfo
    environment: Environment
    configurations: tuple[ConfigurationRow, ...]
    knees: tuple[Knee, ...] = ()
    """One for each group of configurations that differ in workers only."""
    how_sure: Remark = NOT_SURE
    """`level` is high, medium or low; low_band, high_band: half the 95 % interval of a rate, as a share of it."""
    best: tuple[str, ...] = ()
    """Of each data set, on each device, the configuration with the workers that are enough; else the fastest."""
    scaling: tuple[Scaling, ...] = ()
    """Where several models, devices or numbers of ranks compare."""
    staging: tuple[Remark, ...] = ()
    """What epochs take from a copy, where one was made (`--stage`)."""
    next: tuple[NextStep, ...] = ()
    needs: tuple[Outlook, ...] = ()
    """What accelerators would ask of the machine, one for each data set and device."""
    not_known: tuple[Remark, ...] = ()
    """What does not follow from this run."""
