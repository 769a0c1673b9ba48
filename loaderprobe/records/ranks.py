"""What each rank of a training measured, and the ranks as a report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loaderprobe.records.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeasurement:
    """What one rank measured, on its own clock."""

    rank: int
    host: str
    """Ranks of one host share its storage's counters and its cores."""
    cores: float
    """Available to this rank."""
    affinity: tuple[int, ...]
    """The cores that it may run on: those of ranks that may run on the same count once."""
    measurement: Measurement
    node: int = 0
    core_limits: Mapping[str, float] = field(default_factory=dict)
    """What limits `cores`, by names that ranks of one host share; empty in results of earlier versions."""


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
class RanksView:
    """All ranks, and how unlike they are."""

    rows: tuple[RankRow, ...]
    """In their order."""
    shown: tuple[RankRow, ...]
    """At most MOST_SHOWN, the slowest first; those with a role are among them."""
    uneven: bool
    """True where a slow rank, or slow batches, gain more than what is worth a word."""


MOST_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInput:
    """What one rank takes of the data set, as far as that is seen from its first batches."""

    batch_size: int
    """0 where the data set makes its batches itself: they may differ."""
    workers: int
    prefetch_factor: int
    files: tuple[int, ...]
    """A hash of the name of each file behind them; empty where these are not known."""
    first: int | None
    """A hash of the content of the first batch; None where nothing in it can be hashed, or another is the same."""
    whole: bool
    """True where the sampler goes through the whole data set."""
    exchanges: bool = False
    """True where the step exchanges gradients in a way that can be switched off."""
