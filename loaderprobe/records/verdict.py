"""What follows from a measurement: rates, speed-ups, the limiting resource, and the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Rejected
from loaderprobe.records.remark import Coded, Remark
from loaderprobe.records.resources import (
    TIME_PARTS,
    Bottleneck,
    GapCause,
    Remedy,
    ResourceName,
    SingleCause,
    SpeedupCode,
    TimePart,
)
from loaderprobe.records.waits import CodePlace

Side = Literal["compute", "input", "balanced", "inconclusive"]
GapSide = Literal["input", "copy", "host", "communication"]
"""A resource that gaps show. `copy` is a part of `input`."""
Cause = Literal[SingleCause, "either", "balanced", "inconclusive"]
"""A single one, or that several are alike, none is worth it, or nothing is known."""
EvidenceCode = Literal[
    SpeedupCode, "prediction_error", "input_wait_fraction", "accelerator_utilization",
    "disk_ceiling_fraction", "cold_fraction", "read_amplification", "other_read_bytes_per_s",
    "gpu_window.gaps.copy_ns", "gpu_window.gaps.launch_ns", "gpu_window.gaps.sync_ns", "gpu_window.gaps.waiting",
    "gpu_window.gaps.communication_ns",
    "loader_over_training", "free_input_at_most", "compute_over_training", "run_delay_fraction", "loader_cores",
    "training_cores", "warm_file_wait_fraction", "cold_over_warm_wait", "rise_of_ladder", "paced_reading_time",
    "rate_by_file_size",
]  # fmt: skip
"""What a verdict, or the kind of a device, follows from: a figure by its place in the summary (of a gap its share of
the window), or one of its own. The last three are of a bandwidth probe."""
ActionCode = Literal[
    Remedy, "workers", "prefetch", "files_in_memory", "files_pinned", "faster_storage", "faster_network", "accelerator",
    "decoder", "tensor", "shards", "slow_host", "own_shares", "one_thread", "persistent_workers",
    "accelerator_gains_nothing", "input_gains_nothing",
]  # fmt: skip
"""What is advised. files_in_memory: in the page cache, all or what it can hold. files_pinned: a part of the files that
always stays. shards: the images in large files. slow_host: the host of the ranks that all wait for. own_shares: of the
data set, one for each rank. one_thread: torch's operations of the serial loader, which the step does without. The last
two are changes that are not worth making."""
How = Literal["measured", "estimated"]
FilesWere = Literal["cold", "partly warm", "warm"]
"""What the files were in the segments of the configuration as asked, by bytes where they are counted."""
ReasonCode = Literal[
    "largest_speedup",
    "all_cores_busy",
    "kept_from_cores",
    "device_idle",
    "slow_rank",
    "slow_host",
    "speedups_alike",
    "no_speedup",
    "no_complete_round",
    "files_were_warm",
    "above_ceiling",
    "one_round_does_not_fit",
    "outside_noise_band",
    "rounds_differ",
    "ablation_missing",
    "estimate_not_measured",
    "estimate_too_small",
    "within_noise",
    "slower_without",
    "interval_too_wide",
    "lead_within_spread",
    "limit_not_known",
    "ranges_meet",
    "input_in_parts",
    "rounds_disturbed",
    "cores_shared",
]
"""Why a verdict is what it is. Those from `no_complete_round` on are of verdicts without one cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The median of the rounds, with the interval that a long run lies in 95 times of 100."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """What stands behind ±."""
        return (self.high - self.low) / 2

    @property
    def too_wide(self) -> bool:
        """True where the interval is as wide as its value: it says nothing of what is faster."""
        return self.high - self.low >= self.value

    @property
    def factor(self) -> float:
        """By what factor the value may be off: rates vary by factors, and so far as the upper end does."""
        return math.exp((self.high - self.value) / self.value)

    def times(self, scale: float) -> Interval:
        """The same in another unit."""
        return Interval(value=self.value * scale, low=self.low * scale, high=self.high * scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup(Interval):
    """By what factor training would be faster if one resource were free."""

    how: How
    at_most: bool = False
    """True of an estimate that storage or network may cut short: what they could give at most is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Images/s; None where a rate could not be measured (the reason is in `Verdict.unavailable`)."""

    compute: float | None
    loader: float | None
    loader_without: dict[SingleCause, float | None]
    """Of the loader without one of `INPUTS`."""
    cpu_limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A figure that supports the verdict, and its threshold."""

    metric: EvidenceCode
    value: float
    threshold: float | None
    unit: str
    how: How | None = None
    """Of a speed-up, and of what is estimated."""
    sentence: str = field(default="", compare=False)
    """The metric in words; `render` adds it where the evidence leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(Coded):
    """Why a verdict is what it is; worded in `render/messages.py`. Speed-ups are factors."""

    code: ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Coded):
    """What to change; worded in `render/messages.py`."""

    code: ActionCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SideAndCause:
    """What names a limit, by rates or by the gaps of a device."""

    side: Side
    cause: Cause | GapSide
    candidates: tuple[str, ...] = ()
    """With cause `either`: the resources whose speed-ups do not differ."""

    @property
    def firm(self) -> bool:
        """False where nothing, or no single cause, was found."""
        return self.cause not in ("either", "inconclusive")

    @property
    def short(self) -> SideAndCause:
        """Side and cause alone, which compare."""
        return SideAndCause(side=self.side, cause=self.cause, candidates=self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapVerdict(SideAndCause):
    """What the gaps of a device alone say of the limit: always estimated."""

    cause: GapSide | Literal["compute", "either", "inconclusive"]
    """either: several sides take about as much. inconclusive: what the device waits for is not on record."""
    how: Literal["estimated"] = "estimated"
    gap: GapCause | None = None
    """What takes most of the cause's share: the host launches late, or waits for the device (sync)."""
    sentence: str = field(default="", compare=False)
    """In words; `render` adds it where the result leaves the program."""

    @property
    def waits_for(self) -> str:
        """`sync` of a host that mostly waits for the device; else the cause."""
        return "sync" if self.gap == "sync" else self.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(SideAndCause):
    """The verdict on a configuration, with its reason."""

    cause: Cause
    reason: Reason
    sentence: str = field(default="", compare=False)
    """The reason in words; `render` adds it where the verdict leaves the program."""
    evidence: tuple[Evidence, ...]
    rank: int | None = None
    """With cause `imbalance`: the slowest rank; None where all ranks of a host are slow."""
    host: str = ""
    """Of that rank, or of those ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change worth making, with the rate it is forecast to give; with speed-up 1, one that is not worth making."""

    action: Action
    sentence: str = field(default="", compare=False)
    """The action in words; `render` adds it where the advice leaves the program."""
    command: str = ""
    """What to type; empty where nothing can be typed."""
    speedup: float
    """The rate after the change over that before."""
    before: Interval
    """Images/s as measured."""
    after: Interval
    """Images/s to be expected, with their range."""
    how: How
    bottleneck: Bottleneck | None = None
    """What limits training after the change."""

    @property
    def is_worth_making(self) -> bool:
        """False for a change that gains nothing, listed to save its cost."""
        return self.speedup > 1

    @property
    def surely_gains(self) -> bool:
        """True where the range of the rate after it leaves out that it gains nothing."""
        return self.is_worth_making and self.after.low > self.before.value


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Where one step's time goes on the training thread's clock, mean seconds a batch; they sum to the step."""

    wait_s: float
    copy_s: float
    step_s: float
    other_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTime:
    """Mean seconds that one image takes in one worker, by what the worker was doing."""

    cpu_s: float
    run_delay_s: float
    blocked_s: float
    waits: dict[str, float] = field(default_factory=dict)
    """Parts of `blocked_s`: for `storage`, `network`, `lock`, or another wait. Empty where workers were not looked at;
    what is missing to the whole is waiting for threads of the worker's own that compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTime:
    """A function of the pipeline that workers run: shares of the looks at them while they made batches as asked."""

    function: CodePlace
    own: float
    """In its own lines, and in the code of other languages that it calls."""
    total: float
    """In it and in all that it calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is derived from one `Measurement`. Pure function of it; rebuilt at any time."""

    images_per_s: Interval
    complete_rounds: int
    """In which what is judged was measured, of those that count."""
    rates_images_per_s: Rates
    speedups: dict[ResourceName, Speedup | None]
    """For each of `SPEEDUPS`; None where it is not known."""
    predicted_images_per_s: float | None
    """From the parts; of what the sizes of files leave open, the nearest to training."""
    prediction_error: float | None
    """Measured end-to-end rate over the predicted one, minus 1."""
    input_wait_fraction: float
    accelerator_utilization: float | None
    bytes_per_image: float | None
    disk_read_bytes_per_s: float | None
    cold_fraction: float | None
    disk_ceiling_fraction: float | None
    """Storage reads over the ceiling of the storage at the concurrency of the workers."""
    read_amplification: float | None
    """Storage bytes over bytes delivered; above 1 is read-ahead that is not used."""
    other_read_bytes_per_s: float | None
    """Other processes' reads from the same devices meanwhile."""
    gpu: dict[str, float | str]
    bound: Bound
    advice: tuple[Advice, ...]
    step_time: StepTime
    worker_time: WorkerTime | None
    files_were: FilesWere | None
    """None where nothing shows it, or no file is read."""
    decoding_cpu_fraction: float | None
    """Of the CPU time of an image: reading and decoding, timed apart from augmentation and collation."""
    instrument_cpu_fraction: float | None
    """CPU time that recording took in the workers, over the CPU time of what it recorded."""
    unavailable: dict[str, Remark] = field(default_factory=dict)
    """Field name to reason, for every figure above that is None, and for counters whose readings ended early."""


