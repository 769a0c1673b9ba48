"""From measurements of one data set in one pipeline, with different workers, to the service that explains them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rates import Loop, bytes_per_image, per_second, rates_by_round, worker_cost
from loaderprobe.analyze.verdict.validity import cold_share
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Measurement, Segment, segments_of
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import Bottleneck
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import lowest, mean, median

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
        asked = self._times(requests if by_requests else larger, "transfer_s", "bytes_per_image")
        return replace(asked, latency_s=self.latency_s * requests)

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

    @property
    def loop(self) -> Loop:
        return Loop(
            workers=self.workers,
            batch_size=self.batch_size,
            synchronous=self.synchronous,
            overhead_s=self.parent_s * self.batch_size,
        )


def point_of(found: Experiments) -> Point | Remark:
    """The figures of one measurement, or why it carries no forecast."""
    prediction_error, tolerance = found.prediction_error
    if prediction_error is None or not found.compute or found.estimated_parts:
        return Remark(code="no_complete_round")
    if abs(prediction_error) > tolerance or not 1 / thresholds.MISFIT <= 1 + prediction_error <= thresholds.MISFIT:
        return Remark(code="outside_noise_band", facts={"predicted_fraction": 1 + prediction_error})
    cost = found.cost
    if cost is None or not cost.images:
        return Remark(code="no_worker_times")
    measurement, config, per_image = found.measurement, found.measurement.config, cost.per_image()
    loader_only = segments_of(measurement, found.base, "loader_only")
    cold, commands_s = cold_share(measurement, loader_only), cost.commands_s / cost.images
    loader, training = list(found.loader.values()), list(found.end_to_end.values())
    given = measurement.compute.specified_images_per_s is not None
    alone = [] if given else list(rates_by_round(measurement, "resident", "training").values())
    from_storage = config.cache != "warm" and measurement.storage_kind != "memory"
    return Point(
        workers=measurement.workers,
        batch_size=found.loop.batch_size,
        synchronous=measurement.compute.synchronous,
        on_cpu=config.compute.name == "cpu",
        loader=median(loader),
        loader_spread=_spread(loader),
        training=median(training),
        training_spread=_spread(training),
        compute=found.compute,
        compute_spread=_spread(alone) if alone else 0.0,
        cpu_s=per_image.cpu_s + commands_s,
        blocked_s=per_image.blocked_s - commands_s,
        idle_s=_idle_s(measurement.workers, loader_only, cost.wall_s / cost.images),
        bytes_per_image=_read_per_image(measurement, loader_only, cold),
        parent_s=found.loop.parent_s,
        cores=measurement.cores_available,
        from_storage=from_storage,
        sending_s=max(0.0, (cost.process_cpu_s or 0.0) - cost.cpu_s) / cost.images if measurement.workers else 0.0,
        collated=cost.collate_s / cost.wall_s if cost.wall_s else 0.0,
        measured=_measured(found),
        trained_warm=found.is_measured("storage") and (found.in_training or measurement.judged != "training"),
        unproved=_why_unproved(found, cold, from_storage=from_storage),
        ranks=measurement.ranks,
    )


def _measured(found: Experiments) -> dict[str, float]:
    """Images/s of the loader without each resource whose ablation was measured.

    Warm files at the CPU time an image that cold ones took: the rate times that settles to 3 % in a second, where
    the rate alone drifts with the CPU.
    """
    rates: dict[str, float] = {
        name: median(rates.values()) for name, rates in found.without.items() if found.is_measured(name) and rates
    }
    measurement = found.measurement
    warm = worker_cost(measurement.worker_batches, segments_of(measurement, "warm", "loader_only"))
    if "storage" in rates and warm and found.cost and warm.cpu_s and found.cost.cpu_s:
        rates["storage"] *= warm.per_image().cpu_s / found.cost.per_image().cpu_s
    return rates


def _idle_s(workers: int, loader_only: Sequence[Segment], busy_s: float) -> float:
    """Over the same batches as the time that an image takes in a worker: rounds differ by more than it is."""
    images = sum(s.steps * s.batch_size for s in loader_only)
    return max(0.0, max(workers, 1) * sum(each.seconds for each in loader_only) / images - busy_s)


def _read_per_image(measurement: Measurement, loader_only: Sequence[Segment], cold: float | None) -> float:
    """Bytes that the storage reads for an image: of files that are read in parts, with what is read ahead in vain."""
    asked = bytes_per_image(measurement, loader_only) or 0.0
    return asked if cold is None else asked * (min(1.0, cold) if measurement.access == "files" else cold)


def _why_unproved(found: Experiments, cold: float | None, *, from_storage: bool) -> Remark | None:
    if not from_storage:
        return Remark(code="files_from_memory")
    if found.measurement.is_remote:
        return None
    if found.measurement.as_found and (cold is None or cold < thresholds.COLD_AT_LEAST):
        return Remark(code="files_as_found")
    reason = found.missing.get("storage") if found.base == "baseline" else None
    return Remark(code="storage_missing", facts=reason.because) if reason else None


def _spread(rates: Sequence[float]) -> float:
    return min(thresholds.MOST_SPREAD, (max(rates) - min(rates)) / 2 / median(rates))


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def whole(self) -> float:
        """What measured training is of that of its parts, as far as the loader does not explain it."""
        return self.anchor.training / self.anchor.loop.end_to_end(self.anchor.loader, self.anchor.compute)


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
    most = max(points, key=lambda point: point.loader)
    seen = most.loader * size
    if storage.bytes_per_s is not None:
        return max(storage.bytes_per_s, seen), math.inf
    if service.model == "single_server" and first.blocked_s > 0 and size:
        return max(size / first.blocked_s, seen), math.inf
    # With more workers than filled it, and cores to spare, a device that gives no more is at its limit.
    undisturbed = replace(service, latency_s=first.blocked_s).terms(most.workers)
    beside = min(undisturbed["workers"], undisturbed["cores"], undisturbed["transport"])
    if size and beside > thresholds.ABOVE_CEILING * most.loader:
        return seen, math.inf
    return math.inf, thresholds.ABOVE_CEILING * max([seen, *(phase.bw_bytes for phase in storage.from_storage)])


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
    asked = rate * model.bytes_per_image
    return replace(
        model,
        other_s=workers / rate - model.cpu_s - model.storage_s if tight else model.other_s,
        bytes_per_s=asked if bottleneck == "storage" else max(model.bytes_per_s, asked),
        cores=max(model.cores, rate * model.work_s(anchor.workers)),
        parent_s=1 / rate if bottleneck == "transport" else min(model.parent_s, 1 / rate),
    )
