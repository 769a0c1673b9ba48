"""Ranks of one training that are measured together: what each offers, why they are not, and what each measured."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from loaderprobe.records.measurement import Measurement

ApartCode = Literal[
    "silent",
    "other_thread",
    "another_process",
    "loaders_differ",
    "out_of_step",
    "no_group",
    "refused",
    "ended",
    "lost",
]
"""Why ranks are not measured together. silent: ranks of which none of the DataLoaders trained in time. loaders_differ:
from those of rank 0. out_of_step: they did not come to the agreed step. no_group: they could not meet. refused: a
loader cannot be measured. ended: the script ended. lost: ranks do not answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Why all ranks go on with the script, or why the measurement ended."""

    code: ApartCode
    ranks: tuple[int, ...]
    """Those that are the reason."""
    detail: str = ""
    """An error's own words."""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOffer:
    """The loader that trains on one rank, and its settings, which are the same on all."""

    loader: int
    """Its number."""
    batch_size: int | None
    workers: int
    prefetch_factor: int
    period: int
    """Batches between two updates of the model."""

    def differing(self, other: RankOffer) -> tuple[str, ...]:
        """The names of the settings that another rank has otherwise."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name))


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
    device: str = ""
    """The GPU's UUID; empty without one."""
