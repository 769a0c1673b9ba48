"""From what is asked, a workload and the storages on offer to the plan. Pure; words are made where it is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import get_args

from loaderprobe.analyze.forecast import page_cache_hits
from loaderprobe.analyze.plan.workload import (
    Demand,
    PlanWorkload,
    assumed_too,
    cores_of,
    demand,
    in_flight,
    judge_supply,
    known,
    pace_of,
    product,
    requests,
    scaled,
    total,
)
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import (
    FIXED,
    OF_EACH,
    Acceptance,
    CacheEpoch,
    CatalogueEntry,
    EpochPlan,
    InputName,
    Need,
    NeedName,
    PlanReport,
    PlanSource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.supply import (
    Asked,
    CacheSize,
    Label,
    PlanPart,
    PlanSupply,
    Quantity,
    SupplyLimit,
    SupplyResource,
)
from loaderprobe.units import significant


def as_asked(
    workload: PlanWorkload, images_per_file: int, *, images: Quantity | None, file_bytes: Quantity | None
) -> PlanWorkload:
    """The same on another data set, as options give it: what was measured with its own files counts less there.

    Larger reads get at least the bytes/s of smaller ones; what blocks of shards get says nothing of a folder. That an
    image takes a worker as long is assumed.
    """
    changed, storage, files = workload, workload.storage, workload.files
    to_shards = images_per_file > workload.images_an_open == 1
    to_folder = images_per_file == 1 != workload.images_an_open
    if images is not None:
        changed = replace(changed, images=images)
    # Where a run did not tell the bytes of an image, those that are given are of the files that it read.
    other_size = file_bytes is not None and workload.file_bytes.label != "given"
    if file_bytes is not None and other_size:
        per_file = requests([file_bytes.value], exact=False)
        changed = replace(changed, file_bytes=file_bytes, requests_per_file=per_file)
    if storage is not None and files is not None and other_size:
        known_opens = any(limit.resource == files.resource for limit in storage.limits)
        limits = storage.limits if known_opens else (*storage.limits, files)
        storage = replace(storage, limits=limits, latency_s=None)
    if storage is not None and (to_shards or changed.file_bytes.value > workload.file_bytes.value):
        bandwidth, *others = storage.limits
        storage = replace(storage, limits=(replace(bandwidth, at_least=True), *others))
    if other_size or to_shards or to_folder:
        times = {name: assumed_too(time) for name, time in workload.times.items()}
        changed = replace(changed, times=times)
    if to_folder:
        why: dict[PlanPart, Remark] = {"workers": Remark(code="file_wait_unknown")}
        if storage is not None:
            why["measured_storage"] = Remark(code="measured_in_shards")
        times = {name: time for name, time in changed.times.items() if name != "wait_s"}
        return replace(changed, storage=None, times=times, refused={**why, **workload.refused})
    return replace(changed, storage=storage)


def lru_share_for(hits: float) -> float:
    """The share of the set that such a cache must hold for so many hits: the inverse, by Lambert's W."""
    from scipy.special import lambertw

    return float(1 - math.exp(1 + lambertw((hits - 1) / math.e, -1).real))


def seen_before(nodes: int, epoch: int) -> float:
    """Share of a node's reads that it made in an epoch before: 1 - (1-1/M)^(e-1).

    Each node gets a random part of every epoch (a shuffle over all images, as `DistributedSampler` with `set_epoch`
    makes it). So no cache of several nodes that fills as they read answers more, however large.
    """
    return 1 - (1 - 1 / nodes) ** (epoch - 1)


def _cache_for(supply: PlanSupply, workload: PlanWorkload, asked: Asked) -> CacheSize | None:
    """The hits that let this storage feed all accelerators, and the cache of a node that gives them.

    None where it is enough, and where it may be: of a storage that gives at least so much, no need follows.
    """
    if supply.feeds is None or supply.at_least or supply.feeds >= asked.accelerators:
        return None
    hits = 1 - supply.feeds / asked.accelerators
    set_bytes = None if workload.images is None else workload.images.value * workload.file_bytes.value
    return CacheSize(
        hits=hits,
        pinned_bytes=None if set_bytes is None else hits * set_bytes,
        page_bytes=None if set_bytes is None else lru_share_for(hits) * set_bytes,
    )


