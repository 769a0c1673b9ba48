"""The plan of a sweep, printed before it begins: what it measures, why, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.measure.pace import MAX_SECONDS, MIN_SECONDS, OVERHEAD
from loaderprobe.records.config import RunConfig, SweepSpec
from loaderprobe.units import format_duration

# Start of Python, torch and the workers: 4 s on two idle cores.
START_SECONDS = 4.0
SCREENING_SEGMENTS = 2
# For a real device: a third segment, and warming the device up.
RESIDENT_SEGMENTS = 1
WARM_UP_SECONDS = 2.0
COSTLY_SEGMENTS = 4
MOST_COSTLY_ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The least and most seconds for the configurations that are still to be measured."""

    configurations: int
    least_s: float
    """If every verdict is clear after the screening, and every loader is fast."""
    most_s: float
    budget_s: float | None
    thorough: bool
    rounds: int

    def sentences(self) -> tuple[str, ...]:
        """The plan as sentences for the user."""
        if not self.configurations:
            return ("Plan: everything is already measured.",)
        counted = "1 configuration" if self.configurations == 1 else f"{self.configurations} configurations"
        screening = f"{counted}: the loader alone and in training, {self.rounds} rounds"
        costly = "the same with warm files, cached samples and no transport"
        decided = f"then {costly}" + ("" if self.thorough else ", where the cause is still open")
        where = "in training itself, where the prediction error is too large"
        return f"Plan: {screening}; {decided}; {where}.", self._time()

    def _time(self) -> str:
        least, most = format_duration(self.least_s), format_duration(self.most_s)
        if self.budget_s is None:
            return f"It takes about {least} to {most}; --budget SECONDS sets a limit, --thorough measures everything."
        share = f"{format_duration(self.budget_s)}, {format_duration(self.budget_s / self.configurations)} each"
        if self.budget_s >= self.least_s:
            return f"It stays within the budget of {share}."
        fits = int(self.configurations * self.budget_s / self.least_s)
        return (
            f"The budget of {share}, is less than the {least} that all would take: segments get short, there may be "
            f"a single round, and {self.configurations - fits or 'none'} of them may be left for --resume."
        )


def plan_sweep(spec: SweepSpec, todo: Sequence[RunConfig]) -> Plan:
    """The plan for what is still to be measured of a sweep."""
    least = most = 0.0
    for config in todo:
        given = config.compute.name.startswith("emulated")
        start_s = START_SECONDS + (0.0 if given else WARM_UP_SECONDS)
        screening = config.rounds * (SCREENING_SEGMENTS + (0 if given else RESIDENT_SEGMENTS))
        surely = screening + (config.rounds * (COSTLY_SEGMENTS - 1) if spec.thorough else 0)
        least += start_s + surely * MIN_SECONDS * OVERHEAD
        costly = MOST_COSTLY_ROUNDS * COSTLY_SEGMENTS
        most += start_s + (screening + costly) * MAX_SECONDS * OVERHEAD
    return Plan(
        configurations=len(todo),
        least_s=least,
        most_s=most,
        budget_s=spec.budget_s,
        thorough=spec.thorough,
        rounds=max((config.rounds for config in todo), default=0),
    )
