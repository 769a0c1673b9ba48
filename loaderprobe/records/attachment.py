"""What `loaderprobe run` asks of the processes that a command starts, and what each of them has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaderprobe.records.config import CacheState
from loaderprobe.records.together import Apart

WhyNot = Literal[
    "no_loader",
    "script_error",
    "several_processes",
    "no_backward",
    "too_few_steps",
    "no_such_loader",
    "other_thread",
    "ranks",
    "ranks_apart",
    "follows",
    "another_process",
    "begun_each_batch",
    "refused",
    "not_seen_again",
    "ended_early",
]
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
    apart: Apart | None = None
    """Set with `ranks_apart`."""
    endangered: str = ""
    """The file before which the script was stopped; empty where it was stopped for the verdict."""
    outside: SeenOutside | None = None
    """Set where training takes no batches from a DataLoader, and was looked at for long enough."""