Changed = Literal[
    "workers", "disk_speed", "accelerator", "page_cache_share", "pinned_share", "tensor", "decoder", "layout",
]  # fmt: skip
"""page_cache_share: of the files that the kernel's page cache can hold. pinned_share: of the files that always stay
in memory, locked there or as a copy in tmpfs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Images/s of training after one change to a measured configuration. Either a rate, or why there is none."""

    changed: Changed
    to: str
    """What it is changed to: `4`, `2.5 times as fast`, `mlperf-h100`."""
    images_per_s: Interval | None
    """Not an interval over rounds, but the range in which the rate is to be expected."""
    bottleneck: Bottleneck | None
    """The resource that then limits training."""
    rising: bool = False
    """True when it is the time that a single worker takes, so that more workers would gain."""
    how: How
    """measured: such a configuration, or such a mode, was measured. estimated: by a model."""
    refused: Remark | None
    """Why there is no rate."""
    sentence: str = field(default="", compare=False)
    """The refusal in words; `render` adds it where the summary leaves the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The smallest number of workers that trains within 2 % of the best, and why more do not help."""

    keys: tuple[str, ...]
    """Of the configurations that it is drawn from, which differ in workers only."""
    workers: int | None
    """None when no forecast was possible and too little was measured; `forecasts` say why."""
    images_per_s: Interval | None
    how: How
    bottleneck: Bottleneck | None
    """What limits training there; None when the rate still rises at the most workers that can be judged."""
    inconclusive: bool = False
    """True where these workers were measured, and their verdict names no limit: none is known beyond them then."""
    sentence: str = field(default="", compare=False)
    """The knee in words; `render` adds it where the summary leaves the program."""
    forecasts: tuple[Forecast, ...]
    """For the worker counts that were looked at, in their order."""


