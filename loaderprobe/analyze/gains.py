"""The experiments: what training would gain without storage, preprocessing, transport, or compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from loaderprobe.analyze.model import Loop
from loaderprobe.analyze.rates import (
    WorkerCost,
    cold_fraction,
    interval,
    parent_overhead_s,
    rates_by_round,
    segments_of,
    worker_cost,
)
from loaderprobe.records.measurement import COLD_AT_LEAST, WARM_AT_MOST, Measurement, Mode
from loaderprobe.records.verdict import Gain, How
from loaderprobe.stats import mean, median


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiments:
    """Rates and gains by round, before anything is judged."""

    base: Mode
    """The mode that is the configuration as asked: C when cold, W when warm."""
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
    missing: dict[str, str] = field(default_factory=dict)
    """Resource to the reason why its gain is not known."""


def base_mode(measurement: Measurement) -> Mode:
    """The mode that is the configuration as asked."""
    return "C" if measurement.config.cache == "cold" else "W"


def run_experiments(measurement: Measurement) -> Experiments:
    """All rates and gains that the measurement carries."""
    base = base_mode(measurement)
    drains = segments_of(measurement, base, "drain")
    cost = worker_cost(measurement.worker_batches, drains)
    overhead_s = parent_overhead_s(drains) if measurement.config.workers else 0.0
    loader = rates_by_round(measurement, base, "drain")
    compute_by_round = _compute_rates(measurement, loader)
    without: dict[str, dict[int, float]] = {}
    how: dict[str, How] = {}
    missing: dict[str, str] = {}
    _without_storage(measurement, base, loader, without, how, missing)
    _decompose(measurement, loader, cost, without, how, missing)
    loops = {number: _loop(measurement, rate, overhead_s) for number, rate in compute_by_round.items()}
    predicted = {n: loops[n].end_to_end(rate) for n, rate in loader.items() if n in loops}
    ratios = {
        resource: _ratios(loops, predicted, rates, free_transport=resource == "transport")
        for resource, rates in without.items()
    }
    ratios["compute"] = {n: loader[n] / rate for n, rate in predicted.items()}
    how["compute"] = "performed"
    gains = {name: _interval_gain(list(found.values()), how[name]) for name, found in ratios.items() if found}
    free = [loops[n].end_to_end(math.inf, free_transport=True) / predicted[n] for n in predicted]
    return Experiments(
        base=base,
        compute=median(list(compute_by_round.values())) if compute_by_round else None,
        loader=loader,
        without=without,
        how=how,
        gains=gains,
        ratios=ratios,
        end_to_end=rates_by_round(measurement, base, "train"),
        predicted=predicted,
        ceiling_gain=median(free) if free else math.inf,
        cost=cost,
        overhead_s=overhead_s,
        missing=missing,
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
    given = measurement.compute.given_images_per_s
    if given is not None:
        return dict.fromkeys(loader, given)
    return rates_by_round(measurement, "resident", "train")


def _without_storage(
    measurement: Measurement, base: Mode, loader: dict[int, float],
    without: dict[str, dict[int, float]], how: dict[str, How], missing: dict[str, str],
) -> None:  # fmt: skip
    """Performed: the same files from memory. A mode that was not what it was to be is no experiment."""
    reason = why_not_cold(measurement) if base == "C" else None
    reason = reason or why_not_warm(measurement)
    rates = loader if base == "W" else rates_by_round(measurement, "W", "drain")
    if reason or not rates:
        missing["storage"] = reason or "no segment with warm files was measured"
        return
    without["storage"], how["storage"] = rates, "performed"


def why_not_cold(measurement: Measurement) -> str | None:
    """Why the cold segments do not count as cold; None when they were."""
    return _why_not(measurement, "C", "cold", lambda share: share >= COLD_AT_LEAST, lambda r: r < 1 - COLD_AT_LEAST)


def why_not_warm(measurement: Measurement) -> str | None:
    """Why the warm segments do not count as warm; None when they were."""
    return _why_not(measurement, "W", "warm", lambda share: share < WARM_AT_MOST, lambda r: r > 1 - WARM_AT_MOST)


def _why_not(
    measurement: Measurement,
    mode: Mode,
    word: str,
    by_bytes: Callable[[float], bool],
    by_residency: Callable[[float], bool],
) -> str | None:
    segments = [s for s in measurement.segments if s.mode == mode]
    if not segments:
        return f"no {word} segment was measured"
    if measurement.storage_kind == "memory":
        return "the files are on a file system in memory, which is no storage" if mode == "C" else None
    share = cold_fraction(measurement, segments)
    if share is not None:
        return None if by_bytes(share) else f"{share:.0%} of the bytes came from storage in segments meant to be {word}"
    resident = [s.resident_before for s in segments if s.resident_before is not None]
    if len(resident) < len(segments):
        return f"whether the files were {word} cannot be checked on this file system"
    if by_residency(mean(resident)):
        return None
    return f"{mean(resident):.0%} of the files was in the page cache before segments meant to be {word}"


def _decompose(
    measurement: Measurement, loader: dict[int, float], cost: WorkerCost | None,
    without: dict[str, dict[int, float]], how: dict[str, How], missing: dict[str, str],
) -> None:  # fmt: skip
    """Estimated: worker time less the part that goes. Bounded below by the rate that was measured."""
    workers = measurement.config.workers
    without["transport"], how["transport"] = dict(loader), "estimated"
    if cost is None:
        missing["preprocess"] = "the workers left no record of their time"
        del without["transport"], how["transport"]
        missing["transport"] = missing["preprocess"]
        return
    per_image = cost.per_image()
    hands = max(workers, 1)
    preprocess_s = per_image.cpu_s + per_image.run_delay_s
    rest_s = per_image.blocked_s
    without["preprocess"] = {
        n: max(rate, _per_second(hands, rest_s) if workers else _per_second(1, 1 / rate - preprocess_s))
        for n, rate in loader.items()
    }
    how["preprocess"] = "estimated"
    if workers:
        fetching = hands * cost.images / cost.wall_s if cost.wall_s else math.inf
        without["transport"] = {n: max(rate, fetching) for n, rate in loader.items()}


def _per_second(hands: int, seconds: float) -> float:
    return hands / seconds if seconds > 0 else math.inf


def _ratios(
    loops: Mapping[int, Loop], predicted: Mapping[int, float], rates: Mapping[int, float], *, free_transport: bool
) -> dict[int, float]:
    return {
        n: loops[n].end_to_end(rate, free_transport=free_transport) / predicted[n]
        for n, rate in rates.items()
        if n in predicted
    }


def _interval_gain(ratios: list[float], how: How) -> Gain:
    """Taking a resource away cannot slow training down: less than 1 is noise."""
    found = interval(ratios)
    return Gain(value=max(1.0, found.value), low=max(1.0, found.low), high=max(1.0, found.high), how=how)
