"""What it costs ranks to take each step together: a replay of measured batches for more ranks."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.verdict import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchCost:
    """The same ranks with one prefetch factor."""

    prefetch_factor: int
    """0 for the serial loader."""
    alone_s: float
    """Mean step of a rank that waits for no other."""
    step_s: float
    """Mean step of all ranks together."""
    cost: Interval
    """`step_s` over `alone_s`, with a range that holds 90 %, by bootstrap over the measured batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStep:
    """What waiting for each other costs so many ranks, at several prefetch factors."""

    asked: int
    """Ranks that are asked for."""
    ranks: int
    """Ranks that were replayed: no more than batches were measured. Of more the cost is at least that."""
    measured_ranks: int
    """Ranks that the batches were measured on."""
    batches: int
    mean_s: float
    """Of one batch in its worker."""
    longest_s: float
    workers: int
    """Of one rank."""
    prefetch_factor: int
    """As measured."""
    compute_s: float
    """A step of the accelerator."""
    costs: tuple[PrefetchCost, ...]
    """By prefetch factor; empty where storage is saturated."""
    advised: int | None = None
    """The smallest prefetch factor that is within 2 % of the best, where that gains at least 5 %."""
    correlation: float | None = None
    """Between ranks, of the times of batches at the same place; None for one rank."""
    slow_rank: int | None = None
    """A rank whose input was found to be slower: it is replayed once, with batches of its own."""
    slow_host: str = ""
    """A host whose ranks were found to be slower: they are replayed once, with batches of their own."""
    saturated: bool = False
    """True where the measured ranks took all that a shared storage gives: it is never idle, so waiting costs
    nothing there."""
    measured_cost: float | None = None
    """Over one rank alone, without compute, as the measured ranks showed it."""
    replayed_cost: float | None = None
    """The same by the replay."""

    @property
    def at_least(self) -> bool:
        """True when more ranks are asked for than batches can show."""
        return self.asked > self.ranks

    def at(self, prefetch_factor: int) -> PrefetchCost | None:
        """The cost with this prefetch factor."""
        return next((each for each in self.costs if each.prefetch_factor == prefetch_factor), None)
