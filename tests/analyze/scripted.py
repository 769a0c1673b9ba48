"""Made-up storage and pipelines that follow their model exactly: measured points, and whole measurements of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from loaderprobe.analyze.forecast import DeviceModel, Fit, Point, ServiceTimes, fit
from loaderprobe.analyze.verdict.rates import Loop
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import DeviceKind, KindOfDevice, StorageCeiling
from tests.analyze.runs import BATCH, Cost, run
from tests.examples.bandwidth import example_phase


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A pipeline and the storage under it: seconds an image, bytes/s."""

    model: DeviceModel = "token_bucket"
    cpu_s: float = 0.004
    latency_s: float = 0.001
    bytes_per_image: float = 100_000.0
    bytes_per_s: float = 40e6
    cores: float = 16.0
    parent_s: float = 0.0001
    compute: float = 1e5
    synchronous: bool = False

    def service(self) -> ServiceTimes:
        """What a perfect fit finds."""
        return ServiceTimes(
            model=self.model,
            cpu_s=self.cpu_s,
            other_s=0.0,
            latency_s=self.latency_s,
            transfer_s=self.bytes_per_image / self.bytes_per_s if self.model == "single_server" else 0.0,
            bytes_per_image=self.bytes_per_image,
            bytes_per_s=math.inf if self.model == "latency" else self.bytes_per_s,
            cores=self.cores,
            parent_s=self.parent_s,
        )

    def training(self, workers: int) -> float:
        """Images/s end to end."""
        loop = Loop(workers=workers, batch_size=16, synchronous=self.synchronous, overhead_s=self.parent_s * 16)
        return loop.end_to_end(self.service().loader(workers), self.compute)

    def point(self, workers: int, **changes: Any) -> Point:
        """The configuration as it would be measured."""
        loader = self.service().loader(workers)
        wall_s = max(workers, 1) / loader
        fields: dict[str, Any] = {
            "workers": workers,
            "batch_size": 16,
            "synchronous": self.synchronous,
            "on_cpu": False,
            "loader": loader,
            "loader_spread": 0.0,
            "training": self.training(workers),
            "training_spread": 0.0,
            "compute": self.compute,
            "compute_spread": 0.0,
            "cpu_s": self.cpu_s,
            "blocked_s": max(self.service().storage_s, wall_s - self.cpu_s),
            "idle_s": 0.0,
            "bytes_per_image": self.bytes_per_image,
            "parent_s": self.parent_s if workers else 0.0,
            "cores": self.cores,
            "from_storage": True,
        }
        return Point(**(fields | changes))

    def storage(self, kind: KindOfDevice | None = None) -> StorageCeiling:
        """The ceiling, where there is one, and the kind; another one where `kind` is given."""
        named = DeviceKind(kind=kind or self.model, code="none_of_them", evidence=())  # type: ignore[arg-type]  # memory is no kind of storage
        phase = example_phase(4, self.bytes_per_s)
        assert phase.file_ns
        # The fastest file of a phase is one that nothing was in the way of.
        phase = replace(phase, file_ns=replace(phase.file_ns, min=self.service().storage_s * 1e9))
        phases = () if self.model == "latency" else (phase,)
        return StorageCeiling(data="0" * 16, phases=phases, kind=named)

    def fit(self, *measured: int, anchor: int, **changes: Any) -> Fit:
        """Fitted to these numbers of workers, at one of them."""
        points = {number: self.point(number, **(changes if number == anchor else {})) for number in measured}
        found = fit(tuple(points.values()), points[anchor], self.storage())
        assert isinstance(found, Fit)
        return found


def measured(truth: Truth, workers: int, **changes: Any) -> Measurement:
    """Three rounds of the loader alone, cold and warm, and of training; `changes` are to the configuration."""
    warm = replace(truth, latency_s=0.0, bytes_per_s=1e15)
    rates = {
        "baseline": truth.service().loader(workers), "training": truth.training(workers),
        "warm": warm.service().loader(workers),
    }  # fmt: skip
    received_s = truth.parent_s * BATCH if workers else 0.0
    return run(
        [rates] * 3, _cost(truth, workers), {"warm": _cost(warm, workers)}, compute=truth.compute,
        synchronous=truth.synchronous, receive_s=dict.fromkeys(("baseline", "warm"), received_s), recorded=False,
        facts={"cores_available": truth.cores, "modes": ("baseline", "warm")}, workers=workers, **changes,
    )  # fmt: skip


def _cost(truth: Truth, workers: int) -> Cost:
    """Of workers that wait for storage, or for one another; storage faster than any is memory."""
    waited_s = max(workers, 1) / truth.service().loader(workers) - truth.cpu_s
    return Cost(
        cpu_s=truth.cpu_s, blocked_s=max(truth.service().storage_s, waited_s), cold=float(truth.bytes_per_s < 1e14)
    )
