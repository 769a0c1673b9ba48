"""From what is asked, a workload and the storages on offer to the plan. Pure; words are made where it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal, get_args

from loaderprobe.analyze.caches import lru_hits, page_cache_hits, page_cache_share_for, pinned_hits
from loaderprobe.analyze.lock_step import lock_step
from loaderprobe.analyze.plan.workload import (
    REQUEST_BYTES,
    PlanWorkload,
    Stalls,
    assumed_too,
    known,
    negative,
    pace_of,
    product,
    scaled,
    total,
)
from loaderprobe.analyze.rank_bandwidth import TWO_DOUBLINGS
from loaderprobe.analyze.verdict.validity import NEAR_CEILING
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import RISING
from loaderprobe.records.plan import (
    Acceptance,
    Asked,
    CacheCurves,
    CacheHits,
    CacheSize,
    CatalogueEntry,
    EpochPlan,
    EpochShare,
    Label,
    LedgerEntry,
    Lever,
    LeverName,
    LimitName,
    LockStep,
    Need,
    NeedName,
    NodeEpochs,
    PlanPart,
    PlanReport,
    PlanSource,
    PlanSupply,
    Quantity,
    Scenario,
    Stragglers,
    SupplyFeeds,
    SupplyLimit,
    SupplyResource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Verdict
from loaderprobe.units import join_words, significant

# What accelerators need of storage, workers and cores.
#
# G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
# for, f files opened an image, h share of reads that caches answer. N accelerators need N times that.

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
    made = [*_from_storage(workload, asked), *_kept(workload, asked)]
    node = min(asked.per_node, asked.accelerators)
    refused: dict[PlanPart, Remark] = {}
    for name, per_accelerator in _PER_ACCELERATOR.items():
        wanted, most = per_accelerator(workload, asked.utilization), per_accelerator(workload, 1.0)
        if isinstance(wanted, Remark):
            refused[name] = wanted
        elif isinstance(most, Quantity):
            if name == "workers":
                wanted, most = _whole(wanted), _whole(most)
            of_node = scaled(wanted, node, f"A {wanted.formula}")
            made.append(Need(name=name, at_utilization=wanted, at_most=most, to_buy=None, node=of_node))
    made += _by_workers(workload, asked.utilization, node)
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


def _whole(found: Quantity) -> Quantity:
    """Rounded up, as workers are whole."""
    ends = (float(math.ceil(each)) for each in (found.value, found.low, found.high))
    value, low, high = ends
    return replace(found, value=value, low=low, high=high, formula=f"ceil({found.formula})")


def _by_workers(workload: PlanWorkload, utilization: float, node: int) -> Iterator[Need]:
    """What the workers of one accelerator hold in memory, and how slow and how late a read may be with so many.

    Nothing where their number is not known. P batches are requested ahead, a worker, and one more is being made.
    """
    wanted, most = _held(workload, utilization), _held(workload, 1.0)
    for name, quantity in wanted.items():
        if name not in most:
            continue
        of_node = scaled(quantity, node, f"A {quantity.formula}") if name == "batch_memory" else None
        yield Need(name=name, at_utilization=quantity, at_most=most[name], to_buy=None, node=of_node)


def _held(workload: PlanWorkload, utilization: float) -> dict[NeedName, Quantity]:
    found, queue = workers_of(workload, utilization), workload.prefetch
    if isinstance(found, Remark) or workload.cpu_s is None or workload.other_s is None:
        return {}
    count = _whole(found)
    count = replace(count, low=count.value, high=count.value)
    each_s = product([count], "s", "", over=[workload.rate], factor=1 / utilization)
    busy = negative(workload.cpu_s), negative(workload.other_s)
    made: dict[NeedName, Quantity] = {}
    if queue is not None and queue.image_bytes is not None:
        batches = queue.factor.value + 1
        begun = replace(queue.factor, value=batches, low=batches, high=batches)
        held = [count, begun, queue.batch_size, queue.image_bytes]
        made["batch_memory"] = product(held, "B", "W (P + 1) B bytes of an image as a tensor")
    read_time = total([each_s, *busy], "s", "W / (G u) - cpu - other")
    made |= {"read_time": read_time} if read_time.value > 0 else {}
    if queue is not None:
        ahead = [count, queue.factor, queue.batch_size]
        made["stall"] = product(ahead, "s", "W P B / (G u)", over=[workload.rate], factor=1 / utilization)
    return made


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


def _kept(workload: PlanWorkload, asked: Asked) -> list[Need]:
    """What storage must list when training starts and hold, and how fast it must take a checkpoint."""
    made = []
    if workload.images is not None:
        made.append(_listing(workload.images, asked))
        held = product([workload.images, workload.file_bytes], "B", "images s")
        made.append(_bought("capacity", held, asked))
    write = asked.checkpoint
    rate = known(
        write.bytes / (write.every_s * write.share), "B/s", "given" if write.given else "assumed", "checkpoint"
    )
    return [*made, _bought("checkpoint", rate, asked)]


def _listing(images: Quantity, asked: Asked) -> Need:
    """Each accelerator's process lists the folders once, before its first step; its workers do not."""
    time = known(asked.listing_s, "s", "given" if asked.listing_given else "assumed", "listing")
    one = product([images], "1/s", "images f / listing time", over=[time], factor=1 / asked.images_per_file)
    need = _bought("listing", scaled(one, asked.accelerators, f"N {one.formula}"), asked)
    node = min(asked.per_node, asked.accelerators)
    return replace(need, node=scaled(one, node, f"A {one.formula}"))


