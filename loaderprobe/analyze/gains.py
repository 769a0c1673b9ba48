"""The experiments: what training would gain without storage, preprocessing, transport, or compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loaderprobe.analyze import estimate
from loaderprobe.analyze.disk import ceiling_leg
from loaderprobe.analyze.model import Loop
from loaderprobe.analyze.rates import (
    WorkerCost,
    interval,
    parent_overhead_s,
    rates_by_round,
    segments_of,
    worker_cost,
)
from loaderprobe.analyze.validity import as_found, base_mode, by_waiting, waiting_evidence, why_not_as_asked
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import Measurement, Mode
from loaderprobe.records.verdict import Evidence, Gain, How
from loaderprobe.stats import median

# Waiting for less than this share of the time cannot make a gain worth a word.
NEGLIGIBLE_WAIT = 0.05
# Of storage an image, below which a data set does not read its samples from there.
LEAST_BYTES = 512

MODE_WITHOUT: dict[str, Mode] = {"storage": "W", "preprocess": "Q", "transport": "T"}
"""The mode in which an input resource is taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """Rates and gains by round, before anything is judged."""

    base: Mode
    """The mode that is the configuration as asked: W when warm, else C."""
    compute: float | None
    loader: dict[int, float]
    without: dict[str, dict[int, float]]
    """Loader images/s by round without `storage`, `preprocess`, `transport`; a key is absent when unknown."""
    how: dict[str, How]
    gains: dict[str, Gain]
    ratios: dict[str, dict[int, float]]
    """Gain of each round: rounds are compared with themselves, since their parts saw the same machine."""
    end_to_end: dict[int, float]
    predicted: dict[int, float]
    ceiling_gain: float
    """What training would gain if the whole input cost nothing."""
    cost: WorkerCost | None
    overhead_s: float
    """Seconds a batch that the training thread works on receiving it."""
    batch_size: int
    missing: dict[str, str] = field(default_factory=dict)
    """Resource to the reason why its gain is not known."""
    at_most: frozenset[str] = frozenset()
    """Resources whose estimated gain is only the most that can be had: storage at its limit would leave less."""
    by_waiting: bool = False
    """True where cold and warm files were told apart only by how long workers waited for them."""
    evidence: tuple[Evidence, ...] = ()
    """By what they were told apart then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """The loader without one resource: images/s by round and how they are known; or the reason why they are not."""

    rates: dict[int, float] = field(default_factory=dict)
    how: How = "performed"
    missing: str | None = None
    overhead_s: float | None = None
    """Seconds a batch that the training thread then works on receiving it; None leaves it as it is."""


def run_experiments(measurement: Measurement, ceiling: StorageCeiling | None = None) -> Experiments:
    """All rates and gains that the measurement carries; estimates also heed the storage's ceiling where it is known."""
    base = base_mode(measurement)
    drains = segments_of(measurement, base, "drain")
    overhead_s = parent_overhead_s(drains) if measurement.config.workers else 0.0
    loader = rates_by_round(measurement, base, "drain")
    costs = {s.round: worker_cost(measurement.worker_batches, [s]) for s in drains}
    limits = _limits(measurement, overhead_s, ceiling)
    parts = _Parts(measurement=measurement, loader=loader, costs=costs, limits=limits)
    taken = {"storage": parts.storage(), "preprocess": parts.preprocess(), "transport": parts.transport()}
    known = {name: each for name, each in taken.items() if each.missing is None}
    alone = _compute_rates(measurement, loader)
    loops = {number: _loop(measurement, rate, overhead_s) for number, rate in alone.items()}
    predicted = {n: loops[n].end_to_end(rate) for n, rate in loader.items() if n in loops}
    end_to_end = rates_by_round(measurement, base, "train")
    most = _most_gain(alone, end_to_end)
    ratios = {name: _ratios(loops, predicted, each, most) for name, each in known.items()}
    ratios["compute"] = {n: loader[n] / rate for n, rate in predicted.items()}
    how: dict[str, How] = {name: each.how for name, each in known.items()} | {"compute": "performed"}
    free = [replace(loops[n], overhead_s=0.0).end_to_end(math.inf) / predicted[n] for n in predicted]
    asked = base == "C" and measurement.storage_kind != "memory" and math.isinf(limits.storage_images_per_s)
    return Experiments(
        base=base,
        compute=median(list(alone.values())) if alone else None,
        loader=loader,
        without={name: each.rates for name, each in known.items()},
        how=how,
        gains={name: _interval_gain(list(found.values()), how[name]) for name, found in ratios.items() if found},
        ratios=ratios,
        end_to_end=end_to_end,
        predicted=predicted,
        ceiling_gain=min(median(free), most) if free else math.inf,
        cost=worker_cost(measurement.worker_batches, drains),
        overhead_s=overhead_s,
        batch_size=measurement.config.batch_size,
        missing={name: each.missing for name, each in taken.items() if each.missing is not None},
        at_most=frozenset(n for n in ("preprocess", "transport") if asked and how.get(n) == "estimated"),
        by_waiting=by_waiting(measurement),
        evidence=waiting_evidence(measurement),
    )