def given_offer(text: str, figures: Mapping[str, float]) -> PlanSupply:
    """A storage by its figures: by resource in bytes/s or operations/s, and `latency` in seconds."""
    latency = figures.get("latency")
    return PlanSupply(
        name=text,
        label="given",
        source="storage",
        limits=_limits(figures, "given", "storage"),
        latency_s=None if latency is None else known(latency, "s", "given", "storage"),
    )


_OFFERED: dict[SupplyResource, tuple[str, str]] = {
    "bandwidth": ("B/s", "read_bytes_per_s"), "opens": ("1/s", "opens_per_s"), "requests": ("1/s", "requests_per_s"),
    "client": ("B/s", "client_bytes_per_s"),
}  # fmt: skip
"""(unit, field of the catalogue) of each limit."""


def _limits(
    figures: Mapping[str, float | None], label: Label, source: str, at_least: Sequence[str] = ()
) -> tuple[SupplyLimit, ...]:
    """The known ones; those whose fields are `at_least` are a promise and no maximum."""
    return tuple(
        SupplyLimit(resource=resource, limit=known(value, unit, label, source), at_least=field in at_least)
        for resource, (unit, field) in _OFFERED.items()
        if (value := figures.get(resource)) is not None
    )


def catalogue_offer(entry: CatalogueEntry, name: str, size: float | None, today: date) -> PlanSupply:
    """An entry of the catalogue, or a tier of it, at the size that is bought. Raises BadValue for another size."""
    tier = next((tier for tier in entry.tiers if name == f"{entry.name}-{tier.name}"), None)
    size = _checked_size(entry, name, size, tier.least_size if tier else entry.least_size)
    bandwidth = tier.read_bytes_per_s_per_unit * size if tier else None
    if entry.read_bytes_per_s is not None:
        bandwidth = entry.read_bytes_per_s.at(size)
    client = tier.client_bytes_per_s if tier and tier.client_bytes_per_s else entry.client_bytes_per_s
    amounts = {"opens": entry.opens_per_s, "requests": entry.requests_per_s}
    operations = {name: amount.at(size) for name, amount in amounts.items() if amount}
    missing = ["bandwidth"] if bandwidth is None else []
    missing += [f"{name}_at_size" for name, value in operations.items() if value is None]
    missing += [] if operations else ["operations"]
    notes = [Remark(code="not_published", facts={"limits": " ".join(missing)})] if missing else []
    notes += [Remark(code="quoted", facts={"text": entry.note})] if entry.note else []
    source, latency = f"{entry.source}, read {entry.read_on}", entry.latency_s
    return PlanSupply(
        name=name if not entry.unit else f"{name}:{float(significant(size)):g}{entry.unit}",
        label="published",
        source=entry.source,
        limits=_limits({"bandwidth": bandwidth, **operations, "client": client}, "published", source, entry.at_least),
        latency_s=None if latency is None else known(latency[1], "s", "published", source, low=latency[0]),
        read_on=entry.read_on,
        stale=entry.stale(today),
        notes=tuple(notes),
    )


def _checked_size(entry: CatalogueEntry, name: str, size: float | None, least: float) -> float:
    if not entry.unit:
        if size is not None:
            raise BadValue(f"{name} is not bought by size", hint=f"--storage {name}")
        return 1.0
    if size is None:
        raise BadValue(
            f"{name} is bought by {entry.unit}, and no size is given", hint=f"--storage {name}:SIZE{entry.unit}"
        )
    if size < least or (entry.most_size is not None and size > entry.most_size):
        bounds = f"from {significant(least)}" + (f" to {significant(entry.most_size)}" if entry.most_size else "")
        raise BadValue(
            f"{name} is sold {bounds} {entry.unit}, not {significant(size)}", hint="loaderprobe plan --catalogue"
        )
    return size


