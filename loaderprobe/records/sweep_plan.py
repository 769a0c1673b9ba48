"""What a sweep is about to measure, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Study = Literal["prefilled", "epochs"]
"""Measured beside the verdicts: training from a full buffer, and whole epochs."""
FEWEST_PAIRS = 3
"""Pairs of rounds with which two runs measured in turn are compared as pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """One study of some configurations, after their verdicts."""

    study: Study
    configurations: int
    each_s: float
    """Of one configuration; of epochs, at `images_per_s`."""
    epochs: int = 0
    images: int = 0
    """Of the largest set, in an epoch."""
    set_bytes: int = 0
    images_per_s: float = 0.0
    """An example: the rate itself is still to be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What the configurations that are still to be measured take."""

    configurations: int
    expected_s: float
    least_s: float
    """That one round of each takes."""
    budget_s: float | None
    thorough: bool
    rounds: int
    beside: tuple[StudyPlan, ...] = ()
    """What is measured beside the verdicts."""

    @property
    def fitting(self) -> int:
        """Configurations that the budget has time for."""
        if self.budget_s is None or self.budget_s >= self.least_s:
            return self.configurations
        return int(self.configurations * self.budget_s / self.least_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInTurn:
    """What is still to be measured of both sides of a sweep against a run."""

    configurations: int
    pairs: int
    """Of rounds, of all configurations together."""
    rounds: int
    """Pairs of each configuration in the end."""
    expected_s: float
    least_s: float
    """That all pairs take, if segments are as short as they may be."""
    budget_s: float | None

    @property
    def fitting(self) -> int:
        """Pairs of each configuration that the budget has time for."""
        if self.budget_s is None or self.budget_s >= self.least_s:
            return self.rounds
        return int(self.rounds * self.budget_s / self.least_s)
