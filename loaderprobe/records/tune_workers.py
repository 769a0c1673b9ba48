"""The smallest number of workers, and prefetch factor, within 2 % of the best; and all that was measured for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import WAITED
from loaderprobe.records.verdict import FilesWere, Interval

TUNE_WORKERS_SCHEMA = "loaderprobe/tune-workers"
WITHIN = 0.98
"""A setting that reaches this share of the best is as good."""

if TYPE_CHECKING:
    Waits = str
    LimitCode = str
else:
    Waits = Literal[WAITED]
    LimitCode = Literal[("compute", "cores", *WAITED, "transport", "workers", "unknown")]
"""What limits the chosen setting. workers: the rate still rises at the most workers that were allowed."""
StopCode = Literal["decided", "alike", "budget", "interrupted"]
"""Why measuring ended. decided: no other setting can be better by more than 2 %. alike: noise hides differences that
small. budget: time was up before. interrupted: Ctrl-C came before."""
RowState = Literal["chosen", "measured", "closed", "failed"]
ClosedCode = Literal[
    "compute", "cores", "linear", "forecast", "no_gain", "slower", "failed", "no_data", "budget", "interrupted"
]  # fmt: skip
"""Why a setting needed no measurement. compute, cores: a smaller one has reached this limit. linear: so few workers
more cannot gain enough. forecast: the upper end of its forecast is too low. no_gain: a larger one already gained
nothing. slower: one with more workers already was too slow. failed: fewer workers failed. no_data: the data set has
shares for fewer workers. budget: time was up. interrupted: Ctrl-C came before."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WorkersSetting:
    """The two options of a DataLoader that are tuned."""

    workers: int
    """0 is the serial loader."""
    prefetch_factor: int
    """0 for the serial loader."""

    def __post_init__(self) -> None:
        if self.workers < 0 or self.prefetch_factor < 0 or (self.workers == 0) != (self.prefetch_factor == 0):
            raise BadValue("the prefetch factor is 0 for the serial loader and 1 or more for workers")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersForecast:
    """Training with another number of workers, by the models of the storage at hand."""

    workers: int
    images_per_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchSpeedup:
    """What fetching further ahead is worth, from the times of single batches."""

    prefetch_factor: int
    speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersVisit:
    """One measurement of a setting, with workers of its own."""

    setting: WorkersSetting
    turn: int
    """0: the first measurement of a setting. Later turns measure several settings one after the other, to be compared
    in pairs."""
    images_per_s: float
    """Of training or, without a step, of the loader alone."""
    compute_images_per_s: float | None = None
    """Of a resident batch, in the same visit; None in later turns and without a step."""
    cores_in_use: float | None = None
    """By the workers and the training process together."""
    thread_share: float | None = None
    """CPU time of the training thread over wall time, while the loader runs alone."""
    core_wait_share: float = 0.0
    """Of the workers' time, waiting for a core."""
    blocked_share: float = 0.0
    """Of the workers' time, neither computing nor waiting for a core."""
    blocked_by: Waits | None = None
    """What workers were mostly seen waiting for; None where that is not known."""
    fed_workers: int | None = None
    """Workers that got data; None when all did."""
    forecasts: tuple[WorkersForecast, ...] = ()
    prefetch_speedups: tuple[PrefetchSpeedup, ...] = ()

    def __post_init__(self) -> None:
        if not self.images_per_s > 0:
            raise BadValue(f"{self.images_per_s:g} images/s is no rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersRow:
    """What is known of one setting."""

    setting: WorkersSetting
    state: RowState
    visits: int = 0
    images_per_s: Interval | None = None
    """Over the visits."""
    over_chosen: Interval | None = None
    """Rate over that of the chosen setting, from visits in the same turn; the interval is that of their spread."""
    paired: bool = False
    """False where the two were measured once, at different times."""
    closed: ClosedCode | None = None
    """Why it was not measured."""
    at_most: float | None = None
    """Of the chosen setting's rate, where it was not measured."""
    failure: str = ""
    """The error, as a sentence."""
    hint: str = ""
    """What helps against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReport:
    """The setting to use, and why."""

    origin: Origin
    data: str
    """The data set, in words."""
    device: str
    """What trained; empty where the loader ran alone."""
    sample: str
    """What is counted, in the singular: image or sample."""
    batch_size: int
    cores_available: float
    files_were: FilesWere | None
    """None where that is not known."""
    iterable: bool
    """True for a data set without indices, which must share its samples among the workers itself."""
    own: WorkersSetting | None
    """Of the loader as it was given; None where there was none."""
    chosen: WorkersSetting
    images_per_s: Interval
    speedup: Interval | None
    """Over the loader as it was given."""
    limit: LimitCode
    stop: StopCode
    rows: tuple[WorkersRow, ...]
    """By setting."""
    visits: tuple[WorkersVisit, ...]
    """In the order in which they were made."""
    grid_visits: int
    """Of an exhaustive search: every number of workers with each of three prefetch factors, three times."""
    loader_class: str
    options: dict[str, str]
    """Of the loader, as they are written in Python, besides those that are tuned."""
    notes: tuple[Remark, ...] = ()
    wall_s: float
    schema: str = TUNE_WORKERS_SCHEMA
    schema_version: int = SCHEMA_VERSION