def _loop(measurement: Measurement, compute: float, overhead_s: float) -> Loop:
    return Loop(
        workers=measurement.config.workers,
        batch_size=measurement.config.batch_size,
        synchronous=measurement.compute.synchronous,
        compute_images_per_s=compute,
        overhead_s=overhead_s,
    )


def _compute_rates(measurement: Measurement, loader: Mapping[int, float]) -> dict[int, float]:
    """Of every round of the loader: rounds that were only to take resources away did not measure compute again."""
    given = measurement.compute.given_images_per_s
    measured = rates_by_round(measurement, "resident", "train")
    if given is None and not measured:
        return {}
    usual = median(list(measured.values())) if given is None else given
    return {number: usual if given is not None else measured.get(number, usual) for number in loader}


def _limits(measurement: Measurement, overhead_s: float, ceiling: StorageCeiling | None) -> estimate.Limits:
    workers = measurement.config.workers
    leg, _ = ceiling_leg(measurement, ceiling, max(workers, 1))
    drains = segments_of(measurement, base_mode(measurement), "drain")
    images = sum(s.steps * s.batch_size for s in drains if s.delivered_bytes)
    bytes_per_image = sum(s.delivered_bytes or 0 for s in drains) / images if images else 0.0
    return estimate.Limits(
        workers=workers,
        cores=measurement.cores_available,
        parent_s=overhead_s / measurement.config.batch_size,
        storage_images_per_s=leg.bw_bytes / bytes_per_image if leg and bytes_per_image else math.inf,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The loader of one measurement with one resource after the other taken away.

    Performed where a mode was run; where it was not, estimated from what batches cost their workers. A mode that
    was run but was not what it was to be is no experiment, and no estimate stands in.
    """

    measurement: Measurement
    loader: dict[int, float]
    costs: dict[int, WorkerCost | None]
    """Of the batches of each round."""
    limits: estimate.Limits

    def storage(self) -> Without:
        """The same files from memory; as files are found, nobody knows what comes from there."""
        if as_found(self.measurement):
            reason = self._why_not_storage()
            return Without(missing=reason) if reason else self._estimated("storage")
        reason = why_not_as_asked(self.measurement, base_mode(self.measurement))
        if reason:
            return Without(missing=reason)
        if base_mode(self.measurement) == "W":
            return Without(rates=self.loader)
        return self._performed("W") or self._estimated("storage")

    def _why_not_storage(self) -> str | None:
        """Where the files are not known, workers may wait for anything: only bytes from storage say that it is that."""
        costs = [cost for cost in self.costs.values() if cost is not None]
        waited = sum(cost.blocked_s for cost in costs) / (sum(cost.wall_s for cost in costs) or 1.0)
        read = sum(cost.read_bytes for cost in costs) / (sum(cost.images for cost in costs) or 1)
        if waited < NEGLIGIBLE_WAIT or read >= LEAST_BYTES:
            return None
        return f"workers wait {waited:.0%} of their time, and nothing shows that it is for storage"

    def preprocess(self) -> Without:
        """Files read, samples that were made before handed over."""
        return self._performed("Q") or self._estimated("preprocess")

    def transport(self) -> Without:
        """Samples made, and neither put into a batch nor handed over; without workers there is nobody to hand to.

        What little the training thread still does is measured where it was done, and nothing in an estimate.
        """
        if not self.limits.workers:
            return Without(rates=self.loader)
        performed = self._performed("T")
        if performed is not None:
            return replace(performed, overhead_s=parent_overhead_s(segments_of(self.measurement, "T", "drain")))
        return replace(self._estimated("transport"), overhead_s=0.0)

    def _performed(self, mode: Mode) -> Without | None:
        """None when the mode was not run."""
        rates = rates_by_round(self.measurement, mode, "drain")
        if not rates:
            return None
        beside = {number: rate for number, rate in rates.items() if number in self.loader}
        reason = None if beside else "no round measured it beside the configuration as asked"
        return Without(rates=beside, missing=why_not_as_asked(self.measurement, mode) or reason)

    def _estimated(self, resource: str) -> Without:
        """Each round from what its own batches cost."""
        rates = {
            number: estimate.without(resource, self.loader[number], cost, self.limits)
            for number, cost in self.costs.items()
            if cost is not None
        }
        return (
            Without(rates=rates, how="estimated")
            if rates
            else Without(missing="the workers left no record of their time")
        )


def _most_gain(alone: Mapping[int, float], end_to_end: Mapping[int, float]) -> float:
    """What no input, however fast, can gain more than: training was seen at this share of what compute can do."""
    if not alone or not end_to_end:
        return math.inf
    return max(1.0, median(list(alone.values())) / median(list(end_to_end.values())))


def _ratios(loops: Mapping[int, Loop], predicted: Mapping[int, float], found: Without, most: float) -> dict[int, float]:
    def loop(number: int) -> Loop:
        return loops[number] if found.overhead_s is None else replace(loops[number], overhead_s=found.overhead_s)

    return {n: min(most, loop(n).end_to_end(rate) / predicted[n]) for n, rate in found.rates.items() if n in predicted}


def _interval_gain(ratios: list[float], how: How) -> Gain:
    """Taking a resource away cannot slow training down: less than 1 is noise."""
    found = interval(ratios)
    return Gain(value=max(1.0, found.value), low=max(1.0, found.low), high=max(1.0, found.high), how=how)
