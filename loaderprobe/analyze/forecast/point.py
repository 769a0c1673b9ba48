"""One measurement in the figures that laws are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.misfit import prediction_error_of
from loaderprobe.analyze.verdict.prediction import Loop
from loaderprobe.analyze.verdict.rates import (
    bytes_per_image,
    cold_fraction,
    rates_by_round,
    segment_seconds,
    segments_of,
    step_images,
    worker_cost,
)
from loaderprobe.analyze.verdict.validity import as_found
from loaderprobe.records.measurement import COLD_AT_LEAST, Measurement, Segment
from loaderprobe.records.remark import Remark
from loaderprobe.stats import median

# A range that is wider says no more.
MOST_SPREAD = 0.6
# Parts, or a law, that miss the measured rate by more than this do not describe the loader.
MISFIT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured configuration in the figures that laws are made of: images/s, and seconds an image."""

    workers: int
    batch_size: int
    synchronous: bool
    on_cpu: bool
    """Trained on the CPU, which waits for each step whatever the loop is."""
    loader: float
    loader_spread: float
    """Half the range over the rounds, relative, as are the other two."""
    training: float
    training_spread: float
    compute: float
    compute_spread: float
    cpu_s: float
    blocked_s: float
    idle_s: float
    """Of a worker, between two batches."""
    bytes_per_image: float
    parent_s: float
    cores: float
    from_storage: bool
    """False when the files came from memory by intent."""
    sending_s: float = 0.0
    """CPU time of a worker's other threads, which send its batches."""
    measured: dict[str, float] = field(default_factory=dict)
    """Images/s of the loader without a resource, where that was measured."""
    trained_warm: bool = False
    """True where training itself, or the loader where that is judged, was measured on warm files."""
    unproved: Remark | None = None
    """Why nothing can be said about other storage."""
    ranks: int = 1
    """Whose images are counted together: seconds an image are those of one rank, over so many."""

    @property
    def loop(self) -> Loop:
        """How its training overlaps."""
        return Loop(
            workers=self.workers,
            batch_size=self.batch_size,
            synchronous=self.synchronous,
            compute_images_per_s=self.compute,
            overhead_s=self.parent_s * self.batch_size,
        )


def point_of(measurement: Measurement, found: Experiments) -> Point | Remark:
    """The figures of one measurement, or why it carries no forecast."""
    prediction_error, tolerance = prediction_error_of(found)
    if prediction_error is None or not found.compute or found.estimated_parts:
        return Remark(code="no_complete_round")
    if abs(prediction_error) > tolerance or not 1 / MISFIT <= 1 + prediction_error <= MISFIT:
        return Remark(code="outside_noise_band", facts={"predicted_share": 1 + prediction_error})
    cost = found.cost
    if cost is None or not cost.images:
        return Remark(code="no_worker_times")
    config, per_image = measurement.config, cost.per_image()
    loader_only = segments_of(measurement, found.base, "loader_only")
    cold = cold_fraction(measurement, loader_only)
    loader, training = list(found.loader.values()), list(found.end_to_end.values())
    given = measurement.compute.specified_images_per_s is not None
    alone = [] if given else list(rates_by_round(measurement, "resident", "training").values())
    from_storage = config.cache != "warm" and measurement.storage_kind != "memory"
    return Point(
        workers=config.loader.workers,
        batch_size=step_images(measurement),
        synchronous=measurement.compute.synchronous,
        on_cpu=config.compute.name == "cpu",
        loader=median(loader),
        loader_spread=_spread(loader),
        training=median(training),
        training_spread=_spread(training),
        compute=found.compute,
        compute_spread=_spread(alone) if alone else 0.0,
        cpu_s=per_image.cpu_s,
        blocked_s=per_image.blocked_s,
        idle_s=_idle_s(config.loader.workers, loader_only, cost.wall_s / cost.images),
        bytes_per_image=_read_per_image(measurement, loader_only, cold),
        parent_s=found.overhead_s / step_images(measurement),
        cores=measurement.cores_available,
        from_storage=from_storage,
        sending_s=max(0.0, (cost.process_cpu_s or 0.0) - cost.cpu_s) / cost.images if config.loader.workers else 0.0,
        measured=_measured(measurement, found),
        trained_warm="storage" in found.seen_without,
        unproved=_why_unproved(measurement, found, cold, from_storage=from_storage),
        ranks=measurement.ranks,
    )


def _measured(measurement: Measurement, found: Experiments) -> dict[str, float]:
    """Images/s of the loader without each resource whose ablation was measured.

    Warm files at the CPU time an image that cold ones took: the rate times that settles to 3 % in a second, where
    the rate alone drifts with the CPU.
    """
    rates = {
        name: median(list(rates.values()))
        for name, rates in found.without.items()
        if found.how.get(name) == "measured" and rates
    }
    warm = worker_cost(measurement.worker_batches, segments_of(measurement, "warm", "loader_only"))
    if "storage" in rates and warm and found.cost and warm.cpu_s and found.cost.cpu_s:
        rates["storage"] *= warm.per_image().cpu_s / found.cost.per_image().cpu_s
    return rates


def _idle_s(workers: int, loader_only: Sequence[Segment], busy_s: float) -> float:
    """Over the same batches as the time that an image takes in a worker: rounds differ by more than it is."""
    images = sum(s.steps * s.batch_size for s in loader_only)
    return max(0.0, max(workers, 1) * sum(map(segment_seconds, loader_only)) / images - busy_s)


def _read_per_image(measurement: Measurement, loader_only: Sequence[Segment], cold: float | None) -> float:
    """Bytes that the storage reads for an image: of files that are read in parts, with what is read ahead in vain."""
    if cold is None:
        return bytes_per_image(measurement, loader_only) or 0.0
    most = 1.0 if measurement.access == "files" else cold
    return (bytes_per_image(measurement, loader_only) or 0.0) * min(most, cold)


def _why_unproved(
    measurement: Measurement, found: Experiments, cold: float | None, *, from_storage: bool
) -> Remark | None:
    if not from_storage:
        return Remark(code="files_from_memory")
    if as_found(measurement) and (cold is None or cold < COLD_AT_LEAST):
        return Remark(code="files_as_found")
    reason = found.missing.get("storage") if found.base == "baseline" else None
    return Remark(code="storage_missing", facts=reason.because) if reason else None


def _spread(rates: Sequence[float]) -> float:
    return min(MOST_SPREAD, (max(rates) - min(rates)) / 2 / median(rates))