def _bought(name: NeedName, need: Quantity, asked: Asked) -> Need:
    """A need that does not depend on how well accelerators are used."""
    to_buy = scaled(need, 1 / asked.use, f"{need.formula or need.source} / r")
    buy = to_buy if asked.use_given else assumed_too(to_buy)
    return Need(name=name, at_utilization=need, at_most=need, to_buy=buy, node=None)


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


def judge_supplies(offers: Iterable[Offer], one: Demand, asked: Asked) -> tuple[PlanSupply, ...]:
    """Every storage against the need of one accelerator."""
    return tuple(judge_supply(offer, one, asked) for offer in offers)


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


# Changes that lower the need: shards, caches, fewer bytes, a lower utilization; and what each storage feeds then.

SHARD_IMAGES = 1251
"""Images a shard of MLPerf Storage's ResNet-50."""
LESS_UTILIZATION = 0.1
LEAST_UTILIZATION = 0.5
_LEAST_HITS = 1e-9


def levers(
    workload: PlanWorkload, asked: Asked, offers: Sequence[Offer], supplies: Sequence[PlanSupply]
) -> tuple[Lever, ...]:
    """Every change that applies."""
    made: list[Lever] = []
    if asked.images_per_file == 1:
        sharded = replace(asked, images_per_file=SHARD_IMAGES)
        made.append(_lever("shards", SHARD_IMAGES, workload, sharded, offers))
    caches = tuple(size for supply in supplies if (size := _cache_for(supply, workload, asked)))
    if caches:
        now = demand(workload, asked.utilization, asked.images_per_file)
        made.append(_of("cache", 0.0, now, asked, (), caches))
    half = workload.file_bytes.value / 2
    made.append(_lever("half_size", half, workload.changed(file_bytes=half), asked, offers))
    lower = asked.utilization - LESS_UTILIZATION
    if lower >= LEAST_UTILIZATION:
        made.append(_lever("utilization", lower, workload, replace(asked, utilization=lower), offers))
    return tuple(made)


def _lever(name: LeverName, to: float, workload: PlanWorkload, asked: Asked, offers: Sequence[Offer]) -> Lever:
    one = demand(workload, asked.utilization, asked.images_per_file)
    feeds = tuple(
        SupplyFeeds(supply=each.name, feeds=each.feeds, first_limit=each.first_limit)
        for each in judge_supplies(offers, one, asked)
    )
    return _of(name, to, one, asked, feeds, ())


def _of(
    name: LeverName, to: float, one: Demand, asked: Asked, feeds: tuple[SupplyFeeds, ...],
    caches: tuple[CacheSize, ...],
) -> Lever:  # fmt: skip
    count = asked.accelerators
    return Lever(
        name=name,
        to=to,
        read_bytes=scaled(one.read_bytes, count, f"N {one.read_bytes.formula}"),
        opens=scaled(one.opens, count, f"N {one.opens.formula}"),
        feeds=feeds,
        caches=caches,
    )


