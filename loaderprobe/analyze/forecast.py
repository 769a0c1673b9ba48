"""Forecasts of changes, and the knee of the worker counts: the service that explains measurements gives them.

What was measured is judged in `verdict/`; what is advised is in `advice.py`, and a plan for other machines in `plan/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Literal

from loaderprobe.analyze.effects import fewest, ladder, ranked
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rates import Loop, bytes_per_image, per_second, rates_by_round, worker_cost
from loaderprobe.analyze.verdict.validity import cold_share
from loaderprobe.records import thresholds, values
from loaderprobe.records.measurement import Alternative, Measurement, Segment, segments_of
from loaderprobe.records.phases import NO_CEILING, StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import Bottleneck
from loaderprobe.records.verdict import Changed, Forecast, How, Interval, Knee
from loaderprobe.stats import lowest, mean, median
from loaderprobe.units import significant

# What one image costs each resource, and the models that make rates of it.
#
# The models are those of earlier experiments on throttled disks (fit on 1 and 2 workers, forecast of 4 and 8): each
# is good to a few percent on its own kind of device and wrong by up to half on the others.

# Of all settings of one forecast, and of its range.
KEPT = 4096
# Times below this are none.
LEAST_S = 1e-9


@lru_cache(maxsize=KEPT)
def closed_network(workers: int, *, own_s: float, served_s: float, cpu_s: float, cores: float) -> float:
    """Images/s of so many workers, each with one image at any time, as a closed network of queues.

    Of an image, `served_s` needs a server that takes one after the other, `cpu_s` needs one of `cores`, which share
    their time where more workers want it, and `own_s` is what waits for nothing. Where it is negative, as much of
    `cpu_s` goes on beside the rest.

    The server by mean-value analysis (Reiser and Lavenberg 1980); all but the cores then counts as one server whose
    rate depends on how many workers are there (Chandy, Herzog and Woo 1975), which is exact for such networks.

    On single servers of 10 and 20 MB/s on two cores, from one worker, it was within 3 % for 2 and 4 workers; without
    the cores up to 8 % too high, and without the server's queue up to 20 % off where both were about as busy.
    """
    if own_s < 0 < cpu_s:
        path_s = max(cpu_s + own_s, LEAST_S)
        own_s, cores, cpu_s = 0.0, cores * path_s / cpu_s, path_s
    elsewhere = _elsewhere(workers, own_s, served_s)
    if cpu_s <= 0:
        return elsewhere[-1]
    # How probable it is that none, one, two and so on of them compute, in logarithms, up to a factor.
    logs = [0.0]
    for computing in range(1, workers + 1):
        arriving = elsewhere[workers - computing]
        logs.append(logs[-1] + math.log(arriving) - math.log(min(computing, cores) / cpu_s))
    most = max(logs)
    shares = [math.exp(log - most) for log in logs]
    done = sum(share * min(computing, cores) for computing, share in enumerate(shares))
    return done / cpu_s / sum(shares)


def _elsewhere(workers: int, own_s: float, served_s: float) -> list[float]:
    """Images/s through the server and what waits for nothing, if 1, 2 and so on up to all workers are there."""
    rates = []
    waiting = 0.0
    for number in range(1, workers + 1):
        there_s = served_s * (1 + waiting)
        rates.append(number / max(own_s + there_s, LEAST_S))
        waiting = rates[-1] * there_s
    return rates


DeviceModel = Literal["token_bucket", "single_server", "latency", "memory"]
"""memory: nothing is asked of the storage."""
Term = Literal["workers", "storage", "cores", "transport"]
DEVICE_MODELS: tuple[DeviceModel, ...] = ("token_bucket", "single_server", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """Seconds of one image in each place, and what the resources can do: all that a model needs."""

    model: DeviceModel
    cpu_s: float
    """CPU time in a worker."""
    other_s: float
    """Time of a worker that is neither CPU nor storage: transport, and waiting for the next order."""
    latency_s: float
    """Waiting for a file, however small."""
    transfer_s: float
    """Waiting for the bytes of a file, before a single server; 0 elsewhere."""
    bytes_per_image: float
    """Asked of the storage; 0 where it is not known."""
    bytes_per_s: float
    """Of the device; infinite where nothing is known to limit it, and where only latency does."""
    unproved_bytes_per_s: float = math.inf
    """Above this the device was not measured."""
    cores: float
    parent_s: float
    """CPU time of the training thread: receiving and releasing."""
    sending_s: float = 0.0
    """CPU time of a worker's other threads, which send its batches while it makes the next."""

    @property
    def storage_s(self) -> float:
        """Waiting for storage in one worker, with the device otherwise idle."""
        return self.latency_s + self.transfer_s

    @property
    def worker_s(self) -> float:
        """One image in one worker that nothing disturbs. Half its CPU time at least, whatever the rest says."""
        return max(self.cpu_s + self.other_s + self.storage_s, self.cpu_s / 2, 1e-9)

    def terms(self, workers: int) -> dict[Term, float]:
        """Images/s that each resource allows; the loader runs at the smallest. 0 workers count as 1."""
        return {
            "workers": self._by_workers(max(workers, 1)),
            "storage": per_second(self.bytes_per_s, self.bytes_per_image),
            "cores": per_second(self.cores, self.work_s(workers)),
            "transport": per_second(1.0, self.parent_s) if workers else math.inf,
        }

    def work_s(self, workers: int) -> float:
        """CPU time of an image in all threads; the serial loader has nothing to send."""
        return self.cpu_s + (self.sending_s + self.parent_s if workers else 0.0)

    def crowded(self, workers: int) -> Literal["storage", "cores"] | None:
        """The resource whose queue takes all that another worker would bring."""
        rate = self._by_workers(max(workers, 1))
        if rate * self.transfer_s >= thresholds.SATURATED:
            return "storage"
        return "cores" if rate * self.work_s(workers) >= thresholds.SATURATED * self.cores else None

    def _by_workers(self, workers: int) -> float:
        """Images/s of workers that only disturb each other: before a single server, and where they want more cores.

        The threads that send and receive batches take their part of the cores.
        """
        work_s = self.work_s(workers)
        return closed_network(
            workers,
            own_s=self.worker_s - self.cpu_s - self.transfer_s,
            served_s=self.transfer_s,
            cpu_s=self.cpu_s,
            cores=self.cores * self.cpu_s / work_s if work_s else math.inf,
        )

    def loader(self, workers: int) -> float:
        """Images/s of the loader alone."""
        return min(self.terms(workers).values())

    def bottleneck(self, term: Term, workers: int) -> Bottleneck:
        """The resource behind a term: of a worker's time that which takes most of it, with the queue for it."""
        if term != "workers":
            return term
        free_of: dict[Bottleneck, float] = {"preprocessing": self.storage_s, "storage": self.cpu_s + self.other_s}
        return self.crowded(workers) or lowest(free_of)

    def slower(self, factor: float) -> ServiceTimes:
        """With all of a worker's times `factor` times as long."""
        return self._times(factor, "cpu_s", "other_s", "latency_s", "transfer_s", "parent_s", "sending_s")

    def _times(self, factor: float, *names: str) -> ServiceTimes:
        """With `factor` times the figures of these names."""
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    def with_disk(self, factor: float) -> ServiceTimes:
        """On a device of the same kind, `factor` times as fast: in bytes/s, or in latency where that is all it has."""
        if self.model == "latency":
            return self._times(1 / factor, "latency_s")
        return self._times(factor, "bytes_per_s", "unproved_bytes_per_s")._times(1 / factor, "transfer_s")

    def with_cpu_speed(self, factor: float) -> ServiceTimes:
        """On cores `factor` times as fast; what else workers do between batches is CPU work, too."""
        other = ("other_s",) if self.other_s > 0 else ()
        return self._times(1 / factor, "cpu_s", "parent_s", "sending_s", *other)

    def with_cached(self, share: float) -> ServiceTimes:
        return self._times(1 - share, "latency_s", "transfer_s", "bytes_per_image")

    def in_shards(self, requests: float, larger: float, *, by_requests: bool) -> ServiceTimes:
        """With so many requests an image for one before, and so many bytes."""
        service = self._times(requests if by_requests else larger, "transfer_s", "bytes_per_image")
        return replace(service, latency_s=self.latency_s * requests)

    def with_cpu(self, cpu_s: float, usual_cpu_s: float) -> ServiceTimes:
        """With work that took `cpu_s` where the usual took `usual_cpu_s`, side by side.

        Both came from one thread on an idle machine, so it is their ratio that holds in busy workers; what
        the workers use beyond the usual (reading, shared memory) stays.
        """
        replaced = min(self.cpu_s, usual_cpu_s)
        return replace(self, cpu_s=self.cpu_s - replaced * (1 - cpu_s / usual_cpu_s))


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
    collated: float = 0.0
    """Share of a worker's time that puts samples together; workers copy as much again to send them."""
    measured: dict[str, float] = field(default_factory=dict)
    """Images/s of the loader without a resource, where that was measured."""
    trained_warm: bool = False
    """True where training itself, or the loader where that is judged, was measured on warm files."""
    unproved: Remark | None = None
    """Why nothing can be said about other storage."""
    ranks: int = 1
    """Whose images are counted together: seconds an image are those of one rank, over so many."""

    @property
    def rate(self) -> Interval:
        """Of training, with its spread to either side."""
        value, spread = self.training, self.training_spread
        return Interval(value=value, low=value * (1 - spread), high=value * (1 + spread))

    @property
    def read_bytes_per_s(self) -> float:
        """By training."""
        return self.training * self.bytes_per_image


