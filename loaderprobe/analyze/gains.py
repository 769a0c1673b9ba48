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
    attributed_cost,
    cores_in_training,
    interval,
    parent_overhead_s,
    rates_by_round,
    segments_of,
    worker_cost,
)
from loaderprobe.analyze.validity import base_mode, by_waiting, files_were, waiting_evidence, why_not_as_asked
from loaderprobe.analyze.waiting import Waiting
from loaderprobe.analyze.without import MODE_WITHOUT, Parts, Without, possible_modes
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import NO_STEP, Activity, Measurement, Mode
from loaderprobe.records.verdict import Evidence, Gain, How
from loaderprobe.stats import median


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
    bounds: dict[str, float] = field(default_factory=dict)
    """Resource that is missing to the most that its gain can be, where that is known."""
    open: frozenset[str] = frozenset()
    """Resources that are only estimated, and whose mode could be run."""
    in_training: bool = False
    """True where resources were taken away in training itself: no law of how parts make a whole is needed then."""
    free_gain: float | None = None
    """Compute alone over training, both measured: what an input without cost would gain."""
    starved_gain: float | None = None
    """The loader alone over training, both measured: what compute without cost would gain."""
    training_cores: float | None = None
    """Cores that training keeps busy, workers and training process together."""
    waiting: Waiting | None = None
    """What workers were seen waiting for."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Resource to the least and the most that its gain can be, where it rests on looks at workers."""
    met_warm: str = ""
    """Why files that were to be cold were warm: then nothing is known of cold ones."""
    by_waiting: bool = False
    """True where cold and warm files were told apart only by how long workers waited for them."""
    evidence: tuple[Evidence, ...] = ()
    """By what they were told apart then."""


def run_experiments(measurement: Measurement, ceiling: StorageCeiling | None = None) -> Experiments:
    """All rates and gains that the measurement carries; estimates also heed the storage's ceiling where it is known."""
    base = base_mode(measurement)
    drains = segments_of(measurement, base, "drain")
    overhead_s = parent_overhead_s(drains) if measurement.config.workers else 0.0
    loader = rates_by_round(measurement, base, "drain")
    cost = attributed_cost(measurement, drains)
    waiting = cost.waiting if cost else None
    costs = {s.round: _with(worker_cost(measurement.worker_batches, [s]), waiting) for s in drains}
    limits = _limits(measurement, overhead_s, ceiling)
    parts = Parts(measurement=measurement, loader=loader, costs=costs, limits=limits)
    taken = parts.all()
    known = {name: each for name, each in taken.items() if each.missing is None}
    alone = _compute_rates(measurement, loader)
    loops = {number: _loop(measurement, rate, overhead_s) for number, rate in alone.items()}
    predicted = {n: loops[n].end_to_end(rate) for n, rate in loader.items() if n in loops}
    end_to_end = rates_by_round(measurement, base, judged_activity(measurement))
    most = _most_gain(alone, end_to_end)
    ratios = {name: _ratios(loops, predicted, each, most) for name, each in known.items()}
    ratios["compute"] = {n: loader[n] / rate for n, rate in predicted.items()}
    how: dict[str, How] = {name: each.how for name, each in known.items()} | {"compute": "performed"}
    trained = in_training(measurement, base, loader, end_to_end)
    if trained:
        # The law that made these did not foretell training: what is left of them is the most that they can be.
        ratios |= {n: _at_most(each.rates, loader, most) for n, each in known.items() if each.how == "estimated"}
    ratios |= trained
    how |= dict.fromkeys(trained, "performed")
    free = [replace(loops[n], overhead_s=0.0).end_to_end(math.inf) / predicted[n] for n in predicted]
    unlimited = math.isinf(limits.storage_images_per_s) or measurement.access != "files"
    asked = base == "C" and measurement.storage_kind != "memory" and unlimited
    possible = [name for name, mode in MODE_WITHOUT.items() if mode in possible_modes(measurement)]
    bounds = {
        name: median(list(_ratios(loops, predicted, replace(each, rates=each.at_most), most).values()))
        for name, each in taken.items()
        if each.missing is not None and each.at_most and predicted
    }
    both = sorted(loader.keys() & end_to_end.keys())
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
        cost=cost,
        overhead_s=overhead_s,
        batch_size=measurement.config.batch_size,
        missing={
            name: each.missing for name, each in taken.items() if each.missing is not None and name not in trained
        },
        at_most=frozenset(n for n in ("preprocess", "transport") if asked and how.get(n) == "estimated"),
        bounds=bounds,
        # One that was run and showed nothing is not open any more.
        open=frozenset(
            name
            for name in possible
            if how.get(name) == "estimated" and not segments_of(measurement, MODE_WITHOUT[name], "drain")
        ),
        in_training=bool(trained),
        free_gain=most if math.isfinite(most) else None,
        starved_gain=median([loader[n] / end_to_end[n] for n in both]) if both else None,
        training_cores=cores_in_training(measurement, segments_of(measurement, base, judged_activity(measurement))),
        waiting=waiting,
        ranges={name: each for name in known if (each := _range(parts, name, most)) and name not in trained},
        met_warm=_met_warm(measurement, taken),
        by_waiting=by_waiting(measurement),
        evidence=waiting_evidence(measurement),
    )


