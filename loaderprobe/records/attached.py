"""A training script of one's own, measured or only watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.config import CacheState, check_seconds
from loaderprobe.records.environment import SCHEMA_VERSION, Origin
from loaderprobe.records.rank_processes import NotTogether
from loaderprobe.records.verdict import Bound

WhyNot = Literal[
    "no_loader", "script_error", "several_processes", "no_backward", "too_few_steps", "no_such_loader", "other_thread",
    "ranks", "ranks_apart", "follows", "another_process", "begun_each_batch", "refused", "not_seen_again",
    "ended_early", "interrupted",
]  # fmt: skip
"""Why a process that iterated a DataLoader, or made a backward pass, has no verdict. ranks: they do not use
torch.distributed. ranks_apart: they are not measured together. several_processes: they train, and nothing has joined
them. follows: rank 0 speaks for this rank, and keeps the verdict if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """What to do in a training script."""

    run: str
    """Absolute path of the directory for the result."""
    scratch: str
    """Absolute path of a directory in which the processes leave word."""
    command: str
    """For the report."""
    budget_s: float | None
    """None: as long as the steps ask for."""
    cache: CacheState = "cold"
    watch: bool = False
    """Change nothing, and estimate."""
    after_steps: int = 8
    """Steps that are left alone first: they compile, choose algorithms and import."""
    loader: int | None = None
    """The number of the loader to measure; None chooses by backward passes."""

    def __post_init__(self) -> None:
        check_seconds("budget", self.budget_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLoader:
    """One DataLoader of a script, in all its epochs."""

    number: int
    dataset: str
    """Its class."""
    batch_size: int | None
    workers: int
    batches: int
    """That the script took before the measurement."""
    backward_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOutside:
    """A training without a DataLoader, as its thread was seen: an estimate."""

    steps: int
    step_s: float
    """Mean; steps ten times as long as the usual one are left out."""
    timed: int
    """Further steps, in which the functions that the loop calls were timed."""
    place: str
    """The one with most time, of those that lead neither to the model nor to the optimizer; empty for none."""
    share: float
    """What it takes of a step, 0 to 1."""
    share_off: float
    """Half the 95 % interval of that, as the timed steps vary."""
    running_share: float | None
    """Of all samples of what the thread waits for; None where that cannot be seen, as in the next."""
    storage_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """What one process did and saw."""

    pid: int
    loaders: tuple[SeenLoader, ...]
    why_not: WhyNot | None
    """None where there is a verdict."""
    detail: str = ""
    """An error's own words; of `ranks` and `several_processes`, how many there are."""
    hint: str = ""
    saved: tuple[str, ...] = ()
    """Files that the script made while it was measured; they hold nothing of use."""
    apart: NotTogether | None = None
    """Set with `ranks_apart`."""
    endangered: str = ""
    """The file before which the script was stopped; empty where it was stopped for the verdict."""
    outside: SeenOutside | None = None
    """Set where training takes no batches from a DataLoader, and was looked at for long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedInterval:
    """Some seconds of training."""

    begin_s: float
    """Since the first batch."""
    seconds: float
    steps: int
    images_per_s: float | None
    """Over steps, and what starts and ends workers: without what else lies between two loops. None without a size."""
    input_wait_fraction: float
    worker_cpu_fraction: float | None
    """Of the workers' time while they make batches, as are the next two; None without a record of it."""
    worker_blocked_fraction: float | None
    """Neither computing nor waiting for a core: for storage, a network, a lock."""
    read_bytes_per_s: float | None
    """From storage, by the workers."""
    bound: Bound | None
    """Estimated; None where the interval has too few steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """A training, watched from its beginning to its end."""

    schema: str = "loaderprobe/watch"
    schema_version: int = SCHEMA_VERSION
    origin: Origin
    loader: str
    """Class of its data set."""
    workers: int
    batch_size: int | None
    """None where neither the loader nor a record of its batches has it; files of earlier versions have 0."""
    intervals: tuple[WatchedInterval, ...]
    bound: Bound | None
    """Over the last intervals together; None where there were too few steps, or others of the `ranks` may limit."""
    on_gpu: bool
    """True where steps end later than the loop sees, so that no verdict follows."""
    overhead_s: float
    """CPU time of the training thread that watching took."""
    ranks: int = 1
    """That train together; of several, only rank 0 was watched."""
    others: tuple[str, ...] = ()
    """Classes of the data sets of further loaders that a step takes from."""
    images: bool = True
    """False when its batches hold none; files of earlier versions do not say."""
