"""What accelerators need of storage, workers and cores, and what a storage gives: for reports, bandwidth and plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from loaderprobe.analyze.plan.workload import (
    REQUEST_BYTES,
    PlanWorkload,
    assumed_too,
    known,
    product,
    scaled,
    total,
)
from loaderprobe.records.plan import (
    Asked,
    Label,
    PlanPart,
    PlanSupply,
    Quantity,
    SupplyLimit,
    SupplyResource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import SATURATED

# What accelerators need of storage, workers and cores.
#
# G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
# for, f files opened an image. N accelerators need N times that.

TRAINING_CORES = 1.0
"""The training thread of an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one accelerator at one utilization, while files are cold."""

    read_bytes: Quantity
    """Bytes/s from storage."""
    opens: Quantity
    requests: Quantity

    def times(self, accelerators: float) -> Demand:
        """Of so many accelerators together."""
        return Demand(
            read_bytes=scaled(self.read_bytes, accelerators, f"N {self.read_bytes.formula}"),
            opens=scaled(self.opens, accelerators, f"N {self.opens.formula}"),
            requests=scaled(self.requests, accelerators, f"N {self.requests.formula}"),
        )


def demand(workload: PlanWorkload, utilization: float, images_per_file: int = 1) -> Demand:
    """What one accelerator needs."""
    read = product([workload.rate, workload.file_bytes, workload.amplification], "B/s", "G u s a", factor=utilization)
    opens = product([workload.rate], "1/s", "G u f", factor=utilization / images_per_file)
    limit = f"{REQUEST_BYTES // 1024} KiB"
    if images_per_file == 1:
        asked = [workload.rate, workload.requests_per_file]
        requests = product(asked, "1/s", f"G u ceil(s / {limit})", factor=utilization)
    else:
        requests = assumed_too(scaled(replace(read, unit="1/s"), 1 / REQUEST_BYTES, f"{read.formula} / {limit}"))
    return Demand(read_bytes=read, opens=opens, requests=requests)


def cores_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Cores that one accelerator needs, or why that is not known."""
    if workload.cpu_s is None:
        return why_refused(workload, "cores")
    workers = product([workload.rate, workload.cpu_s], "cores", "", factor=utilization / SATURATED)
    training = known(TRAINING_CORES, "cores", "assumed", "one training thread")
    return total([workers, training], "cores", f"G u cpu / {SATURATED:g} + 1")


def in_flight(opens: Quantity, file_s: Quantity) -> Quantity:
    """Reads under way at a time (Little 1961): their rate times how long one takes."""
    found = product([opens, file_s], "reads", f"{opens.formula} x time of a file")
    return replace(found, low=opens.value * file_s.low, high=opens.value * file_s.high)


def why_refused(workload: PlanWorkload, part: PlanPart) -> Remark:
    """Why a part of the plan is not known."""
    return workload.refused.get(part, Remark(code="part_not_measured"))


# What a storage supplies: its limits beside the need, the one that is reached first, and how many it feeds.

PER_NODE: tuple[SupplyResource, ...] = ("client", "nic")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLimit:
    """One limit of a storage; of `client` and `nic`, for each node."""

    resource: SupplyResource
    quantity: Quantity
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A storage as it was measured, given or published."""

    name: str
    label: Label
    source: str
    limits: tuple[OfferLimit, ...]
    latency_s: Quantity | None = None
    """Of one read of one file."""
    read_on: str = ""
    stale: bool = False
    notes: tuple[Remark, ...] = ()


def measured_offer(workload: PlanWorkload) -> Offer | None:
    """The storage that the run measured; None where it measured none that counts."""
    storage = workload.storage
    if storage is None:
        return None
    limits = [OfferLimit(resource="bandwidth", quantity=storage.read_bytes_per_s, at_least=storage.at_least)]
    if storage.opens_per_s is not None:
        opens = OfferLimit(resource="opens", quantity=storage.opens_per_s, at_least=storage.opens_at_least)
        limits.append(opens)
    elif not workload.same_files:
        # Of the very files that are planned for, files/s and bytes/s are one figure.
        limits.append(OfferLimit(resource="opens", quantity=storage.files_per_s, at_least=True))
    return Offer(
        name=storage.name,
        label="measured",
        source=storage.source,
        limits=tuple(limits),
        latency_s=storage.file_s if workload.same_files else None,
        notes=storage.notes,
    )


def judge_supply(offer: Offer, one: Demand, asked: Asked) -> PlanSupply:
    """One storage; the limit that is reached first stands first."""
    offered = list(offer.limits)
    if asked.nic_bytes_per_s is not None:
        nic = known(asked.nic_bytes_per_s, "B/s", "given", "nic")
        offered.append(OfferLimit(resource="nic", quantity=nic))
    limits = sorted((_limit(each, one, asked) for each in offered), key=lambda limit: limit.feeds)
    first = limits[0] if limits and math.isfinite(limits[0].feeds) else None
    flying = None if offer.latency_s is None else in_flight(one.opens, offer.latency_s)
    return PlanSupply(
        name=offer.name,
        label=offer.label,
        source=offer.source,
        read_on=offer.read_on,
        stale=offer.stale,
        limits=tuple(limits),
        first_limit=first.resource if first else None,
        feeds=first.feeds if first else None,
        at_least=first.at_least if first else False,
        reads_in_flight=flying if asked.images_per_file == 1 else None,
        notes=offer.notes,
    )


def _limit(offered: OfferLimit, one: Demand, asked: Asked) -> SupplyLimit:
    need = {
        "bandwidth": one.read_bytes,
        "opens": one.opens,
        "requests": one.requests,
        "client": one.read_bytes,
        "nic": one.read_bytes,
    }[offered.resource]
    limit = offered.quantity
    if offered.resource in PER_NODE:
        limit = replace(scaled(limit, asked.nodes, "M x limit of a node"), label=limit.label)
    needed = scaled(need, asked.accelerators, f"N {need.formula}")
    return SupplyLimit(
        resource=offered.resource,
        limit=limit,
        need=needed,
        share=needed.value / limit.value,
        feeds=asked.use * limit.value / need.value,
        at_least=offered.at_least,
    )