def point_of(trials: Experiments) -> Point | Remark:
    """The figures of one measurement, or why it carries no forecast."""
    prediction_error, tolerance = trials.prediction_error
    if prediction_error is None or not trials.compute or trials.estimated_parts:
        return Remark(code="no_complete_round")
    if abs(prediction_error) > tolerance or not 1 / thresholds.MISFIT <= 1 + prediction_error <= thresholds.MISFIT:
        return Remark(code="outside_noise_band", facts={"predicted_fraction": 1 + prediction_error})
    cost = trials.cost
    if cost is None or not cost.images:
        return Remark(code="no_worker_times")
    measurement, config, per_image = trials.measurement, trials.measurement.config, cost.per_image()
    loader_only = segments_of(measurement, trials.base, "loader_only")
    cold, commands_s = cold_share(measurement, loader_only), cost.commands_s / cost.images
    images, loaded_s = sum(s.steps * s.batch_size for s in loader_only), sum(s.seconds for s in loader_only)
    loader, training = list(trials.loader.values()), list(trials.end_to_end.values())
    given = measurement.compute.specified_images_per_s is not None
    alone = [] if given else list(rates_by_round(measurement, "resident", "training").values())
    from_storage = config.cache != "warm" and measurement.storage_kind != "memory"
    return Point(
        workers=measurement.workers,
        batch_size=trials.loop.batch_size,
        synchronous=measurement.compute.synchronous,
        on_cpu=config.compute.name == "cpu",
        loader=median(loader),
        loader_spread=_spread(loader),
        training=median(training),
        training_spread=_spread(training),
        compute=trials.compute,
        compute_spread=_spread(alone) if alone else 0.0,
        cpu_s=per_image.cpu_s + commands_s,
        blocked_s=per_image.blocked_s - commands_s,
        # Over the same batches as the time that an image takes in a worker: rounds differ by more than it is.
        idle_s=max(0.0, max(measurement.workers, 1) * loaded_s / images - cost.wall_s / cost.images),
        bytes_per_image=_read_per_image(measurement, loader_only, cold),
        parent_s=trials.loop.parent_s,
        cores=measurement.cores_available,
        from_storage=from_storage,
        sending_s=max(0.0, (cost.process_cpu_s or 0.0) - cost.cpu_s) / cost.images if measurement.workers else 0.0,
        collated=cost.collate_s / cost.wall_s if cost.wall_s else 0.0,
        measured=_measured(trials),
        trained_warm=trials.is_measured("storage") and (trials.in_training or measurement.judged != "training"),
        unproved=_why_unproved(trials, cold, from_storage=from_storage),
        ranks=measurement.ranks,
    )


