"""From measurements of one data set in one pipeline, with different workers, to the service that explains them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.forecast.service import DEVICE_MODELS, SATURATED, DeviceModel, Service, Storage, Term
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rates import (
    Loop,
    bytes_per_image,
    cold_fraction,
    rates_by_round,
    step_images,
    worker_cost,
)
from loaderprobe.analyze.verdict.rule import prediction_error_of
from loaderprobe.analyze.verdict.validity import as_found
from loaderprobe.records.measurement import COLD_AT_LEAST, Measurement, Segment, segment_seconds, segments_of
from loaderprobe.records.remark import Remark
from loaderprobe.stats import mean, median

# One measurement in the figures that models are made of.

# A range that is wider says no more.
MOST_SPREAD = 0.6
# Parts, or a model, that miss the measured rate by more than this do not describe the loader.
MISFIT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured configuration in the figures that models are made of: images/s, and seconds an image."""

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


# CPU speed drifted by 8 % in the median and 26 % at the 95th percentile within 15 s, on an idle virtual machine:
# nine in ten times by no more than this.
CPU_DRIFT = 0.2
# What else makes the same loader run at another rate minutes later, even where the CPU is no limit: with this, ranges
# held nine in ten of what three visits to five kinds of storage on a virtual machine measured.
DRIFT = 0.17
# Of the spread between three rounds, to hold the next.
SPREAD = 1.5
# Where two resources limit nearly alike, the rate lies below both.
NEAR = 1.15
# Of what compute does alone: training that repeats within 3 % reaches it, unless the loader holds it back.
SHORT = 0.97
# What another rate of bytes than those seen may exceed them by.
BEYOND = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The services that explain one point: one where the kind of the storage is known, else one for each model."""

    anchor: Point
    models: tuple[Service, ...]
    drift: float
    """Relative: what the rate of the loader may differ by at another time, with the same CPU."""
    cpu_drift: float = CPU_DRIFT
    """Relative: what the CPU time of an image may differ by at another time."""
    credit: float = 1.0
    """Measured training over what lasts of it: not 1 where a token bucket's credit was in it, or was to come."""

    @property
    def whole(self) -> float:
        """What measured training is of that of its parts, as far as the loader does not explain it."""
        return self.anchor.training / self.anchor.loop.end_to_end(self.anchor.loader)


def fit(points: Sequence[Point], anchor: Point, storage: Storage) -> Fit | Remark:
    """The services that reproduce `anchor` exactly and heed the others; or why there is none.

    Of each model the term that limits the anchor is set to what was measured there, and none may lie below it.
    """
    kinds: tuple[DeviceModel, ...] = DEVICE_MODELS if storage.kind == "unknown" else (storage.kind,)
    if not anchor.from_storage:
        kinds = ("memory",)
    measured = anchor.training
    anchor, points = _beside_compute(_lasting(anchor, storage)), [_lasting(point, storage) for point in points]
    made = [_anchored(_raw(kind, points, anchor, storage), anchor) for kind in kinds]
    models = tuple(model for model in made if model is not None)
    if not models:
        return Remark(code="no_model_fits")
    cpu = [point.cpu_s for point in points if point.cpu_s > 0]
    between = (max(cpu) / min(cpu) - 1) / 2 if cpu else 0.0
    return Fit(
        anchor=anchor,
        models=models,
        drift=min(MOST_SPREAD, max(DRIFT, SPREAD * anchor.loader_spread)),
        cpu_drift=min(MOST_SPREAD, max(CPU_DRIFT, between)),
        credit=measured / anchor.training,
    )


def _lasting(point: Point, storage: Storage) -> Point:
    """The point, with a token bucket at its long-term rate: a segment begins with its credit, in training as well.

    On throttled disks a second of the loader alone ran up to 15 % faster than a longer probe, and 0.6 s of training
    up to 14 %.
    """
    if (
        storage.kind != "token_bucket"
        or not point.from_storage
        or storage.bytes_per_s is None
        or not point.bytes_per_image
    ):
        return point
    most = storage.bytes_per_s / point.bytes_per_image

    def lasting(rate: float, spread: float) -> float:
        return most if rate * (1 + spread) >= most else rate

    training = min(lasting(point.training, point.training_spread), max(point.compute, point.training))
    return replace(point, loader=lasting(point.loader, point.loader_spread), training=training)


def _beside_compute(anchor: Point) -> Point:
    """The anchor with the loader as it ran while training.

    Where the loader held training back, training was the rate of the loader beside compute; and so it was where the
    loader should have been a little faster, and training fell short.
    """
    short = anchor.workers and anchor.loader <= NEAR * anchor.compute and anchor.training < SHORT * anchor.compute
    if not short and anchor.loader > anchor.compute:
        return anchor
    alone = anchor.training
    if not anchor.workers and anchor.synchronous:
        alone = 1 / max(1e-12, 1 / anchor.training - 1 / anchor.compute)
    return replace(anchor, loader=min(alone, anchor.compute))