def _cache_for(supply: PlanSupply, workload: PlanWorkload, asked: Asked) -> CacheSize | None:
    """The hits that let this storage feed all accelerators, and the cache of a node that gives them.

    None where it is enough, and where it may be: of a storage that gives at least so much, no need follows.
    """
    if supply.feeds is None or supply.at_least or supply.feeds >= asked.accelerators:
        return None
    hits = 1 - supply.feeds / asked.accelerators
    if hits < _LEAST_HITS:
        return None
    set_bytes = None if workload.images is None else workload.images.value * workload.file_bytes.value
    page = page_cache_share_for(hits, asked.nodes)
    return CacheSize(
        supply=supply.name,
        hits=hits,
        pinned_bytes=None if set_bytes is None else hits * set_bytes,
        page_bytes=None if set_bytes is None else page.high * set_bytes,
        page_bytes_low=None if set_bytes is None else page.low * set_bytes,
    )


# Storages that were not measured: an entry of the catalogue at a size, and figures as given.

_OPERATIONS: tuple[tuple[LimitName, SupplyResource], ...] = (("opens_per_s", "opens"), ("requests_per_s", "requests"))


def given_offer(text: str, figures: Mapping[str, float]) -> Offer:
    """A storage by its figures: by resource in bytes/s or operations/s, and `latency` in seconds."""
    limits = tuple(
        OfferLimit(resource=resource, quantity=known(figures[resource], unit, "given", "storage"))
        for resource, unit in _UNITS.items()
        if resource in figures
    )
    latency = figures.get("latency")
    return Offer(
        name=text,
        label="given",
        source="storage",
        limits=limits,
        latency_s=None if latency is None else known(latency, "s", "given", "storage"),
    )


_UNITS: dict[SupplyResource, str] = {"bandwidth": "B/s", "opens": "1/s", "requests": "1/s", "client": "B/s"}


def catalogue_offer(entry: CatalogueEntry, name: str, size: float | None, today: date) -> Offer:
    """An entry of the catalogue, or a tier of it, at the size that is bought. Raises BadValue for another size."""
    tier = entry.tier(name)
    size = _checked_size(entry, name, size, tier.least_size if tier else entry.least_size)
    limits: list[OfferLimit] = []
    missing: list[str] = []
    bandwidth = tier.read_bytes_per_s_per_unit * size if tier else None
    if entry.read_bytes_per_s is not None:
        bandwidth = entry.read_bytes_per_s.at(size)
    if bandwidth is None:
        missing.append("bandwidth")
    else:
        limits.append(_published(entry, "bandwidth", bandwidth, "B/s", "read_bytes_per_s" in entry.at_least))
    for field, resource in _OPERATIONS:
        amount = entry.opens_per_s if field == "opens_per_s" else entry.requests_per_s
        value = amount.at(size) if amount else None
        if value is not None:
            limits.append(_published(entry, resource, value, "1/s", field in entry.at_least))
        elif amount is not None:
            missing.append(f"{resource}_at_size")
    client = tier.client_bytes_per_s if tier and tier.client_bytes_per_s else entry.client_bytes_per_s
    if client is not None:
        limits.append(_published(entry, "client", client, "B/s", False))
    if entry.opens_per_s is None and entry.requests_per_s is None:
        missing.append("operations")
    return Offer(
        name=name if not entry.unit else f"{name}:{float(significant(size)):g}{entry.unit}",
        label="published",
        source=entry.source,
        limits=tuple(limits),
        latency_s=_latency(entry),
        read_on=entry.read_on,
        stale=entry.stale(today),
        notes=_notes(entry, missing),
    )


def _notes(entry: CatalogueEntry, missing: Sequence[str]) -> tuple[Remark, ...]:
    """What is not published, and what the catalogue says besides."""
    lacks = [Remark(code="not_published", facts={"limits": " ".join(missing)})] if missing else []
    return (*lacks, *([Remark(code="quoted", facts={"text": entry.note})] if entry.note else []))


def _published(entry: CatalogueEntry, resource: SupplyResource, value: float, unit: str, at_least: bool) -> OfferLimit:
    source = f"{entry.source}, read {entry.read_on}"
    return OfferLimit(resource=resource, quantity=known(value, unit, "published", source), at_least=at_least)


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


# What ranks read from storage in step, as a storage: a ceiling, or at least that; refused where it shows nothing.
#
# A rate that a decoder or a core limited is no supply: it counts only where it beats what else was measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rung:
    ranks: int
    bytes_per_s: float
    """From storage, of all ranks together."""
    by_storage: bool
    """True where storage limited them."""