SHOWN_EPOCHS = (2, 3, 10)
"""The first epoch reads all from storage."""
READERS = 8
"""An accelerator, for the acceptance test, where nothing says how many it needs."""


def needs_of_one(workload: PlanWorkload, asked: Asked, utilization: float) -> Demand:
    """What one accelerator needs at this utilization, as far as that is known; what storage keeps is for all."""
    needs = demand(workload, utilization, asked.images_per_file)
    storage, write = workload.storage, asked.checkpoint
    if storage and storage.latency_s and asked.images_per_file == 1:
        needs["reads_in_flight"] = in_flight(needs["opens"], storage.latency_s)
    if workload.images is not None:
        needs["capacity"] = product([workload.images, workload.file_bytes], "B", "images s")
    if write is not None:
        needs["checkpoint"] = known(write.bytes / (write.every_s * write.share), "B/s", "given", "checkpoint")
    if workers := workers_of(workload, utilization):
        needs |= {"read_time": _read_time(workload, utilization, workers), "workers": workers}
    if cores := cores_of(workload, utilization):
        needs["cores"] = cores
    return {name: need for name, need in needs.items() if need.value > 0}


def workers_of(workload: PlanWorkload, utilization: float) -> Quantity | None:
    """Workers that one accelerator needs; None where the workload has a reason not to know."""
    if len(workload.times) < 3:
        return None
    whole = total([*workload.times.values()], "s", "cpu + wait + other")
    workers = product([workload.rate, whole], "workers", "G u (cpu + wait + other)", factor=utilization)
    value, low, high = (float(math.ceil(end)) for end in (workers.value, workers.low, workers.high))
    return replace(workers, value=value, low=low, high=high, formula=f"ceil({workers.formula})")


def _read_time(workload: PlanWorkload, utilization: float, workers: Quantity) -> Quantity:
    """What a read may take on average, so that so many workers are enough."""
    exact = replace(workers, low=workers.value, high=workers.value)
    image_s = product([exact], "s", "", over=[workload.rate], factor=1 / utilization)
    busy = [workload.times[name] for name in ("cpu_s", "other_s")]
    return total([image_s], "s", "W / (G u) - cpu - other", less=busy)


_NOT_SOLD: tuple[NeedName, ...] = ("reads_in_flight", "read_time", *OF_EACH)
"""Needs that have no headroom."""


def _need(name: NeedName, one: Quantity, full: Quantity, asked: Asked) -> Need:
    """From the needs of one accelerator at the wanted utilization, and at all of it."""
    if name not in (*OF_EACH, *FIXED):
        full = scaled(full, asked.accelerators, f"N {full.formula}, u = 1")
    wanted = one if name in (*OF_EACH, *FIXED) else scaled(one, asked.accelerators, f"N {one.formula}")
    to_buy = scaled(wanted, 1 / asked.use, f"{wanted.formula or wanted.source} / r")
    to_buy = to_buy if asked.use_given else assumed_too(to_buy)
    return Need(
        name=name,
        at_utilization=wanted,
        at_most=full,
        to_buy=None if name in _NOT_SOLD else to_buy,
        node=None if name in FIXED else scaled(one, asked.of_node, f"A {one.formula}"),
    )


