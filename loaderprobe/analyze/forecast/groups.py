"""Configurations that differ in workers only: fitted together, each gets its forecasts, and all of them a knee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loaderprobe.analyze.forecast.advice import Place, Recommendation, Surroundings, recommend
from loaderprobe.analyze.forecast.knee import find_knee, worker_forecasts
from loaderprobe.analyze.forecast.point import Point, point_of
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rule import cores_are_busy
from loaderprobe.analyze.verdict.speedups import run_experiments
from loaderprobe.records.config import PUBLISHED_MODEL, alike_but_for
from loaderprobe.records.forecast import Knee
from loaderprobe.records.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside the measurements, by fingerprint of the data."""

    storage: Mapping[str, Storage] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    accelerators: Mapping[str, float] = field(default_factory=dict)
    """Images/s by name."""


def recommend_groups(
    measured: Sequence[Measurement], known: Known
) -> tuple[dict[str, Recommendation], tuple[Knee, ...]]:
    """(forecasts and advice by key of the configuration, a knee for each group)."""
    recommendations: dict[str, Recommendation] = {}
    knees: list[Knee] = []
    for group in _groups(measured):
        made, knee = _recommend_group(group, known)
        for key, each in made.items():
            recommendations.setdefault(key, each)
        knees += [knee] if knee else []
    return recommendations, tuple(knees)


def _groups(measured: Sequence[Measurement]) -> list[list[Measurement]]:
    """The serial loader has no prefetch factor, and so belongs to the groups of all."""
    alike: dict[tuple[object, ...], list[Measurement]] = {}
    for each in measured:
        same = alike_but_for(each.config, "workers", "prefetch_factor", "rounds", "seed")
        alike.setdefault(same, []).append(each)
    groups = []
    for members in alike.values():
        loaders = [each.config.loader for each in members]
        factors = dict.fromkeys(loader.prefetch_factor for loader in loaders if loader.workers) or {0: None}
        groups += [
            [each for each in members if each.config.loader.prefetch_factor in (0, factor)] for factor in factors
        ]
    return groups


def _recommend_group(group: Sequence[Measurement], known: Known) -> tuple[dict[str, Recommendation], Knee | None]:
    data = group[0].config.data
    storage = known.storage.get(data, Storage())
    found: dict[str, Experiments] = {each.config.key: run_experiments(each, storage.ceiling) for each in group}
    points = {each.config.key: point_of(each, found[each.config.key]) for each in group}
    good = {key: point for key, point in points.items() if isinstance(point, Point)}
    busy = [each.config.loader.workers for each in group if _cores_are_busy(each, found[each.config.key])]
    taken = min(busy, default=None)
    by_workers = {
        number: each
        for number, each in (worker_forecasts(tuple(good.values()), storage) if good else {}).items()
        if taken is None or number <= taken or each.how == "measured"
    }
    around = Surroundings(
        storage=storage,
        neighbours=tuple(good.values()),
        workers=by_workers,
        place=known.places.get(data),
        # Their rates are published for one model.
        accelerators=known.accelerators if group[0].config.compute.model == PUBLISHED_MODEL else {},
    )
    recommendations = {each.config.key: recommend(each, found[each.config.key], around) for each in group}
    return recommendations, find_knee(tuple(good), by_workers, taken) if good else None


def _cores_are_busy(measurement: Measurement, found: Experiments) -> bool:
    workers = measurement.config.loader.workers
    return cores_are_busy(found, workers=workers, cores_available=measurement.cores_available)
