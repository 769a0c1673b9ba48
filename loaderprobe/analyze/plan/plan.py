"""From what is asked, a workload and the storages on offer to the plan. Pure; words are made where it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import get_args

from loaderprobe.analyze.caches import lru_share_for, page_cache_hits, seen_before
from loaderprobe.analyze.plan.needs import cores_of, demand, in_flight, judge_supply, measured_offer, why_refused
from loaderprobe.analyze.plan.workload import (
    PlanWorkload,
    assumed_too,
    known,
    negative,
    pace_of,
    product,
    requests,
    scaled,
    total,
)
from loaderprobe.errors import BadValue
from loaderprobe.records.catalogue import Amount, CatalogueEntry
from loaderprobe.records.plan import (
    Acceptance,
    CacheEpoch,
    EpochPlan,
    InputName,
    Need,
    NeedName,
    PlanReport,
    PlanSource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.supply import Asked, CacheSize, PlanPart, PlanSupply, Quantity, SupplyLimit, SupplyResource
from loaderprobe.units import significant


def as_asked(
    workload: PlanWorkload, images_per_file: int, *, images: Quantity | None, file_bytes: Quantity | None
) -> PlanWorkload:
    """The same on another data set, as options give it: what was measured with its own files counts less there.

    Larger reads get at least the bytes/s of smaller ones; what blocks of shards get says nothing of a folder. That an
    image takes a worker as long is assumed.
    """
    found, storage = workload, workload.storage
    to_shards, to_folder = (
        images_per_file > workload.images_an_open == 1,
        images_per_file == 1 < workload.images_an_open,
    )
    if images is not None:
        found = replace(found, images=images)
    # Where a run did not tell the bytes of an image, those that are given are of the files that it read.
    other_size = file_bytes is not None and workload.file_bytes.label != "given"
    if file_bytes is not None and other_size:
        found = replace(
            found,
            file_bytes=file_bytes,
            requests_per_file=requests([file_bytes.value], exact=False),
            same_files=False,
        )
    if storage is not None and (to_shards or found.file_bytes.value > workload.file_bytes.value):
        found = replace(found, storage=replace(storage, at_least=True))
    if other_size or to_shards or to_folder:
        found = replace(
            found,
            cpu_s=workload.cpu_s and assumed_too(workload.cpu_s),
            wait_s=workload.wait_s and assumed_too(workload.wait_s),
            other_s=workload.other_s and assumed_too(workload.other_s),
        )
    if to_folder:
        why: dict[PlanPart, Remark] = {"workers": Remark(code="file_wait_unknown")}
        if storage is not None:
            why["measured_storage"] = Remark(code="measured_in_shards")
        found = replace(found, storage=None, wait_s=None, refused={**why, **workload.refused})
    return found


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


# Storages that were not measured: an entry of the catalogue at a size, and figures as given.


def given_offer(text: str, figures: Mapping[str, float]) -> PlanSupply:
    """A storage by its figures: by resource in bytes/s or operations/s, and `latency` in seconds."""
    limits = tuple(
        SupplyLimit(resource=resource, limit=known(figures[resource], unit, "given", "storage"))
        for resource, unit in _UNITS.items()
        if resource in figures
    )
    latency = figures.get("latency")
    return PlanSupply(
        name=text,
        label="given",
        source="storage",
        limits=limits,
        latency_s=None if latency is None else known(latency, "s", "given", "storage"),
    )


_UNITS: dict[SupplyResource, str] = {"bandwidth": "B/s", "opens": "1/s", "requests": "1/s", "client": "B/s"}


def catalogue_offer(entry: CatalogueEntry, name: str, size: float | None, today: date) -> PlanSupply:
    """An entry of the catalogue, or a tier of it, at the size that is bought. Raises BadValue for another size."""
    tier = next((tier for tier in entry.tiers if name == f"{entry.name}-{tier.name}"), None)
    size = _checked_size(entry, name, size, tier.least_size if tier else entry.least_size)
    limits: list[SupplyLimit] = []
    missing: list[str] = []
    bandwidth = tier.read_bytes_per_s_per_unit * size if tier else None
    if entry.read_bytes_per_s is not None:
        bandwidth = entry.read_bytes_per_s.at(size)
    if bandwidth is None:
        missing.append("bandwidth")
    else:
        limits.append(_published(entry, "bandwidth", bandwidth, "B/s", "read_bytes_per_s" in entry.at_least))
    operations: dict[SupplyResource, Amount | None] = {"opens": entry.opens_per_s, "requests": entry.requests_per_s}
    for resource, amount in operations.items():
        value = amount.at(size) if amount else None
        if value is not None:
            limits.append(_published(entry, resource, value, "1/s", f"{resource}_per_s" in entry.at_least))
        elif amount is not None:
            missing.append(f"{resource}_at_size")
    client = tier.client_bytes_per_s if tier and tier.client_bytes_per_s else entry.client_bytes_per_s
    if client is not None:
        limits.append(_published(entry, "client", client, "B/s", False))
    if not any(operations.values()):
        missing.append("operations")
    notes = [Remark(code="not_published", facts={"limits": " ".join(missing)})] if missing else []
    notes += [Remark(code="quoted", facts={"text": entry.note})] if entry.note else []
    return PlanSupply(
        name=name if not entry.unit else f"{name}:{float(significant(size)):g}{entry.unit}",
        label="published",
        source=entry.source,
        limits=tuple(limits),
        latency_s=_latency(entry),
        read_on=entry.read_on,
        stale=entry.stale(today),
        notes=tuple(notes),
    )


def _published(entry: CatalogueEntry, resource: SupplyResource, value: float, unit: str, at_least: bool) -> SupplyLimit:
    source = f"{entry.source}, read {entry.read_on}"
    return SupplyLimit(resource=resource, limit=known(value, unit, "published", source), at_least=at_least)


def _latency(entry: CatalogueEntry) -> Quantity | None:
    if entry.latency_s is None:
        return None
    best, typical = entry.latency_s
    return known(typical, "s", "published", f"{entry.source}, read {entry.read_on}", low=best)


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


def needs(workload: PlanWorkload, asked: Asked) -> tuple[tuple[Need, ...], dict[PlanPart, Remark]]:
    """What all accelerators need, and what cannot be said."""
    made = [*_from_storage(workload, asked), *_kept(workload, asked)]
    refused: dict[PlanPart, Remark] = {}
    if not any(need.name == "reads_in_flight" for need in made):
        code: str = "read_not_timed" if asked.images_per_file == 1 else "read_in_shard_not_timed"
        refused["reads_in_flight"] = Remark(code=code)
    workers, most = _whole_workers(workload, asked.utilization), _whole_workers(workload, 1.0)
    if isinstance(workers, Remark):
        refused["workers"] = workers
    elif isinstance(most, Quantity):
        made += _read_time(workload, asked.utilization, workers, most)
        made.append(_of_each("workers", workers, most, asked))
    cores, at_most = cores_of(workload, asked.utilization), cores_of(workload, 1.0)
    if isinstance(cores, Remark):
        refused["cores"] = cores
    elif isinstance(at_most, Quantity):
        made.append(_of_each("cores", cores, at_most, asked))
    return tuple(made), refused


def _of_each(name: NeedName, wanted: Quantity, most: Quantity, asked: Asked) -> Need:
    """A need of one accelerator, in its host."""
    node = scaled(wanted, asked.of_node, f"A {wanted.formula}")
    return Need(name=name, at_utilization=wanted, at_most=most, to_buy=None, node=node)


def workers_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Workers that one accelerator needs, or why that is not known."""
    parts = workload.cpu_s, workload.wait_s, workload.other_s
    if parts[0] is None or parts[1] is None or parts[2] is None:
        return why_refused(workload, "workers")
    whole = total([parts[0], parts[1], parts[2]], "s", "cpu + wait + other")
    return product([workload.rate, whole], "workers", "G u (cpu + wait + other)", factor=utilization)


