"""What accelerators need of storage, workers and cores.

G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
for, f files opened an image, h share of reads that caches answer. N accelerators need N times that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from loaderprobe.analyze.plan.workload import REQUEST_BYTES, PlanWorkload, assumed_too, known, product, scaled, total
from loaderprobe.records.plan import Asked, Need, NeedName, PlanPart, Quantity
from loaderprobe.records.remark import Remark

BUSY_CORES = 0.85
"""Cores that workers keep busier than this make them wait for each other."""
TRAINING_CORES = 1.0
"""The training thread of an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one accelerator at one utilization, with a share of reads answered by caches."""

    images_per_s: Quantity
    read_bytes: Quantity
    """Bytes/s from storage."""
    opens: Quantity
    requests: Quantity

    def times(self, accelerators: float) -> Demand:
        """Of so many accelerators together."""
        return Demand(
            images_per_s=scaled(self.images_per_s, accelerators, f"N {self.images_per_s.formula}"),
            read_bytes=scaled(self.read_bytes, accelerators, f"N {self.read_bytes.formula}"),
            opens=scaled(self.opens, accelerators, f"N {self.opens.formula}"),
            requests=scaled(self.requests, accelerators, f"N {self.requests.formula}"),
        )


def demand(workload: PlanWorkload, utilization: float, images_per_file: int = 1, hits: float = 0.0) -> Demand:
    """What one accelerator needs."""
    images = product([workload.rate], "images/s", "G u", factor=utilization)
    cold = 1 - hits
    missed = " (1-h)" if hits else ""
    read = product(
        [workload.rate, workload.file_bytes, workload.amplification],
        "B/s",
        f"G u s a{missed}",
        factor=utilization * cold,
    )
    opens = product([workload.rate], "1/s", f"G u f{missed}", factor=utilization * cold / images_per_file)
    if images_per_file == 1:
        requests = product(
            [workload.rate, workload.requests_per_file],
            "1/s",
            f"G u ceil(s / {REQUEST_BYTES // 1024} KiB){missed}",
            factor=utilization * cold,
        )
    else:
        requests = assumed_too(
            scaled(replace(read, unit="1/s"), 1 / REQUEST_BYTES, f"{read.formula} / {REQUEST_BYTES // 1024} KiB")
        )
    return Demand(images_per_s=images, read_bytes=read, opens=opens, requests=requests)


def needs(workload: PlanWorkload, asked: Asked) -> tuple[tuple[Need, ...], dict[PlanPart, Remark]]:
    """What all accelerators need, and what cannot be said."""
    made = [*_from_storage(workload, asked)]
    refused: dict[PlanPart, Remark] = {}
    for name, per_accelerator in _PER_ACCELERATOR.items():
        wanted, most = per_accelerator(workload, asked.utilization), per_accelerator(workload, 1.0)
        if isinstance(wanted, Remark):
            refused[name] = wanted
        elif isinstance(most, Quantity):
            made.append(Need(name=name, at_utilization=wanted, at_most=most, to_buy=None, node=None))
    if not any(need.name == "reads_in_flight" for need in made):
        code: str = "read_not_timed" if asked.images_per_file == 1 else "read_in_shard_not_timed"
        refused["reads_in_flight"] = Remark(code=code)
    return tuple(made), refused


def workers_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Workers that one accelerator needs, or why that is not known."""
    parts = workload.cpu_s, workload.wait_s, workload.other_s
    if parts[0] is None or parts[1] is None or parts[2] is None:
        return _reason(workload, "workers")
    whole = total([parts[0], parts[1], parts[2]], "s", "cpu + wait + other")
    return product([workload.rate, whole], "workers", "G u (cpu + wait + other)", factor=utilization)


def cores_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Cores that one accelerator needs, or why that is not known."""
    if workload.cpu_s is None:
        return _reason(workload, "cores")
    workers = product([workload.rate, workload.cpu_s], "cores", "", factor=utilization / BUSY_CORES)
    training = known(TRAINING_CORES, "cores", "assumed", "one training thread")
    return total([workers, training], "cores", f"G u cpu / {BUSY_CORES:g} + 1")


_PER_ACCELERATOR: dict[Literal["workers", "cores"], Callable[[PlanWorkload, float], Quantity | Remark]] = {
    "workers": workers_of,
    "cores": cores_of,
}


def in_flight(opens: Quantity, file_s: Quantity) -> Quantity:
    """Reads under way at a time (Little 1961): their rate times how long one takes."""
    found = product([opens, file_s], "reads", f"{opens.formula} x time of a file")
    return replace(found, low=opens.value * file_s.low, high=opens.value * file_s.high)


def _from_storage(workload: PlanWorkload, asked: Asked) -> list[Need]:
    mean = demand(workload, asked.utilization, asked.images_per_file)
    most = demand(workload, 1.0, asked.images_per_file)
    count, node = asked.accelerators, min(asked.per_node, asked.accelerators)
    made = [
        _need(name, one, full, asked, node)
        for name, one, full in (
            ("read_bytes", mean.read_bytes, most.read_bytes),
            ("opens", mean.opens, most.opens),
            ("requests", mean.requests, most.requests),
        )
    ]
    storage = workload.storage
    if storage is not None and asked.images_per_file == 1 and workload.same_files:
        flying = [in_flight(each.times(count).opens, storage.file_s) for each in (mean, most)]
        of_node = in_flight(mean.times(node).opens, storage.file_s)
        made.append(
            Need(name="reads_in_flight", at_utilization=flying[0], at_most=flying[1], to_buy=None, node=of_node)
        )
    return made


def _need(name: str, one: Quantity, full: Quantity, asked: Asked, node: int) -> Need:
    named: NeedName = "read_bytes" if name == "read_bytes" else "opens" if name == "opens" else "requests"
    at_utilization = scaled(one, asked.accelerators, f"N {one.formula}")
    to_buy = scaled(at_utilization, 1 / asked.use, f"{at_utilization.formula} / r")
    return Need(
        name=named,
        at_utilization=at_utilization,
        at_most=scaled(full, asked.accelerators, f"N {full.formula}, u = 1"),
        to_buy=to_buy if asked.use_given else assumed_too(to_buy),
        node=scaled(one, node, f"A {one.formula}"),
    )


def _reason(workload: PlanWorkload, part: PlanPart) -> Remark:
    return workload.refused.get(part, Remark(code="part_not_measured"))