def rank_offer(rows: Sequence[ConfigurationRow], known_bytes_per_s: float | None = None) -> Offer | Remark | None:
    """Of configurations that differ in their ranks only; `known_bytes_per_s` is what else was measured of the storage.

    None for one number of ranks, or where files were not cold; the reason where something else limited the ranks and
    no more is learned from them.
    """
    rungs = sorted(
        (rung for row in rows if row.verdict and (rung := _rung(row.config.ranks, row.verdict))),
        key=lambda each: each.ranks,
    )
    if len({each.ranks for each in rungs}) < 2:
        return None
    last = rungs[-1]
    if not last.by_storage and (known_bytes_per_s is None or last.bytes_per_s <= known_bytes_per_s):
        return Remark(code="ranks_not_storage", facts={"ranks": last.ranks, "bytes_per_s": last.bytes_per_s})
    early = max((each for each in rungs if each.ranks * TWO_DOUBLINGS <= last.ranks), key=_ranks, default=None)
    ended = early is not None and last.bytes_per_s < RISING * early.bytes_per_s and last.by_storage
    tried = join_words([str(each) for each in sorted({each.ranks for each in rungs})])
    source = f"{tried} ranks that load in step"
    facts: dict[str, float | str] = {"ranks": last.ranks, "next": 2 * last.ranks}
    return Offer(
        name=f"by {last.ranks} ranks of this run",
        label="measured",
        source=source,
        limits=(
            OfferLimit(
                resource="bandwidth",
                quantity=known(last.bytes_per_s, "B/s", "measured", source),
                at_least=not ended,
            ),
        ),
        notes=() if ended else (Remark(code="ranks_at_least", facts=facts),),
    )


def _ranks(rung: _Rung) -> int:
    return rung.ranks


def _rung(ranks: int, verdict: Verdict) -> _Rung | None:
    rate, size = verdict.rates_images_per_s.loader, verdict.bytes_per_image
    if not rate or not size or verdict.files_were != "cold":
        return None
    near = (verdict.disk_ceiling_fraction or 0.0) >= NEAR_CEILING or verdict.bound.cause == "storage"
    return _Rung(ranks=ranks, bytes_per_s=rate * size * (verdict.read_amplification or 1.0), by_storage=near)


# What caches do in general, for the nodes of a plan: cold reads by epoch, and hits by the size of a cache.

CURVE_EPOCHS = 20
CURVE_SHARES = tuple(number / 20 for number in range(21))
OTHER_NODES = 8
"""Beside a plan of one node."""


def cache_curves(nodes: int) -> CacheCurves:
    """What a cache of the whole set leaves to storage by epoch, on one node and on these; hits by a cache's size."""
    shown = sorted({1, nodes if nodes > 1 else OTHER_NODES})
    return CacheCurves(
        epochs=tuple(
            NodeEpochs(nodes=each, cold=tuple(1 - lru_hits(1.0, each, epoch) for epoch in range(1, CURVE_EPOCHS + 1)))
            for each in shown
        ),
        sizes=tuple(
            CacheHits(
                share=share,
                lru=lru_hits(share, nodes),
                page=page_cache_hits(share, nodes),
                pinned=pinned_hits(share),
            )
            for share in CURVE_SHARES
        ),
    )


# What waiting for the slowest of N ranks costs, from the late steps of one.
#
# All ranks wait for the slowest of them at every step. Where they wait together, a step is as late as one rank's; where
# they wait independently, it is as late as the largest of N. Published records of single ranks lie between the two.

LEAST_STEPS = 30


def expected_most(values: Sequence[float], ranks: int) -> float:
    """The mean of the largest of `ranks` values drawn from these, each drawn independently."""
    ordered, count = sorted(values), len(values)
    below = [(place / count) ** ranks for place in range(count + 1)]
    return math.fsum(value * (below[place + 1] - below[place]) for place, value in enumerate(ordered))


def stragglers(stalls: Stalls, ranks: int, utilization: float) -> Stragglers | Remark:
    """The range of what N ranks wait, or why it cannot be said."""
    late, steps = stalls.late_s, len(stalls.late_s)
    if steps < LEAST_STEPS:
        return Remark(code="too_few_steps", facts={"steps": steps, "least": LEAST_STEPS})
    if ranks > steps:
        return Remark(code="fewer_steps_than_ranks", facts={"steps": steps, "ranks": ranks})
    mean, most = math.fsum(late) / steps, expected_most(late, ranks)
    alone = mean / (stalls.step_s + mean)
    if alone > 1 - utilization:
        return Remark(code="accelerator_waited", facts={"share": alone})
    return Stragglers(
        ranks=ranks, steps=steps, longest_s=max(late), alone=alone, independent=most / (stalls.step_s + most)
    )


