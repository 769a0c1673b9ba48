"""Storages that were not measured: an entry of the catalogue at a size, and figures as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.supply import Offer, OfferLimit
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import CatalogueEntry, LimitName, Quantity, Resource
from loaderprobe.records.remark import Remark
from loaderprobe.units import significant

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
