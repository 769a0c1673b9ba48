"""The catalogue of storage kinds as a page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import msgspec

from loaderprobe.records.plan import Amount, CatalogueEntry
from loaderprobe.render.document import Document, Item, Paragraph, Section, Table
from loaderprobe.render.wording import MISSING
from loaderprobe.units import format_duration, format_rate, join_words

_ONE = {"TiB": "TiB", "prefixes": "prefix", "units": "unit", "IOPS": "bought IOPS"}
_HEAD = ("storage", "read bandwidth", "opens/s", "requests/s", "a read takes", "a client")


def catalogue_document(entries: Iterable[CatalogueEntry], today: date) -> Document:
    """Every entry with its limits, its source and the day on which that was read."""
    chosen = tuple(entries)
    return Document(
        title="Storage catalogue",
        sections=(
            Section(
                parts=(
                    Paragraph(text="Limits as published, not measured by loaderprobe: at most that, unless marked >=."),
                    Table(head=_HEAD, lines=tuple(_line(each) for each in chosen), right=frozenset()),
                )
            ),
            Section(
                title="Sources", parts=tuple(Item(subject=each.name, text=_source(each, today)) for each in chosen)
            ),
            Section(parts=(Paragraph(text="Use: --storage fsx-lustre-250:24TiB, s3-standard:16, efs-elastic."),)),
        ),
    )


def catalogue_json(entries: Iterable[CatalogueEntry]) -> str:
    """The entries, indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(tuple(entries)), indent=2).decode() + "\n"


def _line(entry: CatalogueEntry) -> tuple[str, ...]:
    return (
        f"{entry.name}-TIER" if entry.tiers else entry.name,
        _bandwidth(entry),
        _operations(entry, entry.opens_per_s, "opens_per_s" in entry.at_least),
        _operations(entry, entry.requests_per_s, "requests_per_s" in entry.at_least),
        MISSING if entry.latency_s is None else " to ".join(dict.fromkeys(map(format_duration, entry.latency_s))),
        _clients(entry),
    )


def _bandwidth(entry: CatalogueEntry) -> str:
    if entry.tiers:
        rates = [tier.read_bytes_per_s_per_unit for tier in entry.tiers]
        return f"{format_rate(min(rates))} to {format_rate(max(rates))} a {_one(entry)}"
    amount = entry.read_bytes_per_s
    return MISSING if amount is None else _amount(entry, amount, format_rate(amount.per_unit or amount.base))


def _operations(entry: CatalogueEntry, amount: Amount | None, at_least: bool) -> str:
    if amount is None:
        return MISSING
    return f"{'>= ' if at_least else ''}{_amount(entry, amount, f'{amount.per_unit or amount.base:,.0f}')}"


def _amount(entry: CatalogueEntry, amount: Amount, shown: str) -> str:
    return f"{shown} a {_one(entry)}" if amount.per_unit else shown


def _clients(entry: CatalogueEntry) -> str:
    rates = [tier.client_bytes_per_s for tier in entry.tiers if tier.client_bytes_per_s]
    rates = rates or ([entry.client_bytes_per_s] if entry.client_bytes_per_s else [])
    return " to ".join(dict.fromkeys(format_rate(rate) for rate in (min(rates), max(rates)))) if rates else MISSING


def _one(entry: CatalogueEntry) -> str:
    return _ONE.get(entry.unit, entry.unit)


def _source(entry: CatalogueEntry, today: date) -> str:
    parts = [f"{entry.source}, read {entry.read_on}"]
    if entry.tiers:
        parts.append(f"TIER is {join_words([tier.name for tier in entry.tiers], 'or')}")
    if entry.stale(today):
        parts.append("12 months ago or longer: check it")
    if entry.second_hand:
        parts.append(f"second hand: {entry.second_hand}")
    if entry.note:
        parts.append(entry.note)
    return "; ".join(parts)
