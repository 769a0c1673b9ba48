"""The ranks of one configuration as the report shows them: a few by name, and all of them to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
