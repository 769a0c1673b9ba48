"""What a storage supplies: its limits beside the need, the one that is reached first, and how many it feeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from loaderprobe.analyze.caches import page_cache_share_for
from loaderprobe.analyze.plan.demand import Demand, demand, in_flight
from loaderprobe.analyze.plan.workload import PlanWorkload, known, scaled
from loaderprobe.analyze.rank_bandwidth import TWO_DOUBLINGS
from loaderprobe.analyze.verdict.validity import NEAR_CEILING
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import RISING
from loaderprobe.records.plan import (
    Asked,
    CacheSize,
    CatalogueEntry,
    Label,
    Lever,
    LeverName,
    LimitName,
    Quantity,
    Resource,
    Supply,
    SupplyFeeds,
    SupplyLimit,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Verdict
from loaderprobe.units import join_words, significant

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


# Changes that lower the need: shards, caches, fewer bytes, a lower utilization; and what each storage feeds then.

SHARD_IMAGES = 1251
"""Images a shard of MLPerf Storage's ResNet-50."""
LESS_UTILIZATION = 0.1
LEAST_UTILIZATION = 0.5
_LEAST_HITS = 1e-9


def levers(
    workload: PlanWorkload, asked: Asked, offers: Sequence[Offer], supplies: Sequence[Supply]
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


def _cache_for(supply: Supply, workload: PlanWorkload, asked: Asked) -> CacheSize | None:
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

_OPERATIONS: tuple[tuple[LimitName, Resource], ...] = (("opens_per_s", "opens"), ("requests_per_s", "requests"))


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


_UNITS: dict[Resource, str] = {"bandwidth": "B/s", "opens": "1/s", "requests": "1/s", "client": "B/s"}


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


def _published(entry: CatalogueEntry, resource: Resource, value: float, unit: str, at_least: bool) -> OfferLimit:
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
