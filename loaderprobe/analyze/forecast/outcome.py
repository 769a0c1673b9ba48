"""The outcome of one change to a measured configuration: the rate of training, its range, and its bottleneck."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from loaderprobe.analyze.forecast.fit import NEAR, Fit
from loaderprobe.analyze.forecast.service import Service
from loaderprobe.analyze.verdict.prediction import Loop
from loaderprobe.records.forecast import Changed
from loaderprobe.records.verdict import Bottleneck, How

# Near a knee the rate lies below both limits: by up to a fifth in the experiments.
NEAR_RANGE = 0.2
# Training itself repeats no better than this.
REPEAT = 0.03
# Sending float images took up to a quarter of a worker's time, which a serial loader does not show.
UNSEEN_HANDOVER = 0.25
# No rate is forecast to fall by more.
MOST_DOWN = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to the configuration of a fit: to its service, its loop, or what was measured instead."""

    changed: Changed
    to: str
    workers: int
    batch_size: int
    compute: float
    synchronous: bool
    alter: Callable[[Service], Service] = lambda service: service
    loader: Callable[[Service, float], float] = lambda _, rate: rate
    """From the altered service and the rate of its law to the rate of the loader."""
    how: How = "estimated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Images/s of training, its range, and the bottleneck."""

    value: float
    low: float
    high: float
    bottleneck: Bottleneck
    rising: bool
    """More workers would gain more."""


def outcome_of(fit: Fit, change: Change, service: Service, loader: float) -> Outcome:
    """The training on a loader of this rate, by the law of `service`, which is altered already."""
    anchor = fit.anchor

    def training(loader: float, compute: float) -> float:
        loop = Loop(
            workers=change.workers,
            batch_size=change.batch_size,
            synchronous=change.synchronous,
            compute_images_per_s=compute,
            overhead_s=_parent_s(fit, service) * change.batch_size,
        )
        return loop.end_to_end(loader) * fit.whole

    value = training(loader, change.compute)
    down, up = _drift(fit, change, service, loader)
    low = training(loader * (1 - down), change.compute * (1 - anchor.compute_spread))
    high = training(loader * (1 + up), change.compute * (1 + anchor.compute_spread))
    margin = max(REPEAT, anchor.training_spread)
    terms = _terms(change, service, loader, _parent_s(fit, service))
    nearest, next_nearest = sorted(terms.values())[:2]
    if next_nearest <= NEAR * nearest:
        margin = max(margin, NEAR_RANGE)
    by_law = service.terms(change.workers)
    return Outcome(
        value=value,
        low=min(low, value * (1 - margin)),
        high=max(high, value * (1 + margin)),
        bottleneck=min(terms, key=lambda name: terms[name]),
        rising=by_law["workers"] <= min(*by_law.values(), terms["compute"]) and not service.crowded(change.workers),
    )


def _drift(fit: Fit, change: Change, service: Service, loader: float) -> tuple[float, float]:
    """Relative: how much slower and faster the loader may be at another time.

    In two factors: the CPU time of an image, as far as the law makes the rate depend on it, and all else. They have
    nothing to do with each other, so their squares add up.
    """

    def at_speed(factor: float) -> float:
        altered = service.with_cpu_speed(factor)
        return change.loader(altered, altered.loader(change.workers)) / loader

    unseen = change.workers and not service.parent_s and not fit.anchor.workers
    down = math.hypot(fit.drift, max(0.0, 1 - at_speed(1 / (1 + fit.cpu_drift))))
    up = math.hypot(fit.drift, max(0.0, at_speed(1 + fit.cpu_drift) - 1))
    return min(MOST_DOWN, down + (UNSEEN_HANDOVER if unseen else 0.0)), up


def _parent_s(fit: Fit, service: Service) -> float:
    """The training thread's work an image, as measured; a serial loader has none, and takes it from the fit."""
    return fit.anchor.parent_s if fit.anchor.workers else service.parent_s


def _terms(change: Change, service: Service, loader: float, parent_s: float) -> dict[Bottleneck, float]:
    """Images/s that each resource allows; a loader held down by an experiment is held down in its tightest term."""
    terms: dict[Bottleneck, float] = {"compute": change.compute}
    if change.synchronous and change.workers:
        terms["compute"] = 1 / (1 / change.compute + parent_s)
    by_law = service.terms(change.workers)
    tightest = min(by_law, key=lambda term: by_law[term])
    for term, rate in by_law.items():
        name = service.bottleneck(term, change.workers)
        terms[name] = min(terms.get(name, math.inf), loader if term == tightest else rate)
    return terms
