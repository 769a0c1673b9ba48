"""What a storage supplies: its limits beside the need, the one that is reached first, and how many it feeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from loaderprobe.analyze.plan.demand import Demand, in_flight
from loaderprobe.analyze.plan.quantities import known, scaled
from loaderprobe.analyze.plan.workload import Workload
from loaderprobe.records.plan import Asked, Label, Quantity, Resource, Supply, SupplyLimit
from loaderprobe.records.remark import Remark

PER_NODE: tuple[Resource, ...] = ("client", "nic")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLimit:
    """One limit of a storage; of `client` and `nic`, for each node."""

    resource: Resource
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


def measured_offer(workload: Workload) -> Offer | None:
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


def judge_supplies(offers: Iterable[Offer], one: Demand, asked: Asked) -> tuple[Supply, ...]:
    """Every storage against the need of one accelerator."""
    return tuple(judge_supply(offer, one, asked) for offer in offers)


def judge_supply(offer: Offer, one: Demand, asked: Asked) -> Supply:
    """One storage; the limit that is reached first stands first."""
    offered = list(offer.limits)
    if asked.nic_bytes_per_s is not None:
        nic = known(asked.nic_bytes_per_s, "B/s", "given", "nic")
        offered.append(OfferLimit(resource="nic", quantity=nic))
    limits = sorted((_limit(each, one, asked) for each in offered), key=lambda limit: limit.feeds)
    first = limits[0] if limits and math.isfinite(limits[0].feeds) else None
    flying = None if offer.latency_s is None else in_flight(one.opens, offer.latency_s)
    return Supply(
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