def _raw(kind: DeviceModel, points: Sequence[Point], anchor: Point, storage: Storage) -> Service:
    """The service before it is compared with the anchor's rate."""
    first = min(points, key=lambda point: (max(point.workers, 1), point.workers == 0))
    service = Service(
        model=kind,
        cpu_s=_cpu_s(points, anchor),
        other_s=0.0 if _queues(first) else first.idle_s,
        latency_s=0.0,
        transfer_s=0.0,
        bytes_per_image=0.0,
        bytes_per_s=math.inf,
        cores=anchor.cores,
        parent_s=_of_senders(points, anchor, lambda point: point.parent_s),
        sending_s=_of_senders(points, anchor, lambda point: point.sending_s),
    )
    if kind == "memory":
        # Blocked without storage: locks and page faults.
        return replace(service, other_s=service.other_s + first.blocked_s)
    if kind == "latency":
        return replace(service, latency_s=anchor.blocked_s, bytes_per_image=anchor.bytes_per_image)
    size = anchor.bytes_per_image
    device, unproved = _device(service, first, points, size, storage)
    # On a device in full use a worker's blocked time is a queue. Before a single server it is one always, unless one
    # reader is alone there.
    several = first.workers > 1 or anchor.ranks > 1
    full = first.loader * size >= SATURATED * device and (kind == "token_bucket" or several)
    queued = full or (kind == "single_server" and several and storage.alone_s)
    waits_s = min(first.blocked_s, storage.alone_s / anchor.ranks) if queued else first.blocked_s
    transfer_s = 0.0
    if kind == "single_server":
        transfer_s = min(size / device / anchor.ranks, first.blocked_s) if math.isfinite(device) else first.blocked_s
    latency_s = max(0.0, waits_s - transfer_s)
    return replace(
        service,
        other_s=0.0 if full and several else service.other_s,
        latency_s=latency_s,
        transfer_s=transfer_s,
        bytes_per_image=size,
        bytes_per_s=device,
        unproved_bytes_per_s=unproved,
    )


def _queues(point: Point) -> bool:
    """True where workers wait between batches for the training thread, or for a core, as fewer would not."""
    work_s = point.cpu_s + point.sending_s + point.parent_s
    return point.loader * point.parent_s >= SATURATED or (
        point.workers > 1 and point.loader * work_s >= SATURATED * point.cores
    )


def _device(
    service: Service, first: Point, points: Sequence[Point], size: float, storage: Storage
) -> tuple[float, float]:
    """(bytes/s of the device, bytes/s above which that is not known)."""
    most = max(points, key=lambda point: point.loader)
    seen = most.loader * size
    if storage.bytes_per_s is not None:
        return max(storage.bytes_per_s, seen), math.inf
    if service.model == "single_server" and first.blocked_s > 0 and size:
        return max(size / first.blocked_s, seen), math.inf
    # With more workers than filled it, and cores to spare, a device that gives no more is at its limit.
    undisturbed = replace(service, latency_s=first.blocked_s).terms(most.workers)
    if size and min(undisturbed["workers"], undisturbed["cores"], undisturbed["transport"]) > BEYOND * most.loader:
        return seen, math.inf
    return math.inf, BEYOND * max(seen, storage.at_least_bytes_per_s)


def _of_senders(points: Sequence[Point], anchor: Point, time_s: Callable[[Point], float]) -> float:
    """The serial loader sends nothing, so a serial anchor takes what that costs from its neighbours."""
    if anchor.workers:
        return time_s(anchor)
    found = [time_s(point) for point in points if point.workers]
    return median(found) if found else 0.0


def _cpu_s(points: Sequence[Point], anchor: Point) -> float:
    """Mean over points of about as many workers: CPU speed drifts by more from one to the next than they differ by."""
    alike = [p.cpu_s for p in points if p.workers and anchor.workers <= 2 * p.workers <= 4 * anchor.workers]
    return mean(alike) if alike and anchor.workers else anchor.cpu_s


def _anchored(model: Service, anchor: Point) -> Service | None:
    rate = anchor.loader
    terms = model.terms(anchor.workers)
    bottleneck: Term = min(terms, key=lambda term: terms[term])
    if not 1 / MISFIT <= rate / terms[bottleneck] <= MISFIT:
        return None
    workers = max(anchor.workers, 1)
    tight = bottleneck == "workers" or terms["workers"] < rate
    alone = math.isclose(terms["workers"] * model.worker_s, workers)
    if bottleneck == "cores" or (tight and not alone):
        # In a queue no single time is at fault: all of them are longer, or shorter.
        model = model.slower(min(terms["workers"], terms["cores"]) / rate)
        tight = False
    asked = rate * model.bytes_per_image
    return replace(
        model,
        other_s=workers / rate - model.cpu_s - model.storage_s if tight else model.other_s,
        bytes_per_s=asked if bottleneck == "storage" else max(model.bytes_per_s, asked),
        cores=max(model.cores, rate * model.work_s(anchor.workers)),
        parent_s=1 / rate if bottleneck == "transport" else min(model.parent_s, 1 / rate),
    )