def _range(parts: Parts, name: str, most: float) -> tuple[float, float] | None:
    """By the interval of the share of looks; None for what rests on no looks."""
    found = parts.range_of(name)
    return None if found is None else (min(most, found[0]), min(most, found[1]))


def _met_warm(measurement: Measurement, taken: Mapping[str, Without]) -> str:
    """Where the files were in memory on purpose, or nobody asked for cold ones, that is no reason for doubt."""
    if measurement.config.cache == "warm" or measurement.storage_kind == "memory" or files_were(measurement) != "warm":
        return ""
    return taken["storage"].missing or ""


def judged_activity(measurement: Measurement) -> Activity:
    """What the verdict is on: training or, without a step, the loader alone."""
    return "drain" if measurement.compute.name == NO_STEP else "train"


def _at_most(rates: Mapping[int, float], loader: Mapping[int, float], most: float) -> dict[int, float]:
    """Training gains no more from a faster loader than the loader itself."""
    return {number: min(most, rate / loader[number]) for number, rate in rates.items()}


def _with(cost: WorkerCost | None, waiting: Waiting | None) -> WorkerCost | None:
    """What workers waited for is known of all rounds together: one has too few looks."""
    return None if cost is None else replace(cost, waiting=waiting)


def in_training(
    measurement: Measurement, base: Mode, loader: Mapping[int, float], end_to_end: Mapping[int, float]
) -> dict[str, dict[int, float]]:
    """Speed-ups by round where resources were taken away in training itself; empty where none was."""
    found: dict[str, dict[int, float]] = {}
    for name, mode in MODE_WITHOUT.items():
        rates = rates_by_round(measurement, mode, "train") if mode != base else {}
        beside = {n: rate / end_to_end[n] for n, rate in rates.items() if n in end_to_end}
        if beside and why_not_as_asked(measurement, mode) is None:
            found[name] = beside
    if not found:
        return {}
    rounds = set.union(*(set(each) for each in found.values()))
    if base == "W":
        found["storage"] = dict.fromkeys(rounds, 1.0)
    return found | {"compute": {n: loader[n] / end_to_end[n] for n in rounds if n in loader}}


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
    cost = worker_cost(measurement.worker_batches, drains)
    if not images and cost is not None:
        bytes_per_image = cost.read_bytes / cost.images
    return estimate.Limits(
        workers=workers,
        cores=measurement.cores_available,
        parent_s=overhead_s / measurement.config.batch_size,
        storage_images_per_s=leg.bw_bytes / bytes_per_image if leg and bytes_per_image else math.inf,
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