def _measured(trials: Experiments) -> dict[str, float]:
    """Images/s of the loader without each resource whose ablation was measured.

    Warm files at the CPU time an image that cold ones took: the rate times that settles to 3 % in a second, where
    the rate alone drifts with the CPU.
    """
    rates: dict[str, float] = {
        name: median(rates.values()) for name, rates in trials.without.items() if trials.is_measured(name) and rates
    }
    measurement = trials.measurement
    warm = worker_cost(measurement.worker_batches, segments_of(measurement, "warm", "loader_only"))
    if "storage" in rates and warm and trials.cost and warm.cpu_s and trials.cost.cpu_s:
        rates["storage"] *= warm.per_image().cpu_s / trials.cost.per_image().cpu_s
    return rates


def _read_per_image(measurement: Measurement, loader_only: Sequence[Segment], cold: float | None) -> float:
    """Bytes that the storage reads for an image: of files that are read in parts, with what is read ahead in vain."""
    size = bytes_per_image(measurement, loader_only) or 0.0
    return size if cold is None else size * (min(1.0, cold) if measurement.access == "files" else cold)


def _why_unproved(trials: Experiments, cold: float | None, *, from_storage: bool) -> Remark | None:
    if not from_storage:
        return Remark(code="files_from_memory")
    if trials.measurement.is_remote:
        return None
    if trials.measurement.as_found and (cold is None or cold < thresholds.COLD_AT_LEAST):
        return Remark(code="files_as_found")
    reason = trials.missing.get("storage") if trials.base == "baseline" else None
    return Remark(code="storage_missing", facts=reason.because) if reason else None


def _spread(rates: Sequence[float]) -> float:
    return min(thresholds.MOST_SPREAD, (max(rates) - min(rates)) / 2 / median(rates))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The services that explain one point: one where the kind of the storage is known, else one for each model."""

    anchor: Point
    models: tuple[ServiceTimes, ...]
    drift: float
    """Relative: what the rate of the loader may differ by at another time, with the same CPU."""
    cpu_drift: float = thresholds.CPU_DRIFTS
    """Relative: what the CPU time of an image may differ by at another time."""
    credit: float = 1.0
    """Measured training over what lasts of it: not 1 where a token bucket's credit was in it, or was to come."""

    @cached_property
    def whole(self) -> float:
        """What measured training is of that of its parts, as far as the loader does not explain it."""
        anchor = self.anchor
        return anchor.training / _loop(self, anchor, self.models[0]).end_to_end(anchor.loader, anchor.compute)