def make_plan(
    workload: PlanWorkload, asked: Asked, offers: Sequence[PlanSupply], source: PlanSource, *,
    loaderprobe: str, created_utc: str,
) -> PlanReport:  # fmt: skip
    """The plan. `offers` are beside the storage that the run measured."""
    one, full = (needs_of_one(workload, asked, share) for share in (asked.utilization, 1.0))
    names: tuple[NeedName, ...] = get_args(NeedName)
    storages = (*((workload.storage,) if workload.storage else ()), *offers)
    supplies = [judge_supply(storage, one, asked) for storage in storages]
    refused = dict(workload.refused)
    if "reads_in_flight" not in one:
        why = "read_not_timed" if asked.images_per_file == 1 else "read_in_shard_not_timed"
        refused["reads_in_flight"] = Remark(code=why)
    if not asked.images_per_file:
        refused["opens"] = Remark(code="images_of_files_unknown")
    return PlanReport(
        loaderprobe=loaderprobe,
        created_utc=created_utc,
        source=source,
        asked=asked,
        needs=tuple(_need(name, one[name], full[name], asked) for name in names if name in one and name in full),
        supplies=tuple(replace(supply, cache=_cache_for(supply, workload, asked)) for supply in supplies),
        epochs=_epochs(workload, asked, asked.accelerators * one["read_bytes"].value),
        inputs=_inputs(workload, asked),
        acceptance=_acceptance(workload, asked, one.get("workers"), supplies),
        pace=pace_of(workload.accelerator),
        refused={part: refused[part] for part in get_args(PlanPart) if part in refused},
        notes=workload.notes,
    )


def _epochs(workload: PlanWorkload, asked: Asked, cold: float) -> EpochPlan:
    """How long an epoch takes, and what of the `cold` bytes/s reaches the shared storage."""
    if workload.images is None:
        return EpochPlan(seconds=None, cache_share=None)
    factor = 1 / (asked.accelerators * asked.utilization)
    seconds = product([workload.images], "s", "images / (N G u)", factor=factor, over=[workload.rate])
    if asked.cache.kind == "none":
        return EpochPlan(seconds=seconds, cache_share=None)
    share = min(1.0, asked.cache.bytes / (workload.images.value * workload.file_bytes.value))
    hits = dict.fromkeys(SHOWN_EPOCHS, share)
    if asked.cache.kind == "page":
        # It has no more than the node has seen before, and of that what stays.
        hits = {epoch: min(page_cache_hits(share, epoch).low, seen_before(asked.nodes, epoch)) for epoch in hits}
    cached = (CacheEpoch(epoch=epoch, hits=hit, read_bytes_per_s=(1 - hit) * cold) for epoch, hit in hits.items())
    return EpochPlan(seconds=seconds, cache_share=share, cached=tuple(cached))


def _inputs(workload: PlanWorkload, asked: Asked) -> dict[InputName, Quantity]:
    """First what the run shows, then what was given or is assumed."""
    names: tuple[InputName, ...] = get_args(InputName)
    shares = {"utilization": asked.utilization_given, "use": asked.use_given}
    inputs = {name: getattr(workload, name) for name in ("rate", "file_bytes", "amplification", "images")}
    inputs |= workload.times
    for name, given in shares.items():
        inputs[name] = known(getattr(asked, name), "", "given" if given else "assumed", name if given else "default")
    return {name: inputs[name] for name in names if inputs.get(name) is not None}


def _acceptance(
    workload: PlanWorkload, asked: Asked, workers: Quantity | None, supplies: Sequence[PlanSupply]
) -> Acceptance:
    """What one node must read, all nodes at once, with the headroom that is bought.

    Its readers are no fewer than that takes on any of the storages whose time of a read is known.
    """
    node = asked.of_node
    images_per_s = node * workload.rate.value * asked.utilization / asked.use
    flying = max((supply.reads_in_flight.high for supply in supplies if supply.reads_in_flight), default=0.0)
    count = int(workers.value) if workers else None
    of_workers, of_reads = node * (count or 0), math.ceil(node * flying / asked.use)
    return Acceptance(
        nodes=asked.nodes,
        readers=max(of_workers, of_reads) or READERS * node,
        readers_from="workers" if count and of_workers >= of_reads else "reads_in_flight" if of_reads else "assumed",
        bytes_per_s=images_per_s * workload.file_bytes.value,
        files_per_s=images_per_s if asked.images_per_file == 1 else None,
        compute=workload.compute,
        workers=count,
    )
