"""What one image costs each resource, and the models that make rates of it.

The models are those of earlier experiments on throttled disks (fit on 1 and 2 workers, forecast of 4 and 8): each
is good to a few percent on its own kind of device and wrong by up to half on the others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from loaderprobe.analyze.verdict.rates import per_second
from loaderprobe.records.bandwidth import BandwidthPhase, KindOfDevice, StorageCeiling
from loaderprobe.records.measurement import Measurement, Mode, segments_of
from loaderprobe.records.verdict import Bottleneck

# Workers that share the cores and a disk, as a closed network of queues: each has one image in it at any time.

# Of all settings of one forecast, and of its range.
KEPT = 4096
# Times below this are none.
LEAST_S = 1e-9


@lru_cache(maxsize=KEPT)
def closed_network(workers: int, *, own_s: float, served_s: float, cpu_s: float, cores: float) -> float:
    """Images/s of so many workers.

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
    shares = [math.exp(each - most) for each in logs]
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
# A device that moves this share of what it can is saturated.
SATURATED = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What is known of the storage under the data, beyond what the loader saw of it."""

    ceiling: StorageCeiling | None = None

    @property
    def kind(self) -> KindOfDevice:
        """As a probe with pauses found it; unknown without one."""
        return self.ceiling.kind.kind if self.ceiling and self.ceiling.kind else "unknown"

    @property
    def bytes_per_s(self) -> float | None:
        """What readers got from it at most, cold; None where that is not known, or was the limit of the probe.

        The mean over all phases that differ from the fastest by noise only: the fastest of several is above what lasts.
        """
        best = max(self._phases, key=lambda phase: phase.bw_bytes, default=None)
        if best is None or best.at_least:
            return None
        alike = [phase for phase in self._phases if phase.bw_high >= best.bw_low]
        return sum(phase.bw_bytes * phase.runtime for phase in alike) / sum(phase.runtime for phase in alike)

    @property
    def at_least_bytes_per_s(self) -> float:
        """What it certainly delivers."""
        return max((phase.bw_bytes for phase in self._phases), default=0.0)

    @property
    def alone_s(self) -> float:
        """What a file takes one reader when no other is in the way.

        The mean of a lone reader before a single server. Elsewhere the fastest of the phase with the fewest readers,
        since a lone reader uses up a token bucket's credit, and waits for more.
        """
        files = [(phase.readers, phase.file_ns) for phase in self._phases if phase.file_ns]
        readers, file_ns = min(files, key=lambda each: each[0], default=(0, None))
        if file_ns is None:
            return 0.0
        return (file_ns.mean if readers == 1 and self.kind == "single_server" else file_ns.min) / 1e9

    @property
    def _phases(self) -> list[BandwidthPhase]:
        """Those from storage. Where reads are not counted, a known kind proves it: only waiting readers show one."""
        good = ("cold",) if self.kind == "unknown" else ("cold", "unproved")
        return [phase for phase in self.ceiling.phases if phase.cache in good] if self.ceiling else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Seconds of one image in each place, and what the resources can do: all that a model needs."""

    model: DeviceModel
    cpu_s: float
    """CPU time in a worker."""
    other_s: float
    """Time of a worker that is neither CPU nor storage: transport, and waiting for the next order."""
    latency_s: float
    """Waiting for a file, however small."""
    transfer_s: float
    """Waiting for the bytes of a file; counts in the model of single servers only."""
    bytes_per_image: float
    """Asked of the storage; 0 where it is not known."""
    bytes_per_s: float
    """Of the device; infinite where nothing is known to limit it."""
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
        return self.latency_s + (self.transfer_s if self.model == "single_server" else 0.0)

    @property
    def worker_s(self) -> float:
        """One image in one worker that nothing disturbs. Half its CPU time at least, whatever the rest says."""
        return max(self.cpu_s + self.other_s + self.storage_s, self.cpu_s / 2, 1e-9)

    def terms(self, workers: int) -> dict[Term, float]:
        """Images/s that each resource allows; the loader runs at the smallest. 0 workers count as 1."""
        return {
            "workers": self._by_workers(max(workers, 1)),
            "storage": per_second(self.bytes_per_s, self.bytes_per_image) if self.model != "latency" else math.inf,
            "cores": per_second(self.cores, self.work_s(workers)),
            "transport": per_second(1.0, self.parent_s) if workers else math.inf,
        }

    def work_s(self, workers: int) -> float:
        """CPU time of an image in all threads; the serial loader has nothing to send."""
        return self.cpu_s + (self.sending_s + self.parent_s if workers else 0.0)

    def crowded(self, workers: int) -> Literal["storage", "cores"] | None:
        """The resource whose queue takes all that another worker would bring."""
        rate = self._by_workers(max(workers, 1))
        if self.model == "single_server" and rate * self.transfer_s >= SATURATED:
            return "storage"
        return "cores" if rate * self.work_s(workers) >= SATURATED * self.cores else None

    def _by_workers(self, workers: int) -> float:
        """Images/s of workers that only disturb each other: before a single server, and where they want more cores.

        The threads that send and receive batches take their part of the cores.
        """
        served_s = self.transfer_s if self.model == "single_server" else 0.0
        work_s = self.work_s(workers)
        return closed_network(
            workers,
            own_s=self.worker_s - self.cpu_s - served_s,
            served_s=served_s,
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
        return self.crowded(workers) or ("storage" if self.storage_s > self.cpu_s + self.other_s else "preprocessing")

    def slower(self, factor: float) -> Service:
        """With all of a worker's times `factor` times as long."""
        return replace(
            self,
            cpu_s=self.cpu_s * factor,
            other_s=self.other_s * factor,
            latency_s=self.latency_s * factor,
            transfer_s=self.transfer_s * factor,
            parent_s=self.parent_s * factor,
            sending_s=self.sending_s * factor,
        )

    def with_disk(self, factor: float) -> Service:
        """On a device of the same kind, `factor` times as fast: in bytes/s, or in latency where that is all it has."""
        if self.model == "latency":
            return replace(self, latency_s=self.latency_s / factor)
        return replace(
            self,
            transfer_s=self.transfer_s / factor,
            bytes_per_s=self.bytes_per_s * factor,
            unproved_bytes_per_s=self.unproved_bytes_per_s * factor,
        )

    def with_cpu_speed(self, factor: float) -> Service:
        """On cores `factor` times as fast; what else workers do between batches is CPU work, too."""
        return replace(
            self,
            cpu_s=self.cpu_s / factor,
            other_s=self.other_s / factor if self.other_s > 0 else self.other_s,
            parent_s=self.parent_s / factor,
            sending_s=self.sending_s / factor,
        )

    def with_cached(self, share: float) -> Service:
        """With this share of the images in memory."""
        return replace(
            self,
            latency_s=self.latency_s * (1 - share),
            transfer_s=self.transfer_s * (1 - share),
            bytes_per_image=self.bytes_per_image * (1 - share),
        )

    def with_cpu(self, cpu_s: float, usual_cpu_s: float) -> Service:
        """With work that took `cpu_s` where the usual took `usual_cpu_s`, side by side.

        Both came from one thread on an idle machine, so it is their ratio that holds in busy workers; what
        the workers use beyond the usual (reading, shared memory) stays.
        """
        replaced = min(self.cpu_s, usual_cpu_s)
        return replace(self, cpu_s=self.cpu_s - replaced * (1 - cpu_s / usual_cpu_s))


# A DataLoader's schedule, batch by batch: what fetching further ahead is worth when batch times vary.
#
# torch sends a new order only when a batch has been received; task k goes to worker k mod N; at most N times the
# prefetch factor are outstanding; batches are delivered in order. For anything else the models predict as well.

# Steps a device that runs on its own is handed ahead of time.
STEPS_AHEAD = 2
# Enough for batch times to meet in many ways.
BATCHES = 400


def batch_seconds(measurement: Measurement, mode: Mode) -> list[list[float]]:
    """Wall time of each batch in its worker, in order, by round of the loader alone."""
    records = measurement.worker_batches
    by_number = {number: wall / 1e9 for number, wall in zip(records.batch, records.wall_ns, strict=True)}
    return [
        [by_number[n] for n in range(s.first_batch, s.first_batch + s.steps) if n in by_number]
        for s in segments_of(measurement, mode, "loader_only")
    ]


def scheduled_rate(
    batch_s: Sequence[float], *, workers: int, prefetch_factor: int, step_s: float, receive_s: float, synchronous: bool
) -> float:
    """Batches/s of training once the first buffer is used up, when task k takes `batch_s[k]` seconds in its worker.

    `step_s`: compute a batch; `receive_s`: the training thread a batch. The times are taken round and round.
    """
    ahead = workers * prefetch_factor
    skipped = workers * (prefetch_factor + 1)
    count = max(BATCHES, 4 * skipped, 2 * len(batch_s))
    sent = deque([0.0] * ahead)
    free = [0.0] * workers
    steps: deque[float] = deque(maxlen=STEPS_AHEAD)
    now = device = begin = 0.0
    ready: deque[float] = deque()
    # Runs a thousand times for a report: a comparison takes a third of the time of max().
    for number in range(count):
        while sent:
            task = number + len(ready)
            worker = task % workers
            idle_from, order = free[worker], sent.popleft()
            free[worker] = (order if order > idle_from else idle_from) + batch_s[task % len(batch_s)]
            ready.append(free[worker])
        made = ready.popleft()
        now = (made if made > now else now) + receive_s
        sent.append(now)
        device = (now if now > device else device) + step_s
        if synchronous:
            now = device
        else:
            if len(steps) == STEPS_AHEAD and steps[0] > now:
                now = steps[0]
            steps.append(device)
        if number == skipped:
            begin = device
    return (count - 1 - skipped) / (device - begin) if device > begin else float("inf")