def fit(points: Sequence[Point], anchor: Point, storage: StorageCeiling) -> Fit | Remark:
    """The services that reproduce `anchor` exactly and heed the others; or why there is none.

    Of each model the term that limits the anchor is set to what was measured there, and none may lie below it.
    """
    kinds: tuple[DeviceModel, ...] = DEVICE_MODELS if storage.device_kind == "unknown" else (storage.device_kind,)
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
    spread = thresholds.SPREAD_OF_NEXT * anchor.loader_spread
    return Fit(
        anchor=anchor,
        models=models,
        drift=min(thresholds.MOST_SPREAD, max(thresholds.RATES_DRIFT, spread)),
        cpu_drift=min(thresholds.MOST_SPREAD, max(thresholds.CPU_DRIFTS, between)),
        credit=measured / anchor.training,
    )


def _lasting(point: Point, storage: StorageCeiling) -> Point:
    """The point, with a token bucket at its long-term rate: a segment begins with its credit, in training as well.

    On throttled disks a second of the loader alone ran up to 15 % faster than a longer probe, and 0.6 s of training
    up to 14 %.
    """
    lasts = storage.bytes_per_s if storage.device_kind == "token_bucket" and point.from_storage else None
    if lasts is None or not point.bytes_per_image:
        return point
    most = lasts / point.bytes_per_image

    def lasting(rate: float, spread: float) -> float:
        return most if rate * (1 + spread) >= most else rate

    training = min(lasting(point.training, point.training_spread), max(point.compute, point.training))
    return replace(point, loader=lasting(point.loader, point.loader_spread), training=training)


def _beside_compute(anchor: Point) -> Point:
    """The anchor with the loader as it ran while training.

    Where the loader held training back, training was the rate of the loader beside compute; and so it was where the
    loader should have been a little faster, and training fell short.
    """
    near = anchor.loader <= thresholds.CLEAR_LEAD * anchor.compute
    short = anchor.workers and near and anchor.training < thresholds.REACHES_COMPUTE * anchor.compute
    if not short and anchor.loader > anchor.compute:
        return anchor
    alone = anchor.training
    if not anchor.workers and anchor.synchronous:
        alone = 1 / max(1e-12, 1 / anchor.training - 1 / anchor.compute)
    return replace(anchor, loader=min(alone, anchor.compute))


