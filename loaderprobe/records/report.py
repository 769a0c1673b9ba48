"""What is shown: the summary (a public interface) and the report made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.config import CacheState
from loaderprobe.records.environment import Environment
from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.gaps import GpuWindow, Picture
from loaderprobe.records.verdict import (
    Ablations,
    Advice,
    Bound,
    FilesWere,
    Interval,
    Rates,
    Speedups,
    StepTime,
    WorkerTime,
)

Status = Literal["measured", "failed", "skipped"]
SUMMARY_SCHEMA = "loaderprobe/summary"
# History of the summary, which is an interface:
# 1  2026-11  first version
# 2  2026-11  read_amplification, other_read_bytes_per_s; disk_ceiling_fraction is measured
# 3  2026-11  tensor, instrument_cpu_fraction, forecasts, knees; advice has a command, its rates before and after,
#             how it is known and what binds then
# 4  2026-11  gpu_window: why the GPU was idle, and estimates of how full it was; more counters in gpu
# 5  2026-11  files_were; causes network, lock and wait with their rates and gains; a side without a cause
SUMMARY_VERSION = 5


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """One configuration in the summary. Figures are None unless `status` is `measured`."""

    key: str
    resolution: str
    workers: int
    batch_size: int
    prefetch_factor: int
    loader: str
    pipeline: str
    decoder: str
    tensor: str
    compute: str
    emulated: bool
    """True when the accelerator's throughput is specified, not measured."""
    cache: CacheState
    """As it was asked for."""
    status: Status
    reason: str | None
    images_per_s: Interval | None
    rates_images_per_s: Rates | None
    gains: Speedups | None
    predicted_images_per_s: float | None
    prediction_error: float | None
    input_wait_fraction: float | None
    accelerator_utilization: float | None
    bytes_per_image: float | None
    disk_read_bytes_per_s: float | None
    cold_fraction: float | None
    disk_ceiling_fraction: float | None
    read_amplification: float | None
    other_read_bytes_per_s: float | None
    instrument_cpu_fraction: float | None
    gpu: dict[str, float | str]
    bound: Bound | None
    advice: tuple[Advice, ...]
    forecasts: tuple[Forecast, ...] = ()
    """Of every change that was looked at, whether worth making, not, or beyond what the data can tell."""
    files_were: FilesWere | None = None
    """What the reads showed; None where nothing tells, or nothing was measured."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Field name to reason, for figures that could not be measured."""
    gpu_window: GpuWindow | None = None
    """One profiler window; estimates, where `gpu` has what counters measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`summary.json` and `--json`."""

    schema: str
    schema_version: int
    run: RunInfo
    environment: Environment
    configurations: tuple[ConfigurationRow, ...]
    knees: tuple[Knee, ...] = ()
    """One for each group of configurations that differ in workers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What the report draws beyond the summary, for one measured configuration."""

    key: str
    step_time: StepTime
    worker_time: WorkerTime | None
    compute_device: str
    compute_source: str
    first_batch_s: float
    notes: tuple[str, ...]
    ablations: Ablations | None = None
    """Which resources were made free, and why no more."""
    picture: Picture | None = None
    """The profiler window, to be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a renderer needs, and nothing it has to compute by measuring."""

    summary: Summary
    details: tuple[Detail, ...]