Stretches = tuple[tuple[int, int], ...]
"""Half-open ranges of nanoseconds, sorted and apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """One window of one device, split without a rest, in nanoseconds.

    Raises LoaderprobeError when the parts do not sum to the window: that is a bug, and no figure then holds.
    """

    steps: int
    window_ns: int
    compute_ns: int
    """Kernels of training but for communication, fills, and copies within the device or from it; union over streams."""
    communication_ns: int
    """Exposed: kernels of NCCL or RCCL while nothing of `compute_ns` ran."""
    input_ns: int
    copy_ns: int
    loader_ns: int
    sync_ns: int
    launch_ns: int
    device_ns: int
    unknown_ns: int
    pageable_ns: int
    """The part of `copy_ns` that came from pageable memory."""

    def __post_init__(self) -> None:
        parts = sum(self.of(part) for part in TIME_PARTS)
        if parts != self.window_ns:
            raise LoaderprobeError(f"the parts of a GPU window sum to {parts} ns, not to its {self.window_ns}")

    def of(self, part: TimePart) -> int:
        """Nanoseconds of one part."""
        nanoseconds: int = getattr(self, f"{part}_ns")
        return nanoseconds

    def share(self, *parts: TimePart) -> float:
        """Of the window, by these parts together."""
        return sum(self.of(part) for part in parts) / self.window_ns

    def seconds(self, *parts: TimePart) -> float:
        """Of a step, by these parts together."""
        return sum(self.of(part) for part in parts) / self.steps / 1e9

    @property
    def step_s(self) -> float:
        """The mean of all steps."""
        return self.window_ns / self.steps / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """How well kernels filled the device, estimated from their grids. None where too little of it is known."""

    training_busy: float
    """Share of the window with a kernel of training that is not communication."""
    kernel_busy: float
    """Share of the window with any kernel, also of the loader."""
    sm_efficiency_estimated: float | None
    """Mean share of SMs with a block, over the window; idle time counts as 0."""
    occupancy_estimated: float | None
    """Mean share of an SM's warps that are active, over the kernels' time alone; idle time does not count."""
    occupancy_coverage: float
    """Share of the kernels' time for which an occupancy could be computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWindow:
    """What one profiler window says, or why it says nothing."""

    device: str
    steps: int
    profiler_overhead: float | None
    """By how much of their time the profiler slowed the steps; None when they were not timed without it."""
    syncs_per_step: float = 0.0
    """How often a thread that trains waited for the device in each step. One `.item()` counts once, and so does
    `.to(device)` of pageable memory."""
    gaps: Gaps | None
    use: DeviceUse | None
    refused: Remark | None
    """Why neither holds."""
    doubts: tuple[Remark, ...] = ()
    """Why no verdict rests on the gaps, though they are shown."""
    rejected: tuple[Rejected, ...] = ()
    """What the profiler recorded and cannot be true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What is drawn of one window: nanoseconds from its begin."""

    window_ns: int
    step_begin_ns: tuple[int, ...]
    parts: dict[TimePart, Stretches]
    """They do not overlap; where none is, nothing is known."""
    waits: Stretches
    """The training thread inside `next()`, hidden behind kernels or not."""
    copies: Stretches
    """Copies from the host, hidden or not."""