def _whole_workers(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    found = workers_of(workload, utilization)
    if isinstance(found, Remark):
        return found
    value, low, high = (float(math.ceil(end)) for end in (found.value, found.low, found.high))
    return replace(found, value=value, low=low, high=high, formula=f"ceil({found.formula})")


def _read_time(workload: PlanWorkload, utilization: float, workers: Quantity, most: Quantity) -> Iterator[Need]:
    """What a read may take on average, so that so many workers are enough."""
    if workload.cpu_s is None or workload.other_s is None:
        return
    busy = negative(workload.cpu_s), negative(workload.other_s)
    times: list[Quantity] = []
    for count, share in ((workers, utilization), (most, 1.0)):
        exact = replace(count, low=count.value, high=count.value)
        image_s = product([exact], "s", "", over=[workload.rate], factor=1 / share)
        times.append(total([image_s, *busy], "s", "W / (G u) - cpu - other"))
    if times[0].value > 0:
        yield Need(name="read_time", at_utilization=times[0], at_most=times[1], to_buy=None, node=None)


def _from_storage(workload: PlanWorkload, asked: Asked) -> Iterator[Need]:
    mean = demand(workload, asked.utilization, asked.images_per_file)
    most = demand(workload, 1.0, asked.images_per_file)
    yield _need("read_bytes", mean.read_bytes, most.read_bytes, asked)
    yield _need("opens", mean.opens, most.opens, asked)
    yield _need("requests", mean.requests, most.requests, asked)
    storage = workload.storage
    if storage is not None and asked.images_per_file == 1 and workload.same_files:
        of_all, at_most, of_node = (
            in_flight(scaled(opens, count, f"N {opens.formula}"), storage.file_s)
            for opens, count in (
                (mean.opens, asked.accelerators), (most.opens, asked.accelerators), (mean.opens, asked.of_node)
            )
        )  # fmt: skip
        yield Need(name="reads_in_flight", at_utilization=of_all, at_most=at_most, to_buy=None, node=of_node)


def _kept(workload: PlanWorkload, asked: Asked) -> Iterator[Need]:
    """What storage must hold, and how fast it must take a checkpoint that was asked for."""
    if workload.images is not None:
        yield _bought("capacity", product([workload.images, workload.file_bytes], "B", "images s"), asked)
    write = asked.checkpoint
    if write is not None:
        rate = known(write.bytes / (write.every_s * write.share), "B/s", "given", "checkpoint")
        yield _bought("checkpoint", rate, asked)


def _bought(name: NeedName, need: Quantity, asked: Asked) -> Need:
    """A need that does not depend on how well accelerators are used."""
    return Need(name=name, at_utilization=need, at_most=need, to_buy=_to_buy(need, asked), node=None)


def _to_buy(need: Quantity, asked: Asked) -> Quantity:
    to_buy = scaled(need, 1 / asked.use, f"{need.formula or need.source} / r")
    return to_buy if asked.use_given else assumed_too(to_buy)


def _need(name: NeedName, one: Quantity, full: Quantity, asked: Asked) -> Need:
    at_utilization = scaled(one, asked.accelerators, f"N {one.formula}")
    return Need(
        name=name,
        at_utilization=at_utilization,
        at_most=scaled(full, asked.accelerators, f"N {full.formula}, u = 1"),
        to_buy=_to_buy(at_utilization, asked),
        node=scaled(one, asked.of_node, f"A {one.formula}"),
    )


def make_plan(
    workload: PlanWorkload, asked: Asked, offers: Sequence[PlanSupply], source: PlanSource, *,
    loaderprobe: str, created_utc: str,
) -> PlanReport:  # fmt: skip
    """The plan. `offers` are beside the storage that the run measured."""
    measured = measured_offer(workload)
    one = demand(workload, asked.utilization, asked.images_per_file)
    supplies = [judge_supply(offer, one, asked) for offer in (*((measured,) if measured else ()), *offers)]
    found, lacking = needs(workload, asked)
    refused = {**workload.refused, **lacking}
    return PlanReport(
        loaderprobe=loaderprobe,
        created_utc=created_utc,
        source=source,
        asked=asked,
        needs=found,
        supplies=tuple(replace(supply, cache=_cache_for(supply, workload, asked)) for supply in supplies),
        epochs=epoch_plan(workload, asked),
        inputs=_inputs(workload, asked),
        acceptance=_acceptance(workload, asked, supplies),
        pace=pace_of(workload.accelerator),
        refused={part: refused[part] for part in get_args(PlanPart) if part in refused},
        notes=workload.notes,
    )


def epoch_plan(workload: PlanWorkload, asked: Asked) -> EpochPlan:
    """How long an epoch takes, and what of it reaches the shared storage."""
    if workload.images is None:
        return EpochPlan(seconds=None, cache_share=None)
    seconds = product(
        [workload.images], "s", "images / (N G u)", factor=1 / (asked.accelerators * asked.utilization),
        over=[workload.rate],
    )  # fmt: skip
    if asked.cache.kind == "none":
        return EpochPlan(seconds=seconds, cache_share=None)
    share = min(1.0, asked.cache.bytes / (workload.images.value * workload.file_bytes.value))
    cold = asked.accelerators * demand(workload, asked.utilization, asked.images_per_file).read_bytes.value
    hits = {epoch: cache_hits(asked, share, epoch) for epoch in SHOWN_EPOCHS}
    return EpochPlan(
        seconds=seconds,
        cache_share=share,
        cached=tuple(
            CacheEpoch(epoch=epoch, hits=answered, read_bytes_per_s=(1 - answered) * cold)
            for epoch, answered in hits.items()
        ),
    )


def cache_hits(asked: Asked, share: float, epoch: int) -> float:
    """Share of reads that the caches of all nodes answer, each of which holds up to `share` of the set.

    Of the page cache at least that: it has no more than the node has seen before, and of that what stays.
    """
    if asked.cache.kind == "pinned":
        return share
    return min(page_cache_hits(share, epoch).low, seen_before(asked.nodes, epoch))


def _inputs(workload: PlanWorkload, asked: Asked) -> dict[InputName, Quantity]:
    """First what the run shows, then what was given or is assumed."""
    inputs: dict[InputName, Quantity | None] = {
        "rate": workload.rate,
        "file_bytes": workload.file_bytes,
        "amplification": workload.amplification,
        "images": workload.images,
        "cpu_s": workload.cpu_s,
        "wait_s": workload.wait_s,
        "other_s": workload.other_s,
        "utilization": _asked(asked.utilization, given=asked.utilization_given, option="utilization"),
        "use": _asked(asked.use, given=asked.use_given, option="use"),
    }
    return {name: quantity for name, quantity in inputs.items() if quantity is not None}


def _asked(share: float, *, given: bool, option: str) -> Quantity:
    """A share that an option gives, or its default: an assumption."""
    return known(share, "", "given", option) if given else known(share, "", "assumed", "default")


def _acceptance(workload: PlanWorkload, asked: Asked, supplies: Sequence[PlanSupply]) -> Acceptance:
    """What one node must read, all nodes at once, with the headroom that is bought.

    Its readers are no fewer than that takes on any of the storages whose time of a read is known.
    """
    node = asked.of_node
    images_per_s = node * workload.rate.value * asked.utilization / asked.use
    workers = workers_of(workload, asked.utilization)
    flying = max((each.reads_in_flight.high for each in supplies if each.reads_in_flight), default=0.0)
    count = math.ceil(workers.value) if isinstance(workers, Quantity) else None
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
