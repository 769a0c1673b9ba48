"""The loader without one resource after the other: by experiment, else by what batches cost their workers.

Where resources were removed in training itself, what training gained by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.verdict import estimate
from loaderprobe.analyze.verdict.rates import WorkerCost, parent_overhead_s, rates_by_round, segments_of
from loaderprobe.analyze.verdict.validity import as_found, base_mode, met_warm, why_not_as_asked
from loaderprobe.records.measurement import LEAST_BYTES, Measurement, Mode
from loaderprobe.records.resources import ABLATIONS, ONLY_WAITED, WAITED
from loaderprobe.records.unavailable import Unavailable
from loaderprobe.records.verdict import How
from loaderprobe.stats import median

# Waiting for less than this share of the time cannot make a speed-up worth a word.
NEGLIGIBLE_WAIT = 0.05


def possible_modes(measurement: Measurement) -> tuple[Mode, ...]:
    """The modes of this loader that take something away here."""
    gone: set[Mode] = {base_mode(measurement)}
    if as_found(measurement):
        gone.add("warm")
    if measurement.access != "files":
        gone.add("cached_samples")
    if not measurement.config.loader.workers:
        gone.add("no_transport")
    return tuple(mode for mode in ABLATIONS.values() if mode in measurement.modes and mode not in gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """The loader without one resource: images/s by round and how they are known; or the reason why they are not."""

    rates: dict[int, float] = field(default_factory=dict)
    how: How = "measured"
    missing: Unavailable | None = None
    overhead_s: float | None = None
    """Seconds a batch that the training thread then works on receiving it; None leaves it as it is."""
    at_most: dict[int, float] = field(default_factory=dict)
    """Where it is missing, the most that the loader could deliver without the resource, by round; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The loader of one measurement with one resource after the other removed.

    Measured where a mode was run; where it was not, estimated from what batches cost their workers. A mode that
    was run but was not what it was to be is no experiment, and no estimate stands in.
    """

    measurement: Measurement
    loader: dict[int, float]
    costs: dict[int, WorkerCost | None]
    """Of the batches of each round."""
    limits: estimate.Limits

    def all(self) -> dict[str, Without]:
        """By resource."""
        found = {name: each for name, mode in ABLATIONS.items() if (each := self._ablated(name, mode))}
        if not self._looked_at:
            return found
        # Without samples of the workers nothing separates these from storage.
        return found | {name: self._estimated(name) for name in ONLY_WAITED}

    def _ablated(self, name: str, mode: Mode) -> Without | None:
        """None where neither this loader can be run without the resource, nor its speed-up be estimated."""
        if name == "storage":
            return self.storage()
        if name == "transport":
            return self.transport()
        if (measured := self._measured(mode)) or estimate.can_be(name):
            return measured or self._estimated(name)
        return Without(missing=Unavailable(code="not_measured")) if mode in self.measurement.modes else None

    @property
    def _looked_at(self) -> bool:
        return any(cost is not None and cost.waiting is not None for cost in self.costs.values())

    def range_of(self, resource: str) -> tuple[float, float] | None:
        """The loader's speed-up at least and at most, by the 95 % interval of what workers were seen waiting for."""
        costs = {n: cost for n, cost in self.costs.items() if cost is not None and cost.waiting is not None}
        if resource not in WAITED or not costs or (resource == "storage" and self._measured("warm")):
            return None
        ends = [
            median(
                [
                    estimate.without(f"{end} {resource}", self.loader[n], cost, self.limits) / self.loader[n]
                    for n, cost in costs.items()
                ]
            )
            for end in ("least", "most")
        ]
        return ends[0], ends[1]

    def storage(self) -> Without:
        """The same files, or the same batches, from memory; unknown where files are read as found."""
        base = base_mode(self.measurement)
        reason = met_warm(self.measurement) or why_not_as_asked(self.measurement, base)
        if reason:
            # How long cold files would be waited for is not known.
            return Without(missing=reason)
        if base == "warm":
            return Without(rates=self.loader)
        measured = self._measured("warm")
        if measured is None or (_keeps_samples(measured) and self._looked_at):
            # A data set that keeps its samples shows no warm files, only how workers waited for cold ones.
            reason = None if "warm" in possible_modes(self.measurement) else self._why_not_storage()
            measured = Without(missing=reason) if reason else self._estimated("storage")
        return measured if measured.missing is None else replace(measured, at_most=self._without_waiting("storage"))

    def _why_not_storage(self) -> Unavailable | None:
        """Where files are as found and workers were not sampled, only bytes show that they wait for storage."""
        if self._looked_at:
            return None
        costs = [cost for cost in self.costs.values() if cost is not None]
        waited = sum(cost.blocked_s for cost in costs) / (sum(cost.wall_s for cost in costs) or 1.0)
        read = sum(cost.read_bytes for cost in costs) / (sum(cost.images for cost in costs) or 1)
        if waited < NEGLIGIBLE_WAIT or read >= LEAST_BYTES:
            return None
        return Unavailable(code="wait_unexplained", facts={"share": waited})

    def _without_waiting(self, resource: str) -> dict[int, float]:
        """The most that the loader could deliver if it never waited for this."""
        return {
            number: estimate.without(f"most {resource}", self.loader[number], cost, self.limits)
            for number, cost in self.costs.items()
            if cost is not None
        }

    def transport(self) -> Without:
        """Samples are made but neither collated nor sent; the serial loader has no transport.

        What little the training thread still does is measured where it was done, and nothing in an estimate.
        """
        if not self.limits.workers:
            return Without(rates=self.loader)
        measured = self._measured("no_transport")
        if measured is not None:
            return replace(
                measured, overhead_s=parent_overhead_s(segments_of(self.measurement, "no_transport", "loader_only"))
            )
        return replace(self._estimated("transport"), overhead_s=0.0)

    def _measured(self, mode: Mode) -> Without | None:
        """None when the mode was not run."""
        rates = rates_by_round(self.measurement, mode, "loader_only")
        if not rates:
            return None
        beside = {number: rate for number, rate in rates.items() if number in self.loader}
        reason = None if beside else Unavailable(code="not_beside")
        return Without(rates=beside, missing=why_not_as_asked(self.measurement, mode) or reason)

    def _estimated(self, resource: str) -> Without:
        """Each round from what its own batches cost."""
        rates = {
            number: estimate.without(resource, self.loader[number], cost, self.limits)
            for number, cost in self.costs.items()
            if cost is not None
        }
        return Without(rates=rates, how="estimated") if rates else Without(missing=Unavailable(code="no_worker_times"))


def _keeps_samples(measured: Without) -> bool:
    return measured.missing is not None and measured.missing.code == "samples_kept"


def in_training(
    measurement: Measurement, base: Mode, loader: Mapping[int, float], end_to_end: Mapping[int, float]
) -> dict[str, dict[int, float]]:
    """Speed-ups by round where resources were removed in training itself; empty where none was."""
    found: dict[str, dict[int, float]] = {}
    for name, mode in ABLATIONS.items():
        if mode == base or (name == "storage" and why_not_as_asked(measurement, base)):
            continue  # files that were to be cold and were not show nothing of storage
        rates = rates_by_round(measurement, mode, "training")
        beside = {n: rate / end_to_end[n] for n, rate in rates.items() if n in end_to_end}
        if beside and why_not_as_asked(measurement, mode) is None:
            found[name] = beside
    if not found:
        return {}
    rounds = set.union(*(set(each) for each in found.values()))
    if base == "warm":
        found["storage"] = dict.fromkeys(rounds, 1.0)
    return found | {"compute": {n: loader[n] / end_to_end[n] for n in rounds if n in loader}}
