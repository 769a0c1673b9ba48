"""What is shown: the summary (a public interface) and the report made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.config import RunConfig
from loaderprobe.records.damage import DamagedFile
from loaderprobe.records.environment import Environment
from loaderprobe.records.epochs import Epochs
from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.gaps import GpuWindow, TimelineView
from loaderprobe.records.note import Note
from loaderprobe.records.outlook import Outlook
from loaderprobe.records.prefilled import BufferEffect
from loaderprobe.records.ranks_view import RanksView
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import Ablations, Advice, Bottleneck, Bound, Interval, Verdict

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
    notes: tuple[Note, ...] = ()
    """What else is to know of all its measurements, such as what other processes took of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """One configuration in the summary: what was asked, what came of it, and what that says."""

    config: RunConfig
    status: Status
    reason: Unavailable | None
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
    def unavailable(self) -> dict[str, Unavailable]:
        """The reason for every figure that does not exist; without a verdict one for all, under `*`."""
        if self.verdict:
            return self.verdict.unavailable
        return {"*": self.reason} if self.reason else {}


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
    compute_device: str
    compute_source: str
    first_batch_s: float
    notes: tuple[Note, ...]
    ablations: Ablations | None = None
    """Which resources were made free, and why no more."""
    view: TimelineView | None = None
    """The profiler window, to be drawn."""
    steps: TimelineView | None = None
    """The steps of the last round on the clocks of device and training thread, to be drawn where there is no window."""
    ranks: RanksView | None = None
    """Of a configuration with several."""
    then: Mapping[str, Bottleneck] = field(default_factory=dict)
    """By resource: what limits training once that is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a renderer needs, and nothing it has to compute by measuring."""

    summary: Summary
    details: tuple[Detail, ...]
    outlooks: tuple[Outlook, ...] = ()
    """What accelerators would ask of the machine, one for each data set and device."""
