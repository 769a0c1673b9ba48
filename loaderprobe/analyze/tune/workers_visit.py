"""One visit to a setting: what it measures, and what the measurement says about this and other settings."""

from __future__ import annotations

from typing import get_args

from loaderprobe.analyze.forecast.changes import ENOUGH_BATCHES, prefetch
from loaderprobe.analyze.forecast.fit import fit
from loaderprobe.analyze.forecast.knee import worker_forecasts
from loaderprobe.analyze.forecast.point import point_of
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.tune.workers import FACTORS
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rates import (
    WorkerCost,
    cores_in_training,
    rates_by_round,
    segment_seconds,
    segments_of,
)
from loaderprobe.analyze.verdict.speedups import judged_activity, run_experiments
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import NO_STEP, Activity, Measurement, Mode
from loaderprobe.records.remark import Remark
from loaderprobe.records.tune_workers import PrefetchSpeedup, Waits, WorkersForecast, WorkersSetting, WorkersVisit
from loaderprobe.stats import median

LATER_ROUNDS = 2
"""Of a visit in a later turn, which measures the rate alone."""
Round = tuple[tuple[Mode, Activity], ...]


def first_round(measurement: Measurement, *, thorough: bool) -> Round:
    """One round: the loader alone and, with a step, training and compute alone."""
    del thorough
    if measurement.segments:
        return ()
    base = base_mode(measurement)
    if measurement.compute.name == NO_STEP:
        return ((base, "loader_only"),)
    both: Round = ((base, "loader_only"), (base, "training"))
    return both if measurement.compute.specified_images_per_s is not None else (*both, ("resident", "training"))


def later_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The rate alone, twice."""
    del thorough
    judged = (base_mode(measurement), judged_activity(measurement))
    return () if len(segments_of(measurement, *judged)) >= LATER_ROUNDS else (judged,)


def visit_of(measurement: Measurement, setting: WorkersSetting, turn: int) -> WorkersVisit:
    """What a measurement of `setting` found; beyond the rate only in turn 0, which `first_round` measures."""
    base, activity = base_mode(measurement), judged_activity(measurement)
    rate = median(list(rates_by_round(measurement, base, activity).values()))
    if turn:
        return WorkersVisit(setting=setting, turn=turn, images_per_s=rate)
    found = run_experiments(measurement)
    has_compute = measurement.compute.name != NO_STEP
    return WorkersVisit(
        setting=setting,
        turn=turn,
        images_per_s=rate,
        compute_images_per_s=found.compute if has_compute else None,
        cores_in_use=cores_in_training(measurement, segments_of(measurement, base, activity)),
        thread_share=_thread_share(measurement) if setting.workers else None,
        core_wait_share=found.cost.run_delay_s / found.cost.wall_s if found.cost and found.cost.wall_s else 0.0,
        blocked_share=_blocked_share(found.cost),
        blocked_by=_blocked_by(found.cost),
        fed_workers=_fed(measurement, setting),
        forecasts=_forecasts(measurement, found),
        prefetch_speedups=_prefetch_speedups(measurement, found),
    )


def _thread_share(measurement: Measurement) -> float | None:
    loader_only = segments_of(measurement, base_mode(measurement), "loader_only")
    seconds = sum(segment_seconds(segment) for segment in loader_only)
    return sum(segment.thread_cpu_ns for segment in loader_only) / 1e9 / seconds if seconds else None


def _blocked_share(cost: WorkerCost | None) -> float:
    return cost.blocked_s / cost.wall_s if cost and cost.wall_s else 0.0


def _blocked_by(cost: WorkerCost | None) -> Waits | None:
    if cost is None or cost.waiting is None or not cost.waiting.waited:
        return None
    waits: tuple[Waits, ...] = get_args(Waits)
    return max(waits, key=cost.waiting.share)


def _fed(measurement: Measurement, setting: WorkersSetting) -> int | None:
    """Where an iterable data set has shares for fewer workers, it is measured with those."""
    workers = measurement.config.loader.workers
    return workers if 0 < workers < setting.workers else None


def _forecasts(measurement: Measurement, found: Experiments) -> tuple[WorkersForecast, ...]:
    """Of numbers of workers that were not measured here."""
    point = point_of(measurement, found)
    if isinstance(point, Remark):
        return ()
    made = worker_forecasts((point,), Storage())
    return tuple(
        WorkersForecast(workers=count, images_per_s=each.images_per_s)
        for count, each in made.items()
        if each.images_per_s and count != point.workers
    )


def _prefetch_speedups(measurement: Measurement, found: Experiments) -> tuple[PrefetchSpeedup, ...]:
    """What other prefetch factors are worth, where batches were seen often enough to say how their times vary."""
    point = point_of(measurement, found)
    fitted = point if isinstance(point, Remark) else fit((point,), point, Storage())
    before = measurement.config.loader.prefetch_factor
    if isinstance(point, Remark) or isinstance(fitted, Remark) or not before:
        return ()
    records = measurement.worker_batches
    wall_s = {number: wall / 1e9 for number, wall in zip(records.batch, records.wall_ns, strict=True)}
    rounds = [
        [wall_s[n] for n in range(s.first_batch, s.first_batch + s.steps) if n in wall_s]
        for s in segments_of(measurement, found.base, "loader_only")
    ]
    if not any(len(each) >= ENOUGH_BATCHES for each in rounds):
        return ()
    made = {factor: prefetch(fitted, factor, before, rounds).images_per_s for factor in FACTORS if factor > before}
    return tuple(
        PrefetchSpeedup(prefetch_factor=factor, speedup=rate.value / point.training)
        for factor, rate in made.items()
        if rate
    )