SHOWN_EPOCHS = (1, 2, 3, 5, 10, 20, 50)
USES = (0.7, 0.9)
"""Other shares of a limit that one may dare to use."""
READERS = 8
"""A node, for the acceptance test, where nothing says how many it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """By what and when."""

    loaderprobe: str
    created_utc: str


def make_plan(
    workload: PlanWorkload, asked: Asked, offers: Sequence[Offer], source: PlanSource, made: Made,
    rulers: Sequence[Offer] = (), images_per_s: Mapping[str, float] | None = None,
) -> PlanReport:  # fmt: skip
    """The plan. `offers` are beside the storage that the run measured; `rulers` are only compared with the need.

    `images_per_s` has the rates of known accelerators, one of which stands beside the pace of a storage benchmark.
    """
    measured = measured_offer(workload)
    every = (*((measured,) if measured else ()), *offers)
    one = demand(workload, asked.utilization, asked.images_per_file)
    supplies = judge_supplies(every, one, asked)
    found, refused = needs(workload, asked)
    late = _stragglers(workload, asked)
    if isinstance(late, Remark):
        refused["stragglers"] = late
    in_step = _lock_step(workload, asked)
    if isinstance(in_step, Remark):
        refused["lock_step"] = in_step
    return PlanReport(
        loaderprobe=made.loaderprobe,
        created_utc=made.created_utc,
        source=source,
        asked=asked,
        needs=found,
        supplies=supplies,
        rulers=judge_supplies(rulers, one, asked),
        ramp=workload.storage.ramp if workload.storage else (),
        epochs=epoch_plan(workload, asked),
        curves=cache_curves(asked.nodes),
        stragglers=None if isinstance(late, Remark) else late,
        lock_step=None if isinstance(in_step, Remark) else in_step,
        levers=levers(workload, asked, every, supplies),
        ledger=_ledger(workload, asked, every[0] if every else None, found),
        acceptance=_acceptance(workload, asked, found),
        pace=pace_of(workload.accelerator, images_per_s or {}),
        refused=_in_order({**_beside(workload, in_step), **refused}),
        notes=workload.notes,
    )


def _in_order(refused: Mapping[PlanPart, Remark]) -> dict[PlanPart, Remark]:
    return {part: refused[part] for part in get_args(PlanPart) if part in refused}


def _stragglers(workload: PlanWorkload, asked: Asked) -> Stragglers | Remark:
    if workload.stalls is None:
        return workload.refused.get("stragglers", Remark(code="steps_not_recorded"))
    return stragglers(workload.stalls, asked.accelerators, asked.utilization)


def _lock_step(workload: PlanWorkload, asked: Asked) -> LockStep | Remark | None:
    """What waiting for each other costs as many ranks as are planned for or asked for; None where that is no matter."""
    batches = workload.batches
    if asked.simulate_ranks is None and (batches is None or batches.ranks == 1):
        return None
    if batches is None:
        return workload.refused.get("lock_step", Remark(code="batches_not_timed"))
    ranks = asked.simulate_ranks or asked.accelerators
    return lock_step(batches, batches.images / workload.rate.value, ranks)


def _beside(workload: PlanWorkload, in_step: LockStep | Remark | None) -> Mapping[PlanPart, Remark]:
    """What the workload lacks; without the cost of lock-step where that is no matter."""
    if in_step is not None:
        return workload.refused
    return {part: why for part, why in workload.refused.items() if part != "lock_step"}


def epoch_plan(workload: PlanWorkload, asked: Asked) -> EpochPlan:
    """How long an epoch takes, and what of it reaches the shared storage."""
    if workload.images is None:
        return EpochPlan(seconds=None, cache_share=None, shares=(), sets_read=None)
    seconds = product(
        [workload.images], "s", "images / (N G u)", factor=1 / (asked.accelerators * asked.utilization),
        over=[workload.rate],
    )  # fmt: skip
    if asked.cache.kind == "none":
        return EpochPlan(seconds=seconds, cache_share=None, shares=(), sets_read=None)
    share = min(1.0, asked.cache.bytes / (workload.images.value * workload.file_bytes.value))
    shown = sorted({epoch for epoch in (*SHOWN_EPOCHS, asked.epochs) if epoch <= asked.epochs})
    epochs = [_epoch_share(asked, share, epoch) for epoch in shown]
    return EpochPlan(
        seconds=seconds,
        cache_share=share,
        shares=tuple(epochs),
        sets_read=_sets_read(asked, share),
    )


def _epoch_share(asked: Asked, share: float, epoch: int) -> EpochShare:
    if asked.cache.kind == "pinned":
        cold = 1 - (pinned_hits(share) if epoch > 1 else 0.0)
        return EpochShare(epoch=epoch, cold_low=cold, cold_high=cold)
    hits = page_cache_hits(share, asked.nodes, epoch)
    return EpochShare(epoch=epoch, cold_low=1 - hits.high, cold_high=1 - hits.low)


def _sets_read(asked: Asked, share: float) -> tuple[float, float]:
    shares = [_epoch_share(asked, share, epoch) for epoch in range(1, asked.epochs + 1)]
    return math.fsum(each.cold_low for each in shares), math.fsum(each.cold_high for each in shares)


def _ledger(
    workload: PlanWorkload, asked: Asked, first: Offer | None, found: Sequence[Need]
) -> tuple[LedgerEntry, ...]:
    """All inputs of the plan: first what the run shows, then what was given, then what is assumed."""
    entries: list[tuple[str, Quantity | None]] = [
        ("rate", workload.rate),
        ("file_bytes", workload.file_bytes),
        ("amplification", workload.amplification),
        ("images", workload.images),
        ("cpu_s", workload.cpu_s),
        ("wait_s", workload.wait_s),
        ("other_s", workload.other_s),
        ("utilization", _asked(asked.utilization, given=asked.utilization_given, option="utilization")),
        ("requests_per_file", workload.requests_per_file if asked.images_per_file == 1 else None),
        ("batch_size", workload.prefetch.batch_size if workload.prefetch else None),
        ("batches_ahead", workload.prefetch.factor if workload.prefetch else None),
        (
            "request_bytes",
            known(REQUEST_BYTES, "B", "assumed", f"{REQUEST_BYTES // 1024} KiB, the read-ahead of most Linux systems"),
        ),
    ]
    if workload.cpu_s is not None:
        entries.append(("busy_cores", known(BUSY_CORES, "", "assumed", "busier cores make workers wait")))
        entries.append(("training_cores", known(TRAINING_CORES, "cores", "assumed", "one training thread")))
    use = _asked(asked.use, given=asked.use_given, option="use")
    scenarios = tuple(_scenario(value, workload, asked, first) for value in USES if value != asked.use)
    return (
        *(LedgerEntry(name=name, quantity=quantity) for name, quantity in entries if quantity is not None),
        LedgerEntry(name="use", quantity=use, scenarios=scenarios),
    )


def _asked(share: float, *, given: bool, option: str) -> Quantity:
    """A share that an option gives, or its default: an assumption."""
    return known(share, "", "given", option) if given else known(share, "", "assumed", "default")


def _scenario(use: float, workload: PlanWorkload, asked: Asked, first: Offer | None) -> Scenario:
    daring = replace(asked, use=use)
    one = demand(workload, asked.utilization, asked.images_per_file)
    return Scenario(
        value=use,
        read_bytes_to_buy=asked.accelerators * one.read_bytes.value / use,
        feeds=judge_supply(first, one, daring).feeds if first else None,
    )


def _acceptance(workload: PlanWorkload, asked: Asked, found: Sequence[Need]) -> Acceptance:
    """What one node must read, all nodes at once, with the headroom that is bought."""
    node = min(asked.per_node, asked.accelerators)
    images_per_s = node * workload.rate.value * asked.utilization / asked.use
    workers = workers_of(workload, asked.utilization)
    flying = next((need.node for need in found if need.name == "reads_in_flight"), None)
    count = math.ceil(workers.value) if isinstance(workers, Quantity) else None
    readers = node * count if count else math.ceil(flying.high) if flying else READERS * node
    return Acceptance(
        nodes=asked.nodes,
        readers=max(1, readers),
        readers_from="workers" if count else "reads_in_flight" if flying else "assumed",
        bytes_per_s=images_per_s * workload.file_bytes.value,
        files_per_s=images_per_s if asked.images_per_file == 1 else None,
        compute=workload.compute,
        workers=count,
    )
