"""Entries of the catalogue as storages: their limits at a size, and what is no entry."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from loaderprobe.analyze.plan.plan import catalogue_offer
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import Amount, CatalogueEntry, Tier
from loaderprobe.storage.catalogue import entry_named, published

TODAY = date(2026, 11, 22)


def _entry(**changes: Any) -> CatalogueEntry:
    fields: dict[str, Any] = {
        "name": "x", "family": "file", "unit": "TiB", "least_size": 2.0, "most_size": 10.0,
        "read_bytes_per_s": Amount(base=1e9, per_unit=1e8, at_most=1.5e9), "read_on": "2025-11-22", "source": "a page",
    }  # fmt: skip
    return CatalogueEntry(**(fields | changes))


def test_a_limit_grows_with_the_size_to_its_maximum() -> None:
    """1.2 GB/s at 2 TiB, 1.5 GB/s from 5 TiB on."""
    rates = [catalogue_offer(_entry(), "x", size, TODAY).limits[0].quantity.value for size in (2, 5, 10)]
    assert rates == [1.2e9, 1.5e9, 1.5e9]


@pytest.mark.parametrize("size", [None, 1.0, 11.0])
def test_a_size_that_is_not_sold_is_a_bad_value(size: float | None) -> None:
    """None, too small, too large."""
    with pytest.raises(BadValue):
        catalogue_offer(_entry(), "x", size, TODAY)


def test_a_size_of_what_has_none_is_a_bad_value() -> None:
    """`efs-elastic:5TiB` means nothing."""
    with pytest.raises(BadValue, match="not bought by size"):
        catalogue_offer(entry_named(published(), "efs-elastic"), "efs-elastic", 5, TODAY)


def test_figures_of_the_catalogue_are_stale_after_twelve_months() -> None:
    """To the day."""
    assert catalogue_offer(_entry(), "x", 2, TODAY).stale
    assert not catalogue_offer(_entry(read_on="2025-11-23"), "x", 2, TODAY).stale


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Fsx Lustre"}, {"name": ""}, {"source": ""}, {"read_on": "yesterday"}, {"least_size": float("nan")},
        {"client_bytes_per_s": -1.0}, {"latency_s": (0.1, float("inf"))},
    ],
)  # fmt: skip
def test_impossible_entries_cannot_be_made(changes: dict[str, Any]) -> None:
    """Plug-ins make them, too."""
    with pytest.raises(BadValue):
        _entry(**changes)
    with pytest.raises(BadValue):
        Amount(base=0.0)
    with pytest.raises(BadValue):
        Tier(name="250", read_bytes_per_s_per_unit=-5.0)