def _raw(kind: DeviceModel, points: Sequence[Point], anchor: Point, storage: StorageCeiling) -> ServiceTimes:
    """The service before it is compared with the anchor's rate."""
    first = min(points, key=lambda point: (max(point.workers, 1), point.workers == 0))
    service = ServiceTimes(
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
    full = first.loader * size >= thresholds.SATURATED * device and (kind == "token_bucket" or several)
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
    return point.loader * point.parent_s >= thresholds.SATURATED or (
        point.workers > 1 and point.loader * work_s >= thresholds.SATURATED * point.cores
    )


def _device(
    service: ServiceTimes, first: Point, points: Sequence[Point], size: float, storage: StorageCeiling
) -> tuple[float, float]:
    """(bytes/s of the device, bytes/s above which that is not known)."""
    fastest = max(points, key=lambda point: point.loader)
    reached = fastest.loader * size
    if storage.bytes_per_s is not None:
        return max(storage.bytes_per_s, reached), math.inf
    if service.model == "single_server" and first.blocked_s > 0 and size:
        return max(size / first.blocked_s, reached), math.inf
    # With more workers than filled it, and cores to spare, a device that gives no more is at its limit.
    undisturbed = replace(service, latency_s=first.blocked_s).terms(fastest.workers)
    beside = min(undisturbed["workers"], undisturbed["cores"], undisturbed["transport"])
    if size and beside > thresholds.ABOVE_CEILING * fastest.loader:
        return reached, math.inf
    return math.inf, thresholds.ABOVE_CEILING * max([reached, *(phase.bw_bytes for phase in storage.from_storage)])


def _of_senders(points: Sequence[Point], anchor: Point, time_s: Callable[[Point], float]) -> float:
    """The serial loader sends nothing, so a serial anchor takes what that costs from its neighbours."""
    if anchor.workers:
        return time_s(anchor)
    times = [time_s(point) for point in points if point.workers]
    return median(times) if times else 0.0


def _cpu_s(points: Sequence[Point], anchor: Point) -> float:
    """Mean over points of about as many workers: CPU speed drifts by more from one to the next than they differ by."""
    alike = [p.cpu_s for p in points if p.workers and anchor.workers <= 2 * p.workers <= 4 * anchor.workers]
    return mean(alike) if alike and anchor.workers else anchor.cpu_s


def _anchored(model: ServiceTimes, anchor: Point) -> ServiceTimes | None:
    rate = anchor.loader
    terms = model.terms(anchor.workers)
    bottleneck: Term = lowest(terms)
    if not 1 / thresholds.MISFIT <= rate / terms[bottleneck] <= thresholds.MISFIT:
        return None
    workers = max(anchor.workers, 1)
    tight = bottleneck == "workers" or terms["workers"] < rate
    alone = math.isclose(terms["workers"] * model.worker_s, workers)
    if bottleneck == "cores" or (tight and not alone):
        # In a queue no single time is at fault: all of them are longer, or shorter.
        model = model.slower(min(terms["workers"], terms["cores"]) / rate)
        tight = False
    needed = rate * model.bytes_per_image
    return replace(
        model,
        other_s=workers / rate - model.cpu_s - model.storage_s if tight else model.other_s,
        bytes_per_s=needed if bottleneck == "storage" else max(model.bytes_per_s, needed),
        cores=max(model.cores, rate * model.work_s(anchor.workers)),
        parent_s=1 / rate if bottleneck == "transport" else min(model.parent_s, 1 / rate),
    )


# Forecasts: the rate of training after one change, by the models of the storage at hand, with its range.
#
# Each follows the measured configuration: the model gives what the loader changes to, the loop what that means for
# training, and what measured training differed by from its parts is kept. What was measured outranks the model.


TAR_BYTES = 1800
"""Of a sample beside its image: two headers, its class, and what fills up blocks of 512 bytes (POSIX ustar)."""
TAR_READ_BYTES = 1 << 20
"""What a reader of tar takes at once, here and in others."""
UNDER_WAY = 2
"""Requests that a reader in sequence waits for at once: Linux asks for the next part where it comes to one, before it
waits for that. From: page_cache_async_ra in mm/readahead.c; seen on a FUSE disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside one measurement."""

    storage: StorageCeiling = NO_CEILING
    neighbours: tuple[Point, ...] = ()
    """Of the same data, pipeline and compute, with other numbers of workers."""
    workers: Mapping[int, Forecast] = field(default_factory=dict)
    """By number of workers, where they were made for all neighbours together."""
    root: str = ""
    """Where the data are."""
    size_bytes: float | None = None
    """Of the whole data set; None where that is not known."""
    memory_bytes: float = 0.0
    image_bytes: float = 0.0
    """Of images that lie one a file; 0 where large files hold them, or where they hold nothing."""
    read_ahead_bytes: int = 0
    """What a request of a file that is read in sequence brings at most; 0 where that is not known."""
    generated: bool = False
    """True where a sweep writes the images in the layouts that it is asked for."""
    accelerators: Mapping[str, float] = field(default_factory=dict)
    """Images/s by name."""


LoaderRate = Callable[[ServiceTimes, float], float]
"""From an altered service and the rate of its model to the rate of the loader."""


def _loop(fit: Fit, at: Point, service: ServiceTimes) -> Loop:
    """A serial loader has no work of the training thread, and takes it from the fit."""
    parent_s = at.parent_s if fit.anchor.workers else service.parent_s
    return Loop(**values(at, "workers", "batch_size", "synchronous"), overhead_s=parent_s * at.batch_size)


def _range(
    fit: Fit, at: Point, value: float, loader: float, service: ServiceTimes, rate_of: LoaderRate
) -> tuple[float, float]:
    """Images/s of training at least and at most, by an altered model."""
    anchor, loop = fit.anchor, _loop(fit, at, service)
    down, up = _drift(fit, at, service, rate_of, loader)
    low = loop.end_to_end(loader * (1 - down), at.compute * (1 - anchor.compute_spread)) * fit.whole
    high = loop.end_to_end(loader * (1 + up), at.compute * (1 + anchor.compute_spread)) * fit.whole
    margin = max(thresholds.REPEAT, anchor.training_spread)
    nearest, next_nearest = sorted(_terms(fit, at, service, loader).values())[:2]
    if next_nearest <= thresholds.CLEAR_LEAD * nearest:
        margin = max(margin, thresholds.NEAR_KNEE)
    return min(low, value * (1 - margin)), max(high, value * (1 + margin))


def _drift(fit: Fit, at: Point, service: ServiceTimes, rate_of: LoaderRate, loader: float) -> tuple[float, float]:
    """Relative: how much slower and faster the loader may be at another time.

    In two factors: the CPU time of an image, as far as the model makes the rate depend on it, and all else. They have
    nothing to do with each other, so their squares add up.
    """

    def at_speed(factor: float) -> float:
        altered = service.with_cpu_speed(factor)
        return rate_of(altered, altered.loader(at.workers)) / loader

    unseen = at.workers and not service.parent_s and not fit.anchor.workers
    down = math.hypot(fit.drift, max(0.0, 1 - at_speed(1 / (1 + fit.cpu_drift))))
    up = math.hypot(fit.drift, max(0.0, at_speed(1 + fit.cpu_drift) - 1))
    sent = 1 - 1 / (1 + thresholds.UNSEEN_COPIES * fit.anchor.collated)
    return min(thresholds.MOST_DOWN, down + (max(thresholds.UNSEEN_HANDOVER, sent) if unseen else 0.0)), up


def _terms(fit: Fit, at: Point, service: ServiceTimes, loader: float) -> dict[Bottleneck, float]:
    """Images/s that each resource allows; a loader held down by an experiment is held down in its tightest term."""
    terms: dict[Bottleneck, float] = {"compute": at.compute}
    if at.synchronous and at.workers:
        terms["compute"] = 1 / (1 / at.compute + _loop(fit, at, service).parent_s)
    by_model = service.terms(at.workers)
    tightest = lowest(by_model)
    for term, rate in by_model.items():
        name = service.bottleneck(term, at.workers)
        terms[name] = min(terms.get(name, math.inf), loader if term == tightest else rate)
    return terms


def workers(fit: Fit, count: int) -> Forecast:
    """With another number of workers; 0 is the serial loader."""
    if count == fit.anchor.workers:
        return unchanged(fit)
    return _forecast(fit, "workers", str(count), at=replace(fit.anchor, workers=count))


def unchanged(fit: Fit) -> Forecast:
    """The measured configuration itself: its own rate, and what the models say limits it.

    Where more of a token bucket's credit was in it than it repeats by, the rate that lasts, which is estimated.
    """
    forecast = _forecast(fit, "workers", str(fit.anchor.workers))
    spread = max(thresholds.REPEAT, fit.anchor.training_spread)
    measured = fit.anchor.training * fit.credit
    lasts = fit.credit <= 1 + thresholds.REPEAT
    value = measured if lasts else fit.anchor.training
    rate = Interval(value=value, low=value * (1 - spread), high=max(value, measured) * (1 + spread))
    return replace(forecast, images_per_s=rate, how="measured" if lasts else "estimated", refused=None)


def disk(fit: Fit, factor: float, *, ranged: bool = True) -> Forecast:
    """On storage of the same kind, `factor` times as fast."""
    to = f"{significant(factor)} times as fast"
    if fit.anchor.unproved:
        return refused("disk_speed", to, fit.anchor.unproved)
    # No storage makes the loader faster than memory does, where that was measured.
    from_memory = max(fit.anchor.measured.get("storage", math.inf), fit.anchor.loader)
    return _forecast(
        fit, "disk_speed", to, ranged=ranged,
        alter=lambda service: service.with_disk(factor), loader=lambda _, rate: min(rate, from_memory),
    )  # fmt: skip


def shards(fit: Fit, around: Surroundings) -> Forecast:
    """With the same images in tar shards that workers read in sequence.

    A file takes a request for each part of it that is read ahead. So does a shard, but its parts hold whole images, and
    of those that are read at once the first has arrived while images were decoded. Where requests are the limit, one
    brings more than what is read ahead, and what is read at once or more: the forecast is between these. How far
    readers and kernel run ahead of the decoding is not known, so the range ends where no request is waited for.
    """
    if fit.anchor.unproved:
        return refused("layout", "tar", fit.anchor.unproved)
    image_bytes, ahead, by_requests = around.image_bytes, around.read_ahead_bytes, around.storage.by_requests
    if by_requests is None and around.storage.device_kind in ("token_bucket", "single_server"):
        return refused("layout", "tar", Remark(code="requests_or_bytes"))
    at_once = max(ahead, TAR_READ_BYTES)
    under_way = 1 if by_requests else UNDER_WAY
    waits = math.ceil((at_once / ahead - 1) / under_way)
    waited = at_once / waits if waits else math.inf
    brings = (ahead, math.sqrt(ahead * at_once) if by_requests else waited, math.inf)
    larger = 1 + TAR_BYTES / image_bytes
    now = math.ceil(image_bytes / ahead / under_way)
    # No layout makes the loader faster than memory does, where that was measured.
    from_memory = max(fit.anchor.measured.get("storage", math.inf), fit.anchor.loader)

    def made(brought: float) -> Forecast:
        # Where nothing is waited for, opening fewer files also saves the CPU time of it, how much is not known.
        faster = 1.0 if brought < math.inf else 1 + thresholds.LAYOUT_SAVES
        requests = min(1.0, larger * image_bytes / brought / now)
        return _forecast(
            fit, "layout", "tar", loader=lambda _, rate: min(rate, faster * from_memory),
            alter=lambda service: service.in_shards(requests, larger, by_requests=bool(by_requests)),
        )  # fmt: skip

    return _ranging([made(brought) for brought in brings])


def _ranging(made: Sequence[Forecast]) -> Forecast:
    """The one in the middle of three, whose range holds those of all; or the first that is refused."""
    rates = [forecast.images_per_s for forecast in made if forecast.images_per_s]
    if len(rates) < len(made):
        return next(forecast for forecast in made if forecast.refused)
    low, high = min(rate.low for rate in rates), max(rate.high for rate in rates)
    return replace(made[1], images_per_s=replace(rates[1], low=low, high=high))


def cached(fit: Fit, share: float) -> Forecast:
    """With memory for this share of the files in the page cache, which answers less than that: `page_cache_hits`.

    The range holds the range of that model. All of the files is the rate with warm files, where that was measured.
    """
    hits = page_cache_hits(share)
    hit = f", {100 * hits.low:.0f} to {100 * hits.high:.0f} % hits" if hits.low < hits.high else ""
    to = f"{100 * share:.0f} % of the files{hit}"
    return _ranging([_answered(fit, "page_cache_share", to, rate) for rate in (hits.low, hits.value, hits.high)])


def pinned(fit: Fit, share: float) -> Forecast:
    """With this share of the files always in memory (locked, or as a copy in tmpfs): it is the share of hits."""
    return _answered(fit, "pinned_share", f"{100 * share:.0f} % of the files", share)


def accelerator(fit: Fit, images_per_s: float, name: str = "", *, ranged: bool = True) -> Forecast:
    """With an accelerator that trains at this rate by itself. Unlike a CPU, it works while the host goes on."""
    at = replace(fit.anchor, compute=images_per_s, synchronous=fit.anchor.synchronous and not fit.anchor.on_cpu)
    return _forecast(fit, "accelerator", name or f"{significant(images_per_s)} images/s", at=at, ranged=ranged)


def examples(fit: Fit) -> list[Forecast]:
    """Changes that are forecast but never advised: storage twice as fast, and memory for half of the files."""
    return [disk(fit, 2.0), cached(fit, 0.5), pinned(fit, 0.5)] if fit.anchor.from_storage else []


def alternative(fit: Fit, measured: Alternative) -> Forecast:
    """With another decoder, or with bytes sent instead of floats; from CPU times of one rank, measured side by side."""
    changed: Changed = "tensor" if measured.name == "uint8" else "decoder"
    free = fit.anchor.measured.get("preprocessing", math.inf) if changed == "decoder" else math.inf
    ranks = fit.anchor.ranks
    return _forecast(
        fit,
        changed,
        measured.name,
        alter=lambda service: service.with_cpu(measured.cpu_s / ranks, measured.usual_cpu_s / ranks),
        loader=lambda _, rate: min(rate, max(free, fit.anchor.loader)),
    )


def refused(changed: Changed, to: str, reason: Remark) -> Forecast:
    """No rate, and why."""
    return Forecast(changed=changed, to=to, images_per_s=None, bottleneck=None, how="estimated", refused=reason)


def _answered(fit: Fit, changed: Changed, to: str, hits: float) -> Forecast:
    """With this share of the reads answered from memory."""
    if fit.anchor.unproved:
        return refused(changed, to, fit.anchor.unproved)
    warm = fit.anchor.measured.get("storage")
    now_s = 1 / fit.anchor.loader

    def between(service: ServiceTimes, rate: float) -> float:
        if warm is None:
            return rate
        # The model's time an image, led to the measured one where everything is in memory.
        by_model = service.with_cached(1.0).loader(fit.anchor.workers)
        return 1 / min(now_s, max(1e-12, 1 / rate + hits * (1 / warm - 1 / by_model)))

    # The loader's rate is measured then; what training makes of it is predicted, unless it was measured, too.
    how: How = "measured" if warm is not None and hits == 1 and fit.anchor.trained_warm else "estimated"
    return _forecast(fit, changed, to, alter=lambda service: service.with_cached(hits), loader=between, how=how)


def _forecast(
    fit: Fit, changed: Changed, to: str, *, at: Point | None = None, how: How = "estimated", ranged: bool = True,
    alter: Callable[[ServiceTimes], ServiceTimes] = lambda service: service,
    loader: LoaderRate = lambda _, rate: rate,
) -> Forecast:  # fmt: skip
    """With one change to a fit: to its service, its loop, or what was measured instead.

    `at` is the measured configuration, with the workers and the compute that it has then. A search, which reads rates
    only, goes without their ranges: they take most of the time.
    """
    outcomes, at = [], at or fit.anchor
    for service in map(alter, fit.models):
        rate = loader(service, service.loader(at.workers))
        value = _loop(fit, at, service).end_to_end(rate, at.compute) * fit.whole
        bytes_per_s = min(rate, value) * service.bytes_per_image
        if bytes_per_s > service.unproved_bytes_per_s:
            return refused(changed, to, Remark(code="more_than_storage", facts={"bytes_per_s": bytes_per_s}))
        outcomes.append((value, rate, service))
    outcomes.sort(key=lambda trained: trained[0])
    least, most = outcomes[0][0], outcomes[-1][0]
    if most > thresholds.MODELS_DISAGREE * least:
        reason = Remark(code="laws_disagree", facts={"least_images_per_s": least, "most_images_per_s": most})
        return refused(changed, to, reason)
    value, rate, service = outcomes[len(outcomes) // 2]
    ranges = [_range(fit, at, *trained, loader) for trained in outcomes] if ranged else [(value, value)]
    terms, by_model = _terms(fit, at, service, rate), service.terms(at.workers)
    return Forecast(
        changed=changed,
        to=to,
        images_per_s=Interval(value=value, low=min(low for low, _ in ranges), high=max(high for _, high in ranges)),
        bottleneck=lowest(terms),
        rising=by_model["workers"] <= min(*by_model.values(), terms["compute"]) and not service.crowded(at.workers),
        how=how,
        refused=None,
    )


def worker_forecasts(points: Sequence[Point], storage: StorageCeiling) -> dict[int, Forecast]:
    """Training for each worker count worth a look, from the measured point nearest to it.

    Measured counts are in it with what was measured. Never more than twice the cores that were measured on.
    """
    by_workers = {point.workers: point for point in points}
    fits = {workers: fit(points, point, storage) for workers, point in by_workers.items()}
    limit = math.floor(thresholds.MOST_WORKERS_A_CORE * min(point.cores for point in points))
    forecasts: dict[int, Forecast] = {}
    for number in sorted({*by_workers, *takewhile(lambda n: n <= max(limit, 1), ladder())}):
        fitted = fits[min(fits, key=lambda known: abs(_octave(known) - _octave(number)))]
        if not isinstance(fitted, Remark):
            forecasts[number] = workers(fitted, number)
        elif point := by_workers.get(number):
            forecasts[number] = measured(number, point.rate)
        else:
            forecasts[number] = refused("workers", str(number), fitted)
    return forecasts


def measured(workers: int, rate: Interval) -> Forecast:
    """The rate with so many workers, of which no model knows more than that."""
    return Forecast(
        changed="workers", to=str(workers), images_per_s=rate, bottleneck=None, how="measured", refused=None
    )


def find_knee(keys: Sequence[str], forecasts: dict[int, Forecast], taken: int | None = None) -> Knee:
    """The knee of these forecasts; `keys` name the configurations behind them.

    `taken` is the smallest number of workers that was seen to use all cores: more of them are not forecast.
    """
    rates = {number: forecast.images_per_s for number, forecast in forecasts.items() if forecast.images_per_s}
    chosen = fewest(ranked(rates))
    bottleneck: Bottleneck | None = None
    if chosen is not None:
        # The bottleneck beyond: at the knee itself the workers may still be the limit, within 2 %.
        beyond = [number for number in rates if number >= chosen]
        bottleneck = forecasts[beyond[1] if len(beyond) > 1 else chosen].bottleneck
        if len(beyond) == 1 and forecasts[chosen].rising:
            bottleneck = None
        if taken is not None and chosen >= taken:
            bottleneck = "cores"
    return Knee(
        keys=tuple(keys),
        workers=chosen,
        images_per_s=None if chosen is None else rates[chosen],
        how="estimated" if chosen is None else forecasts[chosen].how,
        bottleneck=bottleneck,
        forecasts=tuple(forecasts.values()),
    )


def _octave(number: int) -> float:
    return math.log2(max(number, 0.5))


# What caches answer where every epoch reads each image once, in a random order: a part of the set in memory.
#
# Pinned and page cache are two things: a pinned part of the files always stays, and answers its share of the reads from
# the epoch after the one that fills it; in the page cache the kernel decides what stays.


def lru_hits(share: float) -> float:
    """Share of reads that one node's cache answers which drops the least recently used files: c + (1-c) ln(1-c).

    An image is found again when this node read fewer than c of the set since: last read at position x and now at y,
    that is (1-x) (1-y) >= 1 - c.
    """
    return share + (1 - share) * math.log1p(-share) if share < 1 else 1.0


def page_cache_hits(share: float, epoch: int | None = None) -> Interval:
    """The same of Linux's page cache on one node, with a range: from LRU's hits to 3/4 of the way to pinned files.

    Measured on Linux 6.18 (active and inactive lists), `scripts/bench forecast caches`: `explain plan` has the table.

    By epoch 2 the kernel has seen no file twice, so it has LRU's hits. What is read twice moves to the active list,
    which from 1 GiB on may be sqrt(10 x GiB) times as long as the other: so a larger cache answers more, up to the
    upper end in a simulation of these lists for 1 TB.
    """
    least = lru_hits(share)
    if epoch == 2:
        return Interval(value=least, low=least if share >= 1 else thresholds.LEAST_OF_LRU * least, high=least)
    more = share - least
    return Interval(value=least + thresholds.WAY * more, low=least, high=least + thresholds.MOST_WAY * more)
